//! `--form`: the members of a list found their group together, or none of them does.
//!
//! A process looks for the group and joins it if it exists; if it hears none, it takes part in one formation. It never
//! takes part in a second formation: a participant that begins again counts as restarted, and too many restarts could
//! create a second group (docs/protocol/membership.md).

use crate::connection::{self, typed};
use crate::everyone;
use crate::output::{quoted, visible};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use crate::units;
use clap::Args;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;
use unisono::{Formation, Group, GroupConfig, JoinFailure, Name, OpenError, Options, SlowMember, Uid};

/// Default time for which a participant waits for the others, 30 s: enough to start three processes by hand.
const WITHIN: Duration = Duration::from_secs(30);
/// Range of that time that the library accepts: 5 ms to 1 h.
const WITHIN_ALLOWED: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(3600);
/// A formation that takes less than this, 2 s, prints no progress.
const SHORT: Duration = Duration::from_secs(2);
/// Time for an answer when a process that is not admitted looks for a member with its name.
const NAMESAKE_LOOK: Duration = Duration::from_millis(500);
/// Time after which it looks again, 1 s: if the member was this process, its entry has ended by then.
const NAMESAKE_LOOK_AGAIN: Duration = Duration::from_secs(1);
/// What happens to a slow member of a group that a command founds.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SlowOption {
    /// What happens to a member that answers but does not get on, if this command founds the group: after this time,
    /// such as 500ms or 2m, or a number of seconds, the others go on without it; or they wait for it
    #[arg(long, value_name = "wait|TIME", default_value = "10s", value_parser = units::slow_member)]
    pub(crate) slow_member: SlowMember,
}

/// The options with which a command forms a group with others.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FormOptions {
    /// Found the group together with these members, this one included, or not at all. Start each of them with the same
    /// list and its own --name. A member that starts when the group exists joins it
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    form: Vec<String>,

    /// With --form: minimum number of members that found the group, more than half of the list [default: just over
    /// half]
    #[arg(long, value_name = "N", requires = "form", value_parser = crate::arguments::number)]
    at_least: Option<u64>,

    /// With --form: how long to wait for the others, such as 500ms or 2m, or a number of seconds [default: 30s]
    #[arg(long, value_name = "TIME", requires = "form", value_parser = units::seconds)]
    form_within: Option<Duration>,
}

/// How a group is founded if it does not exist.
#[derive(Debug)]
pub(crate) struct Founding {
    pub(crate) config: GroupConfig,
    /// The other participants; without a formation this process founds the group alone.
    pub(crate) formation: Option<Formation>,
}

impl FormOptions {
    /// Returns how a group is founded with these options, by the member of this name.
    pub(crate) fn founding(&self, config: GroupConfig, me: Option<&str>) -> Result<Founding, Problem> {
        let formation = if self.is_given() { Some(self.formation(me)?) } else { None };
        Ok(Founding { config, formation })
    }

    /// True if `--form` is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.form.is_empty()
    }

    fn formation(&self, me: Option<&str>) -> Result<Formation, Problem> {
        let mut participants: Vec<Name> = Vec::new();
        for text in &self.form {
            let name = Name::new(text).ok_or_else(|| {
                let most = Name::BYTES_MAX;
                Problem::usage(format!(
                    "--form takes names of 1 to {most} bytes without control characters, with commas between them; '{text}' is \
                     no such name"
                ))
            })?;
            if participants.contains(&name) {
                return Err(Problem::usage(format!(
                    "--form names {text} twice: give each member a name of its own"
                )));
            }
            participants.push(name);
        }
        if !me.is_some_and(|me| self.form.iter().any(|name| name == me)) {
            let choices: Vec<String> =
                self.form.iter().map(|name| format!("--name {}", quoted(name))).collect();
            let wrong = me.map_or("--form needs the name of this member".into(), |me| {
                format!("--name {} is not on the list of --form", quoted(me))
            });
            return Err(Problem::usage(format!("{wrong}: type {}", choices.join(" or "))));
        }
        let count = participants.len() as u64;
        let majority = count / 2 + 1;
        let at_least = self.at_least.unwrap_or(majority);
        if !(majority..=count).contains(&at_least) {
            return Err(Problem::usage(format!(
                "--at-least takes {majority} to {count} for a list of {count} names, not {at_least}: more than half of them, up to all"
            )));
        }
        let within = self.form_within.unwrap_or(WITHIN);
        if !WITHIN_ALLOWED.contains(&within) {
            return Err(Problem::usage("--form-within takes 5ms to 1h"));
        }
        let at_least = u16::try_from(at_least).unwrap_or(u16::MAX);
        Ok(Formation { participants, at_least, within })
    }
}

/// Joins the group if it exists, or forms it. `command` starts the other participants, for advice.
pub(crate) fn form(
    group: &str,
    formation: &Formation,
    config: &GroupConfig,
    command: &str,
    settings: &Settings,
    options: &Options,
) -> Result<Group, Problem> {
    let (words, at) = (waits_for(group, formation, options), connection::whereabouts(options));
    let (own_group, own_options, own_settings) = (group.to_owned(), options.clone(), settings.clone());
    let _waiting =
        progress::tell_if_long(SHORT, move || match namesake(&own_group, &own_options, &own_settings) {
            Some(namesake) => namesake.words,
            None => format!("{words} {}", at()),
        });
    match Group::join_or_form(group, formation.clone(), config.clone(), "", options) {
        Err(OpenError::Join(failure @ (JoinFailure::TimedOut | JoinFailure::Halted))) => {
            Err(not_admitted(group, failure, options, settings))
        }
        Err(OpenError::Join(JoinFailure::NotFormed)) => {
            Err(Problem::failed(not_formed(group, formation, command, settings, &options.name)))
        }
        entered => Ok(entered?),
    }
}

/// A member that has this process's name, while this process is not admitted.
pub(crate) struct Namesake {
    /// What the user reads.
    pub(crate) words: String,
    /// True if the group stands still without it.
    pub(crate) is_of_halted: bool,
}

impl Namesake {
    pub(crate) fn problem(self) -> Problem {
        match self.is_of_halted {
            true => Problem::not_primary(self.words),
            false => Problem::failed(self.words),
        }
    }
}

/// Returns the member of the group that has this process's name, with what to do, if there is one. Call it while this process
/// is not admitted.
pub(crate) fn namesake(group: &str, options: &Options, settings: &Settings) -> Option<Namesake> {
    let member = namesake_member(group, options)?;
    thread::sleep(NAMESAKE_LOOK_AGAIN);
    if member != namesake_member(group, options)? {
        return None;
    }
    let (uid, at) = member;
    let (shown, me) = (visible(group), visible(options.name.as_str()));
    match everyone::halted_without(group, options, settings) {
        // Most likely a former life of this process.
        Some((silent, force)) if silent.iter().any(|member| member.uid == uid) => {
            let (members, their) = match silent.len() {
                1 => ("member", "its former process is"),
                _ => ("members", "their former processes are"),
            };
            let names = listed(silent.iter().map(|member| &member.name));
            let words = format!(
                "{shown} stands still without its {members} {names}, and takes in no other process of the name {me}: once you \
                 know that {their} dead, `{force}`; or stop the members that are left, and start all again, so that {shown} \
                 forms anew"
            );
            Some(Namesake { words, is_of_halted: true })
        }
        // A dead one is excluded soon.
        _ if !answers(group, uid, at, options) => None,
        _ => {
            let words = format!(
                "another process with the name {me} is in {shown}, at {at}: stop that process, or start this one with another \
                 --name"
            );
            Some(Namesake { words, is_of_halted: false })
        }
    }
}

fn answers(group: &str, member: Uid, at: SocketAddr, options: &Options) -> bool {
    unisono::look_at(group, at, options, NAMESAKE_LOOK).is_ok_and(|report| report.reporter == member)
}

fn namesake_member(group: &str, options: &Options) -> Option<(Uid, SocketAddr)> {
    let report = unisono::look(group, options, NAMESAKE_LOOK).ok()?;
    let mut members = report.members.into_iter().map(|report| report.member);
    let member = members.find(|member| member.name == options.name)?;
    Some((member.uid, member.address))
}

/// Returns the problem of a process that the group did not admit for this reason.
pub(crate) fn not_admitted(
    group: &str,
    failure: JoinFailure,
    options: &Options,
    settings: &Settings,
) -> Problem {
    let namesake = namesake(group, options, settings);
    // In a halted group a member of this name is reported only if it is why this process is not admitted.
    let namesake = namesake.filter(|namesake| namesake.is_of_halted || failure != JoinFailure::Halted);
    namesake.map_or_else(|| OpenError::Join(failure).into(), Namesake::problem)
}

/// Returns what the user reads while a formation takes long.
pub(crate) fn waits_for(group: &str, formation: &Formation, options: &Options) -> String {
    let within = humantime::format_duration(formation.within);
    let others = listed(formation.participants.iter().filter(|name| **name != options.name));
    let reach = match options.key {
        None if !options.insecure => "; without --key only processes on this machine are reached",
        _ => "",
    };
    format!("waiting at most {within} for {others} to form {}{reach} …", visible(group))
}

/// Returns the message for a failed formation, with what to type.
pub(crate) fn not_formed(
    group: &str,
    formation: &Formation,
    command: &str,
    settings: &Settings,
    me: &Name,
) -> String {
    let Formation { participants, at_least, within } = formation;
    let other = participants.iter().find(|name| *name != me).unwrap_or(me);
    let reach = match (&settings.key, settings.insecure) {
        (Some(_), _) => "; if they run, see `unisono doctor` and whether they have the same key",
        (None, false) => "; without --key only processes on this machine are reached",
        (None, true) => "",
    };
    let list = quoted(&participants.iter().map(Name::as_str).collect::<Vec<_>>().join(","));
    format!(
        "fewer than {at_least} of {} met within {} to form {}, and no group of this name answers: start the others within that \
         time, each with its own name (`{} --form {list} --at-least {at_least} --name {}`), and this one again{reach}",
        listed(participants.iter()),
        humantime::format_duration(*within),
        visible(group),
        typed(command, group, settings),
        quoted(other.as_str()),
    )
}

fn listed<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    visible(&names.map(Name::as_str).collect::<Vec<_>>().join(", ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(names: &[&str], at_least: Option<u64>) -> FormOptions {
        let form = names.iter().map(ToString::to_string).collect();
        FormOptions { form, at_least, form_within: None }
    }

    #[test]
    fn a_formation_needs_more_than_half_of_its_names_by_default() {
        for (names, majority) in
            [(&["a"][..], 1), (&["a", "b"], 2), (&["a", "b", "c"], 2), (&["a", "b", "c", "d"], 3)]
        {
            let formation = options(names, None).formation(Some("a")).unwrap();
            assert_eq!((formation.at_least, formation.within), (majority, WITHIN));
            let config = GroupConfig::default();
            formation.check(&Name::new("a").unwrap(), &config).unwrap();
        }
        let founding = FormOptions::default().founding(GroupConfig::default(), None).unwrap();
        assert_eq!(founding.formation, None);
    }

    #[test]
    fn an_impossible_formation_is_refused_with_what_to_type() {
        for (names, at_least, me, message) in [
            (&["a", "b"][..], None, Some("c"), "type --name a or --name b"),
            (&["a", "b"], None, None, "type --name a or --name b"),
            (&["a", "b", "a"], None, Some("a"), "names a twice"),
            (&["a", ""], None, Some("a"), "'' is no such name"),
            (&["a", "b", "c"], Some(4), Some("a"), "takes 2 to 3 for a list of 3 names"),
            (&["a", "b", "c"], Some(1), Some("a"), "takes 2 to 3 for a list of 3 names"),
            (&["a", "b", "c"], Some(65_538), Some("a"), "takes 2 to 3 for a list of 3 names"),
        ] {
            let refused = options(names, at_least).formation(me).unwrap_err().into_error().to_string();
            assert!(refused.contains(message), "{names:?} {at_least:?} {me:?}: {refused}");
        }
        let within = Some(Duration::from_secs(3601));
        let refused = FormOptions { form_within: within, ..options(&["a"], None) }.formation(Some("a"));
        assert!(refused.is_err());
    }
}
