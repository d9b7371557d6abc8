//! Follows this machine's network: a thread of the process looks at the interfaces, and the engines make their sockets anew
//! or move to another address as [`Whereabouts`](super::whereabouts::Whereabouts) says.
//!
//! The thread sleeps until the kernel reports a change (netlink), a send fails for lack of an address, an interface or a
//! route, or some seconds have passed. It lives while the process has an engine whose address depends on the network.
//!
//! When an engine moves, the calls in it go on at the new address: an endpoint of the core may have another address than
//! before. So does a member that is alone in its group. Any other member may not: its life ends, and the replica or program
//! that opened it enters again.

use super::Engine;
use super::entering::{engines, open_unicast};
use super::state::State;
use super::whereabouts::{Network, Step};
use crate::log;
use crate::reach::Place;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use unisono_core::Time;
use unisono_udp::{NetworkChanges, Wakeup, Watch};

/// Interval between two looks at the interfaces: 5 s.
const LOOKS_EVERY: Duration = Duration::from_secs(5);
/// The same while a send has failed lately, or an engine has no good place.
const LOOKS_IN_DOUBT_EVERY: Duration = Duration::from_secs(1);
/// Time from the kernel's report of a change to the look: several changes usually come together.
const REPORTS_SETTLE_IN: Duration = Duration::from_millis(50);
/// Keys of what the thread waits for.
const DOUBT: u64 = 0;
const REPORTS: u64 = 1;

/// What a failed send leaves behind so that the thread looks soon. Raising it again until the next look costs one load.
#[derive(Debug)]
pub(crate) struct Doubt {
    is_raised: AtomicBool,
    wakeup: Wakeup,
}

impl Doubt {
    pub(super) fn new() -> io::Result<Doubt> {
        Ok(Doubt { is_raised: AtomicBool::new(false), wakeup: Wakeup::new()? })
    }

    /// Lets the thread look soon.
    pub(super) fn raise(&self) {
        if !self.is_raised.load(Ordering::Relaxed) && !self.is_raised.swap(true, Ordering::Relaxed) {
            self.wakeup.signal();
        }
    }
}

/// Starts the thread.
pub(super) fn start(doubt: Arc<Doubt>) -> io::Result<()> {
    let watch = Watch::new()?;
    watch.add(&doubt.wakeup, DOUBT)?;
    // Without reports, the looks at intervals are all there is.
    let changes = NetworkChanges::new().ok();
    if let Some(changes) = &changes {
        watch.add(changes, REPORTS)?;
    }
    let work = move || follow(&watch, &doubt, changes.as_ref());
    thread::Builder::new().name("unisono-network".into()).spawn(work).map(drop)
}

fn follow(watch: &Watch, doubt: &Doubt, changes: Option<&NetworkChanges>) {
    let mut is_unsettled = true;
    loop {
        watch.set_alarm(if is_unsettled { LOOKS_IN_DOUBT_EVERY } else { LOOKS_EVERY });
        let ready = watch.wait();
        let is_doubtful = ready.keys().contains(&DOUBT);
        if is_doubtful {
            doubt.wakeup.clear();
        } else {
            // After a look in doubt, the next doubt counts at the next look at the earliest.
            doubt.is_raised.store(false, Ordering::Relaxed);
        }
        let mut removed = Vec::new();
        if let Some(changes) = changes.filter(|_| ready.keys().contains(&REPORTS)) {
            thread::sleep(REPORTS_SETTLE_IN);
            removed = changes.take();
        }
        // Held while engines are looked at, so that this thread is never the last that keeps one open.
        let mut list = engines();
        let following: Vec<Arc<Engine>> =
            list.engines.iter().filter_map(Weak::upgrade).filter(|engine| engine.is_followed).collect();
        if following.is_empty() {
            list.is_followed = false;
            return;
        }
        is_unsettled = is_doubtful;
        match Network::look(removed) {
            Ok(network) => {
                for engine in following {
                    is_unsettled |= engine.follow_network(&network);
                }
            }
            // Memory or descriptors are exhausted.
            Err(_) => is_unsettled = true,
        }
    }
}

/// What an engine did, for the log.
enum Followed {
    Renewed,
    Moved(SocketAddr),
}

impl Engine {
    /// Does what the network demands. Returns whether the next look should come soon.
    fn follow_network(&self, network: &Network) -> bool {
        let Some(mut state) = self.lock_unless_broken().filter(|state| !state.closed) else { return false };
        let now = self.now();
        let followed = match state.follow_network(now, network) {
            Step::Stay => None,
            Step::Renew(index) => self.renew(&mut state, index).then_some(Followed::Renewed),
            Step::Move(place) => self.move_to(&mut state, now, place, network).map(Followed::Moved),
        };
        let (address, is_unsettled) = (state.own_address, state.whereabouts.is_unsettled());
        let Some(followed) = followed else { return is_unsettled };
        self.settle(&mut state, now);
        self.pass_lease(&mut state, now, false);
        self.unlock(state);
        match followed {
            Followed::Renewed => log::interface_renewed(address),
            Followed::Moved(before) => log::moved(before, address),
        }
        is_unsettled
    }

    /// Lets this engine go to `place`, where a process that enters now belongs, if it has no good place itself. Returns
    /// whether such a process may enter here: the engine is there, or the options name the UDP port, so that no other engine
    /// can be there.
    pub(super) fn catch_up(&self, state: &mut State, place: &Place) -> bool {
        if state.whereabouts.place() == place || !state.home.is_current() {
            return true;
        }
        if let Ok(network) = Network::look(Vec::new())
            && state.whereabouts.gives_way_to(place, &network, &state.peers())
        {
            let now = self.now();
            self.move_to(state, now, *place, &network);
            self.settle(state, now);
        }
        state.whereabouts.place() == place || self.wish.names_port()
    }

    /// Sends and receives multicasts by the interface of its place from now on, which has this number. Returns whether that
    /// succeeded.
    fn renew(&self, state: &mut State, index: u32) -> bool {
        let Some(interface) = state.whereabouts.place().interface else { return false };
        self.socket_waker.wake_by(interface);
        let sends = state.unicast().send_multicast_by(interface, state.hops().into()).is_ok();
        let renewed = state.listen_anew(interface) && sends;
        state.whereabouts.note_renewed(renewed.then_some(index));
        renewed
    }

    /// Moves to this place. Returns the address before; `None` if no socket can be opened there, so that the next look has
    /// to try again.
    fn move_to(&self, state: &mut State, now: Time, place: Place, network: &Network) -> Option<SocketAddr> {
        let before = state.own_address;
        let unicast =
            open_unicast(&place, state.hops(), Some((state.whereabouts.place(), state.unicast()))).ok()?;
        let address = unicast.address();
        state.whereabouts.arrive(place);
        state.replace_unicast(unicast);
        if let Some(index) = place.interface.and_then(|interface| network.index_of(interface)) {
            // If this fails, the next look tries it again.
            self.renew(state, index);
        }
        state.move_slots(now, address);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Ended;
    use crate::reach::Wish;
    use crate::rpc::{CallFailure, Client, Port, PrivatePort, ServeOptions, Server};
    use crate::{Group, GroupConfig, Options};
    use std::time::Instant;

    /// Longer than any working case takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Options of an engine that no other test uses, at this address of loopback.
    fn at(last: u8) -> Options {
        Options { bind: Some(([127, 0, 7, last], 0).into()), ..Options::default() }
    }

    /// Lets the engine with this address move to another one.
    fn moves(from: SocketAddr, to: u8) {
        let list = engines();
        let is_it = |engine: &Arc<Engine>| engine.lock().own_address == from;
        let engine = list.engines.iter().filter_map(Weak::upgrade).find(is_it).unwrap();
        let (place, network) = (Wish::of(&at(to)).place(&[]).unwrap(), Network::look(Vec::new()).unwrap());
        let (mut state, now) = engine.look();
        assert_eq!(engine.move_to(&mut state, now, place, &network), Some(from));
        engine.settle(&mut state, now);
        engine.pass_lease(&mut state, now, false);
        engine.unlock(state);
    }

    /// Calls until there is an answer: a client may have to lose the server first.
    fn answered(client: &Client, port: Port) {
        let begin = Instant::now();
        while let Err(failure) = client.call_within(port, "x", PATIENCE) {
            assert!(matches!(failure, CallFailure::Unknown) && begin.elapsed() < PATIENCE, "{failure:?}");
        }
    }

    #[test]
    fn calls_and_services_go_on_at_another_address() {
        let port = PrivatePort::from_name(&format!("moves-{}", std::process::id()));
        let server = Server::new(&port, ServeOptions::default(), &at(1)).unwrap();
        let client = Client::new(&at(2)).unwrap();
        let call = client.start(port.public(), "begun", PATIENCE).unwrap();
        let request = server.get_request().unwrap();
        moves(client.address(), 3);
        request.reply("once").unwrap();
        assert_eq!(call.wait().unwrap(), "once");
        thread::scope(|scope| {
            let serving = server.clone();
            scope.spawn(move || serving.serve(1, |request| request.payload().clone().into()));
            answered(&client, port.public());
            moves(server.address(), 4);
            answered(&client, port.public());
            let ips = [client.address().ip(), server.address().ip()];
            assert_eq!(ips, [[127, 0, 7, 3], [127, 0, 7, 4]].map(std::net::IpAddr::from));
            server.drain(PATIENCE).unwrap();
        });
    }

    /// Takes events until the member's life has ended.
    fn end_of(group: &Group) -> Ended {
        loop {
            if let Err(ended) = group.receive() {
                return ended;
            }
        }
    }

    #[test]
    fn a_member_with_others_ends_when_its_engine_moves() {
        let name = format!("moved-{}", std::process::id());
        let founder = Group::create(&name, GroupConfig::default(), &at(5)).unwrap();
        let moved = Group::join(&name, "", &at(10)).unwrap();
        assert_eq!(moved.members().len(), 2);
        let address = moved.members()[1].address;
        moves(address, 6);
        assert_eq!(end_of(&moved), Ended::Moved);
        drop(founder);
    }

    #[test]
    fn a_member_that_is_alone_goes_on_at_another_address_where_others_join() {
        let name = format!("moves-alone-{}", std::process::id());
        let founder = Group::create(&name, GroupConfig::default(), &at(11)).unwrap();
        let seqno = founder.send("before").unwrap();
        moves(founder.members()[0].address, 12);
        assert_eq!(founder.members()[0].address.ip(), at(12).bind.unwrap().ip());
        assert_eq!(founder.send("after").unwrap(), seqno + 1);
        let joined = Group::join(&name, "", &at(13)).unwrap();
        assert_eq!((joined.members().len(), joined.info().instance), (2, founder.info().instance));
        assert_eq!(joined.members()[0].address, founder.members()[0].address);
        assert!(joined.send("from there").unwrap() > seqno + 1);
        // It is no longer alone.
        moves(founder.members()[0].address, 14);
        assert_eq!(end_of(&founder), Ended::Moved);
    }

    // Otherwise a member that joins while its engine moves would wait for ever.
    #[test]
    fn a_joiner_whose_engine_moves_begins_again() {
        let name = format!("joins-{}", std::process::id());
        let settings = crate::Settings { locate: PATIENCE, ..crate::Settings::default() };
        let options = Options { settings, ..at(7) };
        thread::scope(|scope| {
            let joining = scope.spawn(|| Group::join(&name, "", &options));
            let is_at = |engine: &Arc<Engine>| engine.lock().own_address.ip() == options.bind.unwrap().ip();
            let address = loop {
                let list = engines();
                let found = list.engines.iter().filter_map(Weak::upgrade).find(is_at);
                if let Some(engine) = found.filter(|engine| !engine.lock().is_empty()) {
                    break engine.lock().own_address;
                }
                drop(list);
                thread::yield_now();
            };
            moves(address, 8);
            let founder = Group::create(&name, GroupConfig::default(), &at(9)).unwrap();
            let joined = joining.join().unwrap().unwrap();
            assert_eq!(joined.members().len(), 2);
            drop(founder);
        });
    }
}
