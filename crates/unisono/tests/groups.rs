//! Members of one process, each with sockets of its own, on loopback.

mod common;

use common::{PATIENCE, fresh_name, hasty, options, persistently, until, until_so};
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use unisono::{
    BatchOutcome, Bytes, Ended, Event, Formation, Group, GroupConfig, JoinFailure, Key, LeaveError,
    LeaveFailure, LookError, Migration, Name, OpenError, Options, Order, Quality, SendError, SendFailure,
    Seqno, Settings, Standing, Ticket, Transport, Uid, look, look_at,
};

/// Receives the next `count` messages.
fn messages(group: &Group, count: usize) -> Vec<(Seqno, Uid, Bytes)> {
    let mut taken = Vec::new();
    until(group, |event| {
        if let Event::Message { seqno, sender, payload, .. } = event {
            taken.push((*seqno, *sender, payload.clone()));
        }
        (taken.len() >= count).then_some(())
    });
    taken
}

#[test]
fn three_members_receive_one_order() {
    let name = fresh_name("order");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let second = Group::join(&name, "here I am", &options()).unwrap();
    let third = Group::join(&name, "me too", &options()).unwrap();
    assert_eq!(third.members().len(), 3);
    let groups = [first, second, third];
    std::thread::scope(|scope| {
        let receivers: Vec<_> =
            groups.iter().map(|group| scope.spawn(move || messages(group, 300))).collect();
        for (number, group) in groups.iter().enumerate() {
            scope.spawn(move || {
                for count in 0..100 {
                    group.send(format!("{number}:{count}")).unwrap();
                }
            });
        }
        let orders: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect();
        assert_eq!(orders[0], orders[1]);
        assert_eq!(orders[0], orders[2]);
        for (number, group) in groups.iter().enumerate() {
            let mine = group.info().me;
            let sent: Vec<_> = orders[0].iter().filter(|(_, sender, _)| *sender == mine).collect();
            assert_eq!(sent.len(), 100);
            for (count, (_, _, payload)) in sent.iter().enumerate() {
                assert_eq!(payload, format!("{number}:{count}").as_bytes());
            }
        }
    });
}

// A datagram may be lost, so the sender repeats it until one arrived.
#[test]
fn an_unreliable_message_has_no_seqno_and_no_outcome_to_wait_for() {
    let name = fresh_name("unreliable");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    let (over, arrived) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            until(&first, |event| match event {
                Event::Early { sender, quality, payload, .. } => {
                    assert_eq!(*quality, Quality::UNRELIABLE);
                    assert_eq!(&payload[..], b"3, 4");
                    assert!(first.info().members.iter().any(|member| member.uid == *sender));
                    Some(())
                }
                _ => None,
            });
            drop(over);
        });
        while arrived.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
            assert_eq!(second.send_with("3, 4", Quality::UNRELIABLE), Ok(0));
        }
    });
    let mut ticket = second.submit_with("3, 4", Quality::UNRELIABLE).unwrap();
    assert_eq!((ticket.number(), ticket.try_wait()), (0, Some(Ok(0))));
    let batch = second.submit_all_with(["5, 6", "7, 8"], Quality::UNRELIABLE).unwrap();
    assert_eq!(batch.wait(), BatchOutcome::default());
    let refused = second.send_with(vec![0; 70_000], Quality::UNRELIABLE);
    assert!(
        matches!(refused, Err(SendFailure::Refused(SendError::NotOneDatagram { bytes: 70_000, .. }))),
        "{refused:?}"
    );
    assert_eq!(second.try_submit_after_with(&ticket, "9", Quality::UNRELIABLE).unwrap().wait(), Ok(0));
}

#[test]
fn the_role_goes_to_the_sender_and_every_member_is_told() {
    let name = fresh_name("migrating");
    let config = GroupConfig { order: Order::Sequencer(Migration::ByLoad), ..GroupConfig::default() };
    let founder = Group::create(&name, config, &options()).unwrap();
    let talker = Group::join(&name, "", &options()).unwrap();
    let me = talker.info().me;
    let told = |group: &Group| {
        until(group, |event| match event {
            Event::HandedOver { sequencer, .. } => Some(*sequencer),
            _ => None,
        })
    };
    std::thread::scope(|scope| {
        let receivers = [scope.spawn(|| told(&founder)), scope.spawn(|| told(&talker))];
        let begin = Instant::now();
        while talker.info().sequencer != me && begin.elapsed() < PATIENCE {
            // Many at a time, so that there are enough of them within a second even on a slow machine.
            let things = talker.submit_all((0..100).map(|_| "and another thing")).unwrap();
            assert_eq!(things.wait().accepted, 100);
        }
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap(), me);
        }
    });
    assert_eq!(founder.report().sequencer, me, "the report shows it too");
}

#[test]
fn a_leaver_is_seen_to_leave_and_receives_its_own_leave_last() {
    let name = fresh_name("leave");
    let stays = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let leaves = Group::join(&name, "", &options()).unwrap();
    let leaver = leaves.info().me;
    leaves.send("before").unwrap();
    leaves.leave("farewell").unwrap();
    let parting = |group: &Group| {
        until(group, |event| match event {
            Event::Left { member, goodbye, members, .. } => Some((member.uid, goodbye.clone(), *members)),
            _ => None,
        })
    };
    assert_eq!(parting(&stays), (leaver, Bytes::from("farewell"), 1));
    assert_eq!(parting(&leaves), (leaver, Bytes::from("farewell"), 1));
    assert_eq!(leaves.receive(), Err(Ended::Left));
    assert_eq!(leaves.send("after"), Err(SendFailure::Refused(SendError::Left)));
    assert_eq!(leaves.leave(""), Err(LeaveFailure::Refused(LeaveError::Left)));
    stays.send("alone").unwrap();
    // The same process may enter again with another life.
    let again = Group::join(&name, "", &options()).unwrap();
    assert_ne!(again.info().me, leaver);
    assert_eq!(again.members().len(), 2);
}

#[test]
fn dropping_the_last_handle_leaves() {
    let name = fresh_name("drop");
    let stays = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let dropped = Group::join(&name, "", &options()).unwrap();
    let (other, me) = (dropped.clone(), dropped.info().me);
    drop(dropped);
    other.send("still here").unwrap();
    drop(other);
    // The leave is ordered by the time the drop returns, so no member has to suspect another.
    let gone = until(&stays, |event| match event {
        Event::Left { member, .. } => Some(member.uid),
        Event::Reset { .. } => panic!("the member was excluded instead"),
        _ => None,
    });
    assert_eq!((gone, stays.counters().suspicions), (me, 0));
}

#[test]
fn groups_of_one_process_share_its_sockets_and_nothing_else() {
    let names = [fresh_name("shared"), fresh_name("shared"), fresh_name("shared")];
    let founders: Vec<_> =
        names.iter().map(|name| Group::create(name, GroupConfig::default(), &options()).unwrap()).collect();
    let joiners: Vec<_> = names.iter().map(|name| Group::join(name, "", &options()).unwrap()).collect();
    let address = |group: &Group| {
        let info = group.info();
        info.members.iter().find(|member| member.uid == info.me).unwrap().address
    };
    assert!(founders.iter().all(|group| address(group) == address(&founders[0])));
    assert!(joiners.iter().all(|group| address(group) == address(&joiners[0])));
    assert_ne!(address(&founders[0]), address(&joiners[0]));
    for (number, group) in joiners.iter().enumerate() {
        group.send(vec![number as u8]).unwrap();
    }
    for (number, group) in founders.iter().enumerate() {
        assert_eq!(messages(group, 1)[0].2, vec![number as u8]);
        assert_eq!(group.try_receive(), Ok(None));
    }
}

#[test]
fn messages_of_any_size_arrive_whole() {
    let name = fresh_name("sizes");
    let config = GroupConfig { message_bytes_max: 300_000, ..GroupConfig::default() };
    let first = Group::create(&name, config, &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    let sizes = [0, 1, 1300, 1301, 1472, 5000, 300_000];
    std::thread::scope(|scope| {
        let received = scope.spawn(|| messages(&second, sizes.len()));
        scope.spawn(|| messages(&first, sizes.len()));
        for size in sizes {
            second.send((0..size).map(|byte| byte as u8).collect::<Vec<u8>>()).unwrap();
        }
        for ((_, _, payload), size) in received.join().unwrap().iter().zip(sizes) {
            assert_eq!(payload.len(), size);
            assert!(payload.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    });
    let refused = first.send(vec![0; 300_001]);
    let expected = SendError::TooLarge { bytes: 300_001, max: 300_000 };
    assert_eq!(refused, Err(SendFailure::Refused(expected)));
}

#[test]
fn batches_and_tickets_tell_what_became_of_their_messages() {
    let name = fresh_name("tickets");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    first.ignore_events();
    for group in [&first, &second] {
        let tickets: Vec<_> = (0..20).map(|n| group.submit(format!("{n}")).unwrap()).collect();
        let seqnos: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
        assert!(seqnos.is_sorted());
        let batch = group.submit_all((0..500).map(|n| format!("{n}"))).unwrap();
        let outcome = batch.wait();
        assert_eq!((outcome.accepted, outcome.failure), (500, None));
        assert!(outcome.last > seqnos[19]);
        let mut batch = group.submit_all((0..500).map(|n| format!("{n}"))).unwrap();
        let later = batch.wait_timeout(PATIENCE).unwrap();
        assert_eq!((later.accepted, batch.try_wait()), (500, Some(later)), "an outcome stays known");
        assert!(later.last >= outcome.last + 500);
    }
    assert_eq!(messages(&second, 2040).len(), 2040);
    let mut ticket = second.submit("once more").unwrap();
    let known = until_known(&mut ticket);
    assert_eq!(ticket.try_wait(), Some(known));
    assert_eq!(ticket.wait(), known);
    let nothing: [Bytes; 0] = [];
    assert_eq!(second.submit_all(nothing).unwrap().wait().accepted, 0);
}

fn until_known(ticket: &mut Ticket) -> Result<Seqno, SendFailure> {
    loop {
        match ticket.try_wait() {
            Some(known) => return known,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn a_slow_iterator_of_messages_blocks_no_other_call() {
    let group = Group::create(&fresh_name("slow-iterator"), GroupConfig::default(), &options()).unwrap();
    let (sender, (say, said), (handed, is_handed)) = (group.clone(), mpsc::channel(), mpsc::channel());
    let submitting = thread::spawn(move || {
        // Each message comes when `say` sends it. The iterator also looks at the group.
        let messages = said.into_iter().inspect(|_: &&str| handed.send(sender.members().len()).unwrap());
        sender.submit_all(messages).unwrap().wait().accepted
    });
    say.send("one").unwrap();
    assert_eq!(is_handed.recv_timeout(PATIENCE), Ok(1));
    group.send("meanwhile").unwrap();
    say.send("two").unwrap();
    drop(say);
    assert_eq!(submitting.join().unwrap(), 2);
}

/// A group of two whose first member receives nothing. Messages get seqnos until its history is full, where the
/// second's join counts too, and then the window fills. Exactly that many messages are taken.
fn full(name: &str, history_messages: u32, window: u32) -> (Group, Group, Vec<Ticket>) {
    let config = GroupConfig { history_messages, window, ..GroupConfig::default() };
    let first = Group::create(name, config, &options()).unwrap();
    let second = Group::join(name, "", &options()).unwrap();
    let count = history_messages - 1 + window;
    let under_way = (0..count).map(|number| second.submit(number.to_string()).unwrap()).collect();
    (first, second, under_way)
}

#[test]
fn a_full_window_is_said_to_be_full_and_opens_again() {
    let (first, second, under_way) = full(&fresh_name("window"), 16, 4);
    assert_eq!(second.try_submit("too many").map(drop), Err(SendError::WindowFull));
    first.ignore_events();
    second.ignore_events();
    for ticket in under_way {
        ticket.wait().unwrap();
    }
    second.submit("again").unwrap().wait().unwrap();
}

// The second member receives nothing, so in the end no message gets a seqno.
#[test]
fn a_send_with_a_timeout_ends_and_names_the_member_that_holds_all_up() {
    let config = GroupConfig { history_messages: 16, window: 4, ..GroupConfig::default() };
    let name = fresh_name("timeout");
    let first = Group::create(&name, config, &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    first.ignore_events();
    assert_eq!(first.standing(), Standing::Primary);
    let timeout = Duration::from_secs(1);
    let failure = loop {
        if let Err(failure) = first.send_timeout("on and on", timeout) {
            break failure;
        }
    };
    let SendFailure::TimedOut { held_up_by: Some(held_up) } = failure else { panic!("{failure}") };
    assert_eq!(held_up.member, second.info().me);
    second.ignore_events();
    first.send("again").unwrap();
    assert_eq!(first.standing_after(Standing::Primary, Some(Duration::from_millis(1))), Standing::Primary);
    second.leave("").unwrap();
    assert_eq!(second.standing_after(Standing::Primary, None), Standing::Out);
}

// Each waits for its own message and receives nothing, so in the end no message can get a seqno.
#[test]
fn if_all_only_send_the_one_that_is_furthest_behind_is_told() {
    let name = fresh_name("deaf");
    let config = GroupConfig { history_messages: 16, window: 4, ..GroupConfig::default() };
    let first = Group::create(&name, config, &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    let send = |group: &Group| -> SendFailure {
        loop {
            if let Err(failure) = group.send("on and on") {
                return failure;
            }
        }
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&second));
        // It founded the group, so it has the most to receive.
        assert_eq!(send(&first), SendFailure::NotReceiving);
        // What it sent is still under way. Once the members receive, everything goes on.
        first.ignore_events();
        second.ignore_events();
        for _ in 0..100 {
            first.send("and on").unwrap();
        }
        second.leave("").unwrap();
        sending.join().unwrap();
    });
}

#[test]
fn a_full_history_takes_nothing_more_and_loses_nothing() {
    // Messages with a seqno stay in the history, the others in the window.
    let (first, second, under_way) = full(&fresh_name("history"), 16, 1024);
    for _ in 0..3 {
        assert_eq!(second.try_submit("too many").map(drop), Err(SendError::WindowFull));
        assert_eq!(second.info().under_way, 1024);
    }
    let expected: Vec<Bytes> = (0..under_way.len()).map(|number| number.to_string().into()).collect();
    let received = |group: &Group| -> Vec<Bytes> {
        messages(group, expected.len()).into_iter().map(|(.., payload)| payload).collect()
    };
    std::thread::scope(|scope| {
        let receiving = [&first, &second].map(|group| scope.spawn(|| received(group)));
        assert!(receiving.into_iter().all(|received| received.join().unwrap() == expected));
    });
    assert!(under_way.into_iter().all(|ticket| ticket.wait().is_ok()));
    second.send("there is room again").unwrap();
}

#[test]
fn without_multicast_the_error_asks_for_seeds_and_a_join_with_seeds_works() {
    let name = fresh_name("no-multicast");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    // No interface of this machine has this address.
    let nowhere = Some("192.0.2.77".parse().unwrap());
    let bind = Some("127.0.0.1:0".parse().unwrap());
    let deaf = Options { multicast_interface: nowhere, bind, insecure: true, ..options() };
    let joins =
        [Group::join(&name, "", &deaf), Group::join_or_create(&name, GroupConfig::default(), "", &deaf)];
    for refused in joins {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, OpenError::NoMulticast { .. }), "{refused}");
        assert!(refused.to_string().contains("--seeds"), "{refused}");
    }
    assert_eq!(first.members().len(), 1);
    let seeds = vec![first.members()[0].address.to_string()];
    let second = Group::join(&name, "", &Options { seeds, ..deaf }).unwrap();
    second.send("found").unwrap();
    assert_eq!(messages(&first, 1)[0].2, "found");
}

#[test]
fn with_a_key_those_who_hold_it_are_among_themselves() {
    let name = fresh_name("key");
    let bind = Some("127.0.0.1:0".parse().unwrap());
    let with = |key: &Key| Options { key: Some(key.clone()), bind, ..options() };
    let (ours, theirs) = (Key::generate().unwrap(), Key::generate().unwrap());
    let first = Group::create(&name, GroupConfig::default(), &with(&ours)).unwrap();
    let second = Group::join(&name, "", &with(&ours)).unwrap();
    second.send("secret").unwrap();
    assert_eq!(messages(&first, 1)[0].2, "secret");
    for stranger in [with(&theirs), options()].map(|stranger| hasty(Duration::from_millis(20), stranger)) {
        let refused = Group::join(&name, "", &stranger);
        // They may learn that a group is there, and nothing else.
        let out = |error: &OpenError| {
            matches!(error, OpenError::Join(JoinFailure::NotFound) | OpenError::OtherKey { .. })
        };
        assert!(refused.as_ref().is_err_and(out), "{refused:?}");
        let looked = look(&name, &stranger, Duration::from_millis(150));
        assert!(matches!(looked, Err(LookError::NoAnswer | LookError::OtherKey { .. })), "{looked:?}");
    }
    assert_eq!(look(&name, &with(&ours), PATIENCE).unwrap().members.len(), 2);
    until_so(&first, |first| first.counters().foreign > 0);
}

#[test]
fn anybody_can_look_at_a_group_from_outside() {
    let name = fresh_name("look");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    let seqno = second.send("something").unwrap();
    let report = look(&name, &options(), PATIENCE).unwrap();
    assert!(report.primary);
    assert_eq!(report.sequencer, first.info().me);
    assert!(report.end >= seqno);
    let seen: Vec<_> = report.members.iter().map(|member| member.member.clone()).collect();
    assert_eq!(seen, first.members());
    // By asking one member instead of all.
    let told = look_at(&name, seen[1].address, &options(), PATIENCE).unwrap();
    assert_eq!(told.reporter, second.info().me);
    let seeds = vec![seen[1].address.to_string()];
    assert_eq!(look(&name, &Options { seeds, ..options() }, PATIENCE).unwrap().members.len(), 2);
    // A seed that does not answer does not hide members near by. A query to one address reaches no other member.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = socket.local_addr().unwrap();
    let cut_off = Options { seeds: vec![silent.to_string()], ..options() };
    assert_eq!(look(&name, &cut_off, PATIENCE).unwrap().members.len(), 2);
    let alone = look_at(&name, silent, &options(), Duration::from_millis(250));
    assert!(matches!(alone, Err(LookError::NoAnswer)), "{alone:?}");
    let missing = look(&fresh_name("missing"), &options(), Duration::from_millis(150));
    assert!(matches!(missing, Err(LookError::NoAnswer)), "{missing:?}");
}

#[test]
fn a_status_query_reports_how_many_members_did_not_fit() {
    let name = fresh_name("many");
    let named = |rank: usize| Options { name: Name::new(&format!("{rank:0>32}")).unwrap(), ..options() };
    let mut groups = vec![Group::create(&name, GroupConfig::default(), &named(0)).unwrap()];
    groups.extend((1..30).map(|rank| Group::join(&name, "", &named(rank)).unwrap()));
    // Each member must know all of them before it is asked.
    groups.iter().for_each(|group| until_so(group, |group| group.members().len() == groups.len()));
    let report = look(&name, &options(), PATIENCE).unwrap();
    assert!(report.members_omitted > 0);
    assert_eq!(report.members.len() + report.members_omitted, groups.len());
    let all = groups[0].report();
    assert_eq!((all.members.len(), all.members_omitted), (groups.len(), 0));
}

#[test]
fn another_key_is_told_of_on_both_sides() {
    const HEARD_WITHIN: Duration = Duration::from_millis(1500);
    let name = fresh_name("keys");
    let with = |byte| Options {
        key: Some(Key::from_bytes([byte; 32])),
        bind: Some("127.0.0.1:0".parse().unwrap()),
        ..options()
    };
    let first = Group::create(&name, GroupConfig::default(), &with(1)).unwrap();
    let second = Group::join(&name, "", &with(1)).unwrap();
    assert_eq!((first.info().foreign, second.info().foreign), (None, None));
    // A process with another key, or none, learns that the group is there as soon as a member sends to all.
    for stranger in [with(2), options()] {
        let stranger = hasty(HEARD_WITHIN / 10, stranger);
        let joined = persistently(
            || Group::join(&name, "", &stranger),
            |joined| matches!(joined, Err(OpenError::Join(JoinFailure::NotFound))),
        );
        assert!(matches!(joined, Err(OpenError::OtherKey { .. })), "{joined:?}");
        let looked = persistently(
            || look(&name, &stranger, HEARD_WITHIN),
            |looked| matches!(looked, Err(LookError::NoAnswer)),
        );
        assert!(matches!(looked, Err(LookError::OtherKey { .. })), "{looked:?}");
    }
    // The members received its datagrams too. A member that enters later did not, and what it could not open at first
    // came from its own group.
    until_so(&first, |first| first.info().foreign.is_some() && first.counters().foreign > 0);
    assert_eq!(first.counters().malformed, 0);
    let third = Group::join(&name, "", &with(1)).unwrap();
    assert_eq!(third.info().foreign, None);
    // Another founder learns it as soon as a member sends.
    let founder = hasty(HEARD_WITHIN / 10, with(2));
    let other = Group::join_or_create(&name, GroupConfig::default(), "", &founder).unwrap();
    assert_eq!(other.info().members.len(), 1);
    until_so(&other, |other| other.info().foreign.is_some());
}

#[test]
fn two_groups_under_one_key_do_not_take_each_other_for_strangers() {
    let name = fresh_name("one-key");
    let bind = Some("127.0.0.1:0".parse().unwrap());
    let ours = Options { key: Some(Key::from_bytes([1; 32])), bind, ..options() };
    let first = Group::create(&name, GroupConfig::default(), &ours).unwrap();
    let second = Group::join(&name, "", &ours).unwrap();
    let other = Group::create(&name, GroupConfig::default(), &ours).unwrap();
    // It does not give way. It receives what the first two send to each other, and cannot open it.
    other.send("other").unwrap();
    second.send("first").unwrap();
    until_so(&other, |other| other.counters().stale > 0);
    until(&first, |event| matches!(event, Event::Conflict { .. }).then_some(()));
    assert!([&first, &second, &other].iter().all(|group| group.info().foreign.is_none()));
    // A joiner may have counted what it received from its own group before it was answered.
    assert!([&first, &other].iter().all(|group| group.counters().foreign == 0));
}

#[test]
fn a_refused_joiner_learns_which_member_refused_it_and_why() {
    let name = fresh_name("full");
    let config = GroupConfig { members_max: 2, ..GroupConfig::default() };
    let first = Group::create(&name, config, &options()).unwrap();
    let _second = Group::join(&name, "", &options()).unwrap();
    let refused = Group::join(&name, "", &options()).unwrap_err();
    let by = first.members()[0].address;
    assert!(matches!(refused, OpenError::Join(JoinFailure::Full { by: said }) if said == by), "{refused:?}");
    assert!(refused.to_string().contains(&by.to_string()), "{refused}");
    // A process that can ask no seed does not found a second group.
    let seeds = vec!["nowhere.invalid".into()];
    let alone = Group::join_or_create(&name, GroupConfig::default(), "", &Options { seeds, ..options() });
    assert!(matches!(alone, Err(OpenError::Seeds { .. })), "{alone:?}");
}

#[test]
fn seeds_replace_multicast() {
    let name = fresh_name("seeds");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let address = first.members()[0].address;
    let settings = Settings { transport: Transport::Unicast, ..options().settings };
    let seeds = vec![address.to_string(), "nowhere.invalid".into()];
    let second = Group::join(&name, "", &Options { seeds, settings, ..options() }).unwrap();
    second.send("found you").unwrap();
    assert_eq!(messages(&first, 1)[0].2, "found you");
    let wrong = vec!["127.0.0.1:9".into()];
    let refused =
        Group::join(&name, "", &hasty(Duration::from_millis(20), Options { seeds: wrong, ..options() }));
    assert!(matches!(refused, Err(OpenError::Join(JoinFailure::NotFound))), "{refused:?}");
}

#[test]
fn a_joiner_that_can_send_no_query_gets_an_error_and_founds_nothing() {
    let name = fresh_name("unasked");
    // A broadcast without permission, which the system refuses everywhere.
    let refused: std::net::SocketAddr = "255.255.255.255:9".parse().unwrap();
    let bind = "127.0.0.1:0".parse().ok();
    let asking = |seeds: &[&str]| {
        let seeds = seeds.iter().map(|seed| seed.to_string()).collect();
        hasty(Duration::from_millis(20), Options { bind, seeds, insecure: true, ..options() })
    };
    let (config, unasked) = (GroupConfig::default, asking(&["255.255.255.255:9"]));
    for entered in [Group::join_or_create(&name, config(), "", &unasked), Group::join(&name, "", &unasked)] {
        assert!(matches!(entered, Err(OpenError::Unasked { address }) if address == refused), "{entered:?}");
    }
    let looked = look(&name, &unasked, Duration::from_millis(50));
    assert!(
        matches!(looked, Err(LookError::Open(OpenError::Unasked { address })) if address == refused),
        "{looked:?}"
    );
    // A process may found a group if it asks for none, or if at least one query was sent.
    Group::create(&name, config(), &unasked).unwrap();
    let asked = asking(&["255.255.255.255:9", "127.0.0.1:9"]);
    Group::join_or_create(&name, config(), "", &asked).unwrap();
    let looked = look(&name, &asked, Duration::from_millis(50));
    assert!(matches!(looked, Err(LookError::NoAnswer)), "{looked:?}");
}

#[test]
fn a_member_is_found_at_whichever_address_it_is_asked() {
    let name = fresh_name("wildcard");
    let everywhere = Options { bind: Some("0.0.0.0:0".parse().unwrap()), insecure: true, ..options() };
    let first = Group::create(&name, GroupConfig::default(), &everywhere).unwrap();
    let advertised = first.members()[0].address;
    assert!(!advertised.ip().is_unspecified(), "{advertised}");
    let port = advertised.port();
    let ask = |host: &str, options: Options| {
        let options = Options { seeds: vec![format!("{host}:{port}")], ..options };
        Group::join(&name, "", &options).unwrap()
    };
    let permitted = Options { bind: "127.0.0.1:0".parse().ok(), insecure: true, ..options() };
    let joiners = [
        ask("127.0.0.1", permitted.clone()),
        ask("localhost", permitted.clone()),
        // Any of these is this machine's loopback.
        ask("127.0.0.2", permitted),
        ask("127.0.0.1", Options { insecure: true, ..options() }),
        ask("127.0.0.1", everywhere.clone()),
        ask(&advertised.ip().to_string(), everywhere.clone()),
    ];
    for (before, group) in joiners.iter().enumerate() {
        assert_eq!(group.info().epoch, first.info().epoch, "joiner {before}: {:?}", group.info());
        group.send(format!("{before}")).unwrap();
    }
    let heard: Vec<Bytes> =
        messages(&first, joiners.len()).into_iter().map(|(.., payload)| payload).collect();
    assert_eq!(heard, ["0", "1", "2", "3", "4", "5"]);
    // Without a key and without permission to do without, only members at loopback addresses are taken.
    if !advertised.ip().is_loopback() {
        let seeds = vec![format!("127.0.0.1:{port}")];
        let alone = hasty(Duration::from_millis(20), Options { seeds, ..options() });
        let entered = Group::join(&name, "", &alone);
        assert!(matches!(entered, Err(OpenError::Join(JoinFailure::NotFound))), "{entered:?}");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let bind = |address| Options { bind: Some(address), ..options() };
    let refusal =
        |options: &Options| Group::create(&fresh_name("open"), GroupConfig::default(), options).unwrap_err();
    // No other test binds this address, so the port stays free for the member below.
    let other = std::net::UdpSocket::bind("127.0.0.6:0").unwrap();
    let taken = other.local_addr().unwrap();
    let in_use = refusal(&bind(taken));
    assert!(matches!(in_use, OpenError::AddressInUse { .. }), "{in_use}");
    let abroad = refusal(&bind("192.0.2.1:0".parse().unwrap()));
    assert!(matches!(abroad, OpenError::Unprotected { .. }), "{abroad}");
    assert!(abroad.to_string().contains("keygen"), "{abroad}");
    let not_ours = refusal(&Options { insecure: true, ..bind("192.0.2.1:0".parse().unwrap()) });
    assert!(matches!(not_ours, OpenError::NotOurAddress { .. }), "{not_ours}");
    let settings = Settings { datagram_bytes_max: 1, ..Settings::default() };
    let config = refusal(&Options { settings, ..options() });
    assert!(matches!(config, OpenError::Config(_)), "{config}");
    drop(other);
    // A second member of one group cannot have the same fixed address.
    let name = fresh_name("open");
    let one = Group::create(&name, GroupConfig::default(), &bind(taken)).unwrap();
    let two = Group::join(&name, "", &bind(taken)).unwrap_err();
    assert!(matches!(two, OpenError::AlreadyMember { .. }), "{two}");
    drop(one);
}

#[test]
fn a_thread_that_sends_and_one_that_receives_share_a_handle() {
    let name = fresh_name("threads");
    let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
    let second = Group::join(&name, "", &options()).unwrap();
    std::thread::scope(|scope| {
        for group in [&first, &second] {
            scope.spawn(|| assert_eq!(messages(group, 400).len(), 400));
            scope.spawn(|| (0..200).for_each(|_| assert!(group.send("x").is_ok())));
        }
    });
}

#[test]
fn two_that_create_or_join_at_once_end_up_together() {
    let name = fresh_name("both");
    let seeking = hasty(Settings::default().locate, options());
    let groups: Vec<_> = std::thread::scope(|scope| {
        let open = || Group::join_or_create(&name, GroupConfig::default(), "", &seeking).unwrap();
        let opening: Vec<_> = (0..2).map(|_| scope.spawn(open)).collect();
        opening.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    groups.iter().for_each(|group| until_so(group, |group| group.members().len() == 2));
    assert_eq!(groups[0].info().epoch, groups[1].info().epoch);
}

#[test]
fn a_founder_that_gives_way_enters_once_more() {
    let name = fresh_name("gives-way");
    // An address without a member, until the older group is there.
    let reserved = std::net::UdpSocket::bind("127.0.0.5:0").unwrap();
    let address = reserved.local_addr().unwrap();
    let seeking = hasty(Duration::from_millis(20), Options { seeds: vec![address.to_string()], ..options() });
    let founder = Group::join_or_create(&name, GroupConfig::default(), "here I come", &seeking).unwrap();
    let entered = || match founder.receive_timeout(PATIENCE) {
        Ok(Some(Event::Entered { view, .. })) => view,
        other => panic!("{other:?}"),
    };
    let alone = entered();
    assert_eq!(alone.members.len(), 1);
    drop(reserved);
    let at = Options { bind: Some(address), ..options() };
    let other = Group::create(&name, GroupConfig::default(), &at).unwrap();
    other.send("we have begun").unwrap();
    let together = entered();
    assert_eq!((together.members.len(), together.epoch), (2, other.info().epoch));
    assert_eq!(together.members[1], alone.members[0]);
    let greeting = until(&other, |event| match event {
        Event::Joined { hello, .. } => Some(hello.clone()),
        _ => None,
    });
    assert_eq!(greeting, "here I come");
    founder.send("me too").unwrap();
    assert_eq!(messages(&founder, 1)[0].2, "me too");
}

#[test]
fn a_group_can_live_without_multicast_on_version_six() {
    let bind: std::net::SocketAddr = "[::1]:0".parse().unwrap();
    if std::net::UdpSocket::bind(bind).is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: this machine has no IPv6 loopback");
        return;
    }
    let name = fresh_name("six");
    let six = Options { bind: Some(bind), ..options() };
    let first = Group::create(&name, GroupConfig::default(), &six).unwrap();
    let nowhere = Group::join(&name, "", &six).unwrap_err();
    assert!(matches!(nowhere, OpenError::NoMulticast { .. }), "{nowhere}");
    let seeds = vec![first.members()[0].address.to_string()];
    let second = Group::join(&name, "", &Options { seeds, ..six }).unwrap();
    second.send(vec![6; 100_000]).unwrap();
    assert_eq!(messages(&first, 1)[0].2, vec![6; 100_000]);
    // No seed could be asked by the other IP version, and a second group would be founded.
    let seed = first.members()[0].address;
    for (bind, more) in [(None, Some("127.0.0.1:9")), ("127.0.0.1:0".parse().ok(), None)] {
        let seeds = more.into_iter().map(String::from).chain([seed.to_string()]).collect();
        let four = hasty(Duration::from_millis(20), Options { bind, seeds, ..options() });
        let entered = Group::join_or_create(&name, GroupConfig::default(), "", &four);
        assert!(
            matches!(entered, Err(OpenError::SeedFamily { seed: refused }) if refused == seed),
            "{entered:?}"
        );
        let looked = look(&name, &four, Duration::from_millis(50));
        assert!(matches!(looked, Err(LookError::Open(OpenError::SeedFamily { .. }))), "{looked:?}");
    }
}

#[test]
fn all_can_leave_at_once() {
    for _ in 0..5 {
        let name = fresh_name("all-leave");
        let first = Group::create(&name, GroupConfig::default(), &options()).unwrap();
        let rest = (0..2).map(|_| Group::join(&name, "", &options()).unwrap());
        let groups: Vec<Group> = std::iter::once(first).chain(rest).collect();
        std::thread::scope(|scope| {
            for group in &groups {
                // Confirmed, not given up.
                scope.spawn(|| group.leave("").unwrap());
            }
        });
    }
}

#[test]
fn participants_form_one_group_or_none() {
    let names: Vec<Name> = ["a", "b", "c"].iter().map(|name| Name::new(name).unwrap()).collect();
    let form = |group: String, present: usize, at_least: u16, within: Duration| {
        let participants = names.clone();
        let threads: Vec<_> = names[..present]
            .iter()
            .cloned()
            .map(|me| {
                let (group, participants) = (group.clone(), participants.clone());
                std::thread::spawn(move || {
                    let formation = Formation { participants, at_least, within };
                    let options = Options { name: me, ..options() };
                    Group::form(&group, formation, GroupConfig::default(), &options)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    };
    let formed = form(fresh_name("form"), 3, 3, PATIENCE);
    let groups: Vec<Group> = formed.into_iter().map(Result::unwrap).collect();
    let epochs: Vec<_> = groups.iter().map(|group| group.info().epoch).collect();
    assert!(epochs.windows(2).all(|pair| pair[0] == pair[1]), "{epochs:?}");
    groups[0].send("formed").unwrap();
    assert_eq!(messages(&groups[2], 1)[0].2, "formed");

    let alone = form(fresh_name("form"), 1, 2, Duration::from_millis(300));
    assert!(matches!(alone[0], Err(OpenError::Join(JoinFailure::NotFormed))), "{alone:?}");
}
