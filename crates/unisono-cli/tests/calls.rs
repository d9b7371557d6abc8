//! Tests of services and calls from the command line.

mod common;

use common::{Background, LOOKS_LONG, WATCHFUL, command, group, json, persistently, unisono};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Flags with which a call does not give up because the machine keeps a process waiting.
const PATIENT: [&str; 6] = ["--locate", "60000", "--patience", "60000", "--deadline", "120"];

/// Starts a service that runs this command, and waits until it is ready.
fn serve(port: &str, command: &str) -> Background {
    let mut server = Background::start(&["rpc", "serve", port, "--exec", command]);
    server.until("the service", |seen| !seen.is_empty());
    server
}

fn stdout(arguments: &[&str]) -> String {
    let output = unisono(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the exit status and the text on standard error.
fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = unisono(arguments);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_service_answers_and_ends_on_a_signal() {
    let port = group("upper");
    let mut server = serve(&port, "tr a-z A-Z");
    assert_eq!(stdout(&[&["rpc", "call", &port, "hello"][..], &PATIENT].concat()), "HELLO");
    let told = json(&unisono([&["rpc", "call", &port, "hello", "--json"][..], &PATIENT].concat()));
    assert_eq!((&told["outcome"], &told["text"]), (&"replied".into(), &"HELLO".into()));
    // Clients can call the printed port too.
    let public = server.seen[0]["port"].as_str().unwrap();
    assert_eq!(stdout(&[&["rpc", "call", public, "hello"][..], &PATIENT].concat()), "HELLO");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end(), Some(0));
    assert!(failure(&["rpc", "call", &port, "hello"]).1.contains("not found"));
}

#[test]
fn a_large_request_from_standard_input_comes_back_whole() {
    let port = group("large");
    let _server = serve(&port, "tr a-z A-Z");
    let mut call = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .args(["rpc", "call", &port])
        .args(PATIENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    call.stdin.take().unwrap().write_all(&vec![b'x'; 3_000_000]).unwrap();
    let output = call.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == vec![b'X'; 3_000_000]);
}

#[test]
fn every_failure_of_a_call_is_named() {
    let port = group("failing");
    let _server = serve(&port, "cat >/dev/null; echo not today >&2; exit 1");
    let (status, said) = failure(&[&["rpc", "call", &port, "x"][..], &PATIENT].concat());
    assert_eq!((status, said.trim()), (Some(1), "unisono: refused: not today"));
    let told = unisono([&["rpc", "call", &port, "x", "--json"][..], &PATIENT].concat());
    assert_eq!((told.status.code(), &json(&told)["outcome"]), (Some(1), &"refused".into()));
    let begin = Instant::now();
    let (status, said) = failure(&["rpc", "call", &group("absent"), "x"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("not found") && said.contains("did not happen"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn only_the_private_port_can_be_served() {
    let pair = json(&unisono(["rpc", "newport", "--json"]));
    let (private, public) = (pair["private"].as_str().unwrap(), pair["public"].as_str().unwrap());
    let thief = serve(public, "echo stolen");
    let (status, said) = failure(&["rpc", "call", public, "x"]);
    assert!(status == Some(1) && said.contains("not found"), "{said}");
    drop(thief);
    let _owner = serve(private, "echo mine");
    assert_eq!(stdout(&[&["rpc", "call", public, "x"][..], &PATIENT].concat()), "mine\n");
}

#[test]
fn a_private_port_in_a_file_is_on_no_command_line_and_in_no_core_dump() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clock.port");
    let file = file.to_str().unwrap();
    let made = unisono(["rpc", "newport", "--out", file, "--json"]);
    let public = json(&made)["public"].as_str().unwrap().to_string();
    let text = std::fs::read_to_string(file).unwrap();
    let private = text.trim_end().strip_prefix("unisono-port-1 ").unwrap();
    assert!(private.len() == 32 && !String::from_utf8_lossy(&made.stdout).contains(private));
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(unisono(["rpc", "newport", "--out", file]).status.code(), Some(1), "never overwritten");
    let mut server = Background::start(&["rpc", "serve", "--port-file", file, "--exec", "echo mine"]);
    server.until("the service", |seen| !seen.is_empty());
    let of_process = |name: &str| std::fs::read(format!("/proc/{}/{name}", server.process.id())).unwrap();
    assert!(!String::from_utf8_lossy(&of_process("cmdline")).contains(private));
    // The files of a process that leaves no core dump belong to root.
    let owner = std::fs::metadata(format!("/proc/{}/fd", server.process.id())).unwrap().uid();
    assert_eq!(owner, 0);
    assert_eq!(stdout(&[&["rpc", "call", &public, "x"][..], &PATIENT].concat()), "mine\n");
    for bad in
        [&["rpc", "serve", "--exec", "cat"][..], &["rpc", "serve", "a", "--port-file", file, "--exec", "cat"]]
    {
        assert_eq!(failure(bad).0, Some(2));
    }
    let (status, said) = failure(&["rpc", "serve", "--port-file", "/dev/null", "--exec", "cat"]);
    assert!(status == Some(2) && said.contains("`unisono rpc newport --out FILE` makes one"), "{said}");
}

/// Calls until a reply comes: the service may not have started yet, or a member may just have failed.
fn patiently(port: &str, text: &str) -> String {
    let begin = Instant::now();
    loop {
        let output = unisono(["rpc", "call", port, text, "--deadline", "60"]);
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap();
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(begin.elapsed() < common::PATIENCE && !said.contains("unknown"), "{said}");
    }
}

#[test]
fn a_counter_of_three_counts_each_call_once_through_a_crash_and_a_return() {
    let port = group("counter");
    let member = |name: &str, more: &[&str]| {
        let counter = ["rpc", "counter", &port, "--name", name];
        let mut member = Background::start(&[&counter, &WATCHFUL[..], more].concat());
        member.until("the service", |seen| !seen.is_empty());
        member
    };
    let mut members = vec![member("a", &["--create"]), member("b", &LOOKS_LONG), member("c", &LOOKS_LONG)];
    for number in 1..=20 {
        assert_eq!(patiently(&port, "add"), number.to_string());
    }
    drop(members.remove(0));
    for number in 21..=40 {
        assert_eq!(patiently(&port, "add"), number.to_string());
    }
    let back = member("a", &LOOKS_LONG);
    assert_eq!(back.seen[0]["value"], "40");
    for number in 41..=50 {
        assert_eq!(patiently(&port, "add"), number.to_string());
    }
    assert_eq!(patiently(&port, "add 50"), "100");
    let met = patiently(&port, "where");
    assert!(met.starts_with("received by ") && met.contains(", answered by "), "{met}");
    let names: Vec<&str> = met.split([' ', ',']).filter(|word| word.len() == 1).collect();
    assert!(names.len() == 2 && names[0] != names[1], "{met}");
    members[0].signal(rustix::process::Signal::TERM);
    assert_eq!(members[0].end(), Some(0));
}

#[test]
fn three_form_a_counter_together_and_one_that_comes_back_has_the_sum() {
    let port = group("formed");
    let start = |name: &str| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b,c", "--at-least", "3"];
        Background::start(&[&form, &WATCHFUL[..], &LOOKS_LONG].concat())
    };
    let mut members = ["a", "b", "c"].map(start);
    for member in &mut members {
        member.until("the service", |seen| !seen.is_empty());
        assert_eq!((&member.seen[0]["members"], &member.seen[0]["value"]), (&3.into(), &"0".into()));
    }
    for number in 1..=5 {
        assert_eq!(patiently(&port, "add"), number.to_string());
    }
    // Two copies are fewer than the minimum: no call is answered until the third one is back.
    members[2].process.kill().unwrap();
    let mut back = start("c");
    back.until("the service", |seen| !seen.is_empty());
    assert_eq!(back.seen[0]["value"], "5");
    assert_eq!(patiently(&port, "add"), "6");
    members[1].process.kill().unwrap();
    let called = std::thread::spawn({
        let port = port.clone();
        move || patiently(&port, "add")
    });
    let mut back = start("b");
    back.until("the service", |seen| !seen.is_empty());
    assert_eq!(called.join().unwrap(), "7");
}

#[test]
fn the_holder_of_a_handler_answers_and_the_next_in_line_when_it_is_killed() {
    let port = group("handled");
    let names = ["a", "b", "c"];
    let start = |name: &str| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b,c", "--at-least", "2"];
        Background::start(&[&form[..], &["--handle", "desk"], &WATCHFUL[..], &LOOKS_LONG].concat())
    };
    let mut members = names.map(start);
    members.iter_mut().for_each(|member| member.until("the service", |seen| !seen.is_empty()));
    let ask =
        |request: &str| stdout(&["rpc", "call", &port, request, "--handler", "desk", "--deadline", "60"]);
    let answerer = |said: &str| said.rsplit_once("answered by ").map(|(_, name)| name.trim().to_owned());
    let at_desk = || answerer(&ask("where")).unwrap();
    let first = at_desk();
    assert!((0..5).all(|_| at_desk() == first));
    assert_eq!((ask("add"), ask("get")), ("1".into(), "1".into()));
    let holder = names.iter().position(|name| *name == first).unwrap();
    members[holder].process.kill().unwrap();
    // The call asks again at another member until the next holder answers.
    let second = at_desk();
    assert_ne!(second, first);
    assert!((0..5).all(|_| at_desk() == second));
    assert_eq!(ask("add"), "2");
    let (status, said) =
        failure(&[&["rpc", "call", &port, "add", "--handler", "none"][..], &PATIENT].concat());
    assert_eq!(status, Some(1));
    assert!(
        said.contains(&format!("no member of {port} holds the handler none, and nothing happened")),
        "{said}"
    );
    assert!(said.contains(&format!("`unisono rpc counter {port} --handle none`")), "{said}");
    assert_eq!(patiently(&port, "get"), "2");
    for name in ["", "a\nb", &"x".repeat(256), &"x".repeat(100_000)] {
        assert_eq!(failure(&["rpc", "call", &port, "add", "--handler", name]).0, Some(2));
        assert_eq!(failure(&["rpc", "counter", &port, "--create", "--handle", name]).0, Some(2));
    }
}

#[test]
fn calls_ask_for_a_quality_and_weak_ones_are_refused_with_the_reason() {
    let port = group("quality");
    let start = |name: &str| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b", "--at-least", "2"];
        Background::start(&[&form[..], &["--held-by", "majority"], &WATCHFUL[..], &LOOKS_LONG].concat())
    };
    let mut members = ["a", "b"].map(start);
    members.iter_mut().for_each(|member| member.until("the service", |seen| !seen.is_empty()));
    for (number, quality) in (1..).zip(["ordered", "resilient=1", "resilient=5", "majority", "total"]) {
        let call = ["rpc", "call", &port, "add", "--quality", quality];
        assert_eq!(stdout(&[&call[..], &PATIENT].concat()), number.to_string());
    }
    for weak in ["unreliable", "unordered", "source"] {
        let (status, said) = failure(&["rpc", "call", &port, "add", "--quality", weak]);
        assert_eq!(status, Some(2));
        assert!(said.contains(&format!("a call cannot be {weak}")) && said.contains("in the group's order"));
    }
    for bad in ["", "resilient=0", "resilient=251", "all", &"x".repeat(100_000)] {
        assert_eq!(failure(&["rpc", "call", &port, "add", "--quality", bad]).0, Some(2), "{bad}");
    }
    assert_eq!(patiently(&port, "get"), "5");
}

// No member suspects the copy that stands still: with --held-by all each of these calls would wait for it.
#[test]
fn a_copy_that_stands_still_stops_no_answer_if_a_majority_holds_them() {
    let port = group("majority");
    let names = ["a", "b", "c", "d", "e"];
    let start = |name: &str| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b,c,d,e", "--at-least", "3"];
        Background::start(&[&form[..], &["--held-by", "majority"], &LOOKS_LONG].concat())
    };
    let mut members = names.map(start);
    members.iter_mut().for_each(|member| member.until("the service", |seen| !seen.is_empty()));
    assert_eq!(patiently(&port, "add"), "1");
    members[4].signal(rustix::process::Signal::STOP);
    for number in 2..=5 {
        assert_eq!(patiently(&port, "add"), number.to_string());
        assert_eq!(patiently(&port, "get"), number.to_string());
    }
    members[4].signal(rustix::process::Signal::CONT);
    let status = json(&unisono(["status", &port, "--json"]));
    assert_eq!(status["members"].as_array().map(Vec::len), Some(5), "it is a member all the while: {status}");
}

#[test]
fn a_counter_is_kept_on_a_ring_in_memory_and_on_disk() {
    let (port, folder) = (group("ring"), tempfile::tempdir().unwrap());
    let formed = |name: &str| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b,c", "--order", "token"];
        Background::start(&[&form, &WATCHFUL[..], &LOOKS_LONG].concat())
    };
    let mut members = ["a", "b", "c"].map(formed);
    members.iter_mut().for_each(|member| member.until("the service", |seen| !seen.is_empty()));
    assert_eq!(patiently(&port, "add"), "1");
    assert_eq!(json(&unisono(["status", &port, "--json"]))["order"], "token");
    // The log of a ring at rest ends with a pass.
    assert_eq!(patiently(&port, "get"), "1");
    drop(members);

    let port = group("ring-on-disk");
    let stored = |id: &str| {
        let data = folder.path().join(id);
        let disk = ["rpc", "counter", &port, "--id", id, "--servers", "2", "--data", data.to_str().unwrap()];
        Background::start(&[&disk[..], &["--order", "token"], &LOOKS_LONG].concat())
    };
    let mut members = ["1", "2"].map(stored);
    members.iter_mut().for_each(|member| member.until("the service", |seen| !seen.is_empty()));
    assert_eq!(patiently(&port, "add"), "1");
    assert_eq!(json(&unisono(["status", &port, "--json"]))["order"], "token");
}

/// Repeats `status` until it ends with this exit status and says all of this.
fn status_says(name: &str, status: i32, words: &[&str]) {
    let begin = Instant::now();
    loop {
        let output = unisono(["status", name]);
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.code() == Some(status) && words.iter().all(|words| said.contains(words)) {
            return;
        }
        assert!(begin.elapsed() < common::PATIENCE, "{name}: {:?}: {said}", output.status);
    }
}

// A listed name is admitted once. The others are there, so the second process must not say that it waits for them.
#[test]
fn a_second_process_of_a_listed_name_says_where_the_first_is() {
    let port = group("twice");
    let counter = |name| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b,c", "--at-least", "3"];
        Background::start(&[&form[..], &LOOKS_LONG].concat())
    };
    let mut three = ["a", "b", "c"].map(counter);
    three.iter_mut().for_each(|counter| counter.until("the counter", |seen| !seen.is_empty()));
    let words = format!("another process with the name a is in {port}, at 127.0.0.1:");
    let form = ["--form", "a,b,c", "--form-within", "1s"];
    for (command, form) in [("rpc counter", &[][..]), ("rpc counter", &form), ("listen", &form)] {
        let words_of = command.split(' ').chain([&*port, "--name", "a"]).collect::<Vec<_>>();
        let second = || failure(&[&words_of[..], form].concat());
        // A member that the machine keeps waiting does not answer in time.
        let is_good =
            |said: &str| said.contains(&words) && !said.contains("waiting") && !said.contains("no member");
        let (status, said) = persistently(second, |(_, said)| is_good(said));
        assert!(status == Some(1) && is_good(&said), "{command} {form:?}: {said}");
        assert!(said.contains("stop that process, or start this one with another --name"), "{said}");
    }
}

#[test]
fn a_counter_below_its_minimum_says_how_many_members_are_missing() {
    let port = group("minimum");
    let start = |name: &str| {
        let form = ["rpc", "counter", &port, "--name", name, "--form", "a,b,c", "--at-least", "2"];
        Background::start(&[&form, &WATCHFUL[..], &LOOKS_LONG].concat())
    };
    let mut members = ["a", "b", "c"].map(start);
    for member in &mut members {
        member.until("the service", |seen| !seen.is_empty());
    }
    status_says(&port, 0, &["primary", "serving"]);
    for member in &mut members[..2] {
        member.signal(rustix::process::Signal::TERM);
        assert_eq!(member.end(), Some(0));
    }
    status_says(&port, 3, &["not primary", "has 1 member and needs 2; start 1 more", "c  halted"]);
    let status = json(&unisono(["status", &port, "--json"]));
    assert_eq!((&status["primary"], &status["members_missing"]), (&false.into(), &1.into()), "{status}");
    assert_eq!(status["copies"][0]["state"], "halted", "{status}");
    let mut back = start("a");
    back.until("the service", |seen| !seen.is_empty());
    status_says(&port, 0, &["primary", "serving"]);
}

#[test]
fn status_shows_who_began_a_counter_anew() {
    let (port, folder) = (group("anew"), tempfile::tempdir().unwrap());
    let folder = |id: &str| folder.path().join(id).display().to_string();
    let start = |id: &str, data: &str, more: &[&str]| {
        let server = ["rpc", "counter", &port, "--id", id, "--data", data];
        Background::start(&[&server, &WATCHFUL[..], more].concat())
    };
    let mut servers = ["1", "2", "3"].map(|id| start(id, &folder(id), &[]));
    for server in &mut servers {
        server.until("the service", |seen| !seen.is_empty());
    }
    assert_eq!(patiently(&port, "add 7"), "7");
    // Two disks are enough for the answer; the third one has the command a little later.
    let has_all = |status: &serde_json::Value| {
        let copies = status["copies"].as_array();
        copies.is_some_and(|copies| copies.len() == 3 && copies.iter().all(|copy| copy["synced"] == 2))
    };
    let status = persistently(|| json(&unisono(["status", &port, "--json"])), has_all);
    assert!(has_all(&status), "{status}");
    for server in &mut servers {
        server.process.kill().unwrap();
        server.process.wait().unwrap();
    }
    let mut first = start("1", &folder("1"), &["--begin-anew"]);
    let mut second = start("2", &folder("new"), &["--replace"]);
    for server in [&mut first, &mut second] {
        server.until("the service", |seen| !seen.is_empty());
    }
    assert_eq!(patiently(&port, "get"), "7");
    status_says(&port, 0, &["begun anew from server 1, 20", " UTC, with its log through entry 2"]);
    let promise = "held by a majority of the servers; goes on while 2 of 3 servers are there";
    status_says(&port, 0, &[promise, "    3  missing", "serving, 1 command, "]);
    let status = json(&unisono(["status", &port, "--json"]));
    let anew = &status["copies"][0]["begun_anew"];
    // The log has an entry for the servers that created the counter, and the addition.
    assert_eq!((&anew[0]["server"], &anew[0]["number"]), (&1.into(), &2.into()), "{status}");
    // The last server but one leaves: no majority is there, and the missing servers have names.
    second.signal(rustix::process::Signal::TERM);
    assert_eq!(second.end(), Some(0));
    status_says(&port, 3, &["waits for servers 2, 3"]);
}

#[test]
fn a_server_that_is_refused_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("none").display().to_string();
    let (status, said) = failure(&["rpc", "counter", "x", "--id", "1", "--data", &data, "--begin-anew"]);
    assert_eq!(status, Some(2), "{said}");
    let name = "x".repeat(4000);
    let (status, said) = failure(&["rpc", "counter", &name, "--id", "1", "--data", &data]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("at most 255 bytes, not 4000"), "{said}");
    assert!(!std::path::Path::new(&data).exists());
}

#[test]
fn a_counter_is_never_founded_by_accident() {
    let port = group("unfounded");
    let (status, said) = failure(&["rpc", "counter", &port, "--locate", "20"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("no member of") && said.contains("--form a,b,c") && said.contains("--create"),
        "{said}"
    );
    let (status, said) = failure(&["rpc", "counter", &port, "--create", "--form", "a,b", "--name", "a"]);
    assert_eq!(status, Some(2), "{said}");
}

#[test]
fn servers_whose_output_has_no_reader_serve_and_note_it_once() {
    for kind in ["serve", "counter"] {
        let port = group("unprinted");
        let (reader, unread) = std::io::pipe().unwrap();
        drop(reader);
        let form = if kind == "serve" { ["--exec", "cat"].as_slice() } else { &["--create"] };
        let mut server = command()
            .args(["rpc", kind, &port])
            .args(form)
            .stdout(unread)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let request = if kind == "serve" { "hello" } else { "get" };
        assert!(!stdout(&[&["rpc", "call", &port, request][..], &PATIENT].concat()).is_empty(), "{kind}");
        assert_eq!(server.try_wait().unwrap(), None, "{kind}");
        let id = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let output = server.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{kind}: {said}");
        assert_eq!(said.matches("cannot write to standard output").count(), 1, "{kind}: {said}");
    }
}

#[test]
fn a_server_whose_output_is_a_full_pipe_serves_and_ends() {
    let port = group("stuck");
    let (_reader, mut unread) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&unread, true).unwrap();
    for size in [4096, 1] {
        while unread.write(&vec![b'x'; size]).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&unread, false).unwrap();
    let mut server =
        command().args(["rpc", "serve", &port, "--exec", "tr a-z A-Z"]).stdout(unread).spawn().unwrap();
    assert_eq!(stdout(&[&["rpc", "call", &port, "hello"][..], &PATIENT].concat()), "HELLO");
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
