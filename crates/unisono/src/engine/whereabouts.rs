//! Where an engine is on the network: the rules by which it stays, makes its sockets anew, or moves to another address. There
//! is no socket in this module.
//!
//! | this machine | the engine |
//! |---|---|
//! | has the engine's address, at the same interface | stays |
//! | has it at an interface that was made again, or at another one | renews: it receives multicasts there from now on |
//! | lacks it, and has no other address that leads out | stays: the address may come back |
//! | lacks it, and has another one, for [`MOVES_AFTER`] | moves |
//! | lacks it, and has another one, from which it reaches none of its members' groups, for [`MOVES_ASTRAY_AFTER`] | moves |
//! | has got its first address | moves, at once |
//!
//! An engine of a process that only asks may have no address of its own, because no single one reaches all seeds. The kernel
//! chooses one for each datagram, so such an engine stays while the interface is there by which it multicasts.
//!
//! A move ends the life of each member in the engine whose view has other members. So another address counts only if this
//! machine would send from it to a member of such a view, or to a seed: the address of a bridge for containers leads out
//! too, and no other machine answers there.
//!
//! An engine that has moved to an address of its own is at a refuge, because the address that it lost may have been the better one. It moves on if
//! a process that starts now would choose another address. An engine that has not moved stays where it is, whatever other
//! addresses come.

use crate::reach::{Place, Purpose, Wish};
use crate::seeds::Seeds;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use unisono_core::Time;
use unisono_udp::{Interface, address_toward, interfaces};

/// Time for which another address has to be the right one before an engine moves there: 2 s. An interface that is made again
/// gets its address back within that time.
const MOVES_AFTER: Duration = Duration::from_secs(2);

/// The same while none of the members of the last views and none of the seeds would be reached from the other address:
/// 60 s. Restarted networks and renewed leases bring the engine's address back within that time, and until then its members
/// may still be in their groups.
const MOVES_ASTRAY_AFTER: Duration = Duration::from_secs(60);

/// This machine's interfaces at one look.
#[derive(Debug, Default)]
pub(super) struct Network {
    interfaces: Vec<Interface>,
    /// Numbers of the interfaces that were removed since the last look. Others may have the same numbers by now.
    removed: Vec<u32>,
}

impl Network {
    /// Looks at the interfaces now. `removed`: the interfaces that were removed since the last look.
    pub(super) fn look(removed: Vec<u32>) -> io::Result<Network> {
        Ok(Network { interfaces: interfaces()?, removed })
    }

    /// True if this machine has the address. It has all of IPv4's loopback addresses, and the kernel lists only one.
    fn has(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || self.interfaces.iter().any(|interface| interface.addresses.contains(&address))
    }

    /// True if this machine has what an engine at this place needs.
    fn offers(&self, place: &Place) -> bool {
        match place.roams {
            true => place.interface.is_none_or(|interface| self.has(interface.into())),
            false => self.has(place.advertised),
        }
    }

    /// Returns the number of the interface with this address.
    pub(super) fn index_of(&self, address: Ipv4Addr) -> Option<u32> {
        let is_it = |interface: &&Interface| match address.is_loopback() {
            true => interface.is_loopback,
            false => interface.addresses.contains(&address.into()),
        };
        self.interfaces.iter().find(is_it).map(|interface| interface.index)
    }
}

/// What an engine has to do after a look at the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    /// Multicasts are sent and received by the interface with this number from now on.
    Renew(u32),
    Move(Place),
}

/// Where an engine is. See the module.
#[derive(Debug)]
pub(super) struct Whereabouts {
    wish: Wish,
    /// What the processes in the engine are there for.
    purpose: Purpose,
    /// The seeds that the first user of the engine asks: its address depends on them.
    seeds: Seeds,
    place: Place,
    /// Number of the interface by which multicasts are sent and received, once a look has shown it; none if that has to be
    /// set anew.
    index: Option<u32>,
    /// Since when another address than this engine's is the right one.
    wrong_since: Option<Time>,
    is_lost: bool,
    is_refuge: bool,
}

impl Whereabouts {
    pub(super) fn new((wish, purpose): (Wish, Purpose), seeds: Seeds, place: Place) -> Whereabouts {
        let index = place.interface.filter(|_| !wish.home);
        let index = index.and_then(|interface| Some((Network::look(Vec::new()).ok()?, interface)));
        let index = index.and_then(|(network, interface)| network.index_of(interface));
        // The first place is the right one, unless it is loopback for lack of any other.
        let is_refuge = wish.follows_the_network() && place.advertised.is_loopback() && !place.is_nowhere;
        Whereabouts { wish, purpose, seeds, place, index, wrong_since: None, is_lost: false, is_refuge }
    }

    pub(super) fn wish(&self) -> &Wish {
        &self.wish
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Notes that a process with this purpose enters the engine.
    pub(super) fn note_entry(&mut self, purpose: Purpose) {
        if purpose == Purpose::IsFound {
            self.purpose = purpose;
        }
    }

    /// True if it depends on this machine's network.
    pub(super) fn is_to_be_watched(&self) -> bool {
        !self.wish.home
    }

    /// True if the next look should come soon.
    pub(super) fn is_unsettled(&self) -> bool {
        let is_deaf = self.place.interface.is_some() && self.index.is_none();
        self.is_lost || self.wrong_since.is_some() || self.place.is_nowhere || is_deaf
    }

    /// Returns what a look at the network leads to. `peers` returns the other members of the views of this engine's members,
    /// with the seeds of those members; none if its members are alone.
    pub(super) fn step(
        &mut self,
        now: Time,
        network: &Network,
        peers: impl FnOnce() -> Vec<SocketAddr>,
    ) -> Step {
        let chosen = self.chosen();
        self.follow(now, network, chosen, |place| reaches(place, &peers()))
    }

    /// Returns what finds the place that a process that starts now would choose.
    fn chosen(&self) -> impl FnOnce() -> Option<Place> + use<> {
        let (wish, purpose, seeds) = (self.wish, self.purpose, self.seeds.without_look_up());
        move || wish.place_for(purpose, &seeds).ok()
    }

    /// As [`Whereabouts::step`]. `chosen` returns the place that a process that starts now would choose; `reaches` is true
    /// for a place from which this engine's members would find their groups.
    fn follow(
        &mut self,
        now: Time,
        network: &Network,
        chosen: impl FnOnce() -> Option<Place>,
        reaches: impl FnOnce(&Place) -> bool,
    ) -> Step {
        if !self.is_to_be_watched() {
            return Step::Stay;
        }
        self.is_lost = !self.place.is_nowhere && !network.offers(&self.place);
        let is_gone = |index: &u32| network.removed.contains(index);
        if self.is_lost || self.index.as_ref().is_some_and(is_gone) {
            self.index = None;
        }
        let is_off = self.is_lost || self.is_refuge || self.place.is_nowhere;
        let other = (is_off && self.wish.follows_the_network()).then(chosen).flatten();
        let other = other.filter(|place| *place != self.place && !place.is_nowhere);
        match other.filter(|place| network.offers(place)) {
            Some(place) if self.place.is_nowhere => return Step::Move(place),
            Some(place) => {
                let patience = if reaches(&place) { MOVES_AFTER } else { MOVES_ASTRAY_AFTER };
                if *self.wrong_since.get_or_insert(now) + patience <= now {
                    return Step::Move(place);
                }
            }
            None => self.wrong_since = None,
        }
        let index = self.place.interface.and_then(|interface| network.index_of(interface));
        match index.filter(|index| self.index != Some(*index)) {
            Some(index) if !self.is_lost => Step::Renew(index),
            _ => Step::Stay,
        }
    }

    /// Notes that multicasts are sent and received by this interface now; or not, so that it is tried again.
    pub(super) fn note_renewed(&mut self, index: Option<u32>) {
        self.index = index;
    }

    /// Notes that the engine is at this place now. Multicasts have to be set up there.
    pub(super) fn arrive(&mut self, place: Place) {
        self.is_refuge = !self.place.is_nowhere && !place.roams;
        (self.place, self.index) = (place, None);
        (self.wrong_since, self.is_lost) = (None, false);
    }

    /// True if the engine may go to `place` at once, where a member that enters now belongs: it has no good place itself. From
    /// a refuge it only goes where it would go anyway, since a member looks for its group at several places. `peers` as for
    /// [`Whereabouts::step`].
    pub(super) fn gives_way_to(&self, place: &Place, network: &Network, peers: &[SocketAddr]) -> bool {
        self.gives_way(place, network, self.chosen(), |place| reaches(place, peers))
    }

    /// As [`Whereabouts::gives_way_to`]; `chosen` and `reaches` as for [`Whereabouts::follow`].
    fn gives_way(
        &self,
        place: &Place,
        network: &Network,
        chosen: impl FnOnce() -> Option<Place>,
        reaches: impl FnOnce(&Place) -> bool,
    ) -> bool {
        *place != self.place
            && self.wish.follows_the_network()
            && (place.roams || !self.place.roams)
            && (self.place.is_nowhere
                || !network.offers(&self.place) && reaches(place)
                || self.is_refuge && chosen() == Some(*place))
    }
}

/// True if this machine would send from this place to one of the peers, or if there are none.
fn reaches(place: &Place, peers: &[SocketAddr]) -> bool {
    let is_from_there = |peer: &SocketAddr| address_toward(*peer).is_ok_and(|from| from == place.advertised);
    place.roams || peers.is_empty() || peers.iter().any(is_from_there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::options::Options;
    use std::net::SocketAddr;

    const ETH: u32 = 2;
    const WLAN: u32 = 3;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn place(last: u8) -> Place {
        let IpAddr::V4(interface) = address(last) else { unreachable!() };
        Place {
            bind: (interface, 0).into(),
            advertised: interface.into(),
            roams: false,
            is_nowhere: false,
            interface: Some(interface),
        }
    }

    fn nowhere() -> Place {
        Place { interface: None, is_nowhere: true, ..loopback() }
    }

    fn loopback() -> Place {
        let here = Ipv4Addr::LOCALHOST;
        Place {
            bind: (here, 0).into(),
            advertised: here.into(),
            roams: false,
            is_nowhere: false,
            interface: Some(here),
        }
    }

    /// A machine with loopback and these interfaces, each with its number and one address.
    fn network(others: &[(u32, u8)]) -> Network {
        let interface = |&(index, last): &(u32, u8)| Interface {
            index,
            is_loopback: false,
            multicasts: true,
            addresses: vec![address(last)],
        };
        let loopback = Interface {
            index: 1,
            is_loopback: true,
            multicasts: false,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
        };
        let interfaces = [loopback].into_iter().chain(others.iter().map(interface)).collect();
        Network { interfaces, removed: Vec::new() }
    }

    /// A place without an address of its own, that multicasts by the interface with this address.
    fn roaming(last: u8) -> Place {
        let any = Ipv4Addr::UNSPECIFIED;
        Place { bind: (any, 0).into(), advertised: any.into(), roams: true, ..place(last) }
    }

    fn engine(bind: Option<&str>, place: Place, index: Option<u32>) -> Whereabouts {
        let bind: Option<SocketAddr> = bind.map(|bind| bind.parse().unwrap());
        let options = Options { key: Some(Key::from_bytes([1; 32])), bind, ..Options::default() };
        let mut engine = Whereabouts::new((Wish::of(&options), Purpose::IsFound), Seeds::default(), place);
        engine.note_renewed(index);
        engine
    }

    /// Looks at the network after these seconds, when a process that starts chooses `chosen`.
    fn look(engine: &mut Whereabouts, seconds: u64, network: &Network, chosen: Place) -> Step {
        look_among_peers(engine, seconds, network, chosen, true)
    }

    /// As [`look`]; `reaches` is true if the engine's members would find their groups from there.
    fn look_among_peers(
        engine: &mut Whereabouts,
        seconds: u64,
        network: &Network,
        chosen: Place,
        reaches: bool,
    ) -> Step {
        let now = Time::ZERO + Duration::from_secs(seconds);
        let step = engine.follow(now, network, || Some(chosen), |_| reaches);
        match step {
            Step::Renew(index) => engine.note_renewed(Some(index)),
            Step::Move(place) => {
                engine.arrive(place);
                engine.note_renewed(place.interface.and_then(|interface| network.index_of(interface)));
            }
            Step::Stay => {}
        }
        step
    }

    #[test]
    fn an_engine_stays_at_its_address_whatever_others_come() {
        let mut engine = engine(None, place(1), Some(ETH));
        for seconds in 1..9 {
            let step = look(&mut engine, seconds, &network(&[(ETH, 1), (WLAN, 2)]), place(2));
            assert_eq!((step, engine.is_unsettled()), (Step::Stay, false));
        }
    }

    #[test]
    fn an_interface_that_is_made_again_is_renewed_once_it_has_the_address() {
        let mut engine = engine(None, place(1), Some(ETH));
        for seconds in 1..9 {
            assert_eq!(look(&mut engine, seconds, &network(&[]), nowhere()), Step::Stay);
            assert!(engine.is_unsettled());
        }
        // The same number is no proof that it is the same interface.
        assert_eq!(look(&mut engine, 9, &network(&[(ETH, 1)]), place(1)), Step::Renew(ETH));
        assert_eq!(look(&mut engine, 10, &network(&[(ETH, 1)]), place(1)), Step::Stay);
        assert!(!engine.is_unsettled());
        // The address moves to another interface, such as a bridge.
        assert_eq!(look(&mut engine, 11, &network(&[(WLAN, 1)]), place(1)), Step::Renew(WLAN));
        // The interface was removed and made again between two looks.
        let again = Network { removed: vec![WLAN], ..network(&[(WLAN, 1)]) };
        assert_eq!(look(&mut engine, 12, &again, place(1)), Step::Renew(WLAN));
        let other = Network { removed: vec![ETH], ..network(&[(WLAN, 1)]) };
        assert_eq!(look(&mut engine, 13, &other, place(1)), Step::Stay);
        // What could not be renewed is tried again.
        engine.note_renewed(None);
        assert!(engine.is_unsettled());
        assert_eq!(look(&mut engine, 14, &network(&[(WLAN, 1)]), place(1)), Step::Renew(WLAN));
    }

    #[test]
    fn an_engine_moves_when_its_address_is_gone_and_another_one_has_been_there_for_a_while() {
        let mut engine = engine(None, place(1), Some(ETH));
        let there = network(&[(ETH, 2)]);
        assert_eq!(look(&mut engine, 1, &there, place(2)), Step::Stay);
        assert_eq!(look(&mut engine, 2, &there, place(2)), Step::Stay);
        assert_eq!(look(&mut engine, 3, &there, place(2)), Step::Move(place(2)));
        assert_eq!(look(&mut engine, 4, &there, place(2)), Step::Stay);
        assert!(!engine.is_unsettled());
    }

    // The address of a bridge for containers leads out of the machine, and no other machine has a route to it.
    #[test]
    fn an_engine_waits_for_its_address_if_its_members_would_find_no_others_from_another_one() {
        let mut waits = engine(None, place(1), Some(ETH));
        let (without, both) = (network(&[(WLAN, 2)]), network(&[(ETH, 1), (WLAN, 2)]));
        for seconds in 1..30 {
            assert_eq!(look_among_peers(&mut waits, seconds, &without, place(2), false), Step::Stay);
            assert!(waits.is_unsettled());
        }
        assert_eq!(look_among_peers(&mut waits, 30, &both, place(1), false), Step::Renew(ETH));
        // An address that leads to others is taken as before, although the engine waits.
        assert_eq!(look_among_peers(&mut waits, 40, &without, place(2), false), Step::Stay);
        assert_eq!(
            look_among_peers(&mut waits, 43, &network(&[(ETH, 3)]), place(3), true),
            Step::Move(place(3))
        );
        // In the end it moves all the same.
        let mut moves = engine(None, place(1), Some(ETH));
        assert_eq!(look_among_peers(&mut moves, 1, &without, place(2), false), Step::Stay);
        assert_eq!(look_among_peers(&mut moves, 60, &without, place(2), false), Step::Stay);
        assert_eq!(look_among_peers(&mut moves, 61, &without, place(2), false), Step::Move(place(2)));
    }

    #[test]
    fn a_place_reaches_peers_if_this_machine_sends_to_one_of_them_from_there() {
        let peers: [SocketAddr; 2] = [([203, 0, 113, 1], 7).into(), ([127, 0, 0, 9], 7).into()];
        assert!(reaches(&loopback(), &peers));
        assert!(!reaches(&place(1), &peers[1..]));
        assert!(reaches(&place(1), &[]) && reaches(&roaming(1), &peers));
    }

    #[test]
    fn an_engine_leaves_its_refuge_when_its_address_is_back() {
        let mut engine = engine(None, place(1), Some(ETH));
        let (without, both) = (network(&[(WLAN, 2)]), network(&[(ETH, 1), (WLAN, 2)]));
        // A moment without the address moves nothing.
        assert_eq!(look(&mut engine, 1, &without, place(2)), Step::Stay);
        assert_eq!(look(&mut engine, 2, &both, place(1)), Step::Renew(ETH));
        assert_eq!(look(&mut engine, 9, &without, place(2)), Step::Stay);
        assert_eq!(look(&mut engine, 11, &without, place(2)), Step::Move(place(2)));
        assert_eq!(look(&mut engine, 12, &both, place(1)), Step::Stay);
        assert_eq!(look(&mut engine, 13, &both, place(2)), Step::Stay);
        assert_eq!(look(&mut engine, 14, &both, place(1)), Step::Stay, "it was not right all the time");
        assert_eq!(look(&mut engine, 16, &both, place(1)), Step::Move(place(1)));
    }

    #[test]
    fn an_engine_without_an_address_goes_to_the_first_one_at_once() {
        let mut engine = engine(None, nowhere(), None);
        assert_eq!(look(&mut engine, 1, &network(&[]), nowhere()), Step::Stay);
        assert!(engine.is_unsettled());
        assert_eq!(look(&mut engine, 2, &network(&[(ETH, 1)]), place(1)), Step::Move(place(1)));
        // That was its first address, and no refuge.
        assert_eq!(look(&mut engine, 9, &network(&[(ETH, 1), (WLAN, 2)]), place(2)), Step::Stay);
        assert!(!engine.is_unsettled());
    }

    #[test]
    fn loopback_is_a_refuge_unless_it_was_asked_for() {
        let later = network(&[(ETH, 1)]);
        let mut alone = engine(None, loopback(), Some(1));
        assert_eq!(look(&mut alone, 1, &network(&[]), loopback()), Step::Stay);
        assert!(!alone.is_unsettled());
        assert_eq!(look(&mut alone, 2, &later, place(1)), Step::Stay);
        assert_eq!(look(&mut alone, 4, &later, place(1)), Step::Move(place(1)));
        let mut told = engine(Some("127.0.0.1:0"), loopback(), Some(1));
        for seconds in 1..9 {
            assert_eq!(look(&mut told, seconds, &later, place(1)), Step::Stay);
        }
    }

    #[test]
    fn an_address_that_was_asked_for_is_kept_while_it_is_away() {
        let mut engine = engine(Some("192.0.2.1:7000"), place(1), Some(ETH));
        for seconds in 1..9 {
            assert_eq!(look(&mut engine, seconds, &network(&[(WLAN, 2)]), place(2)), Step::Stay);
        }
        assert_eq!(look(&mut engine, 9, &network(&[(ETH, 1)]), place(2)), Step::Renew(ETH));
    }

    #[test]
    fn a_member_that_enters_takes_an_engine_along_that_has_no_good_place() {
        let (with, without) = (network(&[(ETH, 1), (WLAN, 2)]), network(&[(WLAN, 2)]));
        let stays = engine(None, place(1), Some(ETH));
        assert!(!stays.gives_way_to(&place(2), &with, &[]) && stays.gives_way_to(&place(2), &without, &[]));
        assert!(!stays.gives_way_to(&place(1), &without, &[]), "it is there");
        assert!(
            !stays.gives_way(&place(2), &without, || None, |_| false),
            "other members find no group there"
        );
        assert!(engine(None, nowhere(), None).gives_way_to(&place(2), &with, &[]));
        assert!(!engine(Some("192.0.2.1:0"), place(1), None).gives_way_to(&place(2), &without, &[]));
    }

    #[test]
    fn an_engine_without_an_address_of_its_own_stays_while_its_interface_is_there() {
        let mut engine = engine(None, roaming(1), Some(ETH));
        let (both, other) = (network(&[(ETH, 1), (WLAN, 2)]), network(&[(WLAN, 2)]));
        for seconds in 1..9 {
            assert_eq!(look(&mut engine, seconds, &both, place(2)), Step::Stay);
            assert!(!engine.is_unsettled());
        }
        assert!(!engine.gives_way_to(&place(2), &other, &[]), "it would lose seeds");
        assert_eq!(look(&mut engine, 9, &other, roaming(2)), Step::Stay);
        assert_eq!(look(&mut engine, 11, &other, roaming(2)), Step::Move(roaming(2)));
        // That is no refuge.
        assert_eq!(look(&mut engine, 20, &both, roaming(1)), Step::Stay);
        assert!(!engine.is_unsettled());
        assert_eq!(look(&mut engine, 21, &network(&[(ETH, 1)]), place(1)), Step::Stay);
        assert_eq!(look(&mut engine, 23, &network(&[(ETH, 1)]), place(1)), Step::Move(place(1)));
    }

    #[test]
    fn an_engine_without_an_address_gets_one_of_its_own_or_none() {
        let mut engine = engine(None, nowhere(), None);
        assert_eq!(look(&mut engine, 1, &network(&[(ETH, 1)]), roaming(1)), Step::Move(roaming(1)));
        assert!(!engine.is_unsettled());
    }

    // A member looks for its group at several places one after the other; other members in the engine stay meanwhile.
    #[test]
    fn an_engine_at_a_refuge_only_gives_way_to_the_place_to_which_it_would_go_anyway() {
        let mut engine = engine(None, place(1), Some(ETH));
        let other = network(&[(WLAN, 2)]);
        look(&mut engine, 1, &other, place(2));
        assert_eq!(look(&mut engine, 3, &other, place(2)), Step::Move(place(2)));
        let all = network(&[(ETH, 1), (WLAN, 2), (4, 3)]);
        assert!(!engine.gives_way(&place(3), &all, || Some(place(1)), |_| true));
        assert!(engine.gives_way(&place(1), &all, || Some(place(1)), |_| true));
    }
}
