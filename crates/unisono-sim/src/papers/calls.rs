//! Calls (RPC) on the testbed: clients that call servers, one call after the other [KTHB89 §3, KTV93 §3].
//!
//! A call is three packets: request, reply, and an acknowledgement of the reply, for which neither side waits. A server takes
//! calls in the order in which they came. A client keeps the server that answered its search first; which one that is, is
//! drawn. So the load is not spread evenly, and how much servers achieve together differs from run to run [KTV93 §4.2].

use super::costs::{Costs, MachineName};
use super::flip::Audience;
use super::ledger::Ledger;
use super::testbed::{Desk, Occupant, Testbed};
use std::collections::BTreeMap;
use unisono_core::Random;

/// Number of runs of which a rate is the mean.
const RUNS: u64 = 1000;
const SETTLING_CALLS: u64 = 50;
const CALLS: u64 = 400;
/// Pause between two calls that are to be measured alone: longer than the acknowledgement takes.
const PAUSE_NANOS: u64 = 5_000_000;
const NANOS_MAX: u64 = 3_600_000_000_000;

/// What calls of one kind achieved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Called {
    /// Mean time of a call at its client, in microseconds.
    pub(super) delay_us: f64,
    /// Calls a second, of all clients together.
    pub(super) per_s: f64,
    /// Packets a call.
    pub(super) packets: f64,
    /// Packets a call that arrived at any node.
    pub(super) interrupts: f64,
}

/// Rates of many runs, in calls a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// Servers on the first nodes, clients on the others.
struct Calls {
    /// The server of each client.
    choices: Vec<usize>,
    servers: usize,
    /// Work of a server for a call, in microseconds.
    server_us: f64,
    /// Nanoseconds between two calls of a client.
    pause: u64,
    ledger: Ledger,
}

#[derive(Clone, Copy)]
enum Said {
    /// From this node.
    Request(usize),
    Reply,
    Acknowledge,
}

enum Task {
    Begin,
    Submit,
    /// A call of this node is there.
    Serve(usize),
    /// It has been served.
    Reply(usize),
    Got,
    Done,
    /// The pause is over.
    Wake,
    Rest,
}

impl Calls {
    fn begin(&mut self, desk: &mut Desk<Calls>) {
        self.ledger.begin(desk.node, desk.now);
        desk.work(desk.machine.u1 + desk.machine.g1, Task::Submit);
    }

    fn server(&self, client: usize) -> Audience {
        Audience::One(self.choices[client - self.servers])
    }
}

impl Occupant for Calls {
    type Message = Said;
    type Task = Task;

    fn arrived(&mut self, said: Said, desk: &mut Desk<Calls>) {
        match said {
            Said::Request(client) => desk.work(desk.machine.g2, Task::Serve(client)),
            Said::Reply => desk.work(desk.machine.g3, Task::Got),
            Said::Acknowledge => desk.work(desk.machine.ga, Task::Rest),
        }
    }

    fn perform(&mut self, task: Task, desk: &mut Desk<Calls>) {
        let null = desk.machine.message_bytes(0);
        match task {
            Task::Begin => self.begin(desk),
            Task::Submit => desk.send(self.server(desk.node), null, Said::Request(desk.node)),
            Task::Serve(client) => desk.thread(desk.machine.us + self.server_us, Task::Reply(client)),
            Task::Reply(client) => desk.send(Audience::One(client), null, Said::Reply),
            Task::Got => desk.thread(desk.machine.us, Task::Done),
            Task::Done => {
                self.ledger.end(desk.node, desk.now);
                desk.send(self.server(desk.node), desk.machine.control_bytes(), Said::Acknowledge);
                match self.pause {
                    0 => self.begin(desk),
                    pause => desk.after(pause, Task::Wake),
                }
            }
            Task::Wake => desk.thread(0.0, Task::Begin),
            Task::Rest => {}
        }
    }

    fn is_over(&self) -> bool {
        self.ledger.is_over()
    }
}

/// Lets one client call one server, with pauses.
pub(super) fn call_alone(costs: &Costs, machine: MachineName, server_us: f64) -> Called {
    run(costs, machine, &[1], server_us, PAUSE_NANOS)
}

/// Lets each client call its server without pauses. `clients` gives the number of clients of each server.
fn call(costs: &Costs, machine: MachineName, clients: &[usize], server_us: f64) -> Called {
    run(costs, machine, clients, server_us, 0)
}

fn run(costs: &Costs, machine: MachineName, clients: &[usize], server_us: f64, pause: u64) -> Called {
    let servers = clients.len();
    let choices: Vec<usize> =
        clients.iter().enumerate().flat_map(|(server, count)| vec![server; *count]).collect();
    let nodes = servers + choices.len();
    let calls = Calls { choices, servers, server_us, pause, ledger: Ledger::new(nodes, SETTLING_CALLS) };
    let mut bed = Testbed::new(nodes, costs.machine(machine), 1, calls);
    for client in servers..nodes {
        bed.begin(client, 10.0 * client as f64, Task::Begin);
    }
    bed.run(NANOS_MAX);
    let interrupts = |bed: &Testbed<Calls>| bed.nodes().iter().map(|node| node.interrupts_taken).sum::<u64>();
    let (began_at, frames, taken) = (bed.occupant.ledger.last_at, bed.ethernet.frames, interrupts(&bed));
    bed.occupant.ledger.go_on(CALLS);
    bed.run(bed.now + NANOS_MAX);
    let each = |count: u64| count as f64 / CALLS as f64;
    Called {
        delay_us: bed.occupant.ledger.delay_us(),
        per_s: CALLS as f64 * 1e9 / (bed.occupant.ledger.last_at - began_at) as f64,
        packets: each(bed.ethernet.frames - frames),
        interrupts: each(interrupts(&bed) - taken),
    }
}

/// Lets clients draw their servers, again and again.
pub(super) fn draw(
    costs: &Costs,
    machine: MachineName,
    (servers, clients): (usize, usize),
    server_us: f64,
    seed: u64,
) -> Rates {
    let mut random = Random::from_u64(seed);
    // Which server has how many clients does not matter, only how many there are.
    let mut known: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
    let rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let mut counts = vec![0; servers];
            for _ in 0..clients {
                counts[random.below(servers as u64) as usize] += 1;
            }
            counts.sort_unstable();
            let rate = || call(costs, machine, &counts, server_us).per_s;
            *known.entry(counts.clone()).or_insert_with(rate)
        })
        .collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    Rates { mean, deviation: variance.sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_what_its_parts_cost_and_three_packets() {
        let called = call_alone(&Costs::default(), MachineName::Mc68030, 1000.0);
        assert!((called.delay_us - 3740.0).abs() < 1.0, "{called:?}");
        assert!((called.packets - 3.0).abs() < 0.02, "{called:?}");
    }

    #[test]
    fn clients_of_one_server_wait_for_each_other() {
        let rate = |clients: &[usize]| call(&Costs::default(), MachineName::Sun360, clients, 2330.0).per_s;
        let (one, seven, spread) = (rate(&[1]), rate(&[7]), rate(&[2, 2, 3]));
        assert!(seven < 1.5 * one && spread > 2.5 * seven, "{one} {seven} {spread}");
        let rates = draw(&Costs::default(), MachineName::Sun360, (3, 7), 2330.0, 1);
        assert!(rates.mean < spread && rates.deviation > 50.0, "{rates:?}");
    }
}
