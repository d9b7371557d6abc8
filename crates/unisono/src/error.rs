//! The errors of groups, keys and queries. Each variant says whether anything changed, what caused it, and what to do
//! next.
//!
//! What the operating system said is either part of the text (`cause`) or the `source()`, never both: a program that
//! prints an error with its sources would print it twice.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use thiserror::Error;
use unisono_core::wire::VERSION;
use unisono_core::{
    ChangeOrderError, ConfigError, EpochId, ForceError, HeldUp, JoinFailure, LeaveError, SendError,
    debug_as_sentence,
};

/// Why a process is not in the group. The group is unchanged, unless the reason of a failed join says otherwise.
#[derive(Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The name is empty or contains control characters. The caller's mistake: choose another name.
    #[error("a group's name has at least one character, and no control characters: {name:?} is not valid")]
    GroupName {
        /// The name as given.
        name: String,
    },
    /// The address leads out of this machine, and there is no key. Nothing was sent. Give every member a key, or set
    /// [`Options::insecure`](crate::Options::insecure).
    #[error(
        "{} is not on this machine's loopback, and without a key anyone could read and forge what \
         is sent: make a key with `unisono keygen FILE` and give it to every member, or allow it with --insecure \
         (Options::insecure)",
        chosen(*address)
    )]
    Unprotected {
        /// Address that was to be bound or asked.
        address: SocketAddr,
    },
    /// Another program has the address. Choose another port, or port 0 for any free one.
    #[error("{address} is in use by another program: choose another port, or port 0 for any free one")]
    AddressInUse {
        /// Address that was to be bound.
        address: SocketAddr,
    },
    /// The address to bind is not one of this machine's. Choose one that it has.
    #[error("{} is not an address of this machine: `ip address` lists those it has", address.ip())]
    NotOurAddress {
        /// Address that was to be bound.
        address: SocketAddr,
    },
    /// No route shows which of this machine's addresses to use. Name one in [`Options::bind`](crate::Options::bind).
    #[error(
        "cannot tell which of this machine's addresses to use: name one with --bind ADDRESS (Options::bind)"
    )]
    NoAddress,
    /// This machine has no address yet at which others could reach it, and a member with a key does not stay on loopback
    /// unless it is told to. Nothing was sent. Wait for the network, or name an address in
    /// [`Options::bind`](crate::Options::bind).
    #[error(
        "this machine has no address yet at which others could reach it (`ip address` lists those it has): try again when \
         its network is up, or stay on this machine with --bind 127.0.0.1 (Options::bind)"
    )]
    NoAddressYet,
    /// Multicast does not work on this interface, and no seeds are given, so no member can be asked. Name seeds, or
    /// another interface.
    #[error(
        "multicast does not work on the interface of {} (port {port}: {cause}): name members to ask with \
         --seeds HOST:PORT (Options::seeds), or another interface",
        address.ip(),
        port = crate::MULTICAST_PORT
    )]
    NoMulticast {
        /// Address of the interface.
        address: SocketAddr,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The operating system refused something else. The cause says why; try again when it is removed.
    #[error("cannot {what}: {cause}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// A seed has no valid port. The caller's mistake: a seed is HOST:PORT, or HOST alone.
    #[error(
        "{seed} has no valid port: a seed is HOST:PORT, and a port is a number from 1 to 65535 (HOST alone means HOST:{port})",
        port = crate::DEFAULT_PORT
    )]
    SeedPort {
        /// The seed as given.
        seed: String,
    },
    /// The seed has another IP version than the address from which this process sends: the one to bind, or without a key
    /// that of the first seed. The caller's mistake: leave the seed out, or bind an address of its version.
    #[error("{}", other_family(*seed))]
    SeedFamily {
        /// The seed, or an address of it.
        seed: SocketAddr,
    },
    /// The operating system refused to send the query for the group to any address, so no member was asked. Check the
    /// route and the firewall of this machine, and try again.
    #[error(
        "no member was asked for the group, because the system sends nothing to {address} or to any other address to ask: \
         type `ip route get {}` to see whether there is a route; if there is, look for a firewall; then try again",
        address.ip()
    )]
    Unasked {
        /// One of the addresses that were to be asked.
        address: SocketAddr,
    },
    /// None of the seeds has an address, so no member was asked. Check the spelling of the seeds, and DNS.
    #[error(
        "none of the seeds ({seeds}) has an address, so there is no member to ask: check their spelling, and that DNS \
         answers (`getent hosts NAME`); to found the group without asking, leave the seeds out"
    )]
    Seeds {
        /// The seeds as given.
        seeds: String,
        /// Error of the last look-up.
        source: io::Error,
    },
    /// This process already has a member of this group at this address, or had one that was excluded and still serves
    /// the others for a few seconds. Give the second member another port, or try again in five seconds.
    #[error(
        "this process already has a member of this group at {address}: give the second one another port, or try again in \
         five seconds if the first was excluded"
    )]
    AlreadyMember {
        /// Address of the first member.
        address: SocketAddr,
    },
    /// A former member of this process, of which no handle is left, is still leaving this group at this address. Try again
    /// in five seconds, or give the next member another port.
    #[error(
        "a former member of this process is still leaving this group at {address}: try again in five seconds, or give the \
         next one another port"
    )]
    StillLeaving {
        /// Address of the former member.
        address: SocketAddr,
    },
    /// This process makes calls from this address under another key, with other seeds or settings. Choose another
    /// port.
    #[error(
        "this process makes calls from {address} with another key, other seeds or settings: give the second one another port"
    )]
    OtherCalls {
        /// Address of the first caller.
        address: SocketAddr,
    },
    /// No member answered, but a process sends datagrams of a group of this name that this process cannot open. Use
    /// the members' key.
    #[error("{}", other_key(*address))]
    OtherKey {
        /// Address of that process.
        address: SocketAddr,
    },
    /// A forked child used a handle of its parent: the caller's mistake. Open a group of its own in the child.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
    /// A parameter is out of its range: the caller's mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The group did not admit this process. The reason says whether to try again.
    #[error("{}", join_failure(.0))]
    Join(JoinFailure),
}

debug_as_sentence!(OpenError {
    GroupName, Unprotected, AddressInUse, NotOurAddress, NoAddress, NoAddressYet, NoMulticast, Socket, SeedPort,
    SeedFamily, Unasked, Seeds, AlreadyMember, StillLeaving, OtherCalls, OtherKey, Forked; of Config; by Join
});

/// Returns the address as the user gave it: without the port if any free one was asked for.
fn chosen(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

fn other_family(seed: SocketAddr) -> String {
    let (its, other) = if seed.is_ipv6() { ("IPv6", "IPv4") } else { ("IPv4", "IPv6") };
    format!(
        "the seed {seed} cannot be asked, because this process sends over {other}: leave it out, or send over {its}, with \
         --bind ADDRESS (Options::bind) and {its} seeds only"
    )
}

fn other_key(address: SocketAddr) -> String {
    format!(
        "no member answered, but {address} sends datagrams of a group of this name under another key, or with a key where \
         this process has none: use the key file of the members (--key FILE, Options::key); if it is the same file, the \
         query of this process does not reach them"
    )
}

fn other_version(address: SocketAddr, version: u8) -> String {
    format!(
        "no member answered in version {VERSION} of the wire format, which this process uses, but {address} \
         sends datagrams of a group of this name in version {version}: use the same release of unisono in all processes \
         (`unisono --version`), or another name for this group"
    )
}

fn join_failure(reason: &JoinFailure) -> Cow<'static, str> {
    let words = match reason {
        JoinFailure::Unreachable { sequencer } => {
            return format!(
                "a member answered, but the group's sequencer does not answer at {sequencer}: if it has just crashed, \
                 try again; if this machine cannot reach that address, start that member with an address that all \
                 machines can reach: --bind ADDRESS (Options::bind)"
            )
            .into();
        }
        JoinFailure::OtherVersion { by, version } => return other_version(*by, *version).into(),
        JoinFailure::NotFound => {
            "no member of this group answered: check its name, that a member runs, that all use the same key or all \
             `--insecure`, and that multicast reaches it or --seeds names a member"
        }
        JoinFailure::Lost => {
            "a member of the group answered, and then none did: the members have crashed or left, or are out of reach; \
             start one of them, and try again"
        }
        JoinFailure::Halted => {
            "the group exists but stands still: if it is being reset, try again; if it stays so, `unisono why` names the \
             members that do not answer: reconnect them, or let them run on (a process that is started anew is another \
             member, and cannot join now); if they are dead for ever, `unisono force GROUP --without NAMES`"
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
        JoinFailure::FloorTooHigh { by } => {
            return format!(
                "{by} refused: the group allows fewer members than this process asks for with --floor (Settings::floor)"
            )
            .into();
        }
        JoinFailure::FloorWithoutVote { by } => {
            return format!(
                "{by} refused: members of this name have no vote in the group, and ask for no --floor (Settings::floor)"
            )
            .into();
        }
        JoinFailure::TimedOut => "the group was found but did not admit this process in time: try again",
        JoinFailure::Reset => "the group was reset while this process joined: try again",
        JoinFailure::NotFormed => {
            "too few of the participants met in time, or the others formed the group without this one: join it, or try again"
        }
        other => {
            return format!("the join failed for a reason that this version does not know: {other:?}").into();
        }
    };
    words.into()
}

/// Why a message has no seqno, or is not known to have one.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SendFailure {
    /// The message was not taken, and nothing was sent. The reason says what to do.
    #[error(transparent)]
    Refused(#[from] SendError),
    /// A reset dropped the message: no remaining member will ever deliver it. Not the caller's fault: send it again if
    /// it still matters.
    #[error(
        "a reset of the group dropped the message: no member will deliver it, so it is safe to send it again"
    )]
    Failed,
    /// The message has no seqno yet, and gets none until this member receives: unreceived events fill the history,
    /// and this process has taken none for five seconds. The message is still under way: receive, and do not send it
    /// again.
    #[error(
        "the message has no sequence number yet, and gets none until this member receives the events that wait for it; \
         it is still under way: do not send it again"
    )]
    NotReceiving,
    /// The time given to [`Group::send_timeout`](crate::Group::send_timeout) is over. The message is under way and may
    /// still be ordered: do not send it again.
    #[error(
        "the message has no seqno after the time allowed for it, and may still get one{}",
        held_up(held_up_by)
    )]
    TimedOut {
        /// The member whose application holds all members up, if this member knows it.
        held_up_by: Option<HeldUp>,
    },
    /// This member was cut off from the group first: the others may have the message or not. Join again and look.
    #[error(
        "this member was cut off from the group: the others may have the message or not; join again and look"
    )]
    Unknown,
}

debug_as_sentence!(SendFailure { Failed, NotReceiving, TimedOut, Unknown; of Refused });

fn held_up(by: &Option<HeldUp>) -> String {
    by.map_or_else(String::new, |by| {
        format!(": member {} has held up all others for {:?}", by.member, by.since)
    })
}

/// Why the stream of events has ended.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Ended {
    /// This member has left, as it was asked to.
    #[error("this member has left the group")]
    Left,
    /// The group excluded this member, which was cut off, too slow, or taken for crashed; or this founder gave way to
    /// a group that did not admit it. It may join again as a new member.
    #[error("this member is excluded from the group; it may join again as a new member")]
    Excluded {
        /// The epoch that began without this member, if it knows it.
        epoch: Option<EpochId>,
    },
    /// This machine no longer has the member's address, and has another one. The others will exclude the member; it may
    /// join again as a new member.
    #[error(
        "this machine no longer has the address of this member; it may join again, as a new member at another address"
    )]
    Moved,
    /// The process is a forked child, and the handle is its parent's: only the parent receives.
    #[error("this handle belongs to the process that forked: open another one here")]
    Forked,
}

debug_as_sentence!(Ended { Left, Excluded, Moved, Forked });

/// Why a leave was not confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaveFailure {
    /// The leave was not begun. The reason says why.
    #[error(transparent)]
    Refused(#[from] LeaveError),
    /// The group excluded this member before it received its own leave. It is out all the same; nothing is left to
    /// do.
    #[error("the group excluded this member before it received its own leave; it is out all the same")]
    Excluded,
    /// No member confirmed the leave within five seconds. This member is out; the others, if there are any, notice
    /// its silence and exclude it.
    #[error(
        "no member confirmed the leave; this member is out, and the others, if there are any, will exclude it"
    )]
    Unconfirmed,
    /// The process is a forked child, and the handle is its parent's: the parent's member stays.
    #[error("this handle belongs to the process that forked: its member stays")]
    Forked,
}

debug_as_sentence!(LeaveFailure { Excluded, Unconfirmed, Forked; of Refused });

/// Why a query returned no report. Nothing changed in the group.
#[derive(Error)]
#[non_exhaustive]
pub enum LookError {
    /// The query could not be sent.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No member answered in time, but a process sends datagrams of a group of this name that this process cannot
    /// open. Use the members' key.
    #[error("{}", other_key(*address))]
    OtherKey {
        /// Address of that process.
        address: SocketAddr,
    },
    /// No member answered in time, and a process uses a group of this name with another version of the wire format.
    /// Use the same release of unisono on both sides, or another name.
    #[error("{}", other_version(*address, *version))]
    OtherVersion {
        /// Address of that process.
        address: SocketAddr,
        /// Version that it uses.
        version: u8,
    },
    /// No member answered in time. Check the name, the key, and the way to the members.
    #[error(
        "no member of this group answered: check its name, that a member runs, that both use the same key, \
         and that multicast reaches it or --seeds names a member"
    )]
    NoAnswer,
}

debug_as_sentence!(LookError { OtherKey, OtherVersion, NoAnswer; of Open });

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

/// The order of a group was not changed from outside. Nothing was begun, except where no answer came back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChangeOrderFailure {
    /// The member could not be asked.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The member refused.
    #[error(transparent)]
    Refused(#[from] ChangeOrderError),
}

/// Why a file with a key or a private port could not be written or read. Nothing changed.
#[derive(Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file of this name exists already, and was not touched. Choose another name, or remove it if it is not used.
    #[error(
        "{} exists already: a key is never overwritten; choose another name, or remove the file if it is not used",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Other users of this machine may read the file, so the key was not used. Set its mode to 600.
    #[error(
        "{} can be read by others on this machine (mode {mode:04o}): {}",
        path.display(), cure(path, *group)
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Group of this process, if the file belongs to another user.
        group: Option<u32>,
    },
    /// The file belongs to another user, who may determine its contents, so the secret was not used. Copy it to a file of
    /// this process's user, or change its owner.
    #[error(
        "{0} belongs to another user (number {owner}), neither to root nor to this process's user: type `chown {own} '{0}'` as root",
        path.display(), own = rustix::process::geteuid().as_raw()
    )]
    OtherOwner {
        /// The file.
        path: PathBuf,
        /// Number of the user that owns it.
        owner: u32,
    },
    /// The file is not a key file, or it is damaged. Name another one, or make one with
    /// [`Key::write_new`](crate::Key::write_new).
    #[error("{} is not a key file: `unisono keygen FILE` makes one", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The file contains no private port. Name another one, or make one with
    /// [`PrivatePort::write_new`](crate::rpc::PrivatePort::write_new).
    #[error("{} contains no private port: `unisono rpc newport --out FILE` makes one", path.display())]
    NotAPort {
        /// The file.
        path: PathBuf,
    },
    /// The key file has two keys already: drop the first before another one is added.
    #[error("{} has two keys already: `unisono keygen --retire FILE` drops the first", path.display())]
    TwoKeys {
        /// The file.
        path: PathBuf,
    },
    /// The key file has one key, which is in use: add the next one before this one is dropped.
    #[error("{} has only one key, which is in use: `unisono keygen --next FILE` adds the next", path.display())]
    OneKey {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused to open, read or write the file. What was there before is unchanged.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The operating system gave no random numbers. Try again.
    #[error("the system gave no random numbers: {0}")]
    Random(io::Error),
}

debug_as_sentence!(KeyError {
    Exists,
    Exposed,
    OtherOwner,
    NotAKey,
    NotAPort,
    TwoKeys,
    OneKey,
    File,
    Random
});

/// Returns what to type to make a key file unreadable for others.
fn cure(path: &Path, group: Option<u32>) -> String {
    let path = path.display();
    match group {
        None => format!("type `chmod 600 '{path}'`"),
        Some(group) => format!("type `chown root:{group} '{path}' && chmod 440 '{path}'` as root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{CallFailure, NotSent, Withdrawn};
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
            let (words, printed) = (error.to_string(), format!("{error:?}"));
            assert!(printed.contains(&words), "{printed}");
            let mut sources = std::iter::successors(error.source(), |&source| source.source());
            assert!(sources.all(|source| !words.contains(&source.to_string())), "{words}");
        }
    }

    #[test]
    fn what_main_prints_of_an_error_is_its_variant_and_its_sentence() {
        let printed = |error: &dyn Error| format!("{error:?}");
        let join = OpenError::Join(JoinFailure::NotFound);
        let sentence = join.to_string();
        assert_eq!(printed(&join), format!("Join: NotFound: {sentence}"));
        assert_eq!(printed(&LookError::from(join)), format!("Open: Join: NotFound: {sentence}"));
        let seeds = OpenError::Seeds { seeds: "nowhere.invalid".into(), source: io::Error::other("no DNS") };
        assert_eq!(printed(&seeds), format!("Seeds: {seeds}: no DNS"));
        assert_eq!(printed(&CallFailure::NotFound), format!("NotFound: {}", CallFailure::NotFound));
        let refused = CallFailure::Refused("\u{1b}[2Jno".into());
        assert_eq!(printed(&refused), r"Refused: refused: \u{1b}[2Jno");
        assert_eq!(printed(&Withdrawn), "Withdrawn: this service takes no more requests");
    }
}
