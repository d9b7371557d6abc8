//! From settings to a place in a group.

use crate::arguments::Transport;
use crate::problem::Problem;
use crate::settings::Settings;
use unisono::{Event, Group, GroupConfig, JoinFailure, Key, KeyError, LookError, Name, OpenError, Options};

/// How often a join is tried while the group is reset, or slow.
const TRIES: u32 = 10;

/// What the library is to go by.
pub(crate) fn options(settings: &Settings, name: Option<&str>) -> Result<Options, Problem> {
    let mut options = Options {
        bind: settings.bind,
        seeds: settings.seeds.clone(),
        insecure: settings.insecure,
        ..Options::default()
    };
    if let Some(path) = &settings.key {
        options.key = Some(Key::load(path)?);
    }
    if let Some(name) = name {
        options.name = Name::new(name)
            .ok_or_else(|| Problem::usage(format!("a name has at most {} bytes", Name::BYTES_MAX)))?;
    }
    options.settings.transport = match settings.transport {
        Transport::Auto => unisono::Transport::Auto,
        Transport::Multicast => unisono::Transport::Multicast,
        Transport::Unicast => unisono::Transport::Unicast,
    };
    Ok(options)
}

/// Joins the group, or founds it with this resilience if there is none. Says aloud if nothing protects it.
pub(crate) fn enter(
    group: &str,
    settings: &Settings,
    name: Option<&str>,
    resilience: u8,
) -> Result<Group, Problem> {
    let options = options(settings, name)?;
    if options.key.is_none() {
        let reach = if options.insecure { "anyone on the network" } else { "anyone on this machine" };
        eprintln!("unisono: unauthenticated: without --key {reach} can read and write");
    }
    let config = GroupConfig { resilience, ..GroupConfig::default() };
    Ok(patiently(|| Group::join_or_create(group, config.clone(), "", &options))?)
}

/// Tries again where that is safe and may help: the group was being reset, or was slow.
pub(crate) fn patiently(enter: impl Fn() -> Result<Group, OpenError>) -> Result<Group, OpenError> {
    let mut tries = 1;
    loop {
        match enter() {
            Err(OpenError::Join(JoinFailure::Reset | JoinFailure::TimedOut)) if tries < TRIES => tries += 1,
            entered => return entered,
        }
    }
}

/// A joiner that asked for another resilience than the group has is told so; the group's holds.
pub(crate) fn warn_of_other_resilience(event: &Event, asked: Option<u8>) {
    if let (Event::Entered { seqno, view }, Some(asked)) = (event, asked) {
        let possible = u8::try_from(view.members.len().saturating_sub(1)).unwrap_or(u8::MAX);
        if *seqno > 0 && view.resilience != asked.min(possible) {
            eprintln!(
                "unisono: this group was founded with another resilience, which holds: at present {}, not {asked}",
                view.resilience
            );
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
            KeyError::Exists { .. } | KeyError::Random(_) => Problem::failed(error),
            _ => Problem::usage(error),
        }
    }
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Problem {
        match error {
            OpenError::Join(_) | OpenError::Socket { .. } | OpenError::AddressInUse { .. } => {
                Problem::failed(error)
            }
            _ => Problem::usage(error),
        }
    }
}
