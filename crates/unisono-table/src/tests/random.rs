//! Random commands and questions, with capabilities of all kinds, against the model.

use super::model::Model;
use super::*;
use crate::snapshot::Cut;
use ::bytes::Bytes;
use alloc::vec;
use proptest::prelude::*;

/// A request in small numbers, which [`World`] makes a request of.
#[derive(Clone, Debug)]
struct Step {
    operation: u8,
    capabilities: [u8; 3],
    spoil: u8,
    paths: [Vec<u8>; 2],
    rights: u8,
    masks: Vec<u8>,
}

fn step() -> impl Strategy<Value = Step> {
    let path = || prop::collection::vec(0u8..3, 0..4);
    (
        any::<u8>(),
        any::<[u8; 3]>(),
        any::<u8>(),
        [path(), path()],
        any::<u8>(),
        prop::collection::vec(any::<u8>(), 0..5),
    )
        .prop_map(|(operation, capabilities, spoil, paths, rights, masks)| Step {
            operation,
            capabilities,
            spoil,
            paths,
            rights,
            masks,
        })
}

/// The table, the model, and all capabilities that were seen.
struct World {
    table: Table,
    model: Model,
    known: Vec<Capability>,
    secrets: u128,
}

impl World {
    fn new() -> World {
        let (mut table, root) = founded();
        table.cut = Cut::small();
        let mut model = Model::default();
        model.run(&Command::Found { port: PORT, secret: ROOT_SECRET, service: Default::default() });
        World { table, model, known: vec![root], secrets: 0 }
    }

    /// Returns a known capability, sometimes restricted, forged or of another service.
    fn capability(&self, step: &Step, which: usize) -> Capability {
        // Recent ones and the root more often than others.
        let index = usize::from(step.capabilities[which]);
        let known = match index % 4 {
            0 => self.known[0],
            1 => self.known[self.known.len() - 1 - (index / 4) % self.known.len().min(8)],
            _ => self.known[index % self.known.len()],
        };
        match (usize::from(step.spoil) + which * 3) % 24 {
            0 => Capability {
                check: Check::from_bits(known.check.to_bits() ^ (1 << (step.rights % 128))),
                ..known
            },
            1 => Capability { rights: Rights(step.rights), ..known },
            2 => Capability { port: Port(0xf0), ..known },
            3 => Capability { object: ObjectNumber(u64::from(step.rights)), ..known },
            4..8 => known.restrict(Rights(step.rights)).unwrap_or(known),
            8 | 9 => known.restrict(Rights(step.rights | 0x41)).unwrap_or(known),
            _ => known,
        }
    }

    fn place(&self, step: &Step, which: usize) -> Place {
        let names: Vec<&str> =
            step.paths[which].iter().map(|name| ["a", "b", "c"][usize::from(*name)]).collect();
        at(self.capability(step, which), &names.join("/"))
    }

    fn secret(&mut self) -> Check {
        self.secrets += 1;
        Check::from_bits(self.secrets << 64 | 0xabc)
    }

    fn masks(step: &Step) -> Option<Masks> {
        let masks: Vec<Rights> = step.masks.iter().copied().map(Rights).collect();
        Masks::new(&masks)
    }

    fn command(&mut self, step: &Step) -> Option<Command> {
        let place = self.place(step, 0);
        let masks = World::masks(step);
        Some(match step.operation % 24 {
            0..4 => {
                let count = usize::from(step.rights) % 4 + 1;
                let columns = columns(&["owner", "group", "other", "else"][..count]);
                let masks = masks.filter(|_| step.spoil.is_multiple_of(2));
                Command::CreateDirectory { place, columns, masks, secret: self.secret() }
            }
            4..6 => {
                let (secret, content) = (self.secret(), step.masks.clone().into());
                Command::CreateFile {
                    place,
                    masks: masks.filter(|_| step.spoil.is_multiple_of(2)),
                    secret,
                    content,
                }
            }
            6 => Command::DeleteDirectory { place },
            7 => Command::DeleteFile { place },
            8..10 => Command::Append { place, capability: self.capability(step, 2), masks },
            10 => Command::Chmod { place, masks: masks? },
            11 => Command::DeleteRow { place },
            12..14 => {
                let expected = self.expected(&place, step);
                let first = Replacement { place, capability: self.capability(step, 2), expected };
                let second = Replacement {
                    place: self.place(step, 1),
                    capability: self.capability(step, 2),
                    expected: None,
                };
                Command::ReplaceSet { rows: vec![first, second][..usize::from(step.rights % 3)].to_vec() }
            }
            14 => Command::Revoke { place, secret: self.secret() },
            15 if step.spoil.is_multiple_of(4) => {
                Command::DeleteUnreachable { owner: self.capability(step, 0), created_through: u64::MAX }
            }
            _ => return None,
        })
    }

    /// Returns what is there, something else, or nothing.
    fn expected(&self, place: &Place, step: &Step) -> Option<Capability> {
        let Ok(Answer::Looked(looked)) = self.model.ask(&Query::Lookup { places: vec![place.clone()] })
        else {
            panic!()
        };
        match step.spoil % 3 {
            0 => looked[0].ok().map(|looked| looked.capability),
            1 => Some(self.capability(step, 1)),
            _ => None,
        }
    }

    fn query(&self, step: &Step) -> Query {
        let place = self.place(step, 0);
        match step.operation % 6 {
            0 | 1 => Query::Lookup { places: vec![place, self.place(step, 1)] },
            2 => Query::List { place, after: None },
            3 => Query::Restrict { place, rights: Rights(step.rights) },
            4 => Query::Read { place, offset: 0, length: u32::MAX },
            _ if step.spoil.is_multiple_of(2) => Query::Changes { place, from: u64::from(step.rights % 32) },
            _ => Query::Unreachable { owner: self.capability(step, 0), after: ObjectNumber(0) },
        }
    }

    fn learn(&mut self, answer: &Answer) {
        match answer {
            Answer::Capability(capability) => self.known.push(*capability),
            Answer::Looked(looked) => {
                self.known.extend(looked.iter().flatten().map(|looked| looked.capability))
            }
            _ => {}
        }
    }

    fn take(&mut self, step: &Step) -> Result<bool, TestCaseError> {
        if let Some(command) = self.command(step) {
            let bytes = Request::Command(command.clone()).encode();
            let (refusal, early) = (self.table.refusal_of(&command), self.table.admit(&bytes));
            let early_table = Table::restore(&self.table.snapshot()).expect("a table");
            let by_beginning = |beginning: &Bytes| early_table.admit_beginning(beginning, bytes.len());
            let (number, changes) = (self.table.number, self.table.changes);
            let reply = Reply::decode(&self.table.apply(&bytes)).expect("a reply");
            prop_assert_eq!(refusal, reply.result.as_ref().err().copied(), "{:?}", command);
            let result = reply.result.clone();
            if let Command::CreateFile { content, .. } = &command {
                let beginning = bytes.slice(..bytes.len() - content.len());
                prop_assert_eq!(&by_beginning(&beginning), &early, "{:?}", command);
                let shorter = bytes.slice(..bytes.len() - content.len() - 1);
                // Its length is missing, and its capability and path may tell enough.
                let refused = by_beginning(&shorter);
                prop_assert!(refused.is_none() || refused == early, "{:?}", command);
            } else {
                let refused = by_beginning(&bytes);
                prop_assert!(refused.is_none() || refused == early, "{:?}", command);
            }
            let is_early = refusal.is_some_and(|refusal| refusal.reason.is_of_rights());
            prop_assert_eq!(early, is_early.then(|| Reply { number, changes, result }.encode()));
            prop_assert_eq!(&reply, &self.model.run(&command), "{:?}", command);
            self.prepare(step)?;
            if let Ok(answer) = &reply.result {
                self.learn(answer);
            }
            return Ok(reply.result.is_ok());
        }
        let query = self.query(step);
        let mut reply = self.table.ask(&query);
        if let Ok(Answer::Objects { objects, .. }) = &mut reply.result {
            objects.iter_mut().for_each(|listed| (listed.created, listed.size) = (0, None));
        }
        prop_assert_eq!(reply.number, self.model.number);
        prop_assert_eq!(&reply.result, &self.model.ask(&query), "{:?}", query);
        if let Ok(answer) = &reply.result {
            self.learn(answer);
        }
        Ok(false)
    }

    /// Encodes a few parts. A snapshot is the same as if all were encoded then.
    fn prepare(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let before = self.table.snapshot();
        let is_ready = self.table.prepare_snapshot(usize::from(step.rights));
        prop_assert_eq!(&self.table.snapshot(), &before);
        let parts = core::mem::take(&mut self.table.parts);
        prop_assert_eq!(&self.table.snapshot(), &before, "kept parts, {:?}", is_ready);
        self.table.parts = parts;
        Ok(())
    }

    fn restore(&mut self) {
        let cut = self.table.cut;
        let parts = self.table.snapshot();
        self.table = Table::restore(&parts).expect("its own snapshot");
        self.table.cut = cut;
        assert_eq!(self.table.snapshot(), parts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_table_does_what_the_model_says(steps in prop::collection::vec(step(), 1..120), restore_at in 0usize..120) {
        let mut world = World::new();
        let mut effects = 0;
        for (index, step) in steps.iter().enumerate() {
            if index == restore_at {
                world.restore();
            }
            effects += usize::from(world.take(step)?);
        }
        prop_assert!(steps.len() < 100 || effects > 0, "no command of {} had an effect", steps.len());
    }
}
