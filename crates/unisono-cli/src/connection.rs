//! Enters a group with the user's settings, and prints the warnings that belong to it.

use crate::arguments::{OrderChoice, Transport, Wishes};
use crate::form::{self, Founding};
use crate::output::{quoted, tell, visible};
use crate::problem::Problem;
use crate::progress;
use crate::seeds;
use crate::settings::Settings;
use crate::signals;
use crate::watch;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;
use unisono::{
    Event, Group, GroupConfig, JoinFailure, Key, KeyError, LookError, Name, OpenError, Options, SlowMember,
};

/// Maximum number of attempts to join while the group is being reset or slow.
const TRIES: u32 = 10;
/// A join that takes less than this, 2 s, prints no progress. A join usually takes 0.1 s, or the time to look for the
/// group.
const SHORT_JOIN: Duration = Duration::from_secs(2);
/// Interval at which a process without an address looks whether this machine has one: 200 ms.
const LOOKS_FOR_ADDRESS_EVERY: Duration = Duration::from_millis(200);

/// Returns the library's options for these settings.
pub(crate) fn options(settings: &Settings, name: Option<&str>) -> Result<Options, Problem> {
    let mut options = Options {
        bind: settings.bind,
        seeds: settings.seeds.clone(),
        insecure: settings.insecure,
        ..Options::default()
    };
    options.seeds_timeout = settings.seeds_timeout.unwrap_or(options.seeds_timeout);
    if let Some(path) = &settings.key {
        options.key = Some(load_key(path)?);
    }
    if let Some(name) = name {
        options.name = Name::new(name).ok_or_else(|| {
            let most = Name::BYTES_MAX;
            Problem::usage(format!("--name takes 1 to {most} bytes without control characters, not '{name}'"))
        })?;
    }
    let usual = &mut options.settings;
    usual.patience = settings.patience.unwrap_or(usual.patience);
    usual.locate = settings.locate.unwrap_or(usual.locate);
    usual.check().map_err(Problem::usage)?;
    let calls = &mut options.calls;
    calls.silence = calls.silence.max(settings.patience.unwrap_or_default());
    calls.locate = settings.locate.unwrap_or(calls.locate);
    options.settings.transport = match settings.transport {
        Transport::Auto => unisono::Transport::Auto,
        Transport::Multicast => unisono::Transport::Multicast,
        Transport::Unicast => unisono::Transport::Unicast,
    };
    Ok(options)
}

/// Loads the key file. The error says what to do.
pub(crate) fn load_key(path: &Path) -> Result<Key, Problem> {
    signals::leave_no_core();
    Key::load(path).map_err(|error| match error {
        KeyError::File { cause, .. } if cause.kind() == ErrorKind::NotFound => Problem::usage(format!(
            "there is no key file {0}: copy the group's key there, or make one with `unisono keygen {0}`",
            path.display()
        )),
        error => error.into(),
    })
}

/// Returns the configuration that a founder chooses on the command line.
pub(crate) fn config(resilience: u8, order: OrderChoice, slow_member: SlowMember) -> GroupConfig {
    GroupConfig { resilience, order: order.order(), slow_member, ..GroupConfig::default() }
}

/// Joins the group. If no member answers, founds it as `founding` says. Without `founding` it fails then: the caller
/// counted members a moment ago, and must not found another group in place of theirs. Warns if the group has no key,
/// and if this process founded it alone, because the user may have expected members that it cannot reach. While this
/// process is a member, also warns if the group stands still or uses another key.
pub(crate) fn enter(
    group: &str,
    settings: &Settings,
    name: Option<&str>,
    wishes: Wishes,
    founding: Option<&Founding>,
) -> Result<Group, Problem> {
    let mut options = options(settings, name)?;
    options.settings.floor = wishes.floor;
    options.settings.hops = wishes.scope.hops;
    wait_for_address(&options);
    seeds::warn_of_unresolved(&settings.seeds);
    seeds::tell_of_wait(&options);
    let entered = match founding {
        Some(Founding { config, formation: Some(formation) }) => {
            form::form(group, formation, config, "listen", settings, &options)?
        }
        founding => {
            let (joined, from) = (visible(group).into_owned(), whereabouts(&options));
            let _joining =
                progress::tell_if_long(SHORT_JOIN, move || format!("joining {joined} … {}", from()));
            patiently(|| match founding {
                Some(founding) => Group::join_or_create(group, founding.config.clone(), "", &options),
                None => Group::join(group, "", &options).map_err(lost),
            })?
        }
    };
    warn_of_no_key(&options);
    if let [founder] = &entered.info().members[..] {
        let (name, from, asked) = (visible(group), founder.address.ip(), asked(settings));
        let unseen = unseen(settings);
        tell(format_args!(
            "no member of {name} answered (asked from {from} {asked}): this process founded it; {unseen}"
        ));
        if let Some((address, version)) = entered.info().other_version {
            tell(format_args!(
                "{address} sends datagrams of a group of this name in version {version} of the wire format, which nothing \
                 proves: if they are genuine there are two groups now, so use the same release in all processes"
            ));
        }
    }
    watch::watch(group, &entered, settings)?;
    Ok(entered)
}

/// Returns what tells, at the time it is called, from which address a process with these options asks others and at which it
/// is reached. Looks seeds up, which may take seconds.
pub(crate) fn whereabouts(options: &Options) -> impl FnOnce() -> String + Send + use<> {
    let options = options.clone();
    move || {
        let address = options.address().or_else(|error| match error {
            // The seeds have no addresses yet.
            OpenError::Seeds { .. } => Options { seeds: Vec::new(), ..options.clone() }.address(),
            error => Err(error),
        });
        let port = options.bind.map_or(0, |bind| bind.port());
        match address {
            Ok(address) if port == 0 => format!("at {address}"),
            Ok(address) => format!("at {}", SocketAddr::new(address, port)),
            Err(error) => format!("without an address of its own ({error})"),
        }
    }
}

/// Turns "not found" into "lost": the group answered a moment ago.
fn lost(error: OpenError) -> OpenError {
    match error {
        OpenError::Join(JoinFailure::NotFound) => OpenError::Join(JoinFailure::Lost),
        error => error,
    }
}

/// Prints that the process waits, if this machine has no address yet at which others could reach it. Returns whether that
/// is so.
pub(crate) fn tell_of_no_address(options: &Options) -> bool {
    let lacks = options.lacks_address();
    if lacks {
        tell("waiting for an address of this machine, which has none yet at which others could reach it …");
    }
    lacks
}

/// Waits until this machine has an address, and says so.
fn wait_for_address(options: &Options) {
    if tell_of_no_address(options) {
        while options.lacks_address() {
            thread::sleep(LOOKS_FOR_ADDRESS_EVERY);
        }
    }
}

/// Warns if there is no key.
pub(crate) fn warn_of_no_key(options: &Options) {
    if options.key.is_none() {
        let reach = if options.insecure { "anyone on the network" } else { "anyone on this machine" };
        tell(format_args!("unauthenticated: without --key {reach} can read and forge messages"));
    }
}

/// Describes how this process looked for the group: by multicast or at which seeds, and with which key.
pub(crate) fn asked(settings: &Settings) -> String {
    let reach = match settings.seeds.is_empty() {
        true if is_at_home(settings) => "by multicast on this machine".into(),
        true => "by multicast".into(),
        false => format!("at {}", settings.seeds.join(", ")),
    };
    let protection = match &settings.key {
        Some(key) => format!("with the key {}", key.display()),
        None => "without a key".into(),
    };
    visible(&format!("{reach}, {protection}")).into_owned()
}

/// Names the members that a search with these settings cannot find.
pub(crate) fn unseen(settings: &Settings) -> &'static str {
    match (&settings.key, is_at_home(settings)) {
        (Some(_), _) => "members with another key or none, or out of reach, are not seen",
        (None, true) => "members with a key, or on other machines, are not seen",
        (None, false) => "members with a key, or out of reach, are not seen",
    }
}

/// True if all traffic stays on this machine.
fn is_at_home(settings: &Settings) -> bool {
    settings.key.is_none() && !settings.insecure
}

/// Returns the command line of `command` for this group, with the flags that are needed to reach it.
pub(crate) fn typed(command: &str, group: &str, settings: &Settings) -> String {
    let mut words = vec!["unisono".into(), command.into(), quoted(group)];
    if let Some(key) = &settings.key {
        words.extend(["--key".into(), quoted(&key.display().to_string())]);
    }
    if !settings.seeds.is_empty() {
        words.extend(["--seeds".into(), quoted(&settings.seeds.join(","))]);
    }
    if let Some(bind) = &settings.bind {
        words.extend(["--bind".into(), quoted(&bind.to_string())]);
    }
    if settings.insecure {
        words.push("--insecure".into());
    }
    visible(&words.join(" ")).into_owned()
}

/// Tries again if the group was being reset or was slow, where another attempt is safe.
pub(crate) fn patiently(enter: impl Fn() -> Result<Group, OpenError>) -> Result<Group, OpenError> {
    let mut tries = 1;
    loop {
        match enter() {
            Err(OpenError::Join(JoinFailure::Reset | JoinFailure::TimedOut)) if tries < TRIES => tries += 1,
            entered => return entered,
        }
    }
}

/// Warns a member that asked for another resilience than the group has. The group's resilience applies.
pub(crate) fn warn_of_other_resilience(event: &Event, asked: Option<u8>) {
    if let (Event::Entered { view, .. }, Some(asked)) = (event, asked) {
        let founded = view.resilience_founded;
        if founded != asked {
            tell(format_args!(
                "this group was founded with resilience {founded}, and keeps it: --resilience {asked} has no effect"
            ));
        }
    }
}

impl From<LookError> for Problem {
    fn from(error: LookError) -> Problem {
        match error {
            LookError::Open(error) => error.into(),
            error => Problem::failed(error),
        }
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Problem {
        match error {
            KeyError::Exists { .. }
            | KeyError::TwoKeys { .. }
            | KeyError::OneKey { .. }
            | KeyError::Random(_) => Problem::failed(error),
            _ => Problem::usage(error),
        }
    }
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Problem {
        match error {
            OpenError::Join(JoinFailure::Halted) => Problem::not_primary(error),
            OpenError::Join(_)
            | OpenError::OtherKey { .. }
            | OpenError::Unasked { .. }
            | OpenError::Socket { .. }
            | OpenError::AddressInUse { .. } => Problem::failed(error),
            _ => Problem::usage(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggested_command_has_the_flags_that_reach_the_group() {
        assert_eq!(typed("why", "news", &Settings::default()), "unisono why news");
        let settings = Settings {
            key: Some("my keys/group.key".into()),
            seeds: vec!["a:1".into(), "[::1]:2".into()],
            bind: Some("192.0.2.7:7195".parse().unwrap()),
            ..Settings::default()
        };
        assert_eq!(
            typed("why", "it's", &settings),
            r"unisono why 'it'\''s' --key 'my keys/group.key' --seeds 'a:1,[::1]:2' --bind 192.0.2.7:7195"
        );
    }
}
