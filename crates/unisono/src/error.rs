//! What can go wrong, and for each: whether anything changed, whose doing it is, and what to do next.
//!
//! What the system said is part of the words (`cause`), or is what `source()` has; not both, or whoever prints an error
//! with its sources would say it twice.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;
use unisono_core::{ConfigError, EpochId, ForceError, HeldUp, JoinFailure, LeaveError, SendError};

/// A group was not entered. Nothing changed in it, unless the join itself says so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nobody could type such a name, or tell it from others on sight.
    #[error("a group's name has at least one character, and no control characters: {name:?} will not do")]
    GroupName {
        /// As given.
        name: String,
    },
    /// Without a key nothing leaves this machine.
    #[error(
        "{} is not on this machine's loopback, and without a key anyone could read and forge what \
         is sent: make a key with `unisono keygen FILE` and give it to every member, or allow it with --insecure \
         (Options::insecure)",
        chosen(*address)
    )]
    Unprotected {
        /// The address that was to be bound or asked.
        address: SocketAddr,
    },
    /// Another program has the address.
    #[error("{address} is in use by another program: choose another port, or port 0 for any free one")]
    AddressInUse {
        /// The address that was to be bound.
        address: SocketAddr,
    },
    /// The address is not one of this machine's.
    #[error("{} is not an address of this machine: `ip address` lists those it has", address.ip())]
    NotOurAddress {
        /// The address that was to be bound.
        address: SocketAddr,
    },
    /// There is no route that would show which address to use.
    #[error(
        "cannot tell which of this machine's addresses to use: say so with --bind ADDRESS (Options::bind)"
    )]
    NoAddress,
    /// Multicast does not work here, and no seeds are given.
    #[error(
        "multicast does not work on the interface of {} (port {port}: {cause}): name members to ask with \
         --seeds HOST:PORT (Options::seeds), or another interface",
        address.ip(),
        port = crate::MULTICAST_PORT
    )]
    NoMulticast {
        /// The interface's address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The system refused something else.
    #[error("cannot {what}: {cause}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// A seed names a port that there is not.
    #[error(
        "{seed} names no port: a seed is HOST:PORT, and a port is a number from 1 to 65535 (HOST alone stands for HOST:{port})",
        port = crate::DEFAULT_PORT
    )]
    SeedPort {
        /// As given.
        seed: String,
    },
    /// This process sends by the other version of IP: to the address that it is to bind, or that of the first seed.
    #[error("{}", other_family(*seed))]
    SeedFamily {
        /// The seed, or an address of it.
        seed: SocketAddr,
    },
    /// The system would not send the question where the group is, to anybody.
    #[error(
        "nobody was asked for the group, since the system sends nothing to {address}, or anybody else who may know it: type \
         `ip route get {}` to see whether there is a way, look for a firewall if there is, and try again",
        address.ip()
    )]
    Unasked {
        /// Where the question was to go, or one of the places.
        address: SocketAddr,
    },
    /// None of the seeds has an address.
    #[error(
        "none of the seeds ({seeds}) has an address, so there is nobody to ask: check their spelling, and that DNS answers \
         (`getent hosts NAME`); whoever is to found the group without asking anybody does without seeds"
    )]
    Seeds {
        /// As given.
        seeds: String,
        /// What was said of the last of them.
        source: io::Error,
    },
    /// This process has a member of this group at this address; or had one that was excluded, and serves the others for a
    /// few seconds yet.
    #[error(
        "this process already has a member of this group at {address}: give the second one another port, or try again in \
         five seconds if the first was excluded"
    )]
    AlreadyMember {
        /// The address.
        address: SocketAddr,
    },
    /// This process makes calls from this address under another key, with other seeds or settings.
    #[error(
        "this process makes calls from {address} with another key, other seeds or settings: give the second one another port"
    )]
    OtherCalls {
        /// The address.
        address: SocketAddr,
    },
    /// Nobody answered, and somebody speaks of a group of this name in a way that this process cannot open.
    #[error("{}", other_key(*address))]
    OtherKey {
        /// Who.
        address: SocketAddr,
    },
    /// A parameter is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The group did not let us in.
    #[error("{}", join_failure(.0))]
    Join(JoinFailure),
}

/// As the user gave it: any free port is no port.
fn chosen(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

fn other_family(seed: SocketAddr) -> String {
    let (its, other) = if seed.is_ipv6() { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
    format!(
        "the seed {seed} cannot be asked, since this process sends by {other}: leave it out, or send by {its}, with \
         --bind ADDRESS (Options::bind) and {its} seeds only"
    )
}

fn other_key(address: SocketAddr) -> String {
    format!(
        "nobody answered for this group, but {address} speaks of one of this name under another key, or with one where \
         this process has none: use the key file that the members use (--key FILE, Options::key); if it is the same, what \
         this process asks does not reach them"
    )
}

fn join_failure(reason: &JoinFailure) -> Cow<'static, str> {
    let words = match reason {
        JoinFailure::Unreachable { sequencer } => {
            return format!(
                "a member answered, but the group's sequencer does not answer at {sequencer}: if it has just crashed, \
                 try again; if this machine cannot reach that address, begin that member with one that all can \
                 reach, by --bind ADDRESS (Options::bind)"
            )
            .into();
        }
        JoinFailure::NotFound => {
            "nobody answered for this group: check its name, that a member runs, that all use the same key, \
             and that multicast reaches it or --seeds names a member"
        }
        JoinFailure::Lost => {
            "the group answered, and then nobody did any more: its members have crashed or left, or are out of reach; \
             begin one of them, and try again"
        }
        JoinFailure::Halted => {
            "the group is there but stands still: it is being reset, try again; or too few of its members are left to \
             go on, see `unisono why`, and end them to found it anew"
        }
        JoinFailure::Full { by } => {
            return format!("{by} refused: the group has as many members as its founder allowed").into();
        }
        JoinFailure::NameRefused { by } => {
            return format!(
                "{by} refused: the group admits a fixed list of names, and this one is not on it: set --name (Options::name)"
            )
            .into();
        }
        JoinFailure::TimedOut => "the group was found but took too long to let us in: try again",
        JoinFailure::Reset => "the group was reset while we joined: try again",
        JoinFailure::NotFormed => {
            "too few of the participants met in time, or they formed the group without this one: join it, or try again"
        }
        other => {
            return format!("the join failed for a reason that this version does not know: {other:?}").into();
        }
    };
    words.into()
}

/// A message has no place in the order, or it is not known to have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendFailure {
    /// It was not taken: nothing was sent.
    #[error(transparent)]
    Refused(#[from] SendError),
    /// A reset fell upon it: no member will ever deliver it. Send it again if it still matters.
    #[error(
        "the group was reset and the message dropped: no member will deliver it; it is safe to send it again"
    )]
    Failed,
    /// It has no place yet, and gets none until this member receives: the events that wait for it fill the history,
    /// and nobody here has taken any for five seconds. It is under way all the same: receive, and do not send it again.
    #[error(
        "the message has no place and gets none until this member receives the events that wait for it; it is under way \
         all the same"
    )]
    NotReceiving,
    /// The time of [`Group::send_timeout`](crate::Group::send_timeout) is over. The message is under way, and may still
    /// be ordered: do not send it again.
    #[error(
        "the message has no seqno after the time allowed for it, and may still get one{}",
        held_up(held_up_by)
    )]
    TimedOut {
        /// The member whose application holds all members up, if this member knows it.
        held_up_by: Option<HeldUp>,
    },
    /// This member was cut off first: the others may have it or not.
    #[error(
        "this member was cut off from the group: the others may have the message or not; join again and look"
    )]
    Unknown,
}

fn held_up(by: &Option<HeldUp>) -> String {
    by.map_or_else(String::new, |by| {
        format!(": member {} has held up all others for {:?}", by.member, by.since)
    })
}

/// The stream of events is over, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ended {
    /// This member has left.
    #[error("this member has left the group")]
    Left,
    /// The group went on without this member.
    #[error("the group went on without this member; it may join again as a new one")]
    Excluded {
        /// The epoch that began without it, if it was told.
        epoch: Option<EpochId>,
    },
}

/// A leave did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaveFailure {
    /// It was not begun.
    #[error(transparent)]
    Refused(#[from] LeaveError),
    /// The group went on without this member before it heard of its own leave. It is out all the same.
    #[error("the group went on without this member before it heard of its own leave; it is out all the same")]
    Excluded,
    /// Nobody confirmed it in five seconds. This member is out; the others will find out by themselves, if
    /// there are any.
    #[error(
        "nobody confirmed the leave; this member is out, and others, if there are any, will miss it and reset"
    )]
    Unconfirmed,
}

/// Nobody could be asked, or nobody answered. Nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LookError {
    /// The question could not be sent.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No member answered in time, and somebody speaks of a group of this name in a way that this process cannot
    /// open.
    #[error("{}", other_key(*address))]
    OtherKey {
        /// Who.
        address: SocketAddr,
    },
    /// No member answered in time.
    #[error(
        "no member of this group answered: check its name, that a member runs, that both use the same key, \
         and that multicast reaches it or --seeds names a member"
    )]
    NoAnswer,
}

/// A group was not forced to go on. Nothing was begun, except where no answer came back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForceFailure {
    /// The member could not be asked.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The member refused.
    #[error(transparent)]
    Refused(#[from] ForceError),
}

/// A key file cannot be used. Nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is something of this name already.
    #[error(
        "{} exists already: a key is never overwritten; choose another name, or remove it if nobody uses it",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Others on this machine may read it.
    #[error(
        "{0} can be read by others on this machine (mode {mode:04o}): type `chmod 600 '{0}'`",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It holds something else.
    #[error("{} is not a key file: `unisono keygen FILE` makes one", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The system gave no randomness.
    #[error("the system gave no random numbers: {0}")]
    Random(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{CallFailure, NotSent};
    use std::error::Error;

    #[test]
    fn no_source_is_told_twice() {
        let cause = || io::Error::from_raw_os_error(24);
        let (address, path) = ("192.0.2.7:7195".parse().unwrap(), PathBuf::from("group.key"));
        let errors: [Box<dyn Error>; 6] = [
            Box::new(OpenError::NoMulticast { address, cause: cause() }),
            Box::new(OpenError::Socket { what: "open a socket", cause: cause() }),
            Box::new(OpenError::Seeds { seeds: "nowhere.invalid".into(), source: cause() }),
            Box::new(KeyError::File { path, cause: cause() }),
            Box::new(KeyError::Random(cause())),
            Box::new(CallFailure::NotSent(NotSent::TooMany)),
        ];
        for error in errors {
            let words = error.to_string();
            let mut sources = std::iter::successors(error.source(), |&source| source.source());
            assert!(sources.all(|source| !words.contains(&source.to_string())), "{words}");
        }
    }
}
