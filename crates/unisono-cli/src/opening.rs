//! Opens this process's copy of a replicated service in memory: founds the service with others or alone, or joins it,
//! and waits for the state.

use crate::connection;
use crate::everyone;
use crate::form;
use crate::output::{tell, visible};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};
use unisono::replica::{Founding, Replica, ReplicaEnd, ReplicaError, ReplicaState, StateMachine};
use unisono::{Formation, JoinFailure, OpenError, Options, Report, Uid};

/// Time for the state to arrive, once the group is entered: 60 s.
const STATE_WITHIN: Duration = Duration::from_secs(60);
/// Time for the first bytes of the state to arrive, once a group is joined: 10 s. A group without a state sends none.
const STATE_BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// Interval at which a process that opens its copy looks how far it is: 100 ms.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// A join looks for its group for 10 times `--locate`.
pub(crate) const JOIN_LOOKS_FOR_LOCATES: u32 = 10;
/// Time for an answer of any member, and time between questions, while the group takes long to admit this process.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// Maximum time that a process which may found the service waits for a group that stands still: 4 s. A reset that finds its
/// quorum takes less, and joiners wait no longer either.
pub(crate) const RESET_WITHIN: Duration = Duration::from_secs(4);
/// Maximum time that a founder waits for one that is in a group that stands still: 15 s; for all of them, four times as long. A
/// command that waits for a lock leaves such a group after 10 s.
const LEAVERS_WITHIN: Duration = Duration::from_secs(15);
/// A group is not there, or gone, when no member answers for this long: 1 s.
const SILENT_FOR: Duration = Duration::from_secs(1);
/// An opening that takes less than this, 2 s, prints no progress.
pub(crate) const SHORT_OPENING: Duration = Duration::from_secs(2);

/// What answers of a group that a process may found alone.
enum Presence {
    /// No member.
    None,
    /// Members that admit this process.
    Admits,
    /// Members of a group that is halted.
    StandsStill,
}

/// How long an opening waits for a group that carries out no commands.
pub(crate) enum WhileHalted {
    /// As long as for the state.
    AsForState,
    /// At most this long.
    Within(Duration),
    /// Without end. Contains what the user reads that it waits for.
    Endless(String),
}

/// A copy that is about to open.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) create: bool,
    pub(crate) formation: Option<Formation>,
    /// The command that starts other members, for advice.
    pub(crate) command: &'a str,
    /// What to do if no member answers.
    pub(crate) advice: String,
    /// What to say if the members of the group do not begin to give the state; `None` to wait longer.
    pub(crate) no_state: Option<String>,
    /// How long to wait while the group carries out no commands.
    pub(crate) while_halted: WhileHalted,
    pub(crate) settings: &'a Settings,
}

impl Opening<'_> {
    /// Returns how the service is entered, and the minimum number of members if this process founds it.
    pub(crate) fn founding(&self) -> (Founding, u16) {
        match &self.formation {
            Some(formation) => (Founding::JoinOrForm(formation.clone()), formation.at_least),
            None if self.create => (Founding::Create, 1),
            None => (Founding::Join, 1),
        }
    }

    /// Like [`Opening::founding`], but a service that answers is joined, also where this process could found it alone. One whose
    /// founder is gone and whose other members still answer is founded anew when these have left.
    pub(crate) fn founding_unless_there(&self, options: &Options) -> Result<(Founding, u16), Problem> {
        match self.founding() {
            (Founding::Create, members_min) => Ok((self.founding_alone(options)?, members_min)),
            founding => Ok(founding),
        }
    }

    /// Returns how a process that may found the service alone enters it.
    pub(crate) fn founding_alone(&self, options: &Options) -> Result<Founding, Problem> {
        match self.presence(options) {
            Presence::Admits => Ok(Founding::Join),
            Presence::StandsStill => self.founding_after_leavers(options),
            Presence::None => Ok(Founding::Create),
        }
    }

    /// Returns whether the group admits this process. A group that a reset holds up gets 4 s to end that reset.
    fn presence(&self, options: &Options) -> Presence {
        while options.lacks_address() {
            thread::sleep(LOOKS_EVERY);
        }
        let begun = Instant::now();
        // Members of a halted group leave some questions unanswered.
        let mut answered = begun;
        while let Some(report) = self.report(options, &mut answered) {
            if everyone::admits(self.name, &report, options) {
                return Presence::Admits;
            }
            if begun.elapsed() > RESET_WITHIN {
                return Presence::StandsStill;
            }
            thread::sleep(LOOKS_EVERY);
        }
        Presence::None
    }

    /// Returns the report of a member; `None` if none answers within `--locate`, and none has `answered` for [`SILENT_FOR`].
    fn report(&self, options: &Options, answered: &mut Instant) -> Option<Report> {
        loop {
            match unisono::look(self.name, options, options.settings.locate) {
                Ok(report) => {
                    *answered = Instant::now();
                    return Some(report);
                }
                Err(_) if answered.elapsed() < SILENT_FOR => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until the others have left a group that stands still without its founder, because a new group with fewer orders gives way
    /// to it. Returns how this process enters the service then: it joins a group that goes on. Fails if a member stays for
    /// [`LEAVERS_WITHIN`].
    pub(crate) fn founding_after_leavers(&self, options: &Options) -> Result<Founding, Problem> {
        let reason = everyone::no_commands(self.name, options, self.settings);
        tell(format_args!("{reason}; this process founds it anew when the others have left it"));
        let begun = Instant::now();
        let (mut staying, mut since, mut answered) = (BTreeSet::new(), begun, begun);
        while let Some(report) = self.report(options, &mut answered) {
            if report.primary {
                return Ok(Founding::Join);
            }
            let members: BTreeSet<Uid> = report.members.iter().map(|report| report.member.uid).collect();
            staying.retain(|member| members.contains(member));
            if staying.is_empty() {
                (staying, since) = (members, Instant::now());
            }
            if since.elapsed() >= LEAVERS_WITHIN || begun.elapsed() >= LEAVERS_WITHIN * 4 {
                return Err(self.left_over(options));
            }
            thread::sleep(LOOKS_EVERY);
        }
        Ok(Founding::Create)
    }

    /// Returns the problem of a process that cannot found the service anew, because others are left in a group that stands still.
    fn left_over(&self, options: &Options) -> Problem {
        let reason = everyone::no_commands(self.name, options, self.settings);
        let members = connection::typed("members", self.name, self.settings);
        Problem::not_primary(format!(
            "{reason}; it cannot be founded anew while others are left in it: stop the processes that `{members}` shows"
        ))
    }

    /// Waits until the copy has the state.
    pub(crate) fn wait<S: StateMachine + Send + 'static>(
        &self,
        replica: &Replica<S>,
        options: &Options,
    ) -> Result<(), Problem> {
        let (words, at) = (self.words(options), connection::whereabouts(options));
        let (name, own_options, entering) = (self.name.to_owned(), options.clone(), replica.clone());
        let own_settings = self.settings.clone();
        let _waiting = progress::tell_if_long(SHORT_OPENING, move || {
            // A member with this name is this process itself if it has entered.
            let namesake = form::namesake(&name, &own_options, &own_settings)
                .filter(|_| entering.status().members.is_empty());
            namesake.map_or_else(|| format!("{words} {}", at()), |namesake| namesake.words)
        });
        let mut course = Course::new(self, options);
        while !replica.ready().wait(LOOKS_EVERY).map_err(|end| self.problem(end.into(), options))? {
            if let Some(failure) = course.failure(|| replica.status().state) {
                replica.end(Duration::ZERO);
                return Err(failure);
            }
        }
        Ok(())
    }

    fn form_within(&self) -> Duration {
        self.formation.as_ref().map_or(Duration::ZERO, |formation| formation.within)
    }

    /// Returns what the user reads if opening takes long.
    fn words(&self, options: &Options) -> String {
        match &self.formation {
            Some(formation) => form::waits_for(self.name, formation, options),
            None => format!("looking for {} …", visible(self.name)),
        }
    }

    /// Returns the problem of a process that waits no longer for a group that carries out no commands.
    fn no_commands(&self, options: &Options) -> Problem {
        Problem::not_primary(everyone::no_commands(self.name, options, self.settings))
    }

    /// Returns the problem of a process that has not joined in time.
    fn not_joined(&self, options: &Options) -> Problem {
        let absent =
            || Problem::failed(format!("no member of {} answers; {}", visible(self.name), self.advice));
        match form::namesake(self.name, options, self.settings) {
            Some(namesake) => namesake.problem(),
            None if self.no_state.is_some() && unisono::look(self.name, options, LOOK).is_ok() => {
                self.no_commands(options)
            }
            None => absent(),
        }
    }

    pub(crate) fn problem(&self, error: ReplicaError, options: &Options) -> Problem {
        let ReplicaError::Ended(ReplicaEnd::NotEntered(reason)) = &error else { return error.into() };
        match (&**reason, &self.formation) {
            (OpenError::Join(JoinFailure::NotFormed), Some(formation)) => Problem::failed(form::not_formed(
                self.name,
                formation,
                self.command,
                self.settings,
                &options.name,
            )),
            (OpenError::Join(failure @ (JoinFailure::TimedOut | JoinFailure::Halted)), Some(_)) => {
                form::not_admitted(self.name, *failure, options, self.settings)
            }
            (OpenError::Join(JoinFailure::Halted), _) => Problem::not_primary(error),
            _ => error.into(),
        }
    }
}

/// How far an opening is.
struct Course<'a> {
    opening: &'a Opening<'a>,
    options: &'a Options,
    begun: Instant,
    /// When the wait for the state began: waiting for a group that is halted does not count.
    counts_from: Instant,
    /// When the group was looked at last.
    looked: Instant,
    /// When a member last answered, or the beginning.
    answered: Instant,
    /// Since when the group carries out no commands.
    halted: Option<Instant>,
    /// Since when this process is in the group and lacks the state.
    entered: Option<Instant>,
    /// True if another member has this process's name, so that the group does not admit this one.
    is_taken: bool,
    has_told: bool,
}

impl Course<'_> {
    fn new<'a>(opening: &'a Opening<'a>, options: &'a Options) -> Course<'a> {
        let begun = Instant::now();
        Course {
            opening,
            options,
            begun,
            counts_from: begun,
            looked: begun,
            answered: begun,
            halted: None,
            entered: None,
            is_taken: false,
            has_told: false,
        }
    }

    /// Returns why this opening fails, if it does.
    fn failure(&mut self, present: impl Fn() -> ReplicaState) -> Option<Problem> {
        self.note(present());
        // It may have got in while it looked at the group.
        let state = present();
        let opening = self.opening;
        let has_looked = self.begun.elapsed() > self.looks_for();
        let does_not_get_in = state == ReplicaState::Entering && opening.formation.is_none() && has_looked;
        match state {
            _ if self.is_halted_too_long() => Some(opening.no_commands(self.options)),
            _ if does_not_get_in && !self.may_get_in() => {
                // It may get in while it looks for the reason, and then find itself.
                let failure = opening.not_joined(self.options);
                (present() == ReplicaState::Entering).then_some(failure)
            }
            _ if self.waits_for_group(does_not_get_in) => None,
            ReplicaState::Fetching { bytes_here: 0, .. } if opening.no_state.is_some() => {
                let is_late = self.entered.is_some_and(|entered| entered.elapsed() > STATE_BEGINS_WITHIN);
                opening.no_state.as_ref().filter(|_| is_late).map(Problem::failed)
            }
            _ if self.counts_from.elapsed() > self.looks_for() + opening.form_within() + STATE_WITHIN => {
                Some(match state {
                    ReplicaState::Halted => opening.no_commands(self.options),
                    _ => Problem::failed("the state has not arrived; try again"),
                })
            }
            _ => None,
        }
    }

    fn looks_for(&self) -> Duration {
        self.options.settings.locate * JOIN_LOOKS_FOR_LOCATES
    }

    /// Takes notice of the state, and looks at a group that this process is not in.
    fn note(&mut self, state: ReplicaState) {
        match state {
            ReplicaState::Entering | ReplicaState::Reentering => self.look(),
            ReplicaState::Halted => _ = self.halted.get_or_insert_with(Instant::now),
            _ => self.halted = None,
        }
        match state {
            ReplicaState::Fetching { .. } => _ = self.entered.get_or_insert_with(Instant::now),
            _ => self.entered = None,
        }
    }

    /// Asks whether the group carries out commands. Without an answer what was known stands.
    fn look(&mut self) {
        if matches!(self.opening.while_halted, WhileHalted::AsForState) || self.looked.elapsed() < LOOK {
            return;
        }
        if let Ok(report) = unisono::look(self.opening.name, self.options, LOOK) {
            self.answered = Instant::now();
            self.halted = (!report.primary).then(|| self.halted.unwrap_or(self.answered));
        }
        if self.begun.elapsed() > self.looks_for() {
            let namesake = form::namesake(self.opening.name, self.options, self.opening.settings);
            self.is_taken = namesake.is_some_and(|namesake| !(self.is_endless() && namesake.is_of_halted));
        }
        self.looked = Instant::now();
    }

    fn is_endless(&self) -> bool {
        matches!(self.opening.while_halted, WhileHalted::Endless(_))
    }

    /// True if the group has carried out no commands for too long.
    fn is_halted_too_long(&self) -> bool {
        match (&self.opening.while_halted, self.halted) {
            (WhileHalted::Within(within), Some(halted)) => halted.elapsed() >= *within,
            _ => false,
        }
    }

    /// True if members answer, and the group only takes long to admit this process, because it is being reset or is halted. A
    /// process that keeps a service does not wait for that. One that waits without end goes on if they leave: others may follow them.
    fn may_get_in(&self) -> bool {
        let has_time = match self.opening.while_halted {
            WhileHalted::AsForState => false,
            WhileHalted::Within(within) => self.begun.elapsed() <= self.looks_for() + within,
            WhileHalted::Endless(_) => true,
        };
        let is_seen =
            self.answered.elapsed() <= self.looks_for() || self.is_endless() && self.halted.is_some();
        has_time && !self.is_taken && is_seen
    }

    /// True if this process waits for a group that is halted or admits no process: the 60 s for the state do not count
    /// meanwhile. A wait without end prints once what it waits for, after 2 s of a halt.
    fn waits_for_group(&mut self, does_not_get_in: bool) -> bool {
        if self.halted.is_none() && !does_not_get_in {
            return false;
        }
        let what = match &self.opening.while_halted {
            WhileHalted::AsForState => return false,
            WhileHalted::Within(_) => None,
            WhileHalted::Endless(what) => Some(what),
        };
        let is_long = self.halted.is_none_or(|halted| halted.elapsed() >= SHORT_OPENING);
        if let Some(what) = what
            && is_long
            && !self.has_told
        {
            tell(format_args!(
                "waiting for {what}: {} …",
                everyone::no_commands(self.opening.name, self.options, self.opening.settings)
            ));
            self.has_told = true;
        }
        self.counts_from = Instant::now();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An opening at a halted group, 100 s after it began.
    fn at_halted_group(while_halted: WhileHalted) -> Option<Problem> {
        let (settings, options) = (Settings::default(), Options::default());
        let opening = Opening {
            name: "no-such-group",
            create: false,
            formation: None,
            command: "lock",
            advice: String::new(),
            no_state: Some(String::new()),
            while_halted,
            settings: &settings,
        };
        let begun = Instant::now().checked_sub(Duration::from_secs(100));
        let mut course = Course::new(&opening, &options);
        (course.begun, course.counts_from, course.halted) = (begun.unwrap(), begun.unwrap(), begun);
        // It does not ask and says nothing.
        course.has_told = true;
        course.failure(|| ReplicaState::Entering)
    }

    #[test]
    fn an_opening_waits_for_a_halted_group_as_long_as_it_was_asked_to() {
        assert!(at_halted_group(WhileHalted::Endless("door".into())).is_none());
        assert!(at_halted_group(WhileHalted::Within(Duration::from_secs(101))).is_none());
        assert!(at_halted_group(WhileHalted::Within(Duration::from_secs(99))).is_some());
    }
}
