//! Drives the protocol without sockets, clocks or threads: `cargo run -p unisono-core --example by_hand`.
//!
//! A [`Group`] is a state machine. The caller passes it the time and the datagrams that arrive, sends the datagrams
//! that it returns, and calls it again at the time that it names. Here the network is a queue that delivers after 100
//! microseconds, and time is a number that jumps from one event to the next: two seconds of a group's life take a few
//! milliseconds, and come out the same every time. The real driver does the same with sockets.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use unisono_core::wire::Checksum;
use unisono_core::{
    ConfigError, Destination, EntryMode, Event, Group, GroupConfig, Member, Name, Outcome, Port, Random,
    Settings, Time, Uid,
};

const LATENCY: Duration = Duration::from_micros(100);

/// A datagram under way.
struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    datagram: Vec<u8>,
}

/// A small world: members by their addresses, and what is under way between them.
#[derive(Default)]
struct World {
    now: Time,
    members: BTreeMap<SocketAddr, Group>,
    /// Datagrams by time of arrival; the number tells those of one time apart.
    flights: BTreeMap<(Time, u64), Flight>,
    count: u64,
}

impl World {
    fn add(&mut self, name: &str, entry: EntryMode) -> Result<SocketAddr, ConfigError> {
        let number = self.members.len() as u16 + 1;
        let address = SocketAddr::from(([10, 0, 0, number as u8], 7195));
        let me = Member {
            uid: Uid(number.into()),
            name: Name::new(name).unwrap_or_default(),
            address,
            floor: Default::default(),
            hops: 1,
        };
        let (port, random) = (Port::from_name("by hand"), Random::from_u64(number.into()));
        let settings = Settings::default();
        let group =
            Group::new(self.now, me, port, entry, Bytes::new(), settings, Box::new(Checksum), random)?;
        self.members.insert(address, group);
        self.serve(address);
        Ok(address)
    }

    /// Called after every input: prints what happened, and sends what there is to send.
    fn serve(&mut self, at: SocketAddr) {
        let others: Vec<SocketAddr> = self.members.keys().filter(|other| **other != at).copied().collect();
        let Some(group) = self.members.get_mut(&at) else { return };
        while let Some(event) = group.poll_event() {
            show(self.now, at, &event);
        }
        while let Some((number, outcome)) = group.poll_sent() {
            if outcome == Outcome::Failed {
                println!(
                    "{:9.3} ms  {at}  my message {number} failed: no member will ever receive it",
                    millis(self.now)
                );
            }
        }
        let mut datagram = Vec::new();
        while let Some(destination) = group.poll_transmit(self.now, &mut datagram) {
            let to = match destination {
                Destination::Address(address) => vec![address],
                Destination::Everyone => group.audience().addresses.clone(),
                // This network has no multicast: the query goes to all addresses, as it would to seed addresses.
                Destination::Rendezvous => others.clone(),
                Destination::Multicast => Vec::new(),
            };
            for to in to {
                self.count += 1;
                let flight = Flight { from: at, to, datagram: datagram.clone() };
                self.flights.insert((self.now + LATENCY, self.count), flight);
            }
        }
    }

    /// Lets everything happen that is due until then.
    fn run(&mut self, until: Time) {
        loop {
            let arrival = self.flights.keys().next().copied();
            let timer = self
                .members
                .iter()
                .filter_map(|(address, group)| group.poll_timeout().map(|(at, _)| (at, *address)))
                .min();
            let next = arrival.map(|(at, _)| at).into_iter().chain(timer.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            match (arrival, timer) {
                (Some(key), _) if key.0 == next => {
                    let Some(Flight { from, to, datagram }) = self.flights.remove(&key) else { continue };
                    if let Some(group) = self.members.get_mut(&to) {
                        group.handle_datagram(self.now, from, BytesMut::from(&datagram[..]));
                    }
                    self.serve(to);
                }
                (_, Some((_, address))) => {
                    if let Some(group) = self.members.get_mut(&address) {
                        group.handle_timeout(self.now);
                    }
                    self.serve(address);
                }
                _ => break,
            }
        }
        self.now = until;
    }

    fn send(&mut self, at: SocketAddr, text: &'static str) {
        if let Some(group) = self.members.get_mut(&at)
            && let Err(error) = group.send(self.now, Bytes::from_static(text.as_bytes()))
        {
            println!("{at} could not send: {error}");
        }
        self.serve(at);
    }
}

fn show(now: Time, at: SocketAddr, event: &Event) {
    let what = match event {
        Event::Entered { view, .. } => format!("entered a view of {} members", view.members.len()),
        Event::Message { seqno, payload, .. } => format!("{seqno}: {}", String::from_utf8_lossy(payload)),
        Event::Joined { seqno, member, .. } => format!("{seqno}: {} joined", member.name),
        Event::Reset { seqno, view, excluded, .. } => {
            let lost: Vec<_> = excluded.iter().map(|member| member.name.as_str()).collect();
            format!("{seqno}: reset excluded {}, {} members go on", lost.join(", "), view.members.len())
        }
        other => format!("{other:?}"),
    };
    println!("{:9.3} ms  {at}  {what}", millis(now));
}

fn millis(time: Time) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn main() -> Result<(), ConfigError> {
    let mut world = World { now: Time::from_nanos(1), ..World::default() };
    let seconds = |seconds: f64| Time::from_nanos((seconds * 1e9) as u64);
    let ann = world.add("Ann", EntryMode::Found(GroupConfig::default()))?;
    let bob = world.add("Bob", EntryMode::Join)?;
    let cy = world.add("Cy", EntryMode::Join)?;
    world.run(seconds(0.5));

    world.send(bob, "from Bob");
    world.send(cy, "from Cy");
    world.send(ann, "from Ann");
    world.run(seconds(1.0));

    println!("Ann, the sequencer, crashes");
    world.members.remove(&ann);
    world.send(bob, "who is still there?");
    world.run(seconds(2.0));
    world.send(cy, "you and I");
    world.run(seconds(2.1));
    Ok(())
}
