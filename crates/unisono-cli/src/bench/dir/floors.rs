//! What a directory's operations are made of, measured in the same run: null calls, null messages that all servers hold,
//! syncs by as many processes as there are servers, and bare requests and replies.

use crate::bench::Protocol;
use crate::bench::floor::{Floor, Path};
use crate::bench::latency::member::Usage;
use crate::bench::latency::{Measured, Wanted};
use crate::bench::replica::disks::Syncs;
use crate::bench::rpc::crew::Calling;
use crate::bench::side::{Side, UNTIMED};
use crate::location::Location;
use crate::problem::Problem;
use crate::settings::Settings;

/// The processes of the floors, and what was measured.
pub(super) struct Floors {
    calling: Calling,
    /// Absent with one server, which sends no messages.
    group: Option<Measured>,
    syncs: Syncs,
    bare: Floor,
    pub(super) call: Side,
    pub(super) send: Side,
    pub(super) sync: Side,
    pub(super) udp: Side,
}

impl Floors {
    /// Number of floors.
    pub(super) const COUNT: usize = 4;

    /// Starts the processes at the locations of the servers, and at that of a client.
    pub(super) fn start(
        servers: &[Location],
        client: &Location,
        settings: &Settings,
    ) -> Result<Floors, Problem> {
        let two = [servers[0].clone(), client.clone()];
        let resilience = (servers.len() - 1) as u8;
        let wanted = Wanted { protocol: Protocol { resilience, ..Protocol::default() }, bytes: 0 };
        let group = match servers.len() {
            1 => None,
            _ => Some(Measured::start(&wanted, servers, settings)?),
        };
        let [call, send, sync, udp] = [(); 4].map(|()| Side::default());
        Ok(Floors {
            calling: Calling::start(&two, 1, 0, settings)?,
            group,
            syncs: Syncs::start(0, servers, settings)?,
            bare: Floor::start(&two, 0, None)?,
            call,
            send,
            sync,
            udp,
        })
    }

    /// Measures a block of the floor with this number.
    pub(super) fn turn(&mut self, floor: usize, block: usize) -> Result<(), Problem> {
        match floor {
            0 => self.call.turn(&mut self.calling, Calling::usage, |calling| calling.call(block)),
            1 => match &mut self.group {
                Some(group) => self.send.turn(group, Measured::usage, |group| group.measure(block)),
                None => {
                    self.send.rounds.push(0.0);
                    Ok(())
                }
            },
            2 => self.syncs.turn(&mut self.sync, block),
            _ => self.udp.turn(&mut self.bare, Usage::of, |bare| bare.measure(Path::Rpc, UNTIMED, block)),
        }
    }

    /// Returns, for each round, the time of this number of calls, messages and syncs one after the other.
    pub(super) fn sums(&self, [calls, sends, syncs]: [f64; 3]) -> Vec<f64> {
        let sides = self.call.rounds.iter().zip(&self.send.rounds).zip(&self.sync.rounds);
        sides.map(|((call, send), sync)| calls * call + sends * send + syncs * sync).collect()
    }
}
