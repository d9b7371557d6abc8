//! Opens this process's copy of a replicated service in memory: founds the service with others or alone, or joins it,
//! and waits for the state.

use crate::connection;
use crate::form;
use crate::look;
use crate::output::{tell, visible};
use crate::problem::Problem;
use crate::progress;
use crate::settings::Settings;
use std::thread;
use std::time::{Duration, Instant};
use unisono::replica::{Founding, Replica, ReplicaEnd, ReplicaError, ReplicaState, StateMachine};
use unisono::{Formation, JoinFailure, OpenError, Options};

/// Time for the state to arrive, once the group is entered: 60 s.
const STATE_WITHIN: Duration = Duration::from_secs(60);
/// Time for the first bytes of the state to arrive, once a group is joined: 10 s. A group without a state sends none.
const STATE_BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// Interval at which a process that opens its copy looks how far it is: 100 ms.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// A join looks for its group for 10 times `--locate`.
const JOIN_LOOKS_FOR_LOCATES: u32 = 10;
/// Time for an answer of any member, and time between questions, while the group takes long to admit this process.
const LOOK: Duration = Duration::from_millis(500);
/// A reset that has taken this long, 4 s, finds no quorum: joiners wait no longer either.
const RESET_WITHIN: Duration = Duration::from_secs(4);
/// An opening that takes less than this, 2 s, prints no progress.
pub(crate) const SHORT_OPENING: Duration = Duration::from_secs(2);

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
    /// How long to wait while the group carries out no commands; `None` to wait as long as for the state.
    pub(crate) halted_within: Option<Duration>,
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

    /// Like [`Opening::founding`], but a service that answers is joined, also where this process could found it alone.
    pub(crate) fn founding_unless_there(&self, options: &Options) -> (Founding, u16) {
        match self.founding() {
            (Founding::Create, members_min) if self.is_there(options) => (Founding::Join, members_min),
            founding => founding,
        }
    }

    /// True if the group is there and admits this process, as far as it can be asked. One that is being reset may admit it
    /// soon; one that stays halted admits nobody, and must not keep its founder from a new start.
    fn is_there(&self, options: &Options) -> bool {
        while options.lacks_address() {
            thread::sleep(LOOKS_EVERY);
        }
        let begun = Instant::now();
        while let Ok(report) = unisono::look(self.name, options, options.settings.locate) {
            if look::admits(self.name, &report, options) {
                return true;
            }
            if begun.elapsed() > RESET_WITHIN {
                let reason = look::no_commands(self.name, options, self.settings);
                tell(format_args!("{reason}; this process founds it anew"));
                return false;
            }
            thread::sleep(LOOKS_EVERY);
        }
        false
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
        let (begun, looks_for) = (Instant::now(), options.settings.locate * JOIN_LOOKS_FOR_LOCATES);
        let (mut entered, mut halted, mut looked) = (None, None, begun);
        while !replica.ready().wait(LOOKS_EVERY).map_err(|end| self.problem(end.into(), options))? {
            let only_joins = self.formation.is_none();
            let state = replica.status().state;
            let is_halted = match state {
                ReplicaState::Entering if self.halted_within.is_some() && looked.elapsed() >= LOOK => {
                    looked = Instant::now();
                    unisono::look(self.name, options, LOOK).is_ok_and(|report| !report.primary)
                }
                ReplicaState::Entering => halted.is_some(),
                state => state == ReplicaState::Halted,
            };
            halted = is_halted.then(|| halted.unwrap_or_else(Instant::now));
            let failure = match state {
                _ if halted.is_some_and(|since| self.is_over(since)) => {
                    Some(Problem::not_primary(look::no_commands(self.name, options, self.settings)))
                }
                ReplicaState::Entering if only_joins && begun.elapsed() > looks_for => {
                    let is_late = begun.elapsed() > looks_for + self.halted_within.unwrap_or(STATE_WITHIN);
                    (is_late || !self.is_slow(options)).then(|| self.not_joined(options))
                }
                ReplicaState::Fetching { bytes_here: 0, .. } if self.no_state.is_some() => {
                    let entered = entered.get_or_insert_with(Instant::now);
                    let is_late = entered.elapsed() > STATE_BEGINS_WITHIN;
                    self.no_state.as_ref().filter(|_| is_late).map(Problem::failed)
                }
                _ if begun.elapsed() > looks_for + self.form_within() + STATE_WITHIN => Some(match state {
                    ReplicaState::Halted => {
                        Problem::not_primary(look::no_commands(self.name, options, self.settings))
                    }
                    _ => Problem::failed("the state has not arrived; try again"),
                }),
                _ => None,
            };
            if let Some(failure) = failure {
                replica.end(Duration::ZERO);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// True if the group has carried out no commands for too long.
    fn is_over(&self, halted: Instant) -> bool {
        self.halted_within.is_some_and(|within| halted.elapsed() >= within)
    }

    fn form_within(&self) -> Duration {
        self.formation.as_ref().map_or(Duration::ZERO, |formation| formation.within)
    }

    /// True if members answer, and the group only takes long to admit this process, because it is being reset. Only for
    /// processes that use a service and keep none.
    fn is_slow(&self, options: &Options) -> bool {
        self.no_state.is_some()
            && form::namesake(self.name, options, self.settings).is_none()
            && unisono::look(self.name, options, LOOK).is_ok()
    }

    /// Returns what the user reads if opening takes long.
    fn words(&self, options: &Options) -> String {
        match &self.formation {
            Some(formation) => form::waits_for(self.name, formation, options),
            None => format!("looking for {} …", visible(self.name)),
        }
    }

    /// Returns the problem of a process that has not joined in time.
    fn not_joined(&self, options: &Options) -> Problem {
        let absent =
            || Problem::failed(format!("no member of {} answers; {}", visible(self.name), self.advice));
        match form::namesake(self.name, options, self.settings) {
            Some(namesake) => namesake.problem(),
            None if self.no_state.is_some() && unisono::look(self.name, options, LOOK).is_ok() => {
                Problem::not_primary(look::no_commands(self.name, options, self.settings))
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
