//! One Ethernet: a cable on which one station sends at a time, and on which stations that start together collide.
//!
//! A station with a frame waits until the cable has been quiet for a gap, then starts. Stations that start within a few
//! microseconds do not hear each other in time: both stop, and each tries again after a number of slots that it draws.
//! So a station that has just sent draws from few slots and its rivals from many: under load some stations starve
//! [WMK94 §5]. The cable loses nothing by itself; a frame is lost after 16 tries.

use std::collections::VecDeque;
use unisono_core::Random;

/// Bits of a frame that the papers do not count as its bytes: preamble (64 bits), checked by no receiver.
const PREAMBLE_BYTES: u64 = 8;
/// Bytes of the checksum at the end of a frame.
const CHECKSUM_BYTES: u64 = 4;
/// Smallest frame with its checksum.
const FRAME_BYTES_MIN: u64 = 64;
/// Quiet time before a frame, in bits: 9.6 µs at 10 Mbit/s.
const GAP_BITS: u64 = 96;
/// Length of the jam after a collision, in bits.
const JAM_BITS: u64 = 96;
/// Unit of the time to the next try, in bits: 51.2 µs at 10 Mbit/s.
const SLOT_BITS: u64 = 512;
/// A station hears another only after this time: the length of the cable, in nanoseconds.
const DEAF_NANOS: u64 = 4000;
/// The number of slots doubles with each try, up to this try.
const DOUBLING_TRIES: u32 = 10;
const TRIES_MAX: u32 = 16;

/// The cable and its stations. `F` is what a frame carries.
pub(super) struct Ethernet<F> {
    bits_per_us: f64,
    stations: Vec<Station<F>>,
    /// The cable has been quiet for a gap from this time on.
    quiet_from: u64,
    sending: Option<Sending>,
    random: Random,
    /// Nanoseconds in which frames were on the wire.
    pub(super) used_nanos: u64,
    /// Number of frames that were sent.
    pub(super) frames: u64,
}

struct Station<F> {
    frames: VecDeque<(u64, F)>,
    /// It does not try before this time.
    ready_at: u64,
    tries: u32,
}

struct Sending {
    station: usize,
    until: u64,
}

/// What the cable did with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate<F> {
    /// All stations have heard the frame of this station.
    Heard(usize, F),
    /// This station gave its frame up after too many collisions.
    GivenUp(usize, F),
}

impl<F> Ethernet<F> {
    /// Returns a quiet cable with this number of stations.
    pub(super) fn new(stations: usize, mbit_per_s: f64, random: Random) -> Ethernet<F> {
        let station = || Station { frames: VecDeque::new(), ready_at: 0, tries: 0 };
        Ethernet {
            bits_per_us: mbit_per_s,
            stations: (0..stations).map(|_| station()).collect(),
            quiet_from: 0,
            sending: None,
            random,
            used_nanos: 0,
            frames: 0,
        }
    }

    /// Returns the nanoseconds for which a frame of this size is on the wire.
    pub(super) fn wire_nanos(&self, bytes: u64) -> u64 {
        self.nanos(((bytes + CHECKSUM_BYTES).max(FRAME_BYTES_MIN) + PREAMBLE_BYTES) * 8)
    }

    fn nanos(&self, bits: u64) -> u64 {
        (bits as f64 * 1000.0 / self.bits_per_us).round() as u64
    }

    /// Returns the number of frames that wait at a station, the one on the wire included.
    pub(super) fn waiting(&self, station: usize) -> usize {
        self.stations[station].frames.len()
    }

    /// Gives a station a frame of this size.
    pub(super) fn offer(&mut self, now: u64, station: usize, bytes: u64, frame: F) {
        let wire_nanos = self.wire_nanos(bytes);
        let station = &mut self.stations[station];
        if station.frames.is_empty() {
            (station.ready_at, station.tries) = (now, 0);
        }
        station.frames.push_back((wire_nanos, frame));
    }

    /// Returns the time of the next [`advance`](Ethernet::advance); none while no frame waits.
    pub(super) fn next_at(&self) -> Option<u64> {
        match &self.sending {
            Some(sending) => Some(sending.until),
            None => self.first_start().map(|start| start + DEAF_NANOS),
        }
    }

    fn starts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let waiting = self.stations.iter().enumerate().filter(|(_, station)| !station.frames.is_empty());
        waiting.map(|(number, station)| (number, station.ready_at.max(self.quiet_from)))
    }

    fn first_start(&self) -> Option<u64> {
        self.starts().map(|(_, start)| start).min()
    }

    /// Does what is due at the time of [`next_at`](Ethernet::next_at).
    pub(super) fn advance(&mut self) -> Vec<Fate<F>> {
        match self.sending.take() {
            Some(sending) => self.finish(&sending).into_iter().collect(),
            None => self.start(),
        }
    }

    fn finish(&mut self, sending: &Sending) -> Option<Fate<F>> {
        self.quiet_from = sending.until + self.nanos(GAP_BITS);
        let station = &mut self.stations[sending.station];
        (station.ready_at, station.tries) = (sending.until, 0);
        let (_, frame) = station.frames.pop_front()?;
        Some(Fate::Heard(sending.station, frame))
    }

    fn start(&mut self) -> Vec<Fate<F>> {
        let Some(first) = self.first_start() else { return Vec::new() };
        let starters: Vec<(usize, u64)> =
            self.starts().filter(|(_, start)| *start < first + DEAF_NANOS).collect();
        if let [(station, start)] = starters[..] {
            let wire_nanos = self.stations[station].frames.front().map_or(0, |(nanos, _)| *nanos);
            self.sending = Some(Sending { station, until: start + wire_nanos });
            self.used_nanos += wire_nanos;
            self.frames += 1;
            return Vec::new();
        }
        self.collide(&starters)
    }

    fn collide(&mut self, starters: &[(usize, u64)]) -> Vec<Fate<F>> {
        let last = starters.iter().map(|(_, start)| *start).max().unwrap_or(0);
        let over = last + self.nanos(JAM_BITS);
        self.quiet_from = over + self.nanos(GAP_BITS);
        let slot = self.nanos(SLOT_BITS);
        let mut given_up = Vec::new();
        for (number, _) in starters {
            let station = &mut self.stations[*number];
            station.tries += 1;
            if station.tries >= TRIES_MAX {
                (station.ready_at, station.tries) = (over, 0);
                given_up.extend(station.frames.pop_front().map(|(_, frame)| Fate::GivenUp(*number, frame)));
                continue;
            }
            let slots = self.random.below(1 << station.tries.min(DOUBLING_TRIES));
            station.ready_at = over + slots * slot;
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cable(stations: usize) -> Ethernet<&'static str> {
        Ethernet::new(stations, 10.0, Random::from_u64(1))
    }

    /// Advances until all frames are heard. Returns each frame with the time of its end.
    fn run(cable: &mut Ethernet<&'static str>) -> Vec<(u64, &'static str)> {
        let mut heard = Vec::new();
        while let Some(at) = cable.next_at() {
            for fate in cable.advance() {
                if let Fate::Heard(_, frame) = fate {
                    heard.push((at, frame));
                }
            }
        }
        heard
    }

    #[test]
    fn frames_take_their_time_on_the_wire() {
        let times = [0, 60, 84, 116, 1514].map(|bytes| cable(1).wire_nanos(bytes));
        assert_eq!(times, [57_600, 57_600, 76_800, 102_400, 1_220_800]);
        let fast: Ethernet<()> = Ethernet::new(1, 100.0, Random::from_u64(1));
        assert_eq!(fast.wire_nanos(116), 10_240);
    }

    #[test]
    fn frames_of_a_station_keep_a_gap() {
        let mut cable = cable(1);
        cable.offer(0, 0, 116, "one");
        cable.offer(0, 0, 116, "two");
        assert_eq!(run(&mut cable), [(102_400, "one"), (102_400 + 9600 + 102_400, "two")]);
    }

    #[test]
    fn a_station_that_hears_another_waits() {
        let mut cable = cable(2);
        cable.offer(0, 0, 116, "first");
        cable.offer(4000, 1, 116, "second");
        assert_eq!(run(&mut cable), [(102_400, "first"), (214_400, "second")]);
    }

    #[test]
    fn stations_that_start_together_collide_and_draw() {
        let mut cable = cable(2);
        cable.offer(0, 0, 116, "first");
        cable.offer(3999, 1, 116, "second");
        let heard = run(&mut cable);
        assert_eq!(heard.len(), 2);
        assert!(heard[0].0 > 3999 + 9600 + 9600 + 102_400 - 1, "the jam and the gap came first: {heard:?}");
        assert_eq!(cable.frames, 2, "what collided is not counted as sent");
    }

    #[test]
    fn a_frame_that_always_collides_is_given_up() {
        let mut cable = cable(2);
        let mut given_up = 0;
        for number in 0..2 {
            cable.offer(0, number, 116, "frame");
            // The last try but one.
            cable.stations[number].tries = TRIES_MAX - 1;
        }
        while cable.next_at().is_some() {
            given_up += cable.advance().iter().filter(|fate| matches!(fate, Fate::GivenUp(..))).count();
        }
        assert_eq!(given_up, 2);
    }

    #[test]
    fn under_load_all_frames_arrive_in_the_order_of_their_stations() {
        let mut cable = cable(5);
        for number in 0..5 {
            for _ in 0..20 {
                cable.offer(0, number, 1514, "frame");
            }
        }
        assert_eq!(run(&mut cable).len(), 100);
    }
}
