//! What a server says of itself, and what the servers that answer say together.

use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;
use std::fmt;

/// Version of the question and the answer.
const STATUS_VERSION: u8 = 2;
/// The question: the version.
pub const STATUS_QUESTION: [u8; 1] = [STATUS_VERSION];
/// Maximum length of the words that say why.
const WHY_BYTES_MAX: usize = 512;

/// How far a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// All servers have to be there once to create the service.
    Creating,
    /// It fetches the state from the others.
    Joining,
    /// It answers.
    Serving,
    /// It finds out with others which state goes on.
    Recovering,
    /// Too few servers are there.
    Waiting,
    /// It has ended, or does not answer.
    #[default]
    Stopped,
    /// It does not answer this client, but servers that do hear it. No server says this of itself.
    Unreachable,
}

impl State {
    const ALL: [State; 6] =
        [State::Creating, State::Joining, State::Serving, State::Recovering, State::Waiting, State::Stopped];

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Creating => "creating",
            State::Joining => "joining",
            State::Serving => "serving",
            State::Recovering => "recovering",
            State::Waiting => "waiting",
            State::Stopped => "stopped",
            State::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An administrator let the service begin anew from one disk or from a backup, as another instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BegunAnew {
    /// Id of the server whose disk it was.
    pub server: u8,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of the last entry of its log that was kept. The log has commands and other entries.
    pub number: u64,
}

/// What a server says of itself. It contains no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// Id of the server.
    pub server: u8,
    /// Number of servers of the service.
    pub servers: u8,
    /// How far it is.
    pub state: State,
    /// Why it does not serve; empty if it does.
    pub why: String,
    /// Number of the last command that it has applied.
    pub number: u64,
    /// Ids of the servers that it waits for.
    pub waits_for: Vec<u8>,
    /// Generation of its log: each recovery gives a new one.
    pub generation: u64,
    /// Identity of its disk, a random number.
    pub disk: u64,
    /// Digest of all outcomes through `number`; `None` if it does not serve.
    pub digest: Option<[u8; 32]>,
    /// Each time that the service began anew, the first one first.
    pub begun_anew: Vec<BegunAnew>,
    /// Highest version of requests that it knows.
    pub version: u8,
    /// True if a change is answered once one disk has it, so that servers may have to wait for one certain disk.
    pub one_disk: bool,
    /// Instance of the service: another one after each time that it began anew; 0 before its creation.
    pub instance: u64,
    /// When the service was created, in milliseconds since 1970; `None` if that is not known.
    pub created_at_ms: Option<u64>,
    /// Ids of the servers that it is in a group with: it hears these.
    pub hears: Vec<u8>,
    /// Ids of the servers whose disks it knows to be empty or old.
    pub useless_disks: Vec<u8>,
}

impl ServerStatus {
    /// True if it answers, and applies what it hears of: a server that does not says so in `why`.
    pub fn serves(&self) -> bool {
        self.state == State::Serving && self.why.is_empty()
    }

    /// Returns the bytes of the answer.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        out.put_u8(STATUS_VERSION);
        out.put_u8(self.server);
        out.put_u8(self.servers);
        out.put_u8(self.state as u8);
        let why = &self.why.as_bytes()[..self.why.floor_char_boundary(WHY_BYTES_MAX)];
        out.put_u16(why.len() as u16);
        out.put_slice(why);
        out.put_u64(self.number);
        out.put_u8(self.waits_for.len() as u8);
        out.put_slice(&self.waits_for);
        out.put_u64(self.generation);
        out.put_u64(self.disk);
        out.put_u8(self.digest.is_some().into());
        out.put_slice(&self.digest.unwrap_or_default());
        let begun_anew = &self.begun_anew[..self.begun_anew.len().min(usize::from(u16::MAX))];
        out.put_u16(begun_anew.len() as u16);
        for BegunAnew { server, at_ms, number } in begun_anew {
            out.put_u8(*server);
            out.put_u64(*at_ms);
            out.put_u64(*number);
        }
        out.put_u8(self.version);
        out.put_u8(self.one_disk.into());
        out.put_u64(self.instance);
        out.put_u64(self.created_at_ms.unwrap_or(0));
        out.put_u8(self.hears.len() as u8);
        out.put_slice(&self.hears);
        out.put_u8(self.useless_disks.len() as u8);
        out.put_slice(&self.useless_disks);
        out.into()
    }

    /// Returns the status with these bytes; `None` if they are none of this version.
    pub fn decode(mut from: Bytes) -> Option<ServerStatus> {
        if from.try_get_u8().ok()? != STATUS_VERSION {
            return None;
        }
        let (server, servers) = (from.try_get_u8().ok()?, from.try_get_u8().ok()?);
        let state = *State::ALL.get(usize::from(from.try_get_u8().ok()?))?;
        let length = usize::from(from.try_get_u16().ok()?);
        let why = String::from_utf8(take(&mut from, length)?.to_vec()).ok()?;
        let number = from.try_get_u64().ok()?;
        let length = usize::from(from.try_get_u8().ok()?);
        let waits_for = take(&mut from, length)?.to_vec();
        let (generation, disk) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let has_digest = from.try_get_u8().ok()? == 1;
        let digest: [u8; 32] = take(&mut from, 32)?[..].try_into().ok()?;
        let count = from.try_get_u16().ok()?;
        let mut anew = |_| {
            let (server, at_ms) = (from.try_get_u8().ok()?, from.try_get_u64().ok()?);
            Some(BegunAnew { server, at_ms, number: from.try_get_u64().ok()? })
        };
        let begun_anew = (0..count).map(&mut anew).collect::<Option<_>>()?;
        let (version, one_disk) = (from.try_get_u8().ok()?, from.try_get_u8().ok()? == 1);
        let (instance, created) = (from.try_get_u64().ok()?, from.try_get_u64().ok()?);
        let length = usize::from(from.try_get_u8().ok()?);
        let hears = take(&mut from, length)?.to_vec();
        let length = usize::from(from.try_get_u8().ok()?);
        let useless_disks = take(&mut from, length)?.to_vec();
        from.is_empty().then_some(ServerStatus {
            server,
            servers,
            state,
            why,
            number,
            waits_for,
            generation,
            disk,
            digest: has_digest.then_some(digest),
            begun_anew,
            version,
            one_disk,
            instance,
            created_at_ms: Some(created).filter(|at| *at != 0),
            hears,
            useless_disks,
        })
    }
}

fn take(from: &mut Bytes, length: usize) -> Option<Bytes> {
    (from.len() >= length).then(|| from.split_to(length))
}

/// What the servers that answer say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// At least one serves.
    Serves,
    /// None serves, and too few answer. These are missing.
    NoMajority(Vec<u8>),
    /// None serves, but enough answer: they are about to, unless they do not reach each other, or a disk is not good. They
    /// wait for these.
    Recovers(Vec<u8>),
    /// None answers.
    Silent,
}

/// Returns what the servers that answered say together.
pub fn standing(answered: &[ServerStatus]) -> Standing {
    let Some(servers) = answered.iter().map(|status| status.servers).max() else { return Standing::Silent };
    if answered.iter().any(ServerStatus::serves) {
        return Standing::Serves;
    }
    let runs = |status: &&ServerStatus| status.state != State::Stopped;
    let here: BTreeSet<u8> =
        answered.iter().filter(runs).map(|status| status.server).chain(servers_heard(answered)).collect();
    let is_creating = answered.iter().any(|status| status.state == State::Creating);
    let majority = usize::from(servers / 2 + 1);
    let needed = if is_creating { usize::from(servers) } else { majority };
    let waited_for = answered.iter().flat_map(|status| &status.waits_for).copied();
    match here.len() < needed {
        true => Standing::NoMajority((1..=servers).filter(|id| !here.contains(id)).collect()),
        false => Standing::Recovers(waited_for.collect::<BTreeSet<u8>>().into_iter().collect()),
    }
}

/// Returns the ids of the servers that those which answered hear, whether or not they answered this client.
pub fn servers_heard(answered: &[ServerStatus]) -> BTreeSet<u8> {
    answered.iter().flat_map(|status| status.hears.iter().copied()).collect()
}

/// Returns the ids of servers whose state differs from that of others with the same number, and is not that of most.
pub fn diverged(servers: &[ServerStatus]) -> Vec<u8> {
    let digest = |status: &ServerStatus| status.digest.map(|digest| (status.number, digest));
    let odd = |status: &&ServerStatus| {
        let Some(own) = digest(status) else { return false };
        let others = || servers.iter().filter_map(digest).filter(|other| other.0 == own.0);
        let (all, alike) = (others().count(), others().filter(|other| *other == own).count());
        alike < all && alike * 2 <= all
    };
    servers.iter().filter(odd).map(|status| status.server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(server: u8, state: State, waits_for: &[u8]) -> ServerStatus {
        ServerStatus { server, servers: 3, state, waits_for: waits_for.to_vec(), ..ServerStatus::default() }
    }

    #[test]
    fn a_status_is_read_as_it_was_written_and_no_part_of_it_is_one() {
        let full = ServerStatus {
            server: 2,
            servers: 3,
            state: State::Waiting,
            why: "waits for servers 1 and 3".into(),
            number: 77,
            waits_for: vec![1, 3],
            generation: 4,
            disk: 0xd15c,
            digest: Some([7; 32]),
            begun_anew: vec![BegunAnew { server: 2, at_ms: 1_700_000_000_000, number: 70 }],
            version: 1,
            one_disk: true,
            instance: 5,
            created_at_ms: Some(1_600_000_000_000),
            hears: vec![1],
            useless_disks: vec![1],
        };
        let bytes = full.encode();
        assert_eq!(ServerStatus::decode(bytes.clone()), Some(full));
        for length in 0..bytes.len() {
            assert_eq!(ServerStatus::decode(bytes.slice(..length)), None);
        }
        assert_eq!(ServerStatus::decode([&bytes[..], b"x"].concat().into()), None);
        let wordy = ServerStatus { why: "ä".repeat(WHY_BYTES_MAX), ..ServerStatus::default() };
        assert_eq!(ServerStatus::decode(wordy.encode()).unwrap().why.len(), WHY_BYTES_MAX);
    }

    #[test]
    fn the_missing_servers_are_named() {
        assert_eq!(standing(&[]), Standing::Silent);
        let alone = status(1, State::Waiting, &[2, 3]);
        assert_eq!(standing(std::slice::from_ref(&alone)), Standing::NoMajority(vec![2, 3]));
        let serving = status(2, State::Serving, &[]);
        assert_eq!(standing(&[alone.clone(), serving.clone()]), Standing::Serves);
        let stuck = ServerStatus { why: "not applying for 9 s".into(), ..serving };
        assert_eq!(standing(&[alone.clone(), stuck]), Standing::Recovers(vec![2, 3]));
        let second = status(2, State::Recovering, &[]);
        assert_eq!(
            standing(&[status(1, State::Recovering, &[]), second.clone()]),
            Standing::Recovers(vec![])
        );
        // They may not reach each other.
        assert_eq!(standing(&[alone, second]), Standing::Recovers(vec![2, 3]));
        // One that this client does not reach runs all the same.
        let hears = ServerStatus { hears: vec![3], ..status(1, State::Recovering, &[]) };
        assert_eq!(standing(&[hears]), Standing::Recovers(vec![]));
        // All servers have to be there once.
        let half = [1, 2].map(|id| status(id, State::Creating, &[3]));
        assert_eq!(standing(&half), Standing::NoMajority(vec![3]));
    }

    #[test]
    fn the_odd_server_has_diverged() {
        let with = |server, number, digest| ServerStatus {
            server,
            number,
            digest: Some([digest; 32]),
            ..ServerStatus::default()
        };
        assert!(diverged(&[with(1, 5, 1), with(2, 5, 1), with(3, 4, 9)]).is_empty());
        assert_eq!(diverged(&[with(1, 5, 1), with(2, 5, 2), with(3, 5, 1)]), [2]);
        // Of two, nothing says which is right.
        assert_eq!(diverged(&[with(1, 5, 1), with(2, 5, 2), with(3, 4, 1)]), [1, 2]);
        assert_eq!(diverged(&[with(1, 5, 1), with(2, 5, 2), with(3, 5, 3)]), [1, 2, 3]);
    }
}
