//! Messages of processes that are no members, over real sockets, within one process.

mod common;

use common::{fresh_name, members, options, until, watchful};
use std::net::UdpSocket;
use std::thread;
use unisono::rpc::Client;
use unisono::{
    Event, Group, GroupConfig, Options, OutsideError, OutsideOptions, OutsideSender, Quality, Settings, Uid,
};

/// Receives messages from outside until there are `count`, and returns their texts and who sent them on.
fn from_outside(group: &Group, count: usize) -> Vec<(u64, Uid)> {
    let mut taken = Vec::new();
    until(group, |event| {
        if let Event::Message { sender, outside: Some(_), payload, .. } = event {
            taken.push((std::str::from_utf8(payload).unwrap().parse().unwrap(), *sender));
        }
        (taken.len() >= count).then_some(())
    });
    taken
}

fn sender(name: &str) -> OutsideSender {
    OutsideSender::new(name, OutsideOptions::default(), &options()).unwrap()
}

#[test]
fn members_receive_each_message_once_in_order_though_the_relay_dies() {
    let name = fresh_name("outside");
    let first = Group::create(&name, GroupConfig::default(), &watchful()).unwrap();
    let rest = (1..3).map(|_| Group::join(&name, "", &watchful()).unwrap());
    let groups: Vec<Group> = std::iter::once(first).chain(rest).collect();
    groups.iter().for_each(|group| group.open_to_outside().unwrap());
    let sender = sender(&name);
    thread::scope(|scope| {
        for text in 0..100 {
            sender.send(text.to_string(), Quality::ORDERED).unwrap();
        }
        let receivers: Vec<_> = groups.iter().map(|group| scope.spawn(|| from_outside(group, 100))).collect();
        let orders: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect();
        assert!(orders.iter().all(|order| *order == orders[0]));
        assert!(orders[0].iter().map(|(text, _)| *text).eq(0..100));
        assert_eq!(sender.flush().unwrap().accepted, 100);
        let relay = orders[0][0].1;
        groups.iter().find(|group| group.info().me == relay).unwrap().end();
        for text in 100..200 {
            sender.send(text.to_string(), Quality::ORDERED).unwrap();
        }
        let rest = groups.iter().filter(|group| group.info().me != relay);
        let receivers: Vec<_> = rest.map(|group| scope.spawn(|| from_outside(group, 100))).collect();
        for receiver in receivers {
            let order = receiver.join().unwrap();
            assert!(order.iter().map(|(text, _)| *text).eq(100..200));
            assert!(order.iter().all(|(_, sender)| *sender != relay));
        }
        let tally = sender.flush().unwrap();
        assert_eq!((tally.accepted, tally.unknown, tally.not_sent), (200, 0, 0));
    });
}

#[test]
fn a_group_that_no_member_opened_takes_nothing_and_the_error_says_what_to_type() {
    let name = fresh_name("shut");
    let group = members(&name, 1).remove(0);
    let outside = sender(&name);
    outside.send("hello", Quality::ORDERED).unwrap();
    let refused = outside.flush().unwrap_err();
    assert!(matches!(refused, OutsideError::NotOpen { .. }));
    assert!(refused.to_string().contains(&format!("unisono listen {name} --open")), "{refused}");
    assert_eq!(outside.tally().not_sent, 1);
    drop(group);
}

#[test]
fn one_process_sends_to_a_group_by_one_sender_at_a_time_and_goes_on_with_its_numbers() {
    let name = fresh_name("twice");
    let group = members(&name, 1).remove(0);
    group.open_to_outside().unwrap();
    let first = sender(&name);
    let again = OutsideSender::new(&name, OutsideOptions::default(), &options()).unwrap_err();
    assert!(matches!(again, OutsideError::Twice), "{again}");
    first.send("0", Quality::ORDERED).unwrap();
    assert_eq!(from_outside(&group, 1).len(), 1);
    assert_eq!(first.flush().unwrap().accepted, 1);
    drop(first);
    let second = sender(&name);
    second.send("1", Quality::ORDERED).unwrap();
    assert_eq!(from_outside(&group, 1)[0].0, 1);
    assert_eq!(second.flush().unwrap().accepted, 1);
}

#[test]
fn a_sender_and_a_client_with_the_same_options_share_a_named_port() {
    let name = fresh_name("named");
    let group = members(&name, 1).remove(0);
    group.open_to_outside().unwrap();
    // No other test binds this address, so the port stays free.
    let free = UdpSocket::bind("127.0.0.8:0").unwrap().local_addr().unwrap();
    let named = Options { bind: Some(free), ..options() };
    let client = Client::new(&named).unwrap();
    // It asks for more hops, which the client has then too.
    let settings = Settings { hops: 2, ..named.settings.clone() };
    let far = Options { settings, ..named };
    let sender = OutsideSender::new(&name, OutsideOptions::default(), &far).unwrap();
    sender.send("0", Quality::ORDERED).unwrap();
    assert_eq!(from_outside(&group, 1)[0].0, 0);
    assert_eq!(sender.flush().unwrap().accepted, 1);
    assert_eq!((client.address(), client.counters().calls > 0), (free, true));
}
