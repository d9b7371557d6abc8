//! The library's log: emits one `tracing` event under the target `unisono` for each **episode**, an occurrence that the
//! core reports for the log.
//!
//! The core queues its episodes, the engine collects them under its lock, and the thread that releases the lock emits
//! them afterwards. Each function in `emitted` emits one kind of event, with the level and the fields that the crate's
//! documentation lists. Without the feature `tracing`, the module `silent` replaces `emitted` and discards all
//! episodes.

use unisono_core::{Group, Name};

#[cfg(feature = "tracing")]
pub(crate) use emitted::*;
#[cfg(not(feature = "tracing"))]
pub(crate) use silent::*;

/// The fields that all events of one member share.
#[derive(Debug, Default)]
pub(crate) struct Label {
    /// Name of the group.
    pub(crate) group: Box<str>,
    /// Name of the member.
    pub(crate) me: Name,
}

#[cfg(feature = "tracing")]
mod emitted {
    use super::*;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use tracing::{info, warn};
    use unisono_core::{Episode, EpochId, Member, Seqno, Suspicion, Uid};

    /// Episodes to emit once the engine's lock is released.
    #[derive(Default)]
    pub(crate) struct Log(Vec<(Arc<Label>, Episode)>);

    impl Log {
        /// Takes all episodes of a group, to be emitted under this label.
        pub(crate) fn take(&mut self, label: &Arc<Label>, group: &mut Group) {
            while let Some(episode) = group.poll_episode() {
                self.0.push((label.clone(), episode));
            }
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        pub(crate) fn emit(self) {
            self.0.into_iter().for_each(|(label, episode)| emit(&label, episode));
        }
    }

    fn milliseconds(duration: Duration) -> u64 {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
    }

    /// Warns that the process waits because none of the seeds has an address yet.
    pub(crate) fn waits_for_seeds(group: &str, seeds: &str, timeout: Duration) {
        let timeout_ms = milliseconds(timeout);
        warn!(target: "unisono", group, seeds, timeout_ms, "waiting for an address of the seeds");
    }

    /// Warns that the process waits because this machine has no address yet at which others could reach it.
    pub(crate) fn waits_for_address(group: &str) {
        warn!(target: "unisono", group, "waiting for an address of this machine");
    }

    /// Notes that a process moves to another address, because this machine has lost the one before.
    pub(crate) fn moved(from: SocketAddr, to: SocketAddr) {
        warn!(target: "unisono", %from, %to, "address changed");
    }

    /// Notes that sockets were made anew for an interface that was made again.
    pub(crate) fn interface_renewed(address: SocketAddr) {
        info!(target: "unisono", %address, "interface made again");
    }

    /// Notes that the keys of this file were read again, because the file changed.
    pub(crate) fn key_changed(file: &Path) {
        info!(target: "unisono", file = %file.display(), "key changed");
    }

    /// Warns that a key file changed and cannot be read: the keys that it had before are used.
    pub(crate) fn key_not_reread(reason: &str) {
        warn!(target: "unisono", reason, "key file changed and cannot be read: the former keys are used");
    }

    /// Warns that changes of a key file will not be noticed.
    pub(crate) fn key_not_followed(reason: &str) {
        warn!(target: "unisono", reason, "no thread to follow the key file");
    }

    fn emit(label: &Label, episode: Episode) {
        match episode {
            Episode::Entered { seqno, members } => entered(label, seqno, members),
            Episode::Joined { seqno, member, members } => joined(label, seqno, &member, members),
            Episode::Left { seqno, member, members } => left(label, seqno, &member, members),
            Episode::HandedOver { seqno, to } => handed_over(label, seqno, &to),
            Episode::OrderChanged { seqno, order } => order_changed(label, seqno, order),
            Episode::Suspected { member, reason } => suspected(label, &member, reason),
            Episode::ResetBegun { coordinator } => reset_begun(label, coordinator),
            Episode::ResetEnded { seqno, members, excluded, degraded, took } => {
                reset_ended(label, seqno, members, &excluded, degraded, took);
            }
            Episode::Excluded { epoch } => excluded_here(label, epoch),
            Episode::Conflict { address, gives_way, other_ordered } => {
                conflict(label, address, gives_way, other_ordered);
            }
            Episode::Foreign { address } => foreign(label, address),
            Episode::OtherVersion { address, version } => other_version(label, address, version),
            _ => {}
        }
    }

    fn order_changed(Label { group, me }: &Label, seqno: Seqno, order: unisono_core::Order) {
        info!(target: "unisono", group = &**group, me = me.as_str(), ?order, seqno, "order changed");
    }

    fn entered(Label { group, me }: &Label, seqno: Seqno, members: usize) {
        let how = match (seqno, members) {
            (0, 1) => "founded",
            (0, _) => "formed",
            _ => "joined",
        };
        info!(target: "unisono", group = &**group, me = me.as_str(), how, seqno, members, "group entered");
    }

    fn joined(Label { group, me }: &Label, seqno: Seqno, member: &Member, members: usize) {
        let (member, uid) = (member.name.as_str(), member.uid);
        info!(target: "unisono", group = &**group, me = me.as_str(), member, %uid, seqno, members, "member joined");
    }

    fn left(Label { group, me }: &Label, seqno: Seqno, member: &Member, members: usize) {
        let (member, uid) = (member.name.as_str(), member.uid);
        info!(target: "unisono", group = &**group, me = me.as_str(), member, %uid, seqno, members, "member left");
    }

    fn handed_over(Label { group, me }: &Label, seqno: Seqno, to: &Member) {
        let (member, uid) = (to.name.as_str(), to.uid);
        info!(target: "unisono", group = &**group, me = me.as_str(), member, %uid, seqno, "sequencer changed");
    }

    fn suspected(Label { group, me }: &Label, member: &Member, reason: Suspicion) {
        let (member, uid) = (member.name.as_str(), member.uid);
        let reason = match reason {
            Suspicion::Silent => "silent",
            Suspicion::Deaf => "deaf",
            Suspicion::Replaced => "replaced",
            Suspicion::Slow => "slow",
            _ => "other",
        };
        warn!(target: "unisono", group = &**group, me = me.as_str(), member, %uid, reason, "member suspected");
    }

    fn reset_begun(Label { group, me }: &Label, coordinator: Option<Uid>) {
        let coordinator = coordinator.map(tracing::field::display);
        warn!(target: "unisono", group = &**group, me = me.as_str(), coordinator, "reset begun");
    }

    fn reset_ended(
        label: &Label,
        seqno: Seqno,
        members: usize,
        excluded: &[Member],
        degraded: bool,
        took: Duration,
    ) {
        let Label { group, me } = label;
        let names: Vec<&str> = excluded.iter().map(|member| member.name.as_str()).collect();
        let (names, took_ms) = (names.join(", "), milliseconds(took));
        info!(
            target: "unisono",
            group = &**group, me = me.as_str(), seqno, members, excluded = &*names, degraded, took_ms, "reset ended"
        );
        if degraded {
            warn!(target: "unisono", group = &**group, me = me.as_str(), seqno, excluded = &*names, "group degraded");
        }
    }

    fn excluded_here(Label { group, me }: &Label, epoch: Option<EpochId>) {
        let epoch = epoch.map(tracing::field::display);
        warn!(target: "unisono", group = &**group, me = me.as_str(), epoch, "excluded from the group");
    }

    fn conflict(Label { group, me }: &Label, address: SocketAddr, gives_way: bool, other_ordered: Seqno) {
        warn!(
            target: "unisono",
            group = &**group, me = me.as_str(), %address, gives_way, other_ordered,
            "another group has this name"
        );
    }

    fn foreign(Label { group, me }: &Label, address: SocketAddr) {
        warn!(target: "unisono", group = &**group, me = me.as_str(), %address, "datagram under another key");
    }

    fn other_version(Label { group, me }: &Label, address: SocketAddr, version: u8) {
        warn!(
            target: "unisono",
            group = &**group, me = me.as_str(), %address, version, "datagram of another wire version"
        );
    }
}

#[cfg(not(feature = "tracing"))]
mod silent {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    /// Discards all episodes.
    #[derive(Default)]
    pub(crate) struct Log;

    impl Log {
        pub(crate) fn take(&mut self, _: &Arc<Label>, group: &mut Group) {
            while group.poll_episode().is_some() {}
        }

        pub(crate) fn is_empty(&self) -> bool {
            true
        }

        pub(crate) fn emit(self) {}
    }

    pub(crate) fn waits_for_seeds(_group: &str, _seeds: &str, _timeout: Duration) {}

    pub(crate) fn waits_for_address(_group: &str) {}

    pub(crate) fn moved(_from: SocketAddr, _to: SocketAddr) {}

    pub(crate) fn interface_renewed(_address: SocketAddr) {}

    pub(crate) fn key_changed(_file: &Path) {}

    pub(crate) fn key_not_reread(_reason: &str) {}

    pub(crate) fn key_not_followed(_reason: &str) {}
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use crate::{Event, Group, GroupConfig, Name, Options, Settings};
    use std::fmt::{Debug, Write};
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU8, Ordering};
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    /// Longer than any working case takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// All events of this process, each as the group, the member, and the rest as one line.
    static LINES: Mutex<Vec<[String; 3]>> = Mutex::new(Vec::new());
    static MORE: Condvar = Condvar::new();
    /// Number of tests that opened groups.
    static TESTS: AtomicU8 = AtomicU8::new(0);

    struct Collector;

    #[derive(Default)]
    struct Line {
        group: String,
        me: String,
        message: String,
        fields: String,
    }

    impl Visit for Line {
        fn record_str(&mut self, field: &Field, value: &str) {
            match field.name() {
                "group" => self.group = value.into(),
                "me" => self.me = value.into(),
                _ => self.record_debug(field, &format_args!("{value}")),
            }
        }

        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            match field.name() {
                "message" => self.message = format!("{value:?}"),
                // The values of these fields differ from run to run.
                "uid" | "coordinator" | "took_ms" | "epoch" => {
                    write!(self.fields, " {}", field.name()).unwrap()
                }
                name => write!(self.fields, " {name}={value:?}").unwrap(),
            }
        }
    }

    impl Subscriber for Collector {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "unisono"
        }

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            let text = format!("{} {}:{}", event.metadata().level(), line.message, line.fields);
            lines().push([line.group, line.me, text]);
            MORE.notify_all();
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn lines() -> MutexGuard<'static, Vec<[String; 3]>> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lines that a member has logged so far.
    fn logged(lines: &[[String; 3]], group: &str, me: &str) -> Vec<String> {
        let is_its = |line: &&[String; 3]| line[0] == group && line[1] == me;
        lines.iter().filter(is_its).map(|line| line[2].clone()).collect()
    }

    /// Waits until a member logs a line that begins with `last`. Returns its lines so far.
    fn logged_until(group: &str, me: &str, last: &str) -> Vec<String> {
        let begin = Instant::now();
        let mut all = lines();
        loop {
            let its = logged(&all, group, me);
            if its.iter().any(|line| line.starts_with(last)) {
                return its;
            }
            assert!(begin.elapsed() < PATIENCE, "{me} does not log {last}: {its:?}");
            all = MORE.wait_timeout(all, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn open(what: &str) -> (String, [Group; 3]) {
        // This fails if another test has set the collector already.
        let _ = tracing::subscriber::set_global_default(Collector);
        let name = format!("log-{what}-{}", std::process::id());
        let own = Ipv4Addr::new(127, 0, 9, 1 + TESTS.fetch_add(1, Ordering::Relaxed));
        let options = |me| {
            // Long enough that only dead members are suspected, on a busy machine too.
            let patience = Duration::from_secs(1);
            let settings = Settings { patience, locate: PATIENCE / 10, ..Settings::default() };
            // All groups of one address share an engine. This address is of this test alone, so that a cut affects no
            // other test.
            let (bind, multicast_interface) = (Some((own, 0).into()), Some(Ipv4Addr::LOCALHOST));
            let name = Name::new(me).unwrap();
            Options { name, bind, multicast_interface, settings, ..Options::default() }
        };
        let a = Group::create(&name, GroupConfig::default(), &options("a")).unwrap();
        let join = |me| Group::join(&name, "", &options(me)).unwrap();
        let groups = [a, join("b"), join("c")];
        // Every member logs the joins before a test begins.
        for (me, last) in
            [("a", "INFO member joined: member=c"), ("b", "INFO member joined: member=c"), ("c", "INFO")]
        {
            logged_until(&name, me, last);
        }
        (name, groups)
    }

    /// No application receives events here: the log does not wait for the application.
    #[test]
    fn the_death_of_the_sequencer_is_logged_line_by_line() {
        let (name, [a, b, c]) = open("death");
        a.shared().cut_off(true);
        let expected = |first: [&str; 2]| {
            let all = [first[0], first[1], "WARN reset begun: coordinator"];
            let end = "INFO reset ended: seqno=3 members=2 excluded=a degraded=false took_ms";
            all.into_iter().chain([end]).filter(|line| !line.is_empty()).map(String::from).collect::<Vec<_>>()
        };
        let mut suspected = 0;
        for (me, first) in [
            (
                "b",
                [
                    "INFO group entered: how=joined seqno=1 members=2",
                    "INFO member joined: member=c uid seqno=2 members=3",
                ],
            ),
            ("c", ["INFO group entered: how=joined seqno=2 members=3", ""]),
        ] {
            let mut its = logged_until(&name, me, "INFO reset ended");
            // The member that suspects `a` first may invite the other to the reset before the other suspects `a`.
            let before = its.len();
            its.retain(|line| line != "WARN member suspected: member=a uid reason=silent");
            suspected += before - its.len();
            assert!(before - its.len() <= 1);
            assert_eq!(its, expected(first), "{me}");
        }
        assert!(suspected >= 1);
        drop((a, b, c));
    }

    #[test]
    fn a_partition_is_logged_line_by_line_on_both_sides() {
        let (name, [a, b, c]) = open("partition");
        c.shared().cut_off(true);
        let ended = "INFO reset ended: seqno=3 members=2 excluded=c degraded=false took_ms";
        let joined = "INFO member joined: member=c uid seqno=2 members=3";
        assert_eq!(
            logged_until(&name, "a", "INFO reset ended"),
            [
                "INFO group entered: how=founded seqno=0 members=1",
                "INFO member joined: member=b uid seqno=1 members=2",
                joined,
                "WARN member suspected: member=c uid reason=silent",
                "WARN reset begun: coordinator",
                ended,
            ]
        );
        assert_eq!(
            logged_until(&name, "b", "INFO reset ended"),
            [
                "INFO group entered: how=joined seqno=1 members=2",
                joined,
                "WARN reset begun: coordinator",
                ended
            ]
        );
        logged_until(&name, "c", "WARN reset begun");
        c.shared().cut_off(false);
        assert_eq!(
            logged_until(&name, "c", "WARN excluded"),
            [
                "INFO group entered: how=joined seqno=2 members=3",
                "WARN member suspected: member=a uid reason=silent",
                "WARN reset begun: coordinator",
                "WARN excluded from the group: epoch",
            ]
        );
        // The events that the application receives later agree with the log.
        loop {
            if let Event::Reset { seqno, excluded, .. } = a.receive().unwrap() {
                assert_eq!((seqno, &*excluded[0].name.to_string()), (3, "c"));
                break;
            }
        }
        drop((a, b, c));
    }

    #[test]
    fn a_leave_and_another_key_are_logged() {
        let (name, [a, b, c]) = open("leave");
        a.leave("").unwrap();
        let after = logged_until(&name, "b", "INFO sequencer changed").split_off(2);
        assert_eq!(
            after,
            [
                "INFO member left: member=a uid seqno=3 members=2",
                "INFO sequencer changed: member=b uid seqno=3"
            ]
        );
        let other = Options {
            key: Some(crate::Key::from_bytes([7; 32])),
            bind: "127.0.0.1:0".parse().ok(),
            settings: Settings { locate: Duration::from_millis(20), ..Settings::default() },
            ..Options::default()
        };
        assert!(Group::join(&name, "", &other).is_err());
        logged_until(&name, "b", "WARN datagram under another key: address=127.0.0.1:");
        // Several such datagrams make one line.
        assert!(b.counters().foreign > 1);
        let its = logged(&lines(), &name, "b");
        assert_eq!(its.iter().filter(|line| line.contains("another key")).count(), 1, "{its:?}");
        drop((b, c));
    }
}
