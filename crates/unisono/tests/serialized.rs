//! What the feature `serde` makes of the plain data types.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json, to_value};
use std::fmt::Debug;
use std::time::Duration;
use unisono::rpc::{Port, ServeOptions};
use unisono::{
    BatchOutcome, EpochId, Event, Floor, Formation, Group, GroupConfig, Info, JoinFailure, LastReset, Member,
    Name, Options, Quality, Quorum, Report, SendError, SendFailure, Settings, SlowMember, Suspicion, Uid,
    View,
};

/// Checks that the value survives, and returns it in JSON.
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Value {
    let written = to_value(value).unwrap();
    assert_eq!(from_value::<T>(written.clone()).unwrap(), *value);
    written
}

fn ann() -> Member {
    Member {
        uid: Uid(0xfedc_ba98_7654_3210),
        name: "Ann".parse().unwrap(),
        address: ([10, 0, 0, 1], 7195).into(),
        floor: Floor::None,
        hops: 1,
    }
}

#[test]
fn random_numbers_are_digits_and_names_are_text() {
    let written = survives(&ann());
    assert_eq!(
        written,
        json!({"uid": "fedcba9876543210", "name": "Ann", "address": "10.0.0.1:7195", "floor": "none", "hops": 1})
    );
    let epoch = EpochId { counter: 3, coordinator: Uid(7), nonce: 1 << 63 };
    let expected = json!({"counter": 3, "coordinator": "0000000000000007", "nonce": "8000000000000000"});
    assert_eq!(survives(&epoch), expected);
    let port = Port::from_name("upper");
    assert_eq!(survives(&port), json!(port.to_string()));
    for bad in ["", "7", "+000000000000007", "000000000000000g", "00000000000000007"] {
        let refused = from_value::<Uid>(json!(bad)).unwrap_err().to_string();
        assert!(refused.contains("expected 16 hexadecimal digits"), "{refused}");
    }
}

#[test]
fn a_text_that_is_no_name_is_refused() {
    assert_eq!(survives(&Name::default()), json!(""));
    let refused = from_value::<Name>(json!("a\nb")).unwrap_err().to_string();
    assert_eq!(refused, "a name has no control characters, and this one has '\\n' at byte 1");
    assert!(from_value::<Name>(json!("x".repeat(65))).is_err());
}

#[test]
fn events_survive() {
    let view = View::new(EpochId::default(), vec![ann()], ann().uid, 1);
    let message = Event::Message {
        seqno: 9,
        sender: ann().uid,
        number: 2,
        outside: None,
        payload: b"\0\xff"[..].into(),
    };
    let expected =
        json!({"message": {"seqno": 9, "sender": "fedcba9876543210", "number": 2, "payload": [0, 255]}});
    assert_eq!(survives(&message), expected);
    for event in [
        Event::Early {
            sender: ann().uid,
            quality: Quality::UNRELIABLE,
            outside: None,
            payload: "3, 4".into(),
        },
        Event::Entered { seqno: 0, view: view.clone() },
        Event::Joined { seqno: 1, member: ann(), hello: "hello".into(), members: 2 },
        Event::Left { seqno: 2, member: ann(), goodbye: "".into(), members: 1, successor: Some(Uid(1)) },
        Event::HandedOver { seqno: 3, sequencer: Uid(1) },
        Event::Reset { seqno: 4, view, excluded: vec![ann()], degraded: true, forced: false },
        Event::Suspected { member: Uid(1), reason: Suspicion::Deaf },
        Event::Excluded { epoch: None },
        Event::JoinFailed { reason: JoinFailure::Full { by: ann().address } },
        Event::Conflict { address: ann().address, gives_way: true, other_ordered: 7 },
    ] {
        survives(&event);
    }
    assert_eq!(survives(&Event::Gone), json!("gone"));
}

#[test]
fn a_configuration_needs_only_what_differs_and_refuses_misspelt_settings() {
    let config = GroupConfig {
        quorum: Quorum::MajorityOf(vec!["Ann".parse().unwrap()]),
        slow_member: SlowMember::ExcludeAfter(Duration::from_secs(2)),
        ..GroupConfig::default()
    };
    survives(&config);
    let short: GroupConfig = from_value(json!({"resilience": 2, "quorum": "all"})).unwrap();
    assert_eq!(short, GroupConfig { resilience: 2, quorum: Quorum::All, ..GroupConfig::default() });
    let refused = from_value::<GroupConfig>(json!({"resiliance": 2})).unwrap_err().to_string();
    assert!(refused.contains("unknown field `resiliance`"), "{refused}");
    survives(&Settings::default());
    survives(&ServeOptions::default());
    survives(&Options::default().calls);
    let participants = vec!["Ann".parse().unwrap()];
    survives(&Formation { participants, at_least: 1, within: Duration::from_secs(1) });
}

#[test]
fn what_a_member_reports_survives() {
    let name = format!("serialized-{}", std::process::id());
    let group = Group::create(&name, GroupConfig::default(), &Options::default()).unwrap();
    group.send("counted").unwrap();
    let info: Info = group.info();
    assert_eq!(survives(&info)["phase"], json!("member"));
    let report: Report = group.report();
    assert_eq!(survives(&report)["counters"]["messages_sent"], json!(1));
    // A field that an older version did not write has its default.
    assert_eq!(from_value::<LastReset>(json!({"seqno": 4})).unwrap().seqno, 4);
    survives(&group.submit_all(["a", "b"]).unwrap().wait());
    let failure = Some(SendFailure::Refused(SendError::TooLarge { bytes: 9, max: 8 }));
    assert_eq!(survives(&failure), json!({"refused": {"too_large": {"bytes": 9, "max": 8}}}));
    assert_eq!(survives(&BatchOutcome::default())["failure"], Value::Null);
}
