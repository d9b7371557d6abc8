//! Tests of `unisono lock` with processes, of which some are killed, stopped or halted.

mod common;

use common::{
    Background, LOOKS_LONG, PATIENCE, WATCHFUL, alone, command, group, json, persistently, unisono,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// Starts the process that keeps the locks of a group alone.
fn keep(group: &str) -> Background {
    serve(group, &["--create", "--name", "keeper"])
}

fn serve(group: &str, more: &[&str]) -> Background {
    let mut server = Background::start(&[&["lock", group, "--serve"], &WATCHFUL[..], more].concat());
    server.until("the locks", |seen| !seen.is_empty());
    server
}

/// Returns the arguments that run a shell script under a lock.
fn under<'a>(group: &'a str, lock: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let command = ["--", "sh", "-c", script];
    [&["lock", group, lock], &LOOKS_LONG[..], &WATCHFUL, options, &command].concat()
}

/// A `unisono lock` in the background, killed when this value is dropped.
struct Holder(Child);

impl Holder {
    fn start(group: &str, script: &str) -> Holder {
        Holder::start_with(group, &[], script)
    }

    fn start_with(group: &str, options: &[&str], script: &str) -> Holder {
        let mut holder = command();
        holder.args(under(group, "door", options, script)).stdin(Stdio::null());
        Holder(holder.stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end, and returns its exit status with what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut stderr = self.0.stderr.take().unwrap();
        let status = self.end_unheard();
        (status, std::io::read_to_string(&mut stderr).unwrap())
    }

    /// Waits until it says that it waits for the lock, and returns what it says from then on.
    fn in_line(&mut self) -> impl Iterator<Item = String> + use<> {
        let mut said = BufReader::new(self.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line.contains("waiting for door")));
        said
    }

    /// Waits for its end, and returns its exit status.
    fn end_unheard(mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder in which commands leave files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns a script that leaves a file with its fence, its process number and that of a child, and goes on until the
    /// file `end` is there or the folder is removed. So no process outlives a test that fails.
    fn script(&self, name: &str) -> String {
        let (file, end) = (self.path(name), self.path("end"));
        format!(
            "sleep 600 & echo $UNISONO_FENCE $$ $! > {0}.part; mv {0}.part {0}; \
             while [ -e {2} ] && [ ! -e {1} ]; do sleep 0.02; done; kill -KILL $!",
            file.display(),
            end.display(),
            self.0.path().display()
        )
    }

    /// Returns a script that runs another one with a program that makes a process group of its own.
    fn apart(&self, program: &str, script: &str) -> String {
        let file = self.path("script");
        std::fs::write(&file, script).unwrap();
        format!("{program} sh {}", file.display())
    }
}

/// False, and says so, if there is no such program.
fn has(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: there is no {program}");
    }
    found
}

/// A group whose locks one process keeps, and a folder for its commands. Other tests wait until this value is dropped.
struct Kept {
    group: String,
    folder: Folder,
    _keeper: Background,
    // The last field: it is dropped after the keeper.
    _alone: MutexGuard<'static, ()>,
}

impl Kept {
    /// Starts the group for a test that needs this program. Returns None, and says so, if there is no such program.
    fn with(program: &str) -> Option<Kept> {
        has(program).then(|| {
            let (_alone, group) = (alone(), group("lock"));
            let _keeper = keep(&group);
            Kept { group, folder: Folder::new(), _keeper, _alone }
        })
    }
}

/// Returns a script that takes no notice of SIGTERM.
fn stubborn(script: &str) -> String {
    format!("trap '' TERM; {script}")
}

/// Returns a script that fails if one of these processes is there, other than as a zombie.
fn without(processes: &[Pid]) -> String {
    let stats: Vec<String> = processes.iter().map(|process| format!("/proc/{process}/stat")).collect();
    format!("! grep -shqv ') Z ' {}", stats.join(" "))
}

/// Waits until a holder has left this file. Returns its fence and its processes.
fn left(file: &Path) -> (u64, Vec<Pid>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = std::fs::read_to_string(file) {
            let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let pid = |number: &u64| Pid::from_raw(i32::try_from(*number).unwrap()).unwrap();
            return (numbers[0], numbers[1..].iter().map(pid).collect());
        }
        assert!(Instant::now() < deadline, "no {}", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until these processes have ended.
fn until_gone(processes: &[Pid]) {
    let deadline = Instant::now() + PATIENCE;
    let lives = |process: &Pid| {
        // A zombie that its new parent has not taken yet does nothing more.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        test_kill_process(*process).is_ok() && !stat.contains(") Z ")
    };
    while processes.iter().any(lives) {
        assert!(Instant::now() < deadline, "{processes:?} go on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_returns_its_status_and_gets_its_fence() {
    let _alone = alone();
    let group = &group("lock");
    let _keeper = keep(group);
    let mut before = 0;
    for status in [0, 7] {
        let done = unisono(under(group, "door", &[], &format!("echo $UNISONO_FENCE; exit {status}")));
        assert_eq!(done.status.code(), Some(status), "{done:?}");
        let fence: u64 = String::from_utf8_lossy(&done.stdout).trim().parse().unwrap();
        assert!(fence > before, "{fence} after {before}");
        before = fence;
    }
    let ended = unisono(under(group, "door", &[], "kill -USR1 $$"));
    assert_eq!(ended.status.code(), Some(128 + 10), "{ended:?}");
    let absent = unisono([&["lock", group, "door"], &LOOKS_LONG[..], &["--", "./no-such-program"]].concat());
    assert_eq!(absent.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("no-such-program"), "{absent:?}");
}

#[test]
fn the_next_in_line_gets_the_lock_when_its_holder_is_killed_and_the_command_dies_too() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let mut first = Holder::start(group, &folder.script("first"));
    let (fence, processes) = left(&folder.path("first"));
    let second = Holder::start(group, &folder.script("second"));
    let refused = unisono(under(group, "door", &["--no-wait"], "true"));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is held by"), "{refused:?}");
    let late = unisono(under(group, "door", &["--timeout", "50ms"], "true"));
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert!(String::from_utf8_lossy(&late.stderr).contains("was not free within 50ms"), "{late:?}");
    assert!(!folder.path("second").exists());
    first.0.kill().unwrap();
    until_gone(&processes);
    let (next, _) = left(&folder.path("second"));
    assert!(next > fence, "{next} after {fence}");
    std::fs::write(folder.path("end"), "").unwrap();
    assert_eq!(second.end().0, Some(0));
    let free = unisono(under(group, "door", &["--no-wait"], "true"));
    assert_eq!(free.status.code(), Some(0), "{free:?}");
}

#[test]
fn status_shows_the_holder_and_the_line() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let status = || json(&unisono(["status", group, "--json"]))["locks"].clone();
    assert_eq!(status(), serde_json::json!([]), "no lock is held");
    let first = Holder::start(group, &folder.script("first"));
    let (fence, _) = left(&folder.path("first"));
    let mut second = Holder::start(group, &folder.script("second"));
    let mut said = BufReader::new(second.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("waiting for door")));
    // The member that answers may be behind the one that waits.
    let shown = persistently(status, |shown| shown[0]["waiting"][0].is_string());
    let lock = &shown[0];
    assert_eq!((&lock["name"], &lock["fence"]), (&"door".into(), &fence.into()), "{shown}");
    assert!(lock["holder"].is_string() && lock["holder"] != lock["waiting"][0], "{shown}");
    let text = unisono(["status", group]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("has it") && text.contains("in line"), "{text}");
    let why = json(&unisono(["why", group, "--json"]))["locks"].clone();
    assert_eq!(
        why,
        serde_json::json!([{"who": lock["waiting"][0], "lock": "door", "holder": lock["holder"]}])
    );
    std::fs::write(folder.path("end"), "").unwrap();
    assert_eq!(first.end().0, Some(0));
    assert_eq!(second.0.wait().unwrap().code(), Some(0));
}

#[test]
fn signals_go_to_the_command() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let ready = folder.path("ready");
    let script = format!(
        "trap 'exit 5' TERM; trap 'exit 6' INT; echo 0 > {0}.part; mv {0}.part {0}; while :; do sleep 0.02; done",
        ready.display()
    );
    for (signal, status) in [(Signal::TERM, 5), (Signal::INT, 6)] {
        let holder = Holder::start(group, &script);
        left(&ready);
        holder.signal(signal);
        let (ended, said) = holder.end();
        assert_eq!(ended, Some(status), "{said}");
        std::fs::remove_file(&ready).unwrap();
    }
    // While it waits in line there is no command.
    let holder = Holder::start(group, &folder.script("holder"));
    left(&folder.path("holder"));
    let mut waiter = Holder::start(group, "true");
    let mut said = BufReader::new(waiter.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("waiting for door")));
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.0.wait().unwrap().code(), Some(128 + 15));
    drop(holder);
}

#[test]
fn a_signal_reaches_a_command_that_timeout_runs() {
    let Some(Kept { group, folder, .. }) = &Kept::with("timeout") else { return };
    let (ready, log) = (folder.path("ready"), folder.path("log"));
    let script = format!(
        "trap \"trap '' TERM; echo term >> {1}; exit 5\" TERM; echo 0 > {0}.part; mv {0}.part {0}; while :; do sleep 0.02; done",
        ready.display(),
        log.display()
    );
    // Once as the command, and once as a child of the command.
    for start in ["exec", "trap 'wait; exit 5' TERM;"] {
        let wait = if start == "exec" { "" } else { "& wait" };
        let timeout = folder.apart("timeout 600", &script);
        let holder = Holder::start(group, &format!("{start} {timeout} {wait}"));
        left(&ready);
        holder.signal(Signal::TERM);
        let (ended, said) = holder.end();
        assert_eq!(ended, Some(5), "{said}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "term\n");
        std::fs::remove_file(&ready).unwrap();
        std::fs::remove_file(&log).unwrap();
    }
}

#[test]
fn a_process_that_left_the_group_gets_a_signal_once_and_its_child_gets_none() {
    let Some(Kept { group, folder, .. }) = &Kept::with("setsid") else { return };
    let (ready, log) = (folder.path("ready"), folder.path("log"));
    let script = format!(
        "sh -c 'trap \"echo child >> {1}\" TERM INT; while :; do sleep 0.02; done' & \
         trap 'echo term >> {1}' TERM; trap 'echo int >> {1}; exit 5' INT; \
         echo 0 > {0}.part; mv {0}.part {0}; while :; do sleep 0.02; done",
        ready.display(),
        log.display()
    );
    let holder = Holder::start(group, &format!("exec {}", folder.apart("setsid", &script)));
    left(&ready);
    holder.signal(Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    while !log.exists() {
        assert!(Instant::now() < deadline, "it gets no signal");
        std::thread::sleep(Duration::from_millis(5));
    }
    holder.signal(Signal::INT);
    let (ended, said) = holder.end();
    assert_eq!(ended, Some(5), "{said}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "term\nint\n");
}

#[test]
fn a_command_that_timeout_runs_dies_with_its_holder() {
    let Some(Kept { group, folder, .. }) = &Kept::with("timeout") else { return };
    let timeout = folder.apart("exec timeout 600", &folder.script("holder"));
    let mut holder = Holder::start(group, &timeout);
    let (_, processes) = left(&folder.path("holder"));
    holder.0.kill().unwrap();
    until_gone(&processes);
}

#[test]
fn a_stubborn_command_that_timeout_runs_ends_when_the_lock_is_lost() {
    let Some(Kept { group, folder, .. }) = &Kept::with("timeout") else { return };
    let timeout = folder.apart("exec timeout 600", &stubborn(&folder.script("first")));
    let first = Holder::start(group, &timeout);
    let (_, processes) = left(&folder.path("first"));
    let second = Holder::start(group, &folder.script("second"));
    first.signal(Signal::STOP);
    left(&folder.path("second"));
    first.signal(Signal::CONT);
    let (status, said) = first.end();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("door is lost") && !said.contains("goes on"), "{said}");
    until_gone(&processes);
    std::fs::write(folder.path("end"), "").unwrap();
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_process_that_left_the_group_ends_with_the_command_before_the_next_one_begins() {
    let Some(Kept { group, folder, .. }) = &Kept::with("setsid") else { return };
    let (daemon, ends) = (folder.apart("setsid", &stubborn(&folder.script("daemon"))), folder.path("ends"));
    // A daemon that kept the test's standard output open would keep the caller of a failed test waiting.
    let script =
        format!("{daemon} > /dev/null 2>&1 & while [ ! -e {} ]; do sleep 0.02; done; exit 4", ends.display());
    let first = Holder::start(group, &script);
    let (_, processes) = left(&folder.path("daemon"));
    let mut second = Holder::start(group, &without(&processes));
    let _said = second.in_line();
    std::fs::write(ends, "").unwrap();
    let (status, said) = first.end();
    assert_eq!(status, Some(4), "{said}");
    assert_eq!(second.end_unheard(), Some(0), "it goes on under the next command's lock");
}

#[test]
fn a_holder_that_was_stopped_ends_its_command_when_it_goes_on() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let first = Holder::start(group, &folder.script("first"));
    let (fence, processes) = left(&folder.path("first"));
    let second = Holder::start(group, &folder.script("second"));
    first.signal(Signal::STOP);
    let (next, _) = left(&folder.path("second"));
    assert!(next > fence, "{next} after {fence}");
    first.signal(Signal::CONT);
    let (status, said) = first.end();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("door is lost"), "{said}");
    until_gone(&processes);
    std::fs::write(folder.path("end"), "").unwrap();
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_halted_group_ends_the_command_and_fences_rise_across_foundings() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let start = || {
        let names = ["a", "b", "c"];
        let mut servers = names.map(|name| {
            let options = ["--form", "a,b,c", "--name", name];
            Background::start(&[&["lock", group, "--serve"], &WATCHFUL[..], &options].concat())
        });
        for (server, name) in servers.iter_mut().zip(names) {
            server.until("the locks", |seen| !seen.is_empty());
            let said = &server.seen[0];
            assert_eq!((&said["event"], &said["name"]), (&"serving".into(), &name.into()), "{said}");
            assert_eq!(said["group"], **group);
        }
        servers
    };
    let mut servers = start();
    let holder = Holder::start(group, &folder.script("before"));
    let (before, processes) = left(&folder.path("before"));
    // One of three may die.
    drop(servers[0].process.kill());
    let done = unisono(under(group, "window", &[], "true"));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    // Two may not, if they do so at the same time.
    servers[1..].iter_mut().for_each(|server| server.process.kill().unwrap());
    let (status, said) = holder.end();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("may be lost"), "{said}");
    until_gone(&processes);
    drop(servers);
    let servers = start();
    let anew = unisono(under(group, "door", &[], "echo $UNISONO_FENCE"));
    assert_eq!(anew.status.code(), Some(0), "{anew:?}");
    let after: u64 = String::from_utf8_lossy(&anew.stdout).trim().parse().unwrap();
    assert!(after > before, "{after} after {before}");
    drop(servers);
}

#[test]
fn a_lock_is_refused_where_no_process_keeps_it() {
    let _alone = alone();
    let nobody = group("lock");
    let absent = unisono(["lock", &nobody, "door", "--", "true"]);
    assert_eq!(absent.status.code(), Some(1));
    let said = String::from_utf8_lossy(&absent.stderr);
    assert!(said.contains(&format!("unisono lock {nobody} --serve --form a,b,c --name a")), "{said}");
    for wrong in [
        &["lock", &nobody][..],
        &["lock", &nobody, "door"],
        &["lock", &nobody, "", "--", "true"],
        &["lock", &nobody, "a\nb", "--", "true"],
        &["lock", &nobody, &"x".repeat(256), "--", "true"],
        &["lock", &nobody, "--serve"],
        &["lock", &nobody, "--serve", "--create", "--", "true"],
        &["lock", &nobody, "door", "--form", "a,b", "--name", "a", "--", "true"],
        &["lock", &nobody, "door", "--create", "--", "true"],
        &["lock", &nobody, "door", "--order", "token", "--", "true"],
        &["lock", &nobody, "door", "--slow-member", "10s", "--", "true"],
    ] {
        let refused = unisono(wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {refused:?}");
    }
    let refused = unisono(["lock", &nobody, "door", "--create", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("--create is for processes that keep the locks: add --serve"), "{said}");
}

#[test]
fn a_server_that_leaves_in_order_reports_no_halt() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let mut keeper = Background::start_heard(&["lock", group, "--serve", "--create"]);
    keeper.until("the locks", |seen| seen.iter().any(|line| line["event"] == "serving"));
    // It tells another member that it leaves, which takes a moment.
    let _holder = Holder::start(group, &folder.script("holder"));
    left(&folder.path("holder"));
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.end(), Some(0));
    let said: Vec<_> = keeper.seen.iter().filter_map(|line| line.as_str()).collect();
    assert!(
        !said.iter().any(|line| line.contains("command is carried out") || line.contains("halted")),
        "{said:?}"
    );
}

#[test]
fn a_second_server_started_with_create_joins_the_first_and_takes_no_lock_from_it() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let status = || json(&unisono(["status", group, "--json"]));
    let holder = Holder::start(group, &folder.script("holder"));
    left(&folder.path("holder"));
    let mut second = serve(group, &[&LOOKS_LONG[..], &["--create", "--name", "second"]].concat());
    assert_eq!(second.seen[0]["members"], 3, "{:?}", second.seen);
    let shown = status();
    let names = |shown: &serde_json::Value| -> Vec<_> {
        shown["members"].as_array().unwrap().iter().map(|member| member["name"].clone()).collect()
    };
    assert!(names(&shown).contains(&"keeper".into()) && names(&shown).contains(&"second".into()), "{shown}");
    assert_eq!(shown["locks"].as_array().unwrap().len(), 1, "{shown}");
    let refused = unisono(under(group, "door", &["--no-wait"], "true"));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    second.process.kill().unwrap();
    // It has no vote: the first goes on without it, and the command with its lock.
    let free = unisono(under(group, "window", &[], "true"));
    assert_eq!(free.status.code(), Some(0), "{free:?}");
    std::fs::write(folder.path("end"), "").unwrap();
    assert_eq!(holder.end().0, Some(0));
}

#[test]
fn a_server_that_crashed_founds_the_locks_anew_when_the_others_have_left_the_halted_group() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let mut keeper = keep(group);
    let holder = Holder::start(group, &stubborn(&folder.script("holder")));
    let (_, processes) = left(&folder.path("holder"));
    let mut waiter = Holder::start(group, &without(&processes));
    let _said = waiter.in_line();
    keeper.process.kill().unwrap();
    keeper.process.wait().unwrap();
    // The others do not know yet that the sequencer is dead.
    let arguments = [&["lock", group, "--serve", "--create", "--name", "keeper"], &WATCHFUL[..]].concat();
    let mut again = Background::start_heard(&arguments);
    let late = Holder::start(group, &without(&processes));
    let _members = members_of(&mut again);
    assert_eq!(late.end_unheard(), Some(0), "two commands overlap");
    assert_eq!(waiter.end_unheard(), Some(0), "two commands overlap");
    assert_eq!(holder.end().0, Some(1));
    let free = unisono(under(group, "door", &["--no-wait"], "true"));
    assert_eq!(free.status.code(), Some(0), "{free:?}");
}

#[test]
fn a_server_started_again_after_it_left_in_order_has_its_vote_without_a_name() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let mut keeper = serve(group, &["--create"]);
    let name = keeper.seen[0]["name"].clone();
    let _holder = Holder::start(group, &folder.script("holder"));
    left(&folder.path("holder"));
    let mut waiter = Holder::start(group, "true");
    let mut said = waiter.in_line();
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.end(), Some(0));
    let again = serve(group, &[&LOOKS_LONG[..], &["--create"]].concat());
    assert_eq!(again.seen[0]["name"], name);
    assert!(said.any(|line| line.contains("the group goes on")));
    assert_eq!(waiter.end_unheard(), Some(0));
}

#[test]
fn the_next_command_begins_when_the_one_before_has_ended_although_the_halted_group_goes_on_at_once() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let mut keeper = keep(group);
    let first = Holder::start(group, &stubborn(&folder.script("first")));
    let (_, processes) = left(&folder.path("first"));
    let mut second = Holder::start(group, &without(&processes));
    let _said = second.in_line();
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.end(), Some(0));
    let _again = keep(group);
    let (status, said) = first.end();
    assert!(status == Some(1) && said.contains("is halted"), "{said}");
    assert_eq!(second.end_unheard(), Some(0), "the commands overlap");
}

#[test]
fn a_server_that_finds_a_halted_group_with_a_server_without_a_vote_says_so_and_ends() {
    let _alone = alone();
    let group = &group("lock");
    let mut keeper = keep(group);
    let _second = serve(group, &[&LOOKS_LONG[..], &["--create", "--name", "second"]].concat());
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.end(), Some(0));
    let third = ["lock", group, "--serve", "--create", "--name", "third"];
    let mut third = Background::start_heard(&[&third, &LOOKS_LONG[..], &WATCHFUL].concat());
    third.until_said(&format!("stop the processes that `unisono members {group}` shows"));
    assert_eq!(third.end(), Some(3));
    assert!(!third.seen.iter().any(|line| line["event"] == "serving"), "{:?}", third.seen);
}

/// Lets the only server leave in order while a command waits, and starts another one, which has no vote. Returns the command and
/// the other one, once that says that it founds the locks anew.
fn followed(group: &str, folder: &Folder) -> (Holder, Background) {
    let mut keeper = keep(group);
    let _holder = Holder::start(group, &folder.script("holder"));
    left(&folder.path("holder"));
    let mut waiter = Holder::start_with(group, &["--timeout", "50s"], "true");
    let _said = waiter.in_line();
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.end(), Some(0));
    let other =
        [&["lock", group, "--serve", "--create", "--name", "other"], &LOOKS_LONG[..], &WATCHFUL].concat();
    let mut other = Background::start_heard(&other);
    other.until_said("this process founds it anew");
    (waiter, other)
}

/// Returns the number of members when this server begins to serve.
fn members_of(server: &mut Background) -> serde_json::Value {
    server.until("the locks", |seen| seen.iter().any(|line| line["event"] == "serving"));
    server.seen.iter().find(|line| line["event"] == "serving").unwrap()["members"].clone()
}

#[test]
fn a_server_without_the_vote_of_one_that_left_founds_the_locks_anew() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let (waiter, mut other) = followed(group, &folder);
    assert_eq!(members_of(&mut other), 1);
    assert_eq!(waiter.end_unheard(), Some(0));
}

#[test]
fn a_server_founds_no_locks_beside_one_that_comes_back_meanwhile() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let (waiter, mut other) = followed(group, &folder);
    let _keeper = keep(group);
    assert_eq!(waiter.end_unheard(), Some(0));
    assert!(members_of(&mut other).as_u64() > Some(1), "{:?}", other.seen);
}

#[test]
fn a_second_server_on_a_host_joins_the_first_although_neither_has_a_name() {
    let _alone = alone();
    let group = &group("lock");
    let first = serve(group, &["--create"]);
    let second = serve(group, &[&LOOKS_LONG[..], &["--create"]].concat());
    assert_ne!(first.seen[0]["name"], second.seen[0]["name"]);
    assert_eq!(second.seen[0]["members"], 2, "{:?}", second.seen);
}

/// Starts three processes that keep the locks of a group together.
fn three(group: &str) -> [Background; 3] {
    let mut servers = ["a", "b", "c"].map(|name| {
        let options = ["--form", "a,b,c", "--name", name];
        Background::start(&[&["lock", group, "--serve"], &WATCHFUL[..], &options].concat())
    });
    servers.iter_mut().for_each(|server| server.until("the locks", |seen| !seen.is_empty()));
    servers
}

#[test]
fn a_group_that_carries_out_no_commands_is_named_as_the_reason_and_ends_a_try_promptly() {
    let _alone = alone();
    let group = &group("lock");
    let mut servers = three(group);
    let done = unisono(under(group, "door", &[], "true"));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    // One after the other, so that the last one has its quorum and too few copies.
    for server in &mut servers[..2] {
        server.signal(Signal::TERM);
        assert_eq!(server.end(), Some(0));
    }
    let reason =
        format!("{group} carries out no commands at present: it lacks 1 member that it needs; start 1 more");
    let begun = Instant::now();
    let refused = unisono(under(group, "door", &["--no-wait"], "true"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains(&reason), "{said}");
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    let late = unisono(under(group, "door", &["--timeout", "1s"], "true"));
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(late.status.code() == Some(3) && said.contains(&reason), "{said}");
    let mut waiter = Holder::start(group, "true");
    let mut said = BufReader::new(waiter.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = said.find(|line| line.contains("waiting for door")).unwrap();
    assert!(waits.contains(&reason), "{waits}");
}

/// Kills these servers, and waits until a member that is left says that the group is halted.
fn halt(group: &str, servers: &mut [Background]) {
    servers.iter_mut().for_each(|server| server.process.kill().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while json(&unisono(["status", group, "--json"]))["primary"] != false {
        assert!(Instant::now() < deadline, "it goes on");
    }
}

#[test]
fn a_command_waits_for_a_halted_group_that_it_cannot_join_and_runs_once_the_group_goes_on() {
    let _alone = alone();
    let group = &group("lock");
    let mut servers = three(group);
    halt(group, &mut servers[1..]);
    let reason = format!("{group} carries out no commands at present: b, c do not answer");
    let mut waiter = Holder::start(group, "true");
    let mut said = BufReader::new(waiter.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = said.find(|line| line.contains("waiting for door")).unwrap();
    assert!(waits.contains(&reason), "{waits}");
    let late = unisono(under(group, "door", &["--timeout", "1s"], "true"));
    let late_said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(late.status.code() == Some(3) && late_said.contains(&reason), "{late_said}");
    let forced = unisono(["force", group, "--without", "b,c"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    let _again = serve(group, &["--form", "a,b,c", "--name", "b"]);
    assert!(!said.any(|line| line.contains("waiting for door")), "it says so once");
    assert_eq!(waiter.0.wait().unwrap().code(), Some(0));
}

#[test]
fn force_names_a_command_that_ended_while_the_group_was_halted() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let mut servers = three(group);
    let mut holder = command();
    holder.args(under(group, "door", &["--name", "worker"], &folder.script("worker"))).stdin(Stdio::null());
    let holder = Holder(holder.stderr(Stdio::piped()).spawn().unwrap());
    left(&folder.path("worker"));
    halt(group, &mut servers[1..]);
    assert_eq!(holder.end().0, Some(1));
    // The server that is left learns later than the command that the group is halted.
    let deadline = Instant::now() + PATIENCE;
    let said = loop {
        let refused = unisono(["force", group, "--without", "b,c"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        if !said.contains("is not halted, or not yet") {
            assert_eq!(refused.status.code(), Some(3), "{said}");
            break said;
        }
        assert!(Instant::now() < deadline, "{said}");
    };
    assert!(said.contains("worker does not answer either"), "{said}");
    let remedy = format!("`unisono force {group} --without b,c,worker`");
    assert!(said.contains(&remedy), "{said}");
    let forced = unisono(["force", group, "--without", "b,c,worker"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
}

#[test]
fn a_try_ends_where_the_locks_are_halted_and_a_former_server_learns_the_remedy() {
    let _alone = alone();
    let group = &group("lock");
    let mut servers = three(group);
    halt(group, &mut servers[1..]);
    let refused = unisono(under(group, "door", &["--no-wait"], "true"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("{group} carries out no commands at present: b, c do not answer")),
        "{said}"
    );
    let again = ["lock", group, "--serve", "--form", "a,b,c", "--name", "b", "--form-within", "5s"];
    let again = unisono([&again, &WATCHFUL[..]].concat());
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("`unisono force {group} --without b,c`")), "{said}");
    assert!(said.contains("stop the members that are left") && !said.contains("another process"), "{said}");
}

#[test]
fn a_plain_group_and_another_service_keep_no_locks() {
    let _alone = alone();
    let plain = &group("plain");
    let _listener = Background::listen(plain, &[]);
    let refused = unisono(under(plain, "door", &[], "true"));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has locks"), "{refused:?}");
    let sums = &group("sums");
    let mut counter = Background::start(&["rpc", "counter", sums, "--create"]);
    counter.until("the counter", |seen| !seen.is_empty());
    let refused = unisono(under(sums, "door", &[], "true"));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

#[test]
fn a_holder_that_was_stopped_until_its_command_ended_reports_that_the_lock_was_lost() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let first = Holder::start(group, &folder.script("first"));
    let (_, processes) = left(&folder.path("first"));
    let second = Holder::start(group, &folder.script("second"));
    first.signal(Signal::STOP);
    left(&folder.path("second"));
    std::fs::write(folder.path("end"), "").unwrap();
    until_gone(&processes);
    first.signal(Signal::CONT);
    let (status, said) = first.end();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("door is lost"), "{said}");
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn a_signal_reaches_a_command_that_is_stopped() {
    let _alone = alone();
    let (group, folder) = (&group("lock"), Folder::new());
    let _keeper = keep(group);
    let holder = Holder::start(group, &folder.script("holder"));
    let (_, processes) = left(&folder.path("holder"));
    kill_process(processes[0], Signal::STOP).unwrap();
    holder.signal(Signal::TERM);
    let (status, said) = holder.end();
    assert_eq!(status, Some(128 + 15), "{said}");
    until_gone(&processes);
}

#[test]
fn a_command_that_two_dying_servers_half_admitted_leaves_and_runs_once_the_group_goes_on() {
    let _alone = alone();
    let group = &group("lock");
    let mut servers = three(group);
    let mut waiter = Holder::start_with(group, &["--name", "worker"], "true");
    servers[1..].iter_mut().for_each(|server| server.process.kill().unwrap());
    let _said = waiter.in_line();
    let is_member = json(&unisono(["status", group, "--json"]))["members"].to_string().contains("worker");
    let without = if is_member { "b,c,worker" } else { "b,c" };
    let forced = unisono(["force", group, "--without", without]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
    let _again = serve(group, &["--form", "a,b,c", "--name", "b"]);
    assert_eq!(waiter.0.wait().unwrap().code(), Some(0));
}
