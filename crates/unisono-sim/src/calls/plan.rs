//! The plan of a run of calls: everything that a seed determines before the run starts, namely servers and clients,
//! their behaviour, and the kinds, rates and strengths of faults.

use crate::draw::{Draw, MILLISECOND, SECOND};
use crate::network::Conditions;
use crate::plan::{FaultKind, Parts, Recurring, add, degrade};
use std::time::Duration;
use unisono_core::Random;
use unisono_core::rpc::{CallSettings, ServeOptions};

/// Everything that a seed determines before the run starts.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) places: usize,
    pub(crate) services: Vec<ServeOptions>,
    /// The instance of each service that each process serves, by service and process; 0: the service has none.
    pub(crate) instances: Vec<Vec<u64>>,
    /// Fraction of services that are of another instance when a process serves them again.
    pub(crate) founds_anew: f64,
    /// The services that each process serves.
    pub(crate) roles: Vec<Vec<u16>>,
    /// Processes that make calls.
    pub(crate) clients: Vec<usize>,
    /// A process that claims to serve a port that is not its own.
    pub(crate) impostor: Option<usize>,
    /// Number of requests on which an application works at a time.
    pub(crate) workers: usize,
    pub(crate) settings: CallSettings,
    /// True if services are located by multicast.
    pub(crate) multicast: bool,
    /// True if clocks run up to one percent too fast or too slow.
    pub(crate) drift: bool,
    pub(crate) client_load: ClientLoad,
    pub(crate) server_behaviour: ServerBehaviour,
    pub(crate) conditions: Conditions,
    pub(crate) faults: Vec<Recurring>,
    pub(crate) parts: Parts,
}

/// The behaviour of clients.
#[derive(Clone, Debug)]
pub(crate) struct ClientLoad {
    /// Mean interval between two actions of one client, in nanoseconds.
    pub(crate) every: u64,
    /// Fraction of actions that are bursts, and the most calls in one burst.
    pub(crate) bursts: f64,
    pub(crate) burst_max: u64,
    /// Most bytes in an ordinary request; fraction of large requests, and the most bytes in one.
    pub(crate) bytes_max: u64,
    pub(crate) large: f64,
    pub(crate) large_bytes_max: u64,
    /// Fraction of calls with a short deadline: 1 to 200 ms.
    pub(crate) hasty: f64,
    /// Fraction of calls that are cancelled.
    pub(crate) cancels: f64,
}

/// The behaviour of servers.
#[derive(Clone, Debug)]
pub(crate) struct ServerBehaviour {
    /// Fractions of requests that are refused, forwarded, and never answered.
    pub(crate) refusals: f64,
    pub(crate) forwards: f64,
    pub(crate) never_answered: f64,
    /// Fraction of requests for which the application first makes a call of its own.
    pub(crate) nested: f64,
    /// Fraction of requests that take time, and the most milliseconds.
    pub(crate) slow: f64,
    pub(crate) slow_max_ms: u64,
    /// Most bytes in an ordinary reply; fraction of large replies, and the most bytes in one.
    pub(crate) bytes_max: u64,
    pub(crate) large: f64,
    pub(crate) large_bytes_max: u64,
    /// Mean interval between two withdrawals of one process, in nanoseconds.
    pub(crate) withdraws_every: Option<u64>,
    /// Fraction of restarts after which another process serves.
    pub(crate) moves: f64,
    /// Maximum delay before a process starts the next life, in nanoseconds.
    pub(crate) restart_max: u64,
}

impl Plan {
    /// Returns the plan of `seed`.
    pub(crate) fn draw(seed: u64, profile: u64) -> Plan {
        let random = &mut Random::from_u64(seed ^ (profile + 1) << 56);
        let mut plan = Plan::quiet(random);
        plan.draw_faults(random);
        if random.chance(0.15) {
            plan.stretch(random);
        }
        plan.draw_instances(random);
        plan
    }

    /// Servers and clients at work, without faults.
    fn quiet(random: &mut Random) -> Plan {
        let places = random.between(2, 6) as usize;
        let services: Vec<ServeOptions> = (0..random.between(1, 3))
            .map(|_| ServeOptions {
                queue_max: random.pick(&[1, 2, 8, 64, 1024]),
                repeats: random.chance(0.3),
                instance: 0,
            })
            .collect();
        let mut roles = vec![Vec::new(); places];
        for service in 0..services.len() as u16 {
            for _ in 0..random.between(1, 3) {
                let place = random.below(places as u64) as usize;
                if !roles[place].contains(&service) {
                    roles[place].push(service);
                }
            }
        }
        let mut clients: Vec<usize> = (0..places).filter(|_| random.chance(0.6)).collect();
        if clients.is_empty() {
            clients.push(places - 1);
        }
        Plan {
            places,
            instances: Vec::new(),
            founds_anew: 0.0,
            roles,
            clients,
            impostor: None,
            workers: random.pick(&[1, 1, 2, 4, 64]),
            settings: CallSettings {
                datagram_bytes_max: random.pick(&[1472, 1472, 1472, 700, 4000]),
                silence: random.duration(500, 3_000),
                locate: random.duration(300, 3_000),
                ..CallSettings::default()
            },
            multicast: random.chance(0.5),
            drift: random.chance(0.5),
            client_load: ClientLoad {
                every: random.millis(10, 400),
                bursts: random.pick(&[0.0, 0.03, 0.1]),
                burst_max: random.spread(2, 40),
                bytes_max: random.spread(1, 1200),
                large: random.pick(&[0.0, 0.0, 0.03, 0.1]),
                large_bytes_max: random.spread(1 << 11, 1 << 17),
                hasty: random.pick(&[0.0, 0.1, 0.3]),
                cancels: random.pick(&[0.0, 0.05, 0.2]),
            },
            server_behaviour: ServerBehaviour {
                refusals: random.pick(&[0.0, 0.05]),
                forwards: random.pick(&[0.0, 0.1, 0.4]),
                never_answered: random.pick(&[0.0, 0.0, 0.01]),
                nested: random.pick(&[0.0, 0.0, 0.2]),
                slow: random.pick(&[0.0, 0.1, 0.5]),
                slow_max_ms: random.spread(2, 3_000),
                bytes_max: random.spread(1, 1200),
                large: random.pick(&[0.0, 0.0, 0.03, 0.1]),
                large_bytes_max: random.spread(1 << 11, 1 << 17),
                withdraws_every: random.chance(0.3).then(|| random.millis(500, 5_000)),
                moves: random.pick(&[0.0, 0.3]),
                restart_max: random.millis(1, 3_000),
            },
            services,
            conditions: Conditions {
                delay_min: random.spread(20_000, 500_000),
                delay_mean: random.spread(5_000, 500_000),
                echo: random.chance(0.3),
                ..Conditions::quiet()
            },
            faults: Vec::new(),
            parts: Parts {
                chaos: random.between(50, 1_000) * MILLISECOND,
                settling: 8 * SECOND,
                healed: 12 * SECOND,
                quiet: 14 * SECOND,
                end: 18 * SECOND,
            },
        }
    }

    fn draw_faults(&mut self, random: &mut Random) {
        let faults = &mut self.faults;
        if random.chance(0.6) {
            add(faults, random, 0.6, FaultKind::Crash, 500, 6_000);
            add(faults, random, 0.6, FaultKind::CrashAtStep, 500, 6_000);
            add(faults, random, 0.4, FaultKind::FastRestart, 500, 6_000);
        }
        add(faults, random, 0.3, FaultKind::Pause, 300, 5_000);
        add(faults, random, 0.3, FaultKind::PauseAtStep, 300, 5_000);
        add(faults, random, 0.2, FaultKind::Doze, 300, 5_000);
        add(faults, random, 0.4, FaultKind::DropFrames, 100, 3_000);
        add(faults, random, 0.3, FaultKind::Partition, 1_000, 6_000);
        add(faults, random, 0.1, FaultKind::Flapping, 2_000, 8_000);
        add(faults, random, 0.3, FaultKind::Clog, 500, 5_000);
        add(faults, random, 0.2, FaultKind::HalfDead, 1_000, 6_000);
        add(faults, random, 0.5, FaultKind::Replay, 5, 500);
        add(faults, random, 0.2, FaultKind::Storm, 1_000, 6_000);
        add(faults, random, 0.1, FaultKind::Flood, 2_000, 8_000);
        if random.chance(0.6) {
            degrade(&mut self.conditions, random, 0.3);
        }
        if random.chance(0.2) {
            self.conditions.forgery = random.part(0.1);
        }
        if random.chance(0.15) {
            self.impostor = Some(self.places);
            self.places += 1;
            self.roles.push(vec![random.below(self.services.len() as u64) as u16]);
        }
    }

    /// Stretches chaos to ten minutes with few calls, so that servers forget sessions, and old datagrams reach servers
    /// that have forgotten theirs.
    fn stretch(&mut self, random: &mut Random) {
        let parts = &mut self.parts;
        parts.settling = 600 * SECOND;
        (parts.healed, parts.quiet, parts.end) = (604 * SECOND, 606 * SECOND, 610 * SECOND);
        self.client_load.every = random.millis(20_000, 200_000);
        (self.client_load.bursts, self.client_load.burst_max) = (0.5, random.between(2, 6));
        self.conditions.recording = 0.2 + random.part(0.8);
        self.faults.retain(|fault| fault.kind != FaultKind::Replay);
        self.faults.iter_mut().for_each(|fault| fault.every *= 40);
        // Any datagram of a client keeps its session alive, so replays are rarer than the time after which a session is
        // forgotten.
        self.faults.push(Recurring { kind: FaultKind::Replay, every: random.millis(10_000, 80_000) });
        if random.chance(0.5) {
            // No server crashes, so servers live on that have forgotten sessions.
            let kills = [FaultKind::Crash, FaultKind::CrashAtStep, FaultKind::FastRestart];
            self.faults.retain(|fault| !kills.contains(&fault.kind));
        }
    }

    /// Gives some services that recognise repeats one instance, others two. A service with two has a server of each.
    fn draw_instances(&mut self, random: &mut Random) {
        self.instances = vec![vec![0; self.places]; self.services.len()];
        for service in 0..self.services.len() {
            if !self.services[service].repeats {
                continue;
            }
            match random.below(3) {
                0 => {}
                1 => self.instances[service].fill(1),
                _ => {
                    let split = random.below(2);
                    for place in 0..self.places {
                        self.instances[service][place] = 1 + (place as u64 + split) % 2;
                    }
                    for place in [0, 1] {
                        if self.impostor != Some(place) && !self.roles[place].contains(&(service as u16)) {
                            self.roles[place].push(service as u16);
                        }
                    }
                    self.founds_anew = random.pick(&[0.0, 0.3]);
                }
            }
        }
    }

    /// Returns the silence in nanoseconds after which a client gives up a server; sets the period of flapping.
    pub(crate) fn patience(&self) -> u64 {
        self.settings.silence.as_nanos() as u64
    }
}

/// Draws the deadline of a call: 1 to 200 ms with probability `hasty`, otherwise 300 ms to 8 s.
pub(crate) fn limit(random: &mut Random, hasty: f64) -> Duration {
    if random.chance(hasty) { random.duration(1, 200) } else { random.duration(300, 8_000) }
}
