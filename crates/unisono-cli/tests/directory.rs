//! Tests of the directory service from the command line: processes that are killed, and bad input.

mod common;

use common::{Background, PATIENCE, alone, command, group, json};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// Flags with which a dead server is noticed soon, and a busy one is not suspected.
const WATCHFUL: [&str; 2] = ["--patience", "1000"];

/// Three servers, each a process.
struct Service {
    name: String,
    folder: tempfile::TempDir,
    servers: Vec<Option<Background>>,
}

impl Service {
    fn begin() -> Service {
        let (name, folder) = (group("directory"), tempfile::tempdir().unwrap());
        let mut service = Service { name, folder, servers: vec![None, None, None] };
        (1..=3).for_each(|id| service.start(id, &[]));
        (1..=3).for_each(|id| service.serves(id));
        service
    }

    fn data(&self, id: usize) -> String {
        self.folder.path().join(id.to_string()).display().to_string()
    }

    fn start(&mut self, id: usize, more: &[&str]) {
        let (number, data) = (id.to_string(), self.data(id));
        let arguments = ["dir", "serve", "--id", &number, "--data", &data, "--service", &self.name];
        self.servers[id - 1] = Some(Background::start_heard(&[&arguments, &WATCHFUL[..], more].concat()));
    }

    fn serves(&mut self, id: usize) {
        let server = self.servers[id - 1].as_mut().unwrap();
        server.until("the server", |seen| seen.iter().any(|line| line["event"] == "serving"));
    }

    fn kill(&mut self, id: usize) {
        let mut server = self.servers[id - 1].take().unwrap();
        server.signal(Signal::KILL);
        server.end();
    }

    fn cap(&self) -> PathBuf {
        self.folder.path().join("1/root.cap")
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        asked(&self.cap(), arguments, b"")
    }

    /// Runs a command that succeeds, and returns what it printed.
    fn good(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails, and returns its exit status and its words.
    fn bad(&self, arguments: &[&str]) -> (i32, String) {
        failure(&self.ask(arguments))
    }

    fn names(&self, path: &str) -> Vec<String> {
        let lines = self.good(&["dir", "ls", path, "--json"]);
        let name =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned();
        lines.lines().map(name).collect()
    }

    fn capability(&self, path: &str) -> String {
        let looked = json(&self.ask(&["dir", "lookup", path, "--json"]));
        looked["capability"].as_str().unwrap().to_owned()
    }
}

fn asked(cap: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command()
        .args(arguments)
        .args(WATCHFUL)
        .env("UNISONO_CAP", cap)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn failure(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn names_survive_kills_and_a_minority_says_which_servers_are_missing() {
    let _alone = alone();
    let mut service = Service::begin();
    let mode = std::fs::metadata(service.cap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    service.good(&["dir", "mkdir", "home"]);
    let made = json(&service.ask(&["dir", "mkdir", "home/ann", "--json"]));
    assert_eq!(made["command"], "dir mkdir");
    service.kill(2);
    let later = json(&service.ask(&["dir", "mkdir", "home/bob", "--json"]));
    assert!(later["seqno"].as_u64() > made["seqno"].as_u64());
    service.kill(3);
    for arguments in [&["dir", "ls", "home"][..], &["dir", "ls", "home", "--consistency", "local"]] {
        let (status, said) = service.bad(arguments);
        assert!(status == 3 && said.contains("servers 2 and 3"), "{status}: {said}");
    }
    let output = service.ask(&["dir", "status", "--json"]);
    let first: Value =
        serde_json::from_slice(output.stdout.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!((output.status.code(), &first["waiting_for"]), (Some(3), &serde_json::json!([2, 3])));
    let first = service.servers[0].as_mut().unwrap();
    first.until_said("start them, or see `unisono dir status --service directory-");
    service.start(2, &[]);
    service.serves(2);
    // A server that could not serve for a while says that it does again.
    let first = service.servers[0].as_mut().unwrap();
    first.until("again", |seen| seen.iter().filter(|line| line["event"] == "serving").count() == 2);
    service.kill(2);
    service.kill(1);
    (1..=3).rev().for_each(|id| service.start(id, &[]));
    (1..=3).for_each(|id| service.serves(id));
    assert_eq!(service.names("home"), ["ann", "bob"]);
    // A lost folder has to be said.
    service.kill(1);
    std::fs::rename(service.data(1), service.folder.path().join("lost")).unwrap();
    service.start(1, &[]);
    assert_eq!(service.servers[0].take().unwrap().end(), Some(2));
    service.start(1, &["--replace"]);
    service.serves(1);
    assert_eq!(service.names("home"), ["ann", "bob"]);
    let serving = service.good(&["dir", "status"]);
    assert_eq!(serving.matches("serving").count(), 3, "{serving}");
}

#[test]
fn rights_files_sets_and_backups_do_what_the_help_says() {
    let _alone = alone();
    let service = Service::begin();
    service.good(&["dir", "mkdir", "home"]);
    service.good(&["dir", "mkdir", "home/ann"]);
    let put = asked(&service.cap(), &["file", "put", "--as", "home/ann/letter"], b"dear bob");
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert_eq!(service.good(&["file", "get", "home/ann/letter"]), "dear bob");
    assert_eq!(service.good(&["file", "size", "home/ann/letter"]), "8\n");
    assert_eq!(service.good(&["dir", "tree"]), "home/\n  ann/\n    letter\n");

    // The owner restricts alone; the holder of one column sees what it lets through.
    let (home, ann) = (service.capability("home"), service.capability("home/ann"));
    let weak = service.good(&["dir", "cap", "restrict", &home, "--rights", "04"]);
    let low = service.folder.path().join("low.cap");
    std::fs::write(&low, &weak).unwrap();
    std::fs::set_permissions(&low, std::fs::Permissions::from_mode(0o600)).unwrap();
    let looked = json(&asked(&low, &["dir", "lookup", "ann", "--json"], b""));
    assert_eq!(looked["capability"].as_str().unwrap().split(':').nth(2), Some("04"));
    for arguments in
        [&["dir", "mkdir", "mine"][..], &["dir", "rm", "ann"], &["dir", "chmod", "ann", "ff,ff,ff"]]
    {
        let (status, said) = failure(&asked(&low, arguments, b""));
        assert!(status == 1 && said.contains("denied"), "{status}: {said}");
    }
    service.good(&["dir", "chmod", "home/ann", "ff,02,00"]);
    assert_eq!(json(&asked(&low, &["dir", "lookup", "ann", "--json"], b""))["status"], "denied");
    service.good(&["dir", "cap", "revoke", "home"]);
    assert_eq!(failure(&asked(&low, &["dir", "ls"], b"")).0, 1);

    // Without a good capability the input, which does not end, is not read.
    let mut put = command();
    put.args(["file", "put"]).args(WATCHFUL).env("UNISONO_CAP", &low).stdin(Stdio::piped());
    let mut put = put.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (input, (ended, end)) = (put.stdin.take(), mpsc::channel());
    thread::spawn(move || ended.send(put.wait().unwrap().code()));
    assert_eq!(end.recv_timeout(PATIENCE), Ok(Some(1)));
    drop(input);

    // A set changes as a whole or not at all.
    service.good(&["dir", "append", "a", &ann]);
    service.good(&["dir", "append", "b", &ann]);
    let (new, wrong) = (service.capability("home"), format!("{ann}={home}"));
    let swap = format!("{new}={ann}");
    assert_eq!(service.bad(&["dir", "replace", "a", &swap, "b", &wrong]).0, 1);
    assert_eq!(service.capability("a"), ann);
    service.good(&["dir", "replace", "a", &swap, "b", &swap]);
    assert_eq!([service.capability("a"), service.capability("b")], [new.clone(), new]);

    // What no path reaches is found and removed.
    let loose = asked(&service.cap(), &["file", "put"], b"loose");
    let loose = String::from_utf8(loose.stdout).unwrap().trim().to_owned();
    assert_eq!(json(&service.ask(&["dir", "check", "--json"]))["unreachable"], 1);
    assert_eq!(json(&service.ask(&["dir", "check", "--remove", "--json"]))["files"], 1);
    assert_eq!(service.bad(&["file", "get", &loose]).0, 1);

    let saved = service.folder.path().join("saved");
    let saved = saved.to_str().unwrap();
    let backup = json(&service.ask(&["dir", "backup", saved, "--json"]));
    let restored = service.folder.path().join("restored");
    let restore = ["dir", "restore", saved, "--data", restored.to_str().unwrap(), "--json"];
    assert_eq!(json(&service.ask(&restore))["seqno"], backup["seqno"]);
    assert_eq!(service.bad(&restore).0, 2, "the folder is not empty");
    let root = restored.join("root.cap");
    assert_eq!(std::fs::read(&root).unwrap(), std::fs::read(service.cap()).unwrap());
    assert_eq!(std::fs::metadata(root).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_watch_tells_every_change_and_resumes_where_it_was() {
    let _alone = alone();
    let service = Service::begin();
    let cap = service.cap();
    let watch = |from: &str| {
        Background::start(&[
            "dir",
            "watch",
            "--from",
            from,
            "--cap",
            cap.to_str().unwrap(),
            "--patience",
            "1000",
        ])
    };
    let mut first = watch("1");
    let made = |name: &str| json(&service.ask(&["dir", "mkdir", name, "--json"]))["seqno"].clone();
    let numbers = [made("a"), made("b")];
    first.until("both changes", |seen| seen.len() == 2);
    let seen: Vec<_> = first.seen.iter().map(|change| change["seqno"].clone()).collect();
    assert_eq!(seen, numbers);
    let after_first = numbers[0].as_u64().unwrap() + 1;
    let next = first.seen[0]["next"].as_str().unwrap();
    assert!(next.ends_with(&format!(":{after_first}")), "{next}");
    // A number alone is good as long as the service has not begun anew.
    drop(watch(&after_first.to_string()));
    let mut second = watch(next);
    service.good(&["dir", "chmod", "a", "ff,00,00"]);
    second.until("the rest", |seen| seen.len() == 2);
    let events: Vec<_> = second.seen.iter().map(|change| (&change["event"], &change["name"])).collect();
    assert_eq!(events, [(&"append".into(), &"b".into()), (&"chmod".into(), &"a".into())]);
    let (status, said) = service.bad(&["dir", "watch", "--from", "1000000"]);
    assert!(status == 1 && said.contains("is the last one so far"), "{said}");
}

#[test]
fn a_watch_says_when_it_goes_on_and_from_where_after_the_service_began_anew() {
    let _alone = alone();
    let mut service = Service::begin();
    let cap = service.cap();
    let watch = ["dir", "watch", "--cap", cap.to_str().unwrap(), "--from", "1", "--patience", "1000"];
    let mut watch = Background::start_heard(&watch);
    let made = json(&service.ask(&["dir", "mkdir", "a", "--json"]))["seqno"].as_u64().unwrap();
    watch.until("the change", |seen| seen.iter().any(|line| line["seqno"] == made));
    (2..=3).for_each(|id| service.kill(id));
    watch.until_said("the watch goes on when the service does");
    service.start(2, &[]);
    service.serves(2);
    watch.until("that it goes on", |seen| {
        seen.iter().any(|line| line.as_str().is_some_and(|text| text.ends_with("the watch goes on")))
    });
    let status = service.good(&["dir", "status", "--service", &service.name]);
    assert!(status.contains("created 20") && !status.contains("begun anew"), "{status}");
    (1..=2).for_each(|id| service.kill(id));
    (2..=3).for_each(|id| {
        std::fs::rename(service.data(id), service.folder.path().join(format!("lost-{id}"))).unwrap()
    });
    // Servers with empty folders beside one that has the service say so, and what to do if the folders are lost.
    (1..=3).for_each(|id| service.start(id, &[]));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = service.ask(&["dir", "status", "--service", &service.name]);
        let said = String::from_utf8([&asked.stdout[..], &asked.stderr].concat()).unwrap();
        let empty = "waits for 3: its disk is empty, and server 1 has the service";
        let advice =
            "stop server 1, start it with --begin-anew, and the others with empty folders and --replace";
        if said.contains(empty) && said.contains(advice) {
            assert!(said.lines().any(|line| line.starts_with("server 2  waiting")), "{said}");
            break;
        }
        assert!(Instant::now() < deadline, "{said}");
    }
    (1..=3).for_each(|id| service.kill(id));
    service.start(1, &["--begin-anew"]);
    (2..=3).for_each(|id| service.start(id, &["--replace"]));
    (1..=3).for_each(|id| service.serves(id));
    watch.until_said("list the directory, then type `unisono dir watch --from ");
    assert_eq!(watch.end(), Some(1));
    let lines: Vec<&Value> = watch.seen.iter().filter(|line| line.is_object()).collect();
    let last = lines[lines.len() - 1];
    assert_eq!(last["event"], "began-anew");
    // A number of before is refused, with or without its instance; the position that was said is good.
    let before = lines.iter().find(|line| line["seqno"] == made).unwrap()["next"].as_str().unwrap();
    for from in [before, &(made + 1).to_string()] {
        let (status, said) = service.bad(&["dir", "watch", "--from", from]);
        assert!(status == 1 && said.contains("began anew") | said.contains("begun anew"), "{said}");
    }
    let next = last["next"].as_str().unwrap();
    assert!(next.starts_with(last["instance"].as_str().unwrap()), "{next}");
    let again = ["dir", "watch", "--cap", cap.to_str().unwrap(), "--from", next, "--patience", "1000"];
    let mut again = Background::start(&again);
    let after = json(&service.ask(&["dir", "mkdir", "after", "--json"]))["seqno"].clone();
    again.until("the change", |seen| seen.iter().any(|line| line["seqno"] == after));
}

#[test]
fn every_bad_input_has_its_own_words_and_shows_no_secret() {
    let _alone = alone();
    let service = Service::begin();
    service.good(&["dir", "mkdir", "home"]);
    let home = service.capability("home");
    let (secret, short, long) = (home.rsplit(':').next().unwrap(), &home[..84], format!("{home}0"));
    let forged = format!("{}:{}", &home[..52], "0".repeat(32));
    let missing = format!("{}:00000000ffffffff:{}", &home[..32], &home[50..]);
    let expected = format!("{home}={forged}");
    let data = service.data(1);
    let wide = "x".repeat(256);
    let deep = ["y"; 4096].join("/");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["dir", "append", "x", short], 2, "this text has 84"),
        (&["dir", "append", "x", &long], 2, "this text has 86"),
        (&["file", "get", &long], 2, "this text has 86"),
        (&["file", "get", &forged], 1, "not found"),
        (&["file", "get", &missing], 1, "not found"),
        (&["file", "get", &home], 1, "not a file"),
        (&["dir", "append", "x", &home, "--masks", "ff"], 1, "give one for each"),
        (&["dir", "append", "x", &home, "--masks", "f,2"], 2, "two hexadecimal digits"),
        (&["dir", "append", "x", &home, "--masks", "1f,02,02,02,02"], 2, "1 to 4 masks"),
        (&["dir", "append", "home", &home], 1, "a row of this name already"),
        (&["dir", "replace", "home", &home, "x"], 2, "each path needs a capability"),
        (&["dir", "replace", "home", &home, "home", &home], 1, "row 2 of the set"),
        (&["dir", "replace", "none", &home], 1, "not found"),
        (&["dir", "replace", "home", &expected], 1, "again with `unisono dir lookup home`"),
        (&["dir", "ls", "--cap", &home], 2, "--cap takes a file"),
        (&["dir", "ls", "--cap", short], 2, "--cap takes a file"),
        (
            &["dir", "serve", "--id", "2", "--data", &data, "--service", &service.name],
            2,
            "stop that process first",
        ),
        (&["dir", "mkdir", ""], 2, "name the new directory"),
        (&["dir", "mkdir", &wide], 2, "at most 255 bytes"),
        (&["dir", "mkdir", "a\u{1}b"], 2, "control character"),
        (&["dir", "mkdir", "a//b"], 2, "at least one character"),
        (&["dir", "mkdir", "."], 2, "are no names here"),
        (&["dir", "mkdir", &deep], 2, "at most 256 names"),
        (&["dir", "mkdir", "nowhere/z"], 1, "not found"),
        (&["dir", "mkdir", "y", "--columns", "a,a"], 2, "none twice"),
        (&["dir", "mkdir", "y", "--columns", "a,b,c,d,e"], 2, "1 to 4 columns"),
        (&["dir", "rmdir", ""], 1, "root directory cannot be deleted"),
        (&["dir", "restore", "/dev/null", "--data", "/nonexistent/x"], 2, "not a backup"),
        (&["dir", "restore", "/dev/zero", "--data", "/nonexistent/x"], 2, "not a backup"),
        (&["dir", "backup", "/dev/null"], 2, "not a regular file"),
        (&["dir", "ls", "--cap", "/nonexistent"], 2, "there is no file /nonexistent"),
        (&["dir", "ls", "--cap", &format!("./{home}x")], 2, "there is no file"),
        (&["dir", "rm", "home", &home], 2, "unexpected argument"),
        (&["dir", "watch", "--from", &home], 2, "invalid value"),
        (&["dir", "watch", "--from", "1f:7"], 2, "INSTANCE:NUMBER"),
        (&["dir", "watch", "--from", "0000000000000001:7"], 1, "list the directory, then type"),
        (
            &["dir", "serve", "--existing", "--id", "1", "--data", "/nonexistent/x"],
            2,
            "see that its disk is mounted",
        ),
        (&["dir", "serve", "--id", "0", "--data", "/nonexistent/x"], 2, "the ids are 1 to 3"),
        (&["dir", "serve", "--id", "4", "--data", "/nonexistent/x"], 2, "the ids are 1 to 3"),
        (&["dir", "serve", "--id", "1", "--replicas", "10", "--data", "/nonexistent/x"], 2, "1 to 9 servers"),
    ];
    for (arguments, status, words) in cases {
        let (found, said) = service.bad(arguments);
        assert!(found == *status && said.contains(words), "{arguments:?}: {found}, {said}");
        assert!(!said.contains(secret) && !said.contains("panicked"), "{arguments:?}: {said}");
    }
    assert_eq!(service.bad(&["file", "get", &forged]), service.bad(&["file", "get", &missing]));
    assert_eq!(service.names(""), ["home"], "nothing that was refused changed anything");
    // A cycle ends, and a directory with rows stays.
    service.good(&["dir", "append", "home/again", &home]);
    assert!(service.bad(&["dir", "rmdir", "home"]).1.contains("has rows"));
    assert_eq!(service.good(&["dir", "tree"]), "home/\n  again/  (see above)\n");
    let cap = service.cap();
    std::fs::set_permissions(&cap, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (status, said) = service.bad(&["dir", "ls"]);
    assert!(status == 2 && said.contains("chmod 600"), "{said}");
    let no_cap = command().args(["dir", "ls"]).env_remove("UNISONO_CAP").output().unwrap();
    assert!(no_cap.status.code() == Some(2) && failure(&no_cap).1.contains("--cap FILE"));
}

#[test]
fn clients_can_neither_join_nor_read_what_servers_say() {
    let _alone = alone();
    let (name, folder) = (group("keys"), tempfile::tempdir().unwrap());
    let file = |what: &str| folder.path().join(what).display().to_string();
    for key in ["servers", "clients", "strangers"] {
        assert!(command().args(["keygen", &file(key)]).output().unwrap().status.success());
    }
    let (bind, keys) = (["--bind", "127.0.0.1"], [file("servers"), file("clients")]);
    let start = |id: &str| {
        let data = file(id);
        let what = ["dir", "serve", "--id", id, "--data", &data, "--service", &name];
        let keys = ["--key", &keys[0], "--client-key", &keys[1]];
        Background::start(&[&what[..], &keys, &bind, &WATCHFUL].concat())
    };
    let mut servers = ["1", "2", "3"].map(start);
    for server in &mut servers {
        server.until("the server", |seen| seen.iter().any(|line| line["event"] == "serving"));
    }
    let cap = folder.path().join("1/root.cap");
    let ask = |arguments: &[&str], key: &str| {
        asked(&cap, &[arguments, &["--key", &file(key)], &bind].concat(), b"")
    };
    let made = ask(&["dir", "mkdir", "home"], "clients");
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    for key in ["servers", "strangers"] {
        assert_eq!(failure(&ask(&["dir", "ls"], key)).0, 3, "{key}");
    }
    assert_eq!(ask(&["members", &name], "clients").status.code(), Some(1));
    assert_eq!(ask(&["members", &name], "servers").status.code(), Some(0));
    // A server that is killed and comes back serves the clients again.
    servers[0].signal(Signal::KILL);
    servers[0].end();
    assert_eq!(ask(&["dir", "mkdir", "home/ann"], "clients").status.code(), Some(0));
    servers[0] = start("1");
    servers[0].until("the server", |seen| seen.iter().any(|line| line["event"] == "serving"));
    let status = ask(&["dir", "status"], "clients");
    let status = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.matches("serving").count(), 3, "{status}");
}

#[test]
fn servers_with_different_keys_say_so_and_clients_need_another_one() {
    let _alone = alone();
    let (name, folder) = (group("two-keys"), tempfile::tempdir().unwrap());
    let file = |what: &str| folder.path().join(what).display().to_string();
    for key in ["servers", "others", "clients"] {
        assert!(command().args(["keygen", &file(key)]).output().unwrap().status.success());
    }
    let start = |id: &str, key: &str, clients: &str| {
        let data = file(id);
        let what = ["dir", "serve", "--id", id, "--data", &data, "--service", &name, "--bind", "127.0.0.1"];
        let keys = ["--key", &file(key), "--client-key", &file(clients)];
        Background::start_heard(&[&what[..], &keys, &WATCHFUL].concat())
    };
    let mut same = start("1", "servers", "servers");
    same.until_said("the same key: clients could join the servers");
    assert_eq!(same.end(), Some(2));
    let mut servers = [start("1", "servers", "clients"), start("2", "servers", "clients")];
    servers[0].until_said(&format!("`unisono dir status --service {name} --key {}`", file("clients")));
    let mut other = start("3", "others", "clients");
    other.until_said("under another key");
    servers.iter_mut().for_each(|server| server.until_said("under another key"));
    // With the right key, all three create the service.
    other.signal(Signal::KILL);
    other.end();
    let mut third = start("3", "servers", "clients");
    for server in servers.iter_mut().chain([&mut third]) {
        server.until("the server", |seen| seen.iter().any(|line| line["event"] == "serving"));
    }
    let said = third.seen.iter().filter_map(Value::as_str).any(|line| line.contains("another key"));
    assert!(!said, "{:?}", third.seen);
}

#[test]
fn one_terminal_is_enough_to_try_it() {
    let _alone = alone();
    let (folder, name) = (tempfile::tempdir().unwrap(), group("cluster"));
    let data = folder.path().to_str().unwrap();
    let mut cluster = Background::start(&["dir", "cluster", "--data", data, "--service", &name]);
    cluster.until("three servers", |seen| seen.iter().filter(|line| line["event"] == "serving").count() == 3);
    let cap = folder.path().join("3/root.cap");
    let made = asked(&cap, &["dir", "mkdir", "home"], b"");
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    cluster.signal(Signal::TERM);
    assert_eq!(cluster.end(), Some(0));
}

/// A capability of no service, and its last number.
const CAPABILITY: &str =
    "000000000000000000000000000000aa:0000000000000001:ff:0123456789abcdef0123456789abcdef";

#[test]
fn a_capability_is_read_from_a_file_or_standard_input_and_shown_in_none_of_the_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("home.cap");
    std::fs::write(&file, format!("{CAPABILITY}\n")).unwrap();
    let named = format!("@{}", file.display());
    let none = Path::new("none");
    let set = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o600);
    for (argument, input) in [(&named[..], ""), ("-", CAPABILITY)] {
        let shown = asked(none, &["dir", "cap", "show", argument], input.as_bytes());
        assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
        assert!(String::from_utf8(shown.stdout).unwrap().contains("0000000000000001"));
    }
    let restricted = asked(none, &["dir", "cap", "restrict", "-", "--rights", "04"], CAPABILITY.as_bytes());
    assert!(restricted.stdout.starts_with(&CAPABILITY.as_bytes()[..50]), "{restricted:?}");

    let warned = asked(none, &["dir", "cap", "show", CAPABILITY], b"");
    let words = failure(&warned);
    assert!(words.0 == 0 && words.1.contains("every user of this machine can read"), "{words:?}");

    let spaced = format!("{CAPABILITY}0");
    let at = format!("@{CAPABILITY}");
    let cases: [(&[&str], &str, &str); 8] = [
        (&["dir", "cap", "show", "-"], "", "standard input ended"),
        (&["dir", "cap", "show", "-"], &spaced, "this text has 86"),
        (&["dir", "cap", "show", "@none"], "", "there is no file none"),
        (&["dir", "cap", "show", &at], "", "not a capability"),
        (&["file", "get", "@none"], "", "there is no file none"),
        (&["file", "get", "./@none"], "", "no file none"),
        (&["dir", "ls", "--cap", "-"], "", "standard input ended"),
        (&["dir", "replace", "a", "@none=-"], "", "there is no file none"),
    ];
    for (arguments, input, said) in cases {
        let (status, words) = failure(&asked(none, arguments, input.as_bytes()));
        assert!(status == 2 && words.contains(said), "{arguments:?}: {status}: {words}");
        assert!(!words.contains("0123456789abcdef"), "{words}");
    }
    for mode in [0o640, 0o604] {
        set(mode);
        let (status, words) = failure(&asked(none, &["dir", "cap", "show", &named], b""));
        assert!(status == 2 && words.contains("chmod 600"), "{status}: {words}");
    }
}

#[test]
fn a_command_that_holds_a_capability_leaves_no_core() {
    // The kernel gives root the files in /proc of a process that leaves no core. A process of root shows nothing, so this
    // one runs as another user.
    let mut waiting = command();
    if rustix::process::geteuid().is_root() {
        waiting.uid(65_534);
    }
    waiting
        .args(["dir", "cap", "show", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(mut waiting) = waiting.spawn() else {
        let _ = writeln!(std::io::stderr(), "skipped: another user may not run the command");
        return;
    };
    let environment = format!("/proc/{}/environ", waiting.id());
    let end = Instant::now() + PATIENCE;
    while std::fs::metadata(&environment).unwrap().uid() != 0 {
        assert!(Instant::now() < end, "it would leave a core");
        std::thread::yield_now();
    }
    drop(waiting.stdin.take());
    assert_eq!(waiting.wait().unwrap().code(), Some(2));
}
