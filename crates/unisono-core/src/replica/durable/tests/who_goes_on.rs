//! Which servers can go on after which crashes, with each durability.

use super::*;

/// What happens to three servers, one thing after the other.
#[derive(Clone, Copy)]
enum Do {
    /// A command is answered; all servers that are up have it.
    Write,
    Crash(u8),
    Power,
    /// A disk is lost.
    Lose(u8),
    /// Those that are up go on without the others.
    CarryOn,
    /// The same, but only the first of them has written the view when the next thing happens.
    CarryOnHalf,
    /// It starts again: it joins the service, or forms it with the others.
    Back(u8),
}

impl Made {
    fn happens(&mut self, what: Do) {
        match what {
            Do::Write => {
                let first = *self.up.first().unwrap();
                assert!(self.serves(first), "before the last crash all is well");
            }
            Do::Crash(id) => _ = self.up.remove(&id),
            Do::Power => self.up.clear(),
            Do::Lose(id) => _ = self.disks.remove(&id),
            Do::CarryOn => self.carry_on(),
            Do::CarryOnHalf => {
                let first = *self.up.first().unwrap();
                for (id, server) in &mut self.servers {
                    server.disk_waits = *id != first;
                }
                self.carry_on();
            }
            Do::Back(id) => {
                let is_open = self.up.iter().filter(|id| self.view.contains(id)).count() >= 2;
                let present: Vec<u8> = self.up.iter().copied().chain([id]).collect();
                if is_open {
                    self.boot(id, true);
                    self.join(id);
                } else {
                    self.found(&present);
                }
                assert!(self.serves(id));
            }
        }
    }

    fn carry_on(&mut self) {
        for id in self.view.clone() {
            if !self.up.contains(&id) {
                self.reset_without(id);
            }
        }
    }

    /// Lets these servers form a group, as those do that find none.
    fn found(&mut self, ids: &[u8]) {
        for id in ids {
            match self.up.contains(id) {
                true => self.end_life(*id),
                false => self.boot(*id, true),
            }
        }
        self.form(ids);
    }

    /// True if exactly these servers come to serve, and no more happens.
    fn goes_on_with(mut self, ids: &[u8]) -> bool {
        self.up.retain(|id| ids.contains(id));
        let open: Vec<u8> = self.up.iter().copied().filter(|id| self.view.contains(id)).collect();
        if open.len() >= 2 {
            self.carry_on();
            return open.iter().all(|id| self.serves(*id));
        }
        self.found(ids);
        let all = self.servers[&ids[0]].replica.waits_for().is_empty() && self.serves(ids[0]);
        let before: Vec<String> = self.words(ids[0]).unwrap_or_default();
        // Nothing that was answered is lost.
        all && before.len() as u32 == self.requests
    }
}

#[test]
fn the_servers_that_the_rule_allows_go_on_and_no_others() {
    use Do::*;
    let up = "1 stays up";
    // What happened; then for each set of servers that come back, whether it goes on with majority and with one.
    type Who = &'static [(&'static [u8], bool, bool)];
    let table: &[(&str, &[Do], Who)] = &[
        ("3 crashes", &[Write, Crash(3)], &[(&[1, 2], true, true)]),
        (
            up,
            &[Write, Crash(3), CarryOn, Crash(2)],
            &[(&[1], false, false), (&[1, 2], true, true), (&[1, 3], true, true)],
        ),
        (
            "1 stays up, and an update after 3 fell",
            &[Write, Crash(3), CarryOn, Write, Crash(2)],
            &[(&[1, 2], true, true), (&[1, 3], true, true)],
        ),
        (
            "one after the other",
            &[Write, Crash(3), CarryOn, Write, Crash(2), Crash(1)],
            &[
                (&[1, 2], true, true),
                (&[1, 3], true, false),
                (&[2, 3], true, false),
                (&[1, 2, 3], true, true),
            ],
        ),
        (
            "3 crashes, then power fails at 1 and 2 together",
            &[Write, Crash(3), CarryOn, Write, Power],
            &[
                (&[1, 2], true, true),
                (&[1, 3], true, false),
                (&[2, 3], true, false),
                (&[1, 2, 3], true, true),
            ],
        ),
        ("power fails everywhere", &[Write, Power], &[(&[1, 2], true, false), (&[1, 2, 3], true, true)]),
        (
            "power fails everywhere, disk 3 is lost",
            &[Write, Power, Lose(3)],
            &[(&[1, 2], true, false), (&[1, 3], false, false), (&[1, 2, 3], true, false)],
        ),
        (
            "3 crashes, its disk is replaced, power fails before it is back",
            &[Write, Crash(3), CarryOn, Lose(3), Write, Power],
            &[(&[1, 2], true, true), (&[1, 3], false, false), (&[1, 2, 3], true, true)],
        ),
        (
            "3 crashes, 1 and 2 go on, disk 2 is lost, 1 stays up",
            &[Write, Crash(3), CarryOn, Write, Crash(2), Lose(2)],
            &[(&[1, 2], false, false), (&[1, 3], true, true), (&[1, 2, 3], true, true)],
        ),
        (
            "3 crashes, power fails when only 1 has written the view",
            &[Write, Crash(3), CarryOnHalf, Power],
            &[(&[1, 2], true, true), (&[1, 3], true, false), (&[2, 3], true, false)],
        ),
        (
            "3 crashes and is back as a member, then power fails",
            &[Write, Crash(3), CarryOn, Write, Back(3), Power],
            &[(&[1, 2], true, false), (&[1, 3], true, false), (&[1, 2, 3], true, true)],
        ),
        (
            "3, then 2 crash; 2 is back with 1; then 1 crashes, then 2",
            &[Write, Crash(3), CarryOn, Write, Crash(2), Back(2), Write, Crash(1), Crash(2)],
            &[(&[1, 2], true, true), (&[1, 3], true, false), (&[2, 3], true, false)],
        ),
    ];
    for (what, happens, who) in table {
        for (ids, majority, one) in *who {
            for (durability, expected) in [(DiskDurability::Majority, *majority), (DiskDurability::One, *one)]
            {
                let mut made = created_with(durability);
                happens.iter().for_each(|step| made.happens(*step));
                let goes_on = made.goes_on_with(ids);
                assert_eq!(goes_on, expected, "{what}, then {ids:?}, {durability:?}");
            }
        }
    }
}
