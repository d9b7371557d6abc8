//! Tests of whole groups from the command line, with real processes, sockets and crashes.
//!
//! One test runs at a time: with several, members would get no processor, and would be suspected.

mod common;

use common::{
    Background, LOOKS_LONG, PATIENCE, WATCHFUL, alone, asked, command, group, json, persistently, sent,
    tried, unisono,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Starts three listeners, the first of which is the sequencer.
fn listeners(name: &str) -> Vec<Background> {
    let more = [&["--resilience", "1"], &WATCHFUL[..]].concat();
    std::iter::once(Background::listen(name, &more))
        .chain((1..3).map(|_| Background::join(name, &more)))
        .collect()
}

/// Runs a command that queries every member until all have answered. Returns its output.
fn answered_by_all(arguments: &[&str]) -> serde_json::Value {
    let all_answered = |report: &serde_json::Value| report["silent"] == serde_json::json!([]);
    let report = persistently(|| json(&asked([arguments, &["--json"]].concat())), all_answered);
    assert!(all_answered(&report), "{report}");
    report
}

fn lines(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("line {n}")).collect()
}

/// Starts a command in the background. Returns it and the lines that it prints on standard error.
fn told(arguments: &[&str]) -> (Killed, Receiver<String>) {
    told_beside(arguments, Stdio::null(), Stdio::null())
}

/// The same, with this standard input and standard output.
fn told_beside(arguments: &[&str], lines: Stdio, results: Stdio) -> (Killed, Receiver<String>) {
    let mut process =
        command().args(arguments).stdin(lines).stdout(results).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (to, told) = mpsc::channel();
    std::thread::spawn(move || lines.try_for_each(|line| to.send(line)));
    (Killed(process), told)
}

/// True if a line with these words arrives in time.
fn hears(told: &Receiver<String>, words: &str) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let line = || told.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(line).any(|line| line.contains(words))
}

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_demonstration_survives_its_sequencer() {
    let _alone = alone();
    let run = ["demo", "--members", "3", "--resilience", "1", "--messages", "1500", "--json"];
    let output = tried(&run);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = json(&output);
    for (field, value) in [("members", 3), ("survivors", 2), ("lost_acknowledged", 0), ("duplicates", 0)] {
        assert_eq!(summary[field], value, "{summary}");
    }
    assert_eq!(summary["order_identical"], true, "{summary}");
    let number = |field: &str| summary[field].as_f64().unwrap_or_else(|| panic!("no {field} in {summary}"));
    assert!(number("acknowledged") >= 1000.0 && number("delivered") >= number("acknowledged"), "{summary}");
    assert!(number("sent") >= number("delivered") && number("recovery_ms") > 0.0, "{summary}");
}

#[test]
fn member_processes_log_as_their_command_does_and_report_all_the_same() {
    let _alone = alone();
    let run = ["demo", "--members", "3", "--messages", "30", "--kill", "none", "--json"];
    let output = unisono([&run[..], &["--log", "debug", "--log-format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["acknowledged"], 30);
    let log = String::from_utf8(output.stderr).unwrap();
    let entries = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let begun = entries.filter(|entry| entry["message"] == "command started").count();
    assert_eq!(begun, 4, "the command and its three members: {log}");
}

#[test]
fn the_role_of_a_migrating_sequencer_moves_to_the_sender() {
    let _alone = alone();
    let run = ["demo", "--members", "3", "--order", "migrating", "--messages", "900", "--json"];
    let output = tried(&run);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["order"], "migrating");
    // One member sends. Once it is the sequencer, its messages need no datagram to another member to be numbered.
    let datagrams = |order: &str, messages: usize| {
        let output =
            unisono(["bench", "latency", "--messages", &messages.to_string(), "--order", order, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let summary = json(&output);
        (summary["hand_overs"].as_u64(), summary["datagrams_per_message"].as_f64().unwrap_or(0.0))
    };
    // The role moves after a while, when a fast machine has sent many messages already.
    let mut messages = 1000;
    let compare = || {
        messages *= 3;
        (datagrams("migrating", messages), datagrams("sequencer", messages))
    };
    let ((moved, spared), (stayed, usual)) =
        persistently(compare, |((_, spared), (_, usual))| *spared < usual - 0.3);
    assert_eq!(stayed, Some(0));
    assert!(moved >= Some(1) && spared < usual - 0.3, "{moved:?}, {spared} datagrams in place of {usual}");
}

#[test]
fn a_ring_survives_the_member_that_has_the_token() {
    let _alone = alone();
    let run = ["demo", "--members", "3", "--resilience", "1", "--order", "token", "--messages"];
    let output = tried(&[&run[..], &["1500", "--kill", "token-site", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = json(&output);
    assert_eq!((&summary["order"], &summary["survivors"]), (&"token".into(), &2.into()), "{summary}");
    assert_eq!((&summary["order_identical"], &summary["lost_acknowledged"]), (&true.into(), &0.into()));
    assert!(summary["recovery_ms"].as_f64() > Some(0.0), "{summary}");
    let output = tried(&[&run[..], &["90"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    for words in ["The token goes round", "which has the token, is killed", "in the same order"] {
        assert!(text.contains(words), "no '{words}' in {text}");
    }
}

#[test]
fn a_ring_is_shown_as_one_and_counts_its_passes() {
    let _alone = alone();
    let name = group("ring");
    let mut members = vec![Background::listen(&name, &["--name", "ann", "--order", "token"])];
    // The order counts for the founder only.
    members.extend(["bob", "cyd"].map(|member| Background::join(&name, &["--name", member])));
    let mut sender = Background::start(&[&["send", &name, "--min-members", "3"], &LOOKS_LONG[..]].concat());
    // One at a time, so that no member numbers them all in one term.
    for number in 0..20 {
        sender.feed(&lines(number, number + 1));
        members[0].until_messages(number + 1);
    }
    assert_eq!(sender.end(), Some(0));
    members.iter_mut().for_each(|member| member.until_messages(20));
    assert!(members.iter().all(|member| member.messages() == members[0].messages()));
    let printed = members.iter().flat_map(|member| &member.seen);
    assert!(printed.clone().all(|line| line["event"] != "orderer"), "a pass is no event");

    for command in ["status", "members"] {
        assert_eq!(json(&asked([command, &name, "--json"]))["order"], "token");
        let text = String::from_utf8(asked([command, &name]).stdout).unwrap();
        assert!(text.contains("token") && !text.contains("sequencer"), "{text}");
    }
    let stats = json(&asked(["stats", &name, "--json"]));
    let counts = |what: &str| {
        let members = stats["members"].as_array().unwrap().iter();
        members.map(|member| member[what].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    let (passes, null_passes, rests) = (counts("passes"), counts("null_passes"), counts("rests"));
    assert!(passes.len() == 3 && passes.iter().all(|count| *count > 0), "{stats}");
    assert!(null_passes.iter().zip(&passes).all(|(null, all)| null <= all), "{stats}");
    assert!(rests.iter().sum::<u64>() > 0, "{stats}");
    let text = String::from_utf8(asked(["stats", &name]).stdout).unwrap();
    assert!(text.contains("null passes"), "{text}");
}

#[test]
fn the_order_of_a_running_group_is_changed_from_outside() {
    let _alone = alone();
    let name = group("switched");
    let mut members = listeners(&name);
    let five = ["a", "b", "c", "d", "e"];
    sent(&name, &five);
    let mut last = 0;
    for order in ["token", "migrating", "token", "sequencer"] {
        let output = asked(["order", &name, order, "--json"]);
        let (changed, status) = (json(&output), json(&asked(["status", &name, "--json"])));
        assert_eq!((&changed["command"], &changed["order"]), (&"order".into(), &order.into()));
        assert!(changed["seq"].as_u64() > Some(last), "{changed}");
        last = changed["seq"].as_u64().unwrap();
        assert_eq!((&status["order"], &status["order_since"]), (&order.into(), &last.into()), "{status}");
        sent(&name, &five);
    }
    let again = asked(["order", &name, "sequencer"]);
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        format!("order sequencer already, since place {last}\n")
    );

    members.iter_mut().for_each(|member| member.until_messages(25));
    for member in &members {
        let switches = member.seen.iter().filter(|line| line["event"] == "order");
        let orders: Vec<&str> = switches.map(|line| line["order"].as_str().unwrap()).collect();
        assert_eq!(orders, ["token", "migrating", "token", "sequencer"]);
        assert_eq!(member.messages(), members[0].messages());
    }
}

#[test]
fn a_switch_that_cannot_be_is_refused() {
    let nobody = unisono(["order", &group("no-group"), "token"]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    let sideways = unisono(["order", "kitchen", "sideways"]);
    assert_eq!(sideways.status.code(), Some(2), "{sideways:?}");
    assert!(String::from_utf8_lossy(&sideways.stderr).contains("sideways"), "{sideways:?}");
}

#[test]
fn a_group_with_a_sequencer_is_shown_as_one() {
    let _alone = alone();
    for order in ["sequencer", "migrating"] {
        let name = group("no-ring");
        let _ann = Background::listen(&name, &["--name", "ann", "--order", order]);
        assert_eq!(json(&asked(["status", &name, "--json"]))["order"], order);
        assert_eq!(json(&asked(["stats", &name, "--json"]))["members"][0]["passes"], 0);
        let text = String::from_utf8(asked(["stats", &name]).stdout).unwrap();
        assert!(!text.contains("passes"), "{text}");
    }
}

#[test]
fn the_demonstration_explains_itself_and_works_without_a_kill() {
    let _alone = alone();
    let output =
        unisono(["demo", "--members", "2", "--resilience", "0", "--kill", "none", "--messages", "101"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for words in ["member-0 is the sequencer", "101 messages in the same order", "0 lost"] {
        assert!(text.contains(words), "no '{words}' in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colour without a terminal: {text}");
}

#[test]
fn a_demonstration_may_be_short() {
    let _alone = alone();
    let output = tried(&["demo", "--members", "3", "--messages", "3", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["acknowledged"], 2, "{output:?}");
    // With fewer messages a member would have none to send after the kill.
    let output = unisono(["demo", "--members", "3", "--messages", "2"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--messages 3"), "{said}");
}

#[test]
fn qualities_share_one_order() {
    let _alone = alone();
    let name = group("qualities");
    let mut listeners = listeners(&name);
    let qualities = ["ordered", "resilient=2", "majority", "total"];
    for quality in qualities {
        let sent = sent(&name, &["--quality", quality, quality, "again"]);
        assert_eq!((sent.status.code(), &json(&sent)["accepted"]), (Some(0), &2.into()), "{sent:?}");
    }
    let expected: Vec<&str> = qualities.iter().flat_map(|quality| [*quality, "again"]).collect();
    for listener in &mut listeners {
        listener.until_messages(2 * qualities.len());
        assert_eq!(listener.texts(), expected);
    }
    let [first, others @ ..] = &listeners[..] else { unreachable!("there are three listeners") };
    assert!(others.iter().all(|other| other.messages() == first.messages()));
}

// They come early or at their seqnos, each once; both ways the senders learn that they are in the order.
#[test]
fn weak_messages_come_once_to_each_listener() {
    let _alone = alone();
    let name = group("weak");
    let mut listeners = listeners(&name);
    let qualities = ["unordered", "source"];
    for quality in qualities {
        let sent = sent(&name, &["--quality", quality, quality, "again"]);
        assert_eq!((sent.status.code(), &json(&sent)["accepted"]), (Some(0), &2.into()), "{sent:?}");
    }
    let sent = sent(&name, &["last"]);
    assert_eq!(sent.status.code(), Some(0), "{sent:?}");
    for listener in &mut listeners {
        listener.until("the last message", |seen| seen.iter().any(|line| line["text"] == "last"));
        let is_weak = |line: &&Value| matches!(line["event"].as_str(), Some("early" | "message"));
        let mut texts: Vec<&str> =
            listener.seen.iter().filter(is_weak).filter_map(|line| line["text"].as_str()).collect();
        texts.sort_unstable();
        assert_eq!(texts, ["again", "again", "last", "source", "unordered"]);
        let mut early = listener.seen.iter().filter(|line| line["event"] == "early");
        assert!(early.all(|line| line["seq"].is_null() && line["quality"] != "ordered"));
    }
    let early = listeners.iter().flat_map(|listener| &listener.seen);
    assert!(early.filter(|line| line["event"] == "early").count() > 0, "none came early");
    let stats = json(&asked(["stats", &name, "--json"]));
    let members = stats["members"].as_array().unwrap();
    assert!(members.iter().any(|member| member["early"].as_u64() > Some(0)), "{stats}");
}

// A datagram may be lost; not all of a hundred are.
#[test]
fn unreliable_messages_are_printed_without_a_seqno() {
    let _alone = alone();
    let name = group("unreliable");
    let mut listeners = listeners(&name);
    let mut sender =
        Background::start(&[&["send", &name, "--quality", "unreliable"], &LOOKS_LONG[..]].concat());
    sender.feed(&lines(0, 100));
    for listener in &mut listeners {
        listener.until("a message", |seen| seen.iter().any(|line| line["event"] == "early"));
        let early = listener.seen.iter().find(|line| line["event"] == "early").unwrap();
        assert_eq!(early["quality"], "unreliable");
        assert_eq!(early["bytes"], early["text"].as_str().unwrap().len());
        assert!(
            early["seq"].is_null() && early["view"].is_string() && early["sender"].is_string(),
            "{early}"
        );
    }
    let stats = json(&asked(["stats", &name, "--json"]));
    let members = stats["members"].as_array().unwrap();
    assert!(members.iter().all(|member| member["unreliable"].as_u64() > Some(0)), "{stats}");
    assert_eq!(sender.end(), Some(0));
    assert_eq!(sender.seen.last().unwrap()["accepted"], 100);
    assert_eq!(listeners[0].messages(), []);
}

#[test]
fn an_unreliable_message_larger_than_a_datagram_is_refused() {
    let _alone = alone();
    let text = "x".repeat(70_000);
    let refused = sent(&group("too-large"), &["--quality", "unreliable", &text]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said.contains("an unreliable one is a single datagram"), "{said}");
}

#[test]
fn a_quality_has_a_name() {
    for quality in ["best", "resilient", "resilient=0", "resilient=251", "Total"] {
        let refused = unisono(["send", "x", "y", "--quality", quality]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(said.contains("ordered, resilient=K with K from 1 to 250, majority or total"), "{said}");
    }
    // A benchmark counts messages by their seqnos.
    let refused = unisono(["bench", "latency", "--quality", "unreliable"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn listeners_print_the_same_lines_in_the_same_order() {
    let _alone = alone();
    let name = group("same");
    let mut first = Background::listen(&name, &["--name", "ann"]);
    let mut second = Background::join(&name, &["--min-members", "2"]);
    let mut sender = Background::start(&[&["send", &name, "--min-members", "2"], &LOOKS_LONG[..]].concat());
    sender.feed(&lines(0, 300));
    assert_eq!(sender.end(), Some(0));
    assert_eq!(sender.seen.last().unwrap()["accepted"], 300);
    let output = sent(&name, &["an argument", "", "another"]);
    assert_eq!(json(&output)["accepted"], 3, "{output:?}");
    let expected: Vec<String> =
        lines(0, 300).into_iter().chain(["an argument", "", "another"].map(String::from)).collect();
    for listener in [&mut first, &mut second] {
        listener.until_messages(expected.len());
        assert_eq!(listener.texts(), expected);
    }
    assert_eq!(first.messages(), second.messages());
    assert!(first.seen[0]["view"].as_str().unwrap().starts_with("[ann|"), "{}", first.seen[0]);
    assert_eq!((&first.seen[0]["event"], &first.seen[0]["members"]), (&"view".into(), &1.into()));
    assert_eq!((&second.seen[0]["event"], &second.seen[0]["members"]), (&"view".into(), &2.into()));
    let joined = first.seen.iter().find(|line| line["event"] == "joined").unwrap();
    assert_eq!(joined["members"], 2, "{joined}");
}

#[test]
fn bytes_that_are_no_text_come_as_digits_and_count_ends_a_listener() {
    let _alone = alone();
    let name = group("bytes");
    let mut listener = Background::listen(&name, &["--count", "2"]);
    let mut sender = Background::start(&[&["send", &name], &LOOKS_LONG[..]].concat());
    sender.process.stdin.as_ref().unwrap().write_all(b"\xff\x00\nplain\nmore\n").unwrap();
    assert_eq!(sender.end(), Some(0));
    assert_eq!(listener.end(), Some(0));
    let messages: Vec<_> = listener.seen.iter().filter(|line| line["event"] == "message").collect();
    assert_eq!(messages.len(), 2, "{:?}", listener.seen);
    assert_eq!((&messages[0]["hex"], &messages[0]["bytes"]), (&"ff00".into(), &2.into()));
    assert_eq!((&messages[1]["text"], messages[1].get("hex")), (&"plain".into(), None));
}

// `status` shows the founder's choice, and what the present number of members allows.
#[test]
fn status_shows_the_chosen_and_the_present_resilience() {
    let _alone = alone();
    let name = group("chosen");
    let _ann = Background::listen(&name, &[&["--resilience", "2"], &WATCHFUL[..]].concat());
    let report = json(&asked(["status", &name, "--json"]));
    assert_eq!((&report["resilience"], &report["resilience_founded"]), (&0.into(), &2.into()), "{report}");
    let told = |joiners: usize| {
        let _joiners: Vec<_> = (0..joiners).map(|_| Background::join(&name, &WATCHFUL)).collect();
        String::from_utf8_lossy(&asked(["status", &name]).stdout).into_owned()
    };
    let one = told(0);
    assert!(one.contains("resilience 2, reduced to 0 while there is 1 member\n"), "{one}");
    let three = told(2);
    assert!(three.contains("resilience 2\n"), "{three}");
}

#[test]
fn a_joiner_that_asks_for_another_resilience_is_warned() {
    let _alone = alone();
    let name = group("holds");
    let _ann = Background::listen(&name, &["--resilience", "1"]);
    let told = |resilience| {
        let sent = unisono(["send", &name, "hello", "--min-members", "1", "--resilience", resilience]);
        String::from_utf8_lossy(&sent.stderr).into_owned()
    };
    let other = told("3");
    assert!(
        other.contains("founded with resilience 1, and keeps it: --resilience 3 has no effect"),
        "{other}"
    );
    let same = told("1");
    assert!(!same.contains("founded with"), "{same}");
}

#[test]
fn a_group_can_be_looked_at_from_outside() {
    let _alone = alone();
    let name = group("look");
    assert_eq!(unisono(["status", &name]).status.code(), Some(1), "no member answers");
    let mut ann = Background::listen(&name, &["--name", "ann"]);
    let _bob = Background::join(&name, &["--name", "bob"]);
    ann.until("bob", |seen| seen.iter().any(|line| line["event"] == "joined"));
    for command in ["members", "status"] {
        let output = asked([command, &name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = json(&output);
        assert_eq!((&report["group"], &report["primary"]), (&name.as_str().into(), &true.into()));
        assert_eq!(
            (&report["orderer"], &report["members"][1]["name"]),
            (&"ann".into(), &"bob".into()),
            "{report}"
        );
        for field in ["uid", "rank", "address", "received", "delivered", "suspected"] {
            assert!(!report["members"][0][field].is_null(), "{command} lacks {field}: {report}");
        }
    }
    let status = json(&asked(["status", &name, "--json"]));
    for field in ["expected", "unstable", "buffered", "window", "under_way", "in_epoch_ms"] {
        assert!(status[field].is_number(), "no {field} in {status}");
    }
    assert!(status["last_reset"].is_null(), "{status}");
    assert!(answered_by_all(&["why", &name])["waiting"].is_array());
    let stats = answered_by_all(&["stats", &name]);
    assert!(
        stats["members"].as_array().unwrap().iter().all(|member| member["datagrams_sent"].as_u64() > Some(0)),
        "{stats}"
    );
    let links = answered_by_all(&["links", &name]);
    assert_eq!(links["links"].as_array().unwrap().len(), 2, "{links}");
    for command in ["members", "status", "why", "stats", "links"] {
        let output = asked([command, &name]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{command}: {output:?}");
    }
}

#[test]
fn a_group_is_looked_at_where_the_system_grants_no_thread() {
    let _alone = alone();
    let name = group("threadless");
    let _first = Background::listen(&name, &[]);
    let _second = Background::join(&name, &[]);
    // No machine has memory for such a stack.
    let look = || {
        let mut look = command();
        look.env("RUST_MIN_STACK", (1u64 << 50).to_string()).args(["members", &name]).output().unwrap()
    };
    let listed =
        persistently(look, |output| !String::from_utf8_lossy(&output.stdout).contains("does not answer"));
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && said.contains("(2)"), "{listed:?}");
    assert!(!said.contains("does not answer") && listed.stderr.is_empty(), "{listed:?}");
}

#[test]
fn a_group_that_waits_for_a_slow_member_is_primary_and_shows_the_wait() {
    let _alone = alone();
    let name = group("slow");
    let mut ann = Background::listen(&name, &["--name", "ann"]);
    assert!(json(&asked(["status", &name, "--json"]))["stalled_ms"].is_null());
    // Bob's output is not read.
    let bob = command()
        .args(["listen", &name, "--name", "bob"])
        .args(LOOKS_LONG)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let _bob = Killed(bob.unwrap());
    ann.until("bob", |seen| seen.iter().any(|line| line["event"] == "joined"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    std::fs::write(&path, lines(0, 100_000).join("\n")).unwrap();
    let send = [&["send", &name, "--name", "carl"], &LOOKS_LONG[..]].concat();
    let many = std::fs::File::open(&path).unwrap();
    let (_sender, of_sender) = told_beside(&send, many.into(), Stdio::null());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = asked(["status", &name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let status = json(&output);
        // At first senders may wait for another member, which the machine keeps waiting.
        if status["stalled_ms"].as_f64() >= Some(1000.0) && status["stalled_by"] == "bob" {
            break;
        }
        assert!(Instant::now() < deadline, "no sender waits: {status}");
    }
    let told = String::from_utf8(asked(["status", &name]).stdout).unwrap();
    assert!(told.contains("for room in the history, because of bob: see"), "{told}");
    assert!(told.contains(&format!("see `unisono why {name}`")), "{told}");
    assert!(hears(&of_sender, &format!("takes no messages at present; `unisono why {name}` names")));
}

#[test]
fn a_member_runs_under_valgrind() {
    let _alone = alone();
    let (group, program) = (group("debugged"), env!("CARGO_BIN_EXE_unisono"));
    let run = Command::new("valgrind").args(["-q", "--tool=none", program, "send", &group, "hello"]).output();
    let output = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let _ = writeln!(std::io::stderr(), "skipped: no valgrind");
            return;
        }
        run => run.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_founder_without_other_members_is_warned() {
    let _alone = alone();
    let name = group("lonely");
    let told = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let alone = told(unisono(["send", &name, "does anyone receive this"]));
    let way = "by multicast on this machine, without a key";
    assert!(alone.contains(&format!("no member of {name} answered (asked from 127.0.0.1 {way})")), "{alone}");
    assert!(alone.contains("no other member receives this"), "{alone}");
    // A forgotten key may be the reason.
    let unseen = "members with a key, or on other machines, are not seen";
    assert!(alone.contains(unseen), "{alone}");
    let missing = told(unisono(["status", &name]));
    assert!(missing.contains(&format!("asked {way}")), "{missing}");
    let _listener = Background::listen(&name, &[]);
    let why = String::from_utf8_lossy(&asked(["why", &name]).stdout).into_owned();
    assert!(why.contains("is the only member") && why.contains(unseen), "{why}");
    let answered = told(sent(&name, &["and now"]));
    assert!(!answered.contains("no other member"), "{answered}");
}

/// A member that is suspected or excluded on the way shows it in its events.
#[test]
fn a_group_under_load_goes_from_key_to_key_without_a_reset_or_loss() {
    let _alone = alone();
    let name = group("changing");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    assert_eq!(unisono(["keygen", &file("key")]).status.code(), Some(0));
    let members = ["a", "b", "c"];
    let copy = |member: &str| std::fs::copy(file("key"), file(member)).unwrap();
    members.iter().for_each(|member| _ = copy(member));
    let mut listeners: Vec<Background> = members
        .iter()
        .map(|member| {
            let own = ["--bind", "127.0.0.1", "--key", &file(member), "--name", member];
            Background::listen(&name, &own)
        })
        .collect();
    listeners[0].until("three members", |seen| seen.iter().any(|event| event["members"] == 3));
    let mut sender = Background::start(&["send", &name, "--bind", "127.0.0.1", "--key", &file("a")]);
    // Which keys of this file the members seal with.
    let keys = |with: &str| -> Vec<Value> {
        let look = || asked(["members", &name, "--bind", "127.0.0.1", "--key", &file(with), "--json"]);
        let shown = json(&look())["members"].as_array().cloned().unwrap_or_default();
        shown.iter().map(|shown| shown["key"].clone()).collect()
    };
    let mut sent = 0;
    let mut send_some = |sender: &mut Background| {
        let lines: Vec<String> = (sent..sent + 200).map(|number| format!("k{number}")).collect();
        sender.feed(&lines);
        sent += 200;
        sent
    };
    for (option, sealing) in [("--next", 1), ("--retire", 2)] {
        assert_eq!(unisono(["keygen", option, &file("key")]).status.code(), Some(0));
        if option == "--next" {
            std::fs::copy(file("key"), file("both")).unwrap();
        }
        for member in members {
            copy(member);
            let through = send_some(&mut sender);
            listeners.iter_mut().for_each(|listener| listener.until_messages(through));
        }
        persistently(|| keys("both"), |keys| keys.len() == 4 && keys.iter().all(|key| *key == sealing));
    }
    let through = send_some(&mut sender);
    listeners.iter_mut().for_each(|listener| listener.until_messages(through));
    for listener in &listeners {
        let bad =
            |event: &&Value| ["suspected", "reset", "excluded"].iter().any(|bad| event["event"] == *bad);
        assert_eq!(listener.seen.iter().find(bad), None);
        let texts = listener.texts();
        assert_eq!(texts, (0..through).map(|number| format!("k{number}")).collect::<Vec<_>>());
    }
}

/// All others have both keys and seal with the first, which the newcomer's file lacks.
#[test]
fn a_member_that_comes_back_with_the_next_key_alone_is_heard_and_hears() {
    let _alone = alone();
    let name = group("next");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for arguments in [&["keygen"][..], &["keygen", "--next"]] {
        assert_eq!(unisono([arguments, &[&file("both")]].concat()).status.code(), Some(0));
    }
    std::fs::copy(file("both"), file("next")).unwrap();
    assert_eq!(unisono(["keygen", "--retire", &file("next")]).status.code(), Some(0));
    let listen = |member: &str, key: &str| {
        Background::listen(&name, &["--bind", "127.0.0.1", "--key", &file(key), "--name", member])
    };
    let mut listeners: Vec<Background> = ["a", "b"].map(|member| listen(member, "both")).into();
    listeners[0].until("two members", |seen| seen.iter().any(|event| event["members"] == 2));
    listeners.push(listen("c", "next"));
    listeners[0].until("three members", |seen| seen.iter().any(|event| event["members"] == 3));
    for (text, key) in [("first", "both"), ("second", "next")] {
        let sent = unisono(["send", &name, text, "--bind", "127.0.0.1", "--key", &file(key)]);
        assert_eq!(sent.status.code(), Some(0), "{sent:?}");
    }
    for listener in &mut listeners {
        listener.until_messages(2);
        assert_eq!(listener.texts(), ["first", "second"]);
        let bad =
            |event: &&Value| ["suspected", "reset", "excluded"].iter().any(|bad| event["event"] == *bad);
        assert_eq!(listener.seen.iter().find(bad), None);
    }
}

#[test]
fn a_process_with_another_key_is_warned() {
    let _alone = alone();
    let name = group("keys");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for key in ["ours", "other"] {
        assert_eq!(unisono(["keygen", &file(key)]).status.code(), Some(0));
    }
    let [ours, other] = ["ours", "other"].map(file);
    let with =
        |key: &'static str| ["--bind", "127.0.0.1", "--key", if key == "ours" { &ours } else { &other }];
    let _ann = Background::listen(&name, &with("ours"));
    let mut bob = command()
        .args(["listen", &name])
        .args(LOOKS_LONG)
        .args(with("ours"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while json(&asked([&["members", &name, "--json"][..], &with("ours")].concat()))["members"]
        .as_array()
        .unwrap()
        .len()
        < 2
    {
        assert!(Instant::now() < deadline, "bob does not come in");
    }
    for stranger in [&with("other")[..], &[]] {
        let look = || unisono([&["members", &name][..], stranger].concat());
        let said = |looked: &std::process::Output| String::from_utf8_lossy(&looked.stderr).into_owned();
        let looked = persistently(look, |looked| said(looked).contains("under another key"));
        let said = said(&looked);
        assert_eq!(looked.status.code(), Some(1), "{said}");
        assert!(said.contains("under another key"), "{said}");
    }
    let sent = unisono([&["send", &name, "text", "--min-members", "1"][..], &with("other")].concat());
    assert_eq!(sent.status.code(), Some(1), "a process that waits for members is told, too: {sent:?}");
    // The members warn of it too.
    let lines = BufReader::new(bob.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (to, told) = mpsc::channel();
    std::thread::spawn(move || {
        lines.filter(|line| line.contains("under another key")).try_for_each(|line| to.send(line))
    });
    let told = told.recv_timeout(PATIENCE);
    bob.kill().unwrap();
    bob.wait().unwrap();
    assert!(told.is_ok(), "bob receives datagrams of a stranger and does not warn");
}

#[test]
fn a_wait_for_members_prints_how_many_there_are() {
    let _alone = alone();
    let name = group("few");
    let (_sender, of_sender) = told(&["send", &name, "text", "--min-members", "2"]);
    assert!(hears(&of_sender, "0 of 2 members are there"));
    let (_first, of_first) = told(&["listen", &name, "--min-members", "3"]);
    assert!(hears(&of_first, "1 of 3 members are there"));
    assert!(hears(&of_sender, "1 of 2 members are there"));
}

#[test]
fn a_member_without_a_quorum_is_warned() {
    let _alone = alone();
    let name = group("still");
    let ann = Background::listen(&name, &["--name", "ann"]);
    let (mut bob, told) = told(&[&["listen", &name], &LOOKS_LONG[..], &WATCHFUL].concat());
    let report = || json(&asked(["members", &name, "--json"]));
    let deadline = Instant::now() + PATIENCE;
    while report()["members"].as_array().unwrap().len() < 2 {
        assert!(Instant::now() < deadline, "bob does not come in");
    }
    drop(ann);
    assert!(hears(&told, &format!("{name} stands still")));
    // Without a quorum no join or leave is ordered.
    let late = unisono(["listen", &name]);
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert_eq!(late.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("joining {name} …")) && said.contains("stands still"), "{said}");
    assert!(
        said.contains("`unisono why` names the members") && said.contains("`unisono force GROUP"),
        "{said}"
    );
    let force = format!("dead for ever: `unisono force {name} --without ann`");
    let why = String::from_utf8(unisono(["why", &name]).stdout).unwrap();
    assert!(why.contains(") does not answer") && why.contains(&force), "{why}");
    let status = unisono(["status", &name]);
    let status = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(
        status.contains("ann does not answer: reconnect it, or let it run on") && status.contains(&force),
        "{status}"
    );
    kill_process(Pid::from_child(&bob.0), Signal::INT).unwrap();
    assert!(hears(&told, "leaving"));
    assert!(hears(&told, "no member confirmed the leave; this member is out"));
    assert_eq!(bob.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_sender_reports_an_unconfirmed_leave_once() {
    let _alone = alone();
    let name = group("unconfirmed");
    let mut ann = Background::listen(&name, &[]);
    let send = [&["send", &name], &LOOKS_LONG[..], &WATCHFUL].concat();
    let (mut sender, told) = told_beside(&send, Stdio::piped(), Stdio::null());
    sender.0.stdin.as_ref().unwrap().write_all(b"hello\n").unwrap();
    ann.until_messages(1);
    drop(ann);
    assert!(hears(&told, "stands still"));
    kill_process(Pid::from_child(&sender.0), Signal::INT).unwrap();
    let rest = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok());
    assert_eq!(rest.filter(|line| line.contains("no member confirmed the leave")).count(), 1);
    assert_eq!(sender.0.wait().unwrap().code(), Some(128 + Signal::INT.as_raw()));
}

#[test]
fn a_listener_leaves_when_its_output_is_closed() {
    let _alone = alone();
    let name = group("pipe");
    let mut listener =
        command().args(["listen", &name]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(listener.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    let mut other = Background::join(&name, &[]);
    out.read_line(&mut first).unwrap();
    // The pipe is closed, and no event occurs whose output would fail.
    drop(out);
    other.until("the listener's leave", |seen| {
        seen.iter().any(|line| line["event"] == "left" || line["event"] == "reset")
    });
    assert_eq!(other.seen.last().unwrap()["event"], "left", "{:?}", other.seen);
    assert_eq!(listener.wait().unwrap().code(), Some(0));
}

#[test]
fn a_watching_command_ends_when_its_output_is_closed() {
    let _alone = alone();
    let name = group("watched");
    let _ann = Background::listen(&name, &[]);
    let watch = ["members", &name, "--json", "--watch", "0.01"];
    let mut watcher = Killed(command().args(watch).stdout(Stdio::piped()).spawn().unwrap());
    let mut first = String::new();
    BufReader::new(watcher.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(watcher.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_listener_with_a_full_pipe_ends_on_a_signal() {
    let _alone = alone();
    let name = group("full");
    let (mut listener, told) = told_beside(&["listen", &name, "--json"], Stdio::null(), Stdio::piped());
    assert!(hears(&told, "founded it"));
    // More than the pipe holds, and it is not read.
    let texts: Vec<_> = (0..50).map(|_| "x".repeat(4_000)).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let sent = sent(&name, &texts);
    assert!(sent.status.success(), "{sent:?}");
    kill_process(Pid::from_child(&listener.0), Signal::TERM).unwrap();
    assert!(hears(&told, "standard output is not read"));
    assert_eq!(listener.0.wait().unwrap().code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn members_report_their_own_marks() {
    let _alone = alone();
    let name = group("far");
    let mut listeners = [Background::listen(&name, &[]), Background::join(&name, &[])];
    assert_eq!(sent(&name, &["a", "b", "c"]).status.code(), Some(0));
    let mut seqno = None;
    for listener in &mut listeners {
        listener.until("the sender's leave", |seen| seen.iter().any(|line| line["event"] == "left"));
        seqno = listener.seen.last().unwrap()["seq"].as_u64();
    }
    let report = answered_by_all(&["members", &name]);
    for member in report["members"].as_array().unwrap() {
        assert_eq!((member["delivered"].as_u64(), member["received"].as_u64()), (seqno, seqno), "{report}");
    }
}

#[test]
fn a_listener_leaves_on_a_signal() {
    let _alone = alone();
    let name = group("leave");
    let mut ann = Background::listen(&name, &["--name", "ann"]);
    for (signal, bob) in [(Signal::TERM, "bob"), (Signal::HUP, "bob, whose terminal is closed")] {
        let mut listener = Background::join(&name, &["--name", bob]);
        listener.signal(signal);
        assert_eq!(listener.end(), Some(0));
        ann.until("bob's leave", |seen| {
            seen.iter().any(|line| line["event"] == "left" && line["member"] == bob)
        });
    }
}

#[test]
fn a_sender_that_gets_a_signal_prints_how_many_were_accepted() {
    let _alone = alone();
    let name = group("asked");
    let mut listener = Background::listen(&name, &[]);
    for (heard, signal, status) in [(3, Signal::INT, 130), (6, Signal::TERM, 143)] {
        let mut sender = Background::start(&[&["send", &name], &LOOKS_LONG[..]].concat());
        sender.feed(&lines(0, 3));
        listener.until_messages(heard);
        // Its input is still open.
        sender.signal(signal);
        sender.until("the count", |seen| seen.iter().any(|line| line["command"] == "send"));
        assert_eq!(sender.end(), Some(status));
        assert_eq!(sender.seen.last().unwrap()["accepted"], 3);
        listener.until("the sender's leave", |seen| seen.last().is_some_and(|line| line["event"] == "left"));
    }
}

#[test]
fn a_listener_that_ignores_hangup_outlives_its_terminal() {
    let _alone = alone();
    let name = group("outlive");
    let mut ann = Background::listen(&name, &[]);
    let bob = format!("trap '' HUP; exec {} listen {name} --locate 6000", env!("CARGO_BIN_EXE_unisono"));
    let bob = Killed(Command::new("sh").args(["-c", &bob]).stdout(Stdio::null()).spawn().unwrap());
    ann.until("bob", |seen| seen.iter().any(|line| line["event"] == "joined"));
    kill_process(Pid::from_child(&bob.0), Signal::HUP).unwrap();
    assert_eq!(sent(&name, &["still there?"]).status.code(), Some(0));
    let report = answered_by_all(&["members", &name]);
    assert_eq!(report["members"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn a_chat_carries_both_ways() {
    let _alone = alone();
    let name = group("chat");
    let mut ann = Background::start(&["chat", &name, "--name", "ann"]);
    ann.until("ann's view", |seen| !seen.is_empty());
    let mut bob = Background::start(&[&["chat", &name, "--name", "bob"], &LOOKS_LONG[..]].concat());
    bob.until("bob's view", |seen| !seen.is_empty());
    ann.feed(&["hello bob".into()]);
    bob.until_messages(1);
    bob.feed(&["hello ann".into()]);
    ann.until_messages(2);
    assert_eq!(bob.end(), Some(0));
    assert_eq!(ann.texts(), ["hello bob", "hello ann"]);
    let senders: Vec<_> = ann.seen.iter().filter_map(|line| line["sender"].as_str()).collect();
    assert_eq!(senders, ["ann", "bob"]);
}

#[test]
fn a_sender_keeps_its_order_through_the_death_of_the_sequencer() {
    let _alone = alone();
    let name = group("death");
    let mut listeners = listeners(&name);
    let mut sender =
        Background::start(&[&["send", &name, "--min-members", "3"], &LOOKS_LONG[..], &WATCHFUL].concat());
    sender.feed(&lines(0, 500));
    listeners[1].until_messages(100);
    listeners[0].process.kill().unwrap();
    sender.feed(&lines(500, 1000));
    listeners[1].until("the reset", |seen| seen.iter().any(|line| line["event"] == "reset"));
    sender.feed(&lines(1000, 1200));
    assert_eq!(sender.end(), Some(0));
    for listener in &mut listeners[1..] {
        listener.until_messages(1200);
        assert_eq!(listener.texts(), lines(0, 1200));
        let reset = listener.seen.iter().find(|line| line["event"] == "reset").unwrap();
        assert_eq!(reset["degraded"], false, "{reset}");
    }
    assert_eq!(listeners[1].messages(), listeners[2].messages());
}

#[test]
fn a_group_that_lost_its_quorum_says_so_and_is_forced_to_go_on() {
    let _alone = alone();
    let name = group("halted");
    let mut listeners = listeners(&name);
    let mut sender = Background::start(
        &[&["send", &name, "--timeout", "1s", "--resilience", "1"], &LOOKS_LONG[..], &WATCHFUL].concat(),
    );
    sender.feed(&lines(0, 1));
    listeners[1].until_messages(1);
    listeners[0].process.kill().unwrap();
    listeners[2].process.kill().unwrap();
    sender.feed(&lines(1, 2));
    listeners[1].until("halted", |seen| seen.iter().any(|line| line["event"] == "halted"));
    assert_eq!(sender.end(), Some(3));
    let halted = listeners[1].seen.iter().find(|line| line["event"] == "halted").unwrap();
    let missing: Vec<&str> =
        halted["missing"].as_array().unwrap().iter().filter_map(|m| m.as_str()).collect();
    let members = json(&asked(["members", &name, "--json"]));
    let all: Vec<&str> =
        members["members"].as_array().unwrap().iter().filter_map(|m| m["name"].as_str()).collect();
    let refused = tried(&["force", &name, "--without", &all.join(",")]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let unknown = tried(&["force", &name, "--without", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    let dead: Vec<&str> = all.iter().copied().filter(|name| members["reporter"] != *name).collect();
    assert!(missing.iter().all(|name| dead.contains(name)), "{missing:?}, {dead:?}");
    // The sender was heard a moment ago.
    let deadline = Instant::now() + PATIENCE;
    let force = || tried(&["force", &name, "--without", &dead.join(","), "--json"]);
    let mut forced = force();
    while forced.status.code() != Some(0) && Instant::now() < deadline {
        forced = force();
    }
    assert_eq!(json(&forced)["members"], 1, "{forced:?}");
    listeners[1].until("resumed", |seen| seen.iter().any(|line| line["event"] == "resumed"));
    let reset = listeners[1].seen.iter().find(|line| line["event"] == "reset").unwrap();
    assert_eq!((&reset["forced"], &reset["degraded"]), (&true.into(), &true.into()), "{reset}");
}

#[test]
fn a_sender_from_outside_ends_while_the_group_is_halted() {
    let _alone = alone();
    let name = group("outside");
    // Without the first one, half of the members are no quorum.
    let bob = Background::listen(&name, &[&["--name", "bob"], &WATCHFUL[..]].concat());
    let _open = Background::join(&name, &[&["--open", "--name", "ann"], &WATCHFUL[..]].concat());
    let accepted = asked(["send", &name, "--outside", "--json", "one"]);
    assert_eq!(json(&accepted)["accepted"], 1, "{accepted:?}");
    bob.signal(Signal::STOP);
    let mut sender = Background::start_heard(&["send", &name, "--outside", "two"]);
    sender.until_said("has answered for 2 s, with 1 message under way");
    let begun = Instant::now();
    sender.signal(Signal::TERM);
    assert_eq!(sender.end(), Some(128 + 15));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let tally = sender.seen.iter().find(|line| line["command"] == "send").unwrap();
    let counts = ["accepted", "unknown", "not_sent"].map(|what| tally[what].as_u64().unwrap());
    assert!(counts[0] == 0 && counts[1] + counts[2] == 1, "{tally}");
    let late = unisono(["send", &name, "--outside", "--timeout", "500ms", "three"]);
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert_eq!(late.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("no member of {name} answered for 500ms")), "{said}");
}

#[test]
fn a_floor_that_halts_the_group_is_named() {
    let _alone = alone();
    let name = group("floor");
    let with = |me: &'static str, more: &[&str]| {
        Background::join(&name, &[&["--name", me], &WATCHFUL[..], more].concat())
    };
    let (mut ann, bob, mut cy) = (with("ann", &["--floor", "3"]), with("bob", &[]), with("cy", &[]));
    let members = String::from_utf8(asked(["members", &name]).stdout).unwrap();
    assert!(members.lines().any(|line| line.contains("ann") && line.ends_with("floor 3")), "{members}");
    cy.process.kill().unwrap();
    ann.until("halted", |seen| seen.iter().any(|line| line["event"] == "halted"));
    let halted = ann.seen.iter().find(|line| line["event"] == "halted").unwrap();
    assert_eq!(&halted["floor"], 3, "{halted}");
    let lacks_cy = |event: &Value| event["missing"].as_array().unwrap().iter().any(|name| name == "cy");
    assert!(lacks_cy(halted), "{halted}");
    let words = "a member asks for at least 3 members (floor)";
    let why = String::from_utf8(asked(["why", &name]).stdout).unwrap();
    assert!(why.lines().any(|line| line == words), "{why}");
    // The first count may lack a slow member too: the machine may keep it waiting.
    let expected = format!("cy does not answer, and {words}");
    let said = || String::from_utf8_lossy(&asked(["status", &name]).stderr).into_owned();
    let said = persistently(said, |said| said.contains(&expected));
    assert!(said.contains(&expected) && !said.contains("bob"), "{said}");
    let forced =
        persistently(|| tried(&["force", &name, "--without", "cy"]), |forced| forced.status.success());
    let said = String::from_utf8(forced.stdout).unwrap();
    assert!(said.contains("goes on with 2 members") && said.contains("below the floor of 3"), "{said}");
    drop(bob);
}

#[test]
fn a_member_that_was_stopped_too_long_learns_of_its_exclusion() {
    let _alone = alone();
    let name = group("sleep");
    let mut listeners = listeners(&name);
    listeners[2].signal(Signal::STOP);
    listeners[0].until("the reset", |seen| seen.iter().any(|line| line["event"] == "reset"));
    // The other member may be a little behind.
    let status = || json(&asked(["status", &name, "--json"]));
    let status = persistently(status, |status| status["last_reset"].is_object());
    let why = (&status["last_reset"]["excluded"], &status["last_reset"]["reason"]);
    assert_eq!(why, (&1.into(), &"silent".into()), "{status}");
    listeners[2].signal(Signal::CONT);
    assert_eq!(listeners[2].end(), Some(3), "{:?}", listeners[2].seen);
    assert_eq!(listeners[2].seen.last().unwrap()["event"], "excluded");
}

/// Returns the state and the parent of a process.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.to_string(), fields.next()?.parse().ok()?))
}

fn children(of: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|pid| stat(*pid).is_some_and(|(_, parent)| parent == of)).collect()
}

/// Returns the arguments of a listener that forms a group with others.
fn former<'a>(group: &'a str, names: &'a str, me: &'a str) -> Vec<&'a str> {
    [&["listen", group, "--form", names, "--name", me], &WATCHFUL[..]].concat()
}

#[test]
fn three_form_one_group_with_one_first_view_and_one_that_comes_back_joins_it() {
    let _alone = alone();
    let name = group("form");
    let names = ["ann", "bob", "cy"];
    let mut listeners = names
        .map(|me| Background::start(&[&former(&name, "ann,bob,cy", me)[..], &["--at-least", "3"]].concat()));
    for listener in &mut listeners {
        listener.until("the view", |seen| !seen.is_empty());
    }
    let first = listeners[0].seen[0].clone();
    assert_eq!((&first["event"], &first["members"]), (&"view".into(), &3.into()), "{first}");
    assert!(listeners.iter().all(|listener| listener.seen[0] == first));
    let [ann, bob, cy] = &mut listeners;
    cy.process.kill().unwrap();
    ann.until("the reset", |seen| seen.iter().any(|line| line["event"] == "reset"));
    let again = Background::join(&name, &former(&name, "ann,bob,cy", "cy")[2..]);
    assert_eq!(again.seen[0]["members"], 3, "{:?}", again.seen);
    for listener in [ann, bob] {
        listener.until("the return", |seen| {
            seen.iter().any(|line| line["event"] == "joined" && line["member"] == "cy")
        });
        assert!(listener.seen.iter().all(|line| line["event"] != "conflict"));
    }
}

#[test]
fn two_of_three_form_a_group_and_the_third_joins_it_later() {
    let _alone = alone();
    let name = group("majority");
    let mut listeners = ["ann", "bob"].map(|me| Background::start(&former(&name, "ann,bob,cy", me)));
    for listener in &mut listeners {
        listener.until("the view", |seen| !seen.is_empty());
        assert_eq!(listener.seen[0]["members"], 2);
    }
    let cy = Background::join(&name, &former(&name, "ann,bob,cy", "cy")[2..]);
    assert_eq!(cy.seen[0]["members"], 3, "{:?}", cy.seen);
}

#[test]
fn one_of_three_forms_no_group_and_says_what_to_type() {
    let name = group("few");
    let form = ["--form", "ann,bob,cy", "--form-within", "200ms", "--locate", "50ms"];
    for command in [&["listen", &name][..], &["chat", &name], &["send", &name, "text"]] {
        let output = unisono([command, &["--name", "bob"], &form[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        let typed = format!("`unisono listen {name} --form ann,bob,cy --at-least 2 --name ann`");
        assert!(said.lines().count() == 1 && said.contains(&typed), "{said}");
        assert!(said.contains("fewer than 2 of ann, bob, cy met within 200ms"), "{said}");
        assert!(said.contains("; without --key only processes on this machine are reached"), "{said}");
    }
}

#[test]
fn members_die_with_the_command_that_started_them() {
    let _alone = alone();
    let mut demo = Background::start(&["demo", "--members", "3", "--messages", "10000000"]);
    let deadline = Instant::now() + PATIENCE;
    let mut started = Vec::new();
    while started.len() < 3 && Instant::now() < deadline {
        started = children(demo.process.id());
    }
    assert_eq!(started.len(), 3);
    demo.process.kill().unwrap();
    demo.process.wait().unwrap();
    while started.iter().any(|pid| stat(*pid).is_some_and(|(state, _)| state != "Z")) {
        assert!(Instant::now() < deadline, "members outlived their command");
        std::thread::yield_now();
    }
}
