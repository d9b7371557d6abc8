//! Runs scripts in which processes call each other.

use super::stage::Stage;
use super::{Action, Course, Scenario};
use crate::network::Network;
use crate::plan::name;
use crate::properties::{self, Checkers};
use crate::record::Life;
use crate::recorder::Recorder;
use crate::world::{Birth, CallBirth, CallCommon, CallService, CallSide, Response, Trigger};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;
use unisono_core::rpc::{CallSettings, PrivatePort, ServeOptions};

/// Index of the only service.
const SERVICE: u16 = 0;

impl Scenario {
    pub(super) fn run_calls(&self, servers: &[usize], trace: Option<Box<dyn Write>>) -> Course {
        let common = CallCommon {
            services: vec![CallService::new(PrivatePort(1), ServeOptions::default())],
            stray: None,
            multicast: true,
            responses: BTreeMap::new(),
        };
        let recorder = Recorder::new(Checkers::new(properties::calls()), trace);
        let mut stage = Stage::<CallSide>::new(self, common, recorder);
        (0..self.places).for_each(|process| stage.begin(process, servers));
        // Target to which each server forwards the next request that it receives, by server.
        let passes = RefCell::new(BTreeMap::new());
        stage.play(
            |stage, action| {
                match action {
                    Action::Call { process, request, limit } => {
                        let limit = Duration::from_nanos(*limit);
                        let call = stage.world.call_with(*process, SERVICE, request.clone(), limit);
                        call.ok_or("the call was refused")?;
                    }
                    Action::PassNext { from, to } => _ = passes.borrow_mut().insert(*from, *to),
                    Action::Withdraw { process } => stage.world.withdraw(*process, SERVICE),
                    Action::Start { process, .. } => stage.begin(*process, servers),
                    other => return stage.act_common(other),
                }
                Ok(())
            },
            |stage, trigger| {
                if let Trigger::Work { process, life, job } = trigger {
                    let to = passes.borrow_mut().remove(&usize::from(process));
                    stage.work(process.into(), life, job, to);
                }
            },
        );
        stage.close()
    }
}

impl Stage<'_, CallSide> {
    fn begin(&mut self, process: usize, servers: &[usize]) {
        let birth = Birth {
            name: name(process, false),
            side: CallBirth { settings: CallSettings::default(), workers: usize::MAX, forges: false },
            gain: 0,
            clock: None,
            events_first: false,
            planted: None,
        };
        if let Err(error) = self.world.start(process, birth) {
            self.problems.push(error.to_string());
        } else if servers.contains(&process) {
            self.world.serve(process, SERVICE, 0);
        }
    }

    /// Forwards a request to `to`, or answers it with the server's own number.
    fn work(&mut self, process: usize, life: Life, index: u32, to: Option<usize>) {
        let resident = self.world.resident(process).filter(|resident| resident.life == life);
        let Some(job) = resident.and_then(|resident| resident.side.jobs.get(&index)).cloned() else { return };
        match to {
            Some(to) => _ = self.world.pass_on(process, &job, Network::address(to)),
            None => {
                self.world.execute(process, &job);
                self.world.answer(process, &job, &Response::Reply(format!("by {process}").into()));
            }
        }
        self.world.finish(process, index);
    }
}
