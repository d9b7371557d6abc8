//! Recovery: how servers that are members of one group, and do not serve yet, agree on the state to go on with.
//!
//! One attempt is a round. It begins at each change of the view. All members say what their disks have; if a majority
//! of the configured servers has good disks, these promise a new generation on disk, choose the log with the highest
//! (generation, place), adopt it, and open the service when all of them have it. All words travel in the group's order,
//! so all members draw the same conclusions. (KTV93 §3.2, with a generation in place of its recovering mark.)
//!
//! With durability *one* a majority is not enough: an answer may be on one disk alone. The servers look for the highest
//! (generation, view) that any of them has written, and go on if all members of that view are here; or if one of them is
//! here and has not written it, since the view never served then; or if one has been up ever since it wrote it, and so
//! holds everything that was answered in it. (KTV93 §3.2 with its improvement.)
//!
//! A server whose disk has not finished a write for a while says so, and the others go on without it if they can; it
//! fetches the state when they have opened the service. While they cannot, they wait for its disk.
//!
//! The service is created in the same way by all configured servers together: each writes *half*, and *done* once all
//! have written *half*. No caller is answered before that, so half a creation proves that nothing was lost.

use super::super::Watched;
use super::super::disk::{Created, DiskDurability, Heard};
use super::entry::Place;
use super::said::{RoundWord, Said};
use crate::identity::{Seqno, Uid};
use crate::planted::Planted;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What the servers with good disks do in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Plan {
    pub(in super::super) generation: u64,
    pub(in super::super) service: u128,
    /// Number of configured servers.
    pub(in super::super) servers: u8,
    /// The members with good disks, and their ids.
    pub(in super::super) good: BTreeMap<Uid, u8>,
    /// The member that has the chosen state.
    pub(in super::super) donor: Uid,
    /// Generation and last place of the chosen log.
    pub(in super::super) chosen: (u64, Place),
    /// With durability *one*: the view that is written with the chosen state.
    pub(in super::super) view: Option<(u64, Vec<u8>)>,
    /// The disks as the members said.
    pub(in super::super) disks: BTreeMap<u8, Heard>,
}

/// What follows from a word, the same at all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Verdict {
    Nothing,
    /// All servers are blank and here: write *half* with this root.
    Half(u128),
    /// All have written *half*: write *done*.
    Done(u128),
    /// The service is created, or the disk of a server stalls: begin a round.
    Again,
    Promise(Plan),
    Adopt(Plan),
    Open(Plan),
    /// These members cannot take part with their disks or options.
    Foreign(BTreeMap<Uid, Foreign>),
}

/// Why a disk cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Foreign {
    GivenUp,
    OtherService,
    OtherServers,
    OtherDurability,
    NothingLost,
}

/// A round. See the module.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Round {
    /// Seqno of the event with which it began.
    pub(in super::super) key: Seqno,
    said: BTreeMap<Uid, Said>,
    /// Members whose disks do not get on.
    stalled: BTreeSet<Uid>,
    stage: Stage,
    /// Ids of the servers without a good disk here.
    missing: Vec<u8>,
    /// Ids of those that are here with a disk that is empty or old.
    useless: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    Gathering,
    Creating {
        root: u128,
        half: BTreeSet<Uid>,
        done: BTreeSet<Uid>,
    },
    Promising {
        plan: Plan,
        have: BTreeSet<Uid>,
    },
    Adopting {
        plan: Plan,
        have: BTreeSet<Uid>,
    },
}

impl Round {
    pub(in super::super) fn new(key: Seqno) -> Round {
        Round { key, ..Round::default() }
    }

    /// Returns the round after this one in the same view. In another view a newcomer would not know whose disks do not get
    /// on, and would conclude something else than the others; there it is said again.
    pub(in super::super) fn again(&self, key: Seqno) -> Round {
        Round { stalled: self.stalled.clone(), ..Round::new(key) }
    }

    /// Handles a word of a member of the view, whose members are `members`.
    pub(in super::super) fn hear(
        &mut self,
        from: Uid,
        word: RoundWord,
        members: &[Uid],
        watched: Watched,
    ) -> Verdict {
        match (word, &mut self.stage) {
            (RoundWord::Said(said), Stage::Gathering) => {
                self.said.insert(from, said);
                self.stalled.remove(&from);
                self.judge_if_all_have_said(members, watched)
            }
            (RoundWord::Stalls, Stage::Gathering) => {
                self.said.remove(&from);
                self.stalled.insert(from);
                self.judge_if_all_have_said(members, watched)
            }
            (RoundWord::Stalls, Stage::Promising { plan, have } | Stage::Adopting { plan, have }) => {
                let is_awaited = plan.good.contains_key(&from) && !have.contains(&from);
                if !is_awaited || 2 * (plan.good.len() - 1) <= usize::from(plan.servers) {
                    return Verdict::Nothing;
                }
                self.stalled.insert(from);
                Verdict::Again
            }
            (RoundWord::Half, Stage::Creating { root, half, .. }) => {
                half.insert(from);
                let all = members.iter().all(|member| half.contains(member));
                if all { Verdict::Done(*root) } else { Verdict::Nothing }
            }
            (RoundWord::Done, Stage::Creating { done, .. }) => {
                done.insert(from);
                let all = members.iter().all(|member| done.contains(member));
                if all { Verdict::Again } else { Verdict::Nothing }
            }
            (RoundWord::Promised, Stage::Promising { plan, have }) => {
                have.insert(from);
                if !plan.good.keys().all(|member| have.contains(member)) {
                    return Verdict::Nothing;
                }
                let plan = plan.clone();
                self.stage = Stage::Adopting { plan: plan.clone(), have: BTreeSet::new() };
                Verdict::Adopt(plan)
            }
            (RoundWord::Adopted, Stage::Adopting { plan, have }) => {
                have.insert(from);
                let all = plan.good.keys().all(|member| have.contains(member));
                if all { Verdict::Open(plan.clone()) } else { Verdict::Nothing }
            }
            _ => Verdict::Nothing,
        }
    }

    /// Returns the ids of the servers that are waited for; empty while that is not known.
    pub(in super::super) fn missing(&self) -> &[u8] {
        &self.missing
    }

    /// Returns the ids of the servers that are here with a disk that does not count: it is empty, or older than another
    /// server knows it to have been.
    pub(in super::super) fn useless(&self) -> &[u8] {
        &self.useless
    }

    /// Returns the member whose state is taken over at present.
    pub(in super::super) fn donor(&self) -> Option<Uid> {
        match &self.stage {
            Stage::Adopting { plan, .. } => Some(plan.donor),
            _ => None,
        }
    }

    fn judge_if_all_have_said(&mut self, members: &[Uid], watched: Watched) -> Verdict {
        let is_known = |member: &Uid| self.said.contains_key(member) || self.stalled.contains(member);
        match members.iter().all(is_known) && !self.said.is_empty() {
            true => self.judge(watched),
            false => Verdict::Nothing,
        }
    }

    /// All members have said what they have, but those whose disks do not get on.
    fn judge(&mut self, watched: Watched) -> Verdict {
        let needless = self.needless_escapes();
        if !needless.is_empty() {
            return Verdict::Foreign(needless);
        }
        let Some(service) = self.service() else { return self.judge_creation(watched) };
        let foreign = self.foreign(service);
        if !foreign.is_empty() {
            return Verdict::Foreign(foreign);
        }
        let is_good = |said: &Said| match said.created {
            Created::Done(root) | Created::Half(root) => root == service && !self.is_old(said, watched),
            Created::Blank => watched.broken(Planted::BlankCounted),
        };
        let good: BTreeMap<Uid, u8> = self
            .said
            .iter()
            .filter(|(_, said)| is_good(said))
            .map(|(uid, said)| (*uid, said.server))
            .collect();
        let servers = self.servers();
        let ids: BTreeSet<u8> = good.values().copied().collect();
        self.missing = (1..=servers).filter(|id| !ids.contains(id)).collect();
        let useless = self.said.iter().filter(|(uid, _)| !good.contains_key(uid));
        self.useless = useless.map(|(_, said)| said.server).filter(|id| !ids.contains(id)).collect();
        let is_alone = self.said.iter().any(|(uid, said)| said.alone && good.contains_key(uid));
        if 2 * ids.len() <= usize::from(servers) && !is_alone {
            return Verdict::Nothing;
        }
        let absent = self.absent_of_last_view(&good, watched);
        if !absent.is_empty() && !is_alone {
            self.missing = absent;
            return Verdict::Nothing;
        }
        let Some(plan) = self.plan(service, good, watched) else { return Verdict::Nothing };
        self.stage = Stage::Promising { plan: plan.clone(), have: BTreeSet::new() };
        Verdict::Promise(plan)
    }

    /// Returns the servers that an administrator lets begin anew although a majority of the disks of before is here.
    fn needless_escapes(&self) -> BTreeMap<Uid, Foreign> {
        let is_needless = |said: &Said| {
            let Some(before) = said.former.last().filter(|_| said.alone) else { return false };
            let others = self.said.values().filter(|other| other.created == Created::Done(*before)).count();
            // The disk of a single server says nothing against its administrator.
            others > 0 && 2 * (others + 1) > usize::from(said.servers)
        };
        let needless = self.said.iter().filter(|(_, said)| is_needless(said));
        needless.map(|(uid, _)| (*uid, Foreign::NothingLost)).collect()
    }

    /// With durability *one*: returns the members of the last view without which the good ones cannot go on; none if they
    /// can.
    fn absent_of_last_view(&self, good: &BTreeMap<Uid, u8>, watched: Watched) -> Vec<u8> {
        if self.durability() == DiskDurability::Majority {
            return Vec::new();
        }
        let here: Vec<&Said> =
            self.said.iter().filter(|(uid, _)| good.contains_key(uid)).map(|(_, said)| said).collect();
        let absent = |of: &[u8]| -> Vec<u8> {
            of.iter().copied().filter(|id| !here.iter().any(|said| said.server == *id)).collect()
        };
        if watched.broken(Planted::MournedUnion) {
            let mourns =
                |said: &&Said, id: &u8| said.view.as_ref().is_some_and(|(_, view)| !view.contains(id));
            let last: Vec<u8> =
                (1..=self.servers()).filter(|id| !here.iter().any(|said| mourns(said, id))).collect();
            return absent(&last);
        }
        let Some(top) = here.iter().max_by_key(|said| said.view_key()) else { return Vec::new() };
        // A generation without a view has never served.
        let Some((_, view)) = &top.view else { return Vec::new() };
        let has_written = |said: &&&Said| said.view_key() == top.view_key();
        let never_served = here.iter().any(|said| said.is_of(view) && !has_written(&said));
        let survivor = here.iter().filter(has_written).any(|said| said.survived && said.is_of(view));
        let any_survivor = watched.broken(Planted::AnySurvivor) && here.iter().any(|said| said.survived);
        match never_served || survivor || any_survivor {
            true => Vec::new(),
            false => absent(view),
        }
    }

    fn plan(&self, service: u128, good: BTreeMap<Uid, u8>, watched: Watched) -> Option<Plan> {
        let highest = self.said.values().map(|said| said.generation.max(said.promised)).max()?;
        // With durability one, what an excluded server held last may not be what the others have at the same places.
        let order = |said: &Said| match () {
            () if watched.broken(Planted::LogsByLength) => ((0, None), said.place),
            () if watched.broken(Planted::AnyLogChosen) => ((0, None), u64::from(said.server)),
            () => (said.view_key(), said.place),
        };
        let here = || self.said.iter().filter(|(uid, _)| good.contains_key(uid));
        let (donor, best) = here().max_by_key(|(uid, said)| (order(said), *uid))?;
        let disk = |said: &Said| Heard {
            disk: said.disk,
            generation: highest + 1,
            starts: said.starts,
            position: best.place,
        };
        let sorted: BTreeSet<u8> = good.values().copied().collect();
        Some(Plan {
            generation: highest + 1,
            service,
            servers: self.servers(),
            donor: *donor,
            chosen: (best.generation, best.place),
            view: (self.durability() == DiskDurability::One).then(|| (0, sorted.into_iter().collect())),
            disks: here().map(|(_, said)| (said.server, disk(said))).collect(),
            good,
        })
    }

    /// Nothing exists yet: the servers create the service if all of them are here.
    fn judge_creation(&mut self, watched: Watched) -> Verdict {
        let foreign = self.foreign(0);
        if !foreign.is_empty() {
            return Verdict::Foreign(foreign);
        }
        let by_id: BTreeMap<u8, &Said> = self.said.values().map(|said| (said.server, said)).collect();
        let servers = self.servers();
        self.missing = (1..=servers).filter(|id| !by_id.contains_key(id)).collect();
        let enough = match watched.broken(Planted::CreatedByMajority) {
            true => 2 * by_id.len() > usize::from(servers),
            false => by_id.len() == usize::from(servers),
        };
        if !enough || self.said.len() != by_id.len() {
            return Verdict::Nothing;
        }
        let begun = by_id.values().find_map(|said| match said.created {
            Created::Half(root) => Some(root),
            _ => None,
        });
        let first = by_id.values().next().map(|said| said.nonce.max(1));
        let Some(root) = begun.or(first) else { return Verdict::Nothing };
        self.stage = Stage::Creating { root, half: BTreeSet::new(), done: BTreeSet::new() };
        Verdict::Half(root)
    }

    /// Returns what the server said whose options count: one that has a part in the service, if there is any.
    fn first(&self) -> Option<&Said> {
        self.said.values().min_by_key(|said| (said.created == Created::Blank, said.server))
    }

    fn servers(&self) -> u8 {
        self.first().map_or(0, |said| said.servers)
    }

    fn durability(&self) -> DiskDurability {
        self.first().map_or_else(DiskDurability::default, |said| said.durability)
    }

    /// Returns the service that goes on: one that was not given up for another, of most of the disks.
    fn service(&self) -> Option<u128> {
        let mut count: BTreeMap<u128, usize> = BTreeMap::new();
        for said in self.said.values() {
            if let Created::Done(service) = said.created {
                *count.entry(service).or_default() += 1;
            }
        }
        let given_up = |service: &u128| self.said.values().any(|said| said.former.contains(service));
        let best = count.iter().filter(|(service, _)| !given_up(service));
        best.max_by_key(|(_, count)| **count).map(|(service, _)| *service)
    }

    fn foreign(&self, service: u128) -> BTreeMap<Uid, Foreign> {
        let (servers, durability) = (self.servers(), self.durability());
        let former: Vec<u128> = self.said.values().flat_map(|said| said.former.clone()).collect();
        let why = |said: &Said| match said.created {
            Created::Done(other) if former.contains(&other) => Some(Foreign::GivenUp),
            Created::Done(other) if other != service => Some(Foreign::OtherService),
            _ if said.servers != servers => Some(Foreign::OtherServers),
            _ if said.durability != durability => Some(Foreign::OtherDurability),
            _ => None,
        };
        self.said.iter().filter_map(|(uid, said)| Some((*uid, why(said)?))).collect()
    }

    /// True if a member has written down that this disk had more, or that another one took its place.
    fn is_old(&self, disk: &Said, watched: Watched) -> bool {
        if watched.broken(Planted::OldImageAccepted) {
            return false;
        }
        let knows_more = |heard: &Heard| match heard.disk == disk.disk {
            true => {
                (heard.generation, heard.position) > (disk.generation, disk.place)
                    || heard.starts > disk.starts
            }
            false => heard.is_not_before(disk.starts),
        };
        let others = self.said.values().filter(|said| said.server != disk.server);
        others.filter_map(|said| said.heard.get(&disk.server)).any(knows_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const ALL: [Uid; 3] = [Uid(11), Uid(12), Uid(13)];

    fn said(server: u8, created: Created, (generation, place): (u64, Place)) -> Said {
        Said {
            server,
            servers: 3,
            created,
            disk: 100 + u64::from(server),
            starts: 1,
            generation,
            promised: generation,
            place,
            nonce: u128::from(server),
            ..Said::default()
        }
    }

    fn judged(members: &[Uid], said: Vec<Said>) -> (Round, Verdict) {
        let (mut round, mut last) = (Round::new(5), Verdict::Nothing);
        for (member, said) in members.iter().zip(said) {
            last = round.hear(*member, RoundWord::Said(said), members, Watched::default());
        }
        (round, last)
    }

    #[test]
    fn a_service_is_created_by_all_of_its_servers_or_not_at_all() {
        let blank = |server| said(server, Created::Blank, (0, 0));
        let (round, verdict) = judged(&ALL[..2], vec![blank(1), blank(2)]);
        assert_eq!((verdict, round.missing()), (Verdict::Nothing, &[3][..]));
        let (mut round, verdict) = judged(&ALL, vec![blank(1), blank(2), blank(3)]);
        assert_eq!(verdict, Verdict::Half(1));
        let mut hear = |member, word| round.hear(member, word, &ALL, Watched::default());
        assert_eq!(hear(ALL[0], RoundWord::Half), Verdict::Nothing);
        assert_eq!(hear(ALL[1], RoundWord::Half), Verdict::Nothing);
        assert_eq!(hear(ALL[2], RoundWord::Half), Verdict::Done(1));
        assert_eq!(hear(ALL[2], RoundWord::Done), Verdict::Nothing);
        assert_eq!(hear(ALL[0], RoundWord::Done), Verdict::Nothing);
        assert_eq!(hear(ALL[1], RoundWord::Done), Verdict::Again);
        // A creation that was broken off goes on with its root; beside a finished one, half of one is good.
        let half = said(3, Created::Half(9), (0, 0));
        assert_eq!(judged(&ALL, vec![blank(1), blank(2), half.clone()]).1, Verdict::Half(9));
        let done = said(1, Created::Done(9), (0, 0));
        let verdict = judged(&ALL[..2], vec![done, half]).1;
        assert!(matches!(verdict, Verdict::Promise(plan) if plan.service == 9 && plan.generation == 1));
    }

    #[test]
    fn a_majority_of_good_disks_goes_on_from_the_highest_generation_then_place() {
        let done = |server, log| said(server, Created::Done(9), log);
        let (mut round, verdict) = judged(&ALL[..2], vec![done(1, (2, 50)), done(2, (3, 40))]);
        let Verdict::Promise(plan) = verdict else { panic!("{verdict:?}") };
        assert_eq!((plan.generation, plan.donor, plan.chosen), (4, ALL[1], (3, 40)));
        let mut hear = |member, word| round.hear(member, word, &ALL[..2], Watched::default());
        assert_eq!(hear(ALL[0], RoundWord::Adopted), Verdict::Nothing);
        assert_eq!(hear(ALL[0], RoundWord::Promised), Verdict::Nothing);
        assert_eq!(hear(ALL[1], RoundWord::Promised), Verdict::Adopt(plan.clone()));
        assert_eq!(hear(ALL[1], RoundWord::Adopted), Verdict::Nothing);
        assert_eq!(hear(ALL[0], RoundWord::Adopted), Verdict::Open(plan));
    }

    #[test]
    fn a_disk_that_does_not_get_on_is_left_behind_if_the_others_are_a_majority() {
        let done = |server| RoundWord::Said(said(server, Created::Done(9), (2, 50)));
        let mut round = Round::new(5);
        let mut hear = |member, word| round.hear(member, word, &ALL, Watched::default());
        assert_eq!(hear(ALL[0], done(1)), Verdict::Nothing);
        assert_eq!(hear(ALL[2], RoundWord::Stalls), Verdict::Nothing);
        let verdict = hear(ALL[1], done(2));
        assert!(matches!(verdict, Verdict::Promise(plan) if plan.good.len() == 2));
        assert_eq!(hear(ALL[1], RoundWord::Stalls), Verdict::Nothing, "one of three is not enough");
        // Later in a round it begins anew without the server, until that one says what it has.
        let mut round = Round::new(5);
        let mut hear = |member, word| round.hear(member, word, &ALL, Watched::default());
        let verdicts = [0, 1, 2].map(|at: usize| hear(ALL[at], done(at as u8 + 1)));
        assert!(matches!(verdicts, [Verdict::Nothing, Verdict::Nothing, Verdict::Promise(_)]));
        assert_eq!(hear(ALL[0], RoundWord::Promised), Verdict::Nothing);
        assert_eq!(hear(ALL[0], RoundWord::Stalls), Verdict::Nothing, "its part is done");
        assert_eq!(hear(ALL[2], RoundWord::Stalls), Verdict::Again);
        let mut round = round.again(6);
        let mut hear = |member, word| round.hear(member, word, &ALL, Watched::default());
        assert_eq!(hear(ALL[0], done(1)), Verdict::Nothing);
        assert_eq!(hear(ALL[2], done(3)), Verdict::Nothing);
        assert!(matches!(hear(ALL[1], done(2)), Verdict::Promise(plan) if plan.good.len() == 3));
    }

    #[test]
    fn blank_disks_and_old_images_do_not_count() {
        let done = |server, log| said(server, Created::Done(9), log);
        let (round, verdict) = judged(&ALL[..2], vec![done(1, (2, 50)), said(2, Created::Blank, (0, 0))]);
        assert_eq!((verdict, round.missing()), (Verdict::Nothing, &[2, 3][..]));
        assert_eq!(round.useless(), [2]);
        let mut knows = done(1, (2, 50));
        knows.heard.insert(2, Heard { disk: 102, generation: 2, starts: 1, position: 45 });
        let (round, verdict) = judged(&ALL[..2], vec![knows.clone(), done(2, (2, 44))]);
        assert_eq!((verdict, round.missing()), (Verdict::Nothing, &[2, 3][..]));
        assert_eq!(round.useless(), [2]);
        // A server that is not here, or whose disk does not get on, may have a good one.
        let (mut round, _) = judged(&ALL[..2], vec![done(1, (2, 50))]);
        round.hear(ALL[1], RoundWord::Stalls, &ALL[..2], Watched::default());
        assert_eq!((round.missing(), round.useless()), (&[2, 3][..], &[][..]));
        assert!(matches!(judged(&ALL[..2], vec![knows.clone(), done(2, (2, 45))]).1, Verdict::Promise(_)));
        knows.heard.insert(2, Heard { disk: 102, generation: 2, starts: 2, position: 45 });
        assert_eq!(
            judged(&ALL[..2], vec![knows.clone(), done(2, (2, 50))]).1,
            Verdict::Nothing,
            "started since"
        );
        // Another disk of the server counts if it replaced the one that is known, not if that one replaced it.
        let mut other = Said { disk: 77, ..done(2, (2, 50)) };
        assert_eq!(judged(&ALL[..2], vec![knows.clone(), other.clone()]).1, Verdict::Nothing);
        other.starts = knows.heard[&2].starts_of_replacement();
        assert!(matches!(judged(&ALL[..2], vec![knows, other]).1, Verdict::Promise(_)));
    }

    #[test]
    fn the_next_generation_is_above_each_promise() {
        let promised = Said { promised: 7, ..said(1, Created::Done(9), (2, 5)) };
        let verdict = judged(&ALL[..2], vec![promised, said(2, Created::Done(9), (2, 5))]).1;
        assert!(matches!(verdict, Verdict::Promise(plan) if plan.generation == 8));
    }

    #[test]
    fn with_durability_one_the_log_of_the_later_view_is_chosen_though_it_is_shorter() {
        let of_view = |server, view, place| Said {
            durability: DiskDurability::One,
            view: Some((view, vec![1, 2, 3])),
            survived: true,
            ..said(server, Created::Done(9), (2, place))
        };
        let verdict = judged(&ALL[..2], vec![of_view(1, 1, 5), of_view(2, 0, 9)]).1;
        assert!(matches!(verdict, Verdict::Promise(plan) if plan.donor == ALL[0]));
    }

    #[test]
    fn a_disk_that_begins_anew_goes_on_alone_and_shuts_out_those_of_before() {
        let mut anew = said(1, Created::Done(10), (5, 7));
        (anew.alone, anew.former) = (true, vec![9]);
        let blank = said(2, Created::Blank, (0, 0));
        let verdict = judged(&ALL[..2], vec![anew.clone(), blank]).1;
        assert!(matches!(verdict, Verdict::Promise(plan) if plan.good.len() == 1));
        let old = said(3, Created::Done(9), (5, 9));
        let foreign = BTreeMap::from([(ALL[1], Foreign::GivenUp)]);
        let other = said(2, Created::Done(9), (5, 9));
        assert_eq!(
            judged(&ALL, vec![anew.clone(), other, old.clone()]).1,
            Verdict::Foreign(BTreeMap::from([(ALL[0], Foreign::NothingLost)])),
            "a majority of the disks is here"
        );
        let of_five = [anew, old].map(|said| Said { servers: 5, ..said });
        assert_eq!(judged(&ALL[..2], of_five.to_vec()).1, Verdict::Foreign(foreign));
    }
}
