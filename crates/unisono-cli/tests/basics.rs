//! Tests that need no group: help, usage, keys, captures, and worker processes.

mod common;

use common::{command, json, unisono, unisono_in};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const COMMANDS: &[&[&str]] = &[
    &["demo"],
    &["listen"],
    &["send"],
    &["chat"],
    &["members"],
    &["status"],
    &["why"],
    &["stats"],
    &["links"],
    &["lock"],
    &["force"],
    &["doctor"],
    &["explain"],
    &["keygen"],
    &["completions"],
    &["man"],
    &["sim", "run"],
    &["sim", "replay"],
    &["sim", "scenario"],
    &["sim", "mutants"],
    &["sim", "enumerate"],
    &["sim", "growth"],
    &["papers", "list"],
    &["papers", "costs"],
    &["papers", "run"],
    &["papers", "predict"],
    &["bench", "latency"],
    &["bench", "throughput"],
    &["bench", "failover"],
    &["bench", "parallel"],
    &["bench", "rpc"],
    &["rpc", "serve"],
    &["rpc", "call"],
    &["rpc", "newport"],
    &["rpc", "counter"],
    &["lab", "up"],
    &["lab", "exec"],
    &["lab", "down"],
];

#[test]
fn every_command_has_help_with_an_example_and_the_common_flags() {
    for command in COMMANDS {
        let output = unisono(command.iter().chain(&["--help"]));
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        assert!(text.contains("Example"), "{command:?} shows no example");
        for flag in [
            "--key",
            "--seeds",
            "--bind",
            "--transport",
            "--patience",
            "--locate",
            "--config",
            "--json",
            "--insecure",
            "--log ",
            "--log-format ",
        ] {
            // The simulator sends nothing, so it has no flags of the network.
            let sends = !["sim", "papers"].contains(&command[0]);
            let meant = sends || ["--config", "--json", "--log ", "--log-format "].contains(&flag);
            assert!(!meant || text.contains(flag), "{command:?} lacks {flag}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{command:?} has long lines");
    }
}

#[test]
fn the_log_is_text_or_json_on_standard_error_and_off_by_default() {
    let logged = |flags: &[&str]| {
        let output = unisono([&["explain", "00"], flags].concat());
        assert!(output.status.success() && !output.stdout.starts_with(b"{"), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for quiet in [&[][..], &["--log", "off"], &["--log", "warn", "--log-format", "json"]] {
        assert_eq!(logged(quiet), "", "{quiet:?}");
    }
    let text = logged(&["--log", "debug"]);
    assert!(text.contains("DEBUG unisono::command: command started") && !text.contains('\x1b'), "{text}");
    let lines = logged(&["--log", "debug", "--log-format", "json"]);
    assert!(!lines.is_empty());
    for line in lines.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&entry["level"], &entry["target"]), (&"DEBUG".into(), &"unisono::command".into()));
        assert_eq!(entry["message"], "command started");
    }
}

#[test]
fn colours_follow_the_environment() {
    let coloured = |command: &mut Command| {
        let output = command.args(["doctor", "--log", "debug"]).output().unwrap();
        [output.stdout, output.stderr].map(|bytes| bytes.contains(&0x1b))
    };
    assert_eq!(coloured(&mut command()), [false; 2], "no terminal");
    assert_eq!(coloured(command().env("CLICOLOR_FORCE", "1")), [true; 2]);
    assert_eq!(coloured(command().envs([("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")])), [false; 2]);
    assert_eq!(coloured(command().env("CLICOLOR_FORCE", "1").env("UNISONO_JSON", "1")), [false, true]);
}

#[test]
fn the_log_is_chosen_by_environment_and_file_too() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("unisono.toml"), "log = 'debug'\nlog-format = 'json'").unwrap();
    let chosen = |level: Option<&str>, file: Option<&str>| {
        let mut explain = command();
        explain.current_dir(folder.path()).args(["explain", "00"]);
        explain.envs(level.map(|level| ("UNISONO_LOG", level)));
        explain.args(file.into_iter().flat_map(|file| ["--config", file]));
        String::from_utf8(explain.output().unwrap().stderr).unwrap()
    };
    assert!(chosen(Some("debug"), None).contains("DEBUG"));
    assert!(chosen(None, Some("unisono.toml")).starts_with('{'));
    assert_eq!(chosen(Some("off"), Some("unisono.toml")), "");
}

#[test]
fn shells_complete_the_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let output = unisono(["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for word in ["unisono", "listen", "counter", "completions", "min-members", "patience"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        assert!(!script.contains("worker"), "{shell} offers the hidden command");
        assert_eq!(json(&unisono(["completions", shell, "--json"]))["script"], *script, "{shell}");
    }
    assert_eq!(unisono(["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn bash_reads_the_completions_and_completes() {
    let script = "source <(\"$0\" completions bash) && COMP_WORDS=(unisono li) COMP_CWORD=1 && \
                  _unisono unisono li unisono && echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_unisono")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "listen links\n".to_string(), "{output:?}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = unisono_in(folder.path(), ["man", "new/pages", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed = json(&output)["pages"].as_array().unwrap().len();
    let pages = folder.path().join("new/pages");
    assert_eq!(std::fs::read_dir(&pages).unwrap().count(), listed);
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_default();
    assert!(page("unisono.1").contains("listen") && !page("unisono.1").contains("worker"));
    for command in COMMANDS {
        let page = page(&format!("unisono-{}.1", command.join("-")));
        assert!(
            page.contains(".SH OPTIONS") || page.contains(".SH \"COMMON OPTIONS\""),
            "{command:?}: {page}"
        );
        assert!(page.contains("Example"), "{command:?}: {page}");
    }
    // Existing pages are replaced.
    assert_eq!(unisono_in(folder.path(), ["man", "new/pages"]).status.code(), Some(0));
}

#[test]
fn a_folder_for_manual_pages_that_cannot_be_made_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for nowhere in ["file", "file/pages"] {
        let output = unisono_in(folder.path(), ["man", nowhere]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot make the folder") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_refusal_of_the_system_is_reported() {
    let refused = (4..=16).filter_map(|files| {
        let limited = format!("ulimit -n {files}; exec \"$0\" send files-{} hello", std::process::id());
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &limited, env!("CARGO_BIN_EXE_unisono")]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // With very few files the program itself cannot be loaded, which it cannot report.
        (!output.status.success() && said.contains("unisono: ")).then_some((files, said))
    });
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty());
    for (files, said) in refused {
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("cannot ") || last.contains("multicast does not work"), "{files}: {said}");
    }
}

#[test]
fn a_refusal_of_the_system_to_a_member_process_is_reported_once() {
    let limited = "ulimit -n $1; exec \"$0\" demo --members 3 --messages 3 --kill none";
    let said = (6..=16).map(|files: u32| {
        let mut shell = Command::new("sh");
        shell.args(["-c", limited, env!("CARGO_BIN_EXE_unisono"), &files.to_string()]);
        String::from_utf8_lossy(&shell.output().unwrap().stderr).into_owned()
    });
    let said: String = said.collect();
    assert!(said.contains("member-0 ended unexpectedly"), "{said}");
    for line in said.lines() {
        assert!(line.matches("os error").count() <= 1, "{line}");
    }
}

#[test]
fn bad_usage_and_bad_configuration_are_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("unisono.toml");
    std::fs::write(&config, "sedes = ['a']").unwrap();
    let config = config.to_str().unwrap();
    let large = folder.path().join("large.toml");
    std::fs::write(&large, "# settings\n".repeat(10_000)).unwrap();
    let large = large.to_str().unwrap();
    let key = folder.path().join("absent.key");
    let key = key.to_str().unwrap();
    for arguments in [
        &["frobnicate"][..],
        &["demo", "--order", "telepathy"],
        &["rpc", "counter", "votes", "--order", "tokens"],
        &["demo", "--members", "1"],
        &["demo", "--members", "2"],
        &["demo", "--members", "3", "--resilience", "3"],
        &["bench", "latency", "--members", "2", "--resilience", "2"],
        &["demo", "--lab"],
        &["listen", ""],
        &["listen", "x", "--min-members", "257"],
        &["send", "x", "text", "--min-members", "257"],
        &["listen", "x", "--config", config],
        &["listen", "x", "--config", "absent.toml"],
        &["listen", "x", "--key", key],
        &["listen", "x", "--bind", "nonsense"],
        &["listen", "x", "--seeds", "127.0.0.1:99999"],
        &["listen", "x", "--patience", "soon"],
        &["listen", "x", "--locate", "0"],
        &["listen", "x", "--log", "loud"],
        &["listen", "x", "--form", "a,b,c", "--name", "d"],
        &["listen", "x", "--form", "a,b,c"],
        &["chat", "x", "--form", "a,b,a", "--name", "a"],
        &["send", "x", "text", "--form", "a,b,c", "--name", "a", "--at-least", "4"],
        &["send", "x", "text", "--form", "a,b,c", "--name", "a", "--min-members", "1"],
        &["listen", "x", "--at-least", "2"],
        &["status", "x", "--patience", "3 parsecs"],
        &["bench", "latency", "--bytes", "4M"],
        &["sim", "run", "--log-format", "xml"],
        &["rpc", "call", "x", "y", "--patience", "0"],
        &["rpc", "call", "x", "y", "--patience", "18446744073709551615"],
        &["status", "x", "--insecure", "--bind", "192.0.2.7"],
        &["listen", "x\u{1b}[31m"],
        &["status", "two\nlines"],
        &["listen", "x", "--name", "a\u{7}"],
        &["listen", "x", "--name", ""],
        &["listen", "x", "--config", "/dev/zero"],
        &["listen", "x", "--config", large],
        &["listen", "x", "--key", "/dev/zero"],
        &["sim", "scenario", "/dev/zero"],
        &["explain", "no-such-file"],
        &["sim", "run", "--seeds", "9..1"],
        &["sim", "growth", "--members", "2"],
        &["sim", "replay", "1", "--profile", "unheard-of"],
        &["sim", "enumerate", "--history", "crash4@1"],
        &["sim", "enumerate", "--steps", "5"],
        &["rpc", "call", ""],
        &["rpc", "call", "two\nlines", "x"],
        &["rpc", "call", "x", "y", "--deadline", "soon"],
        &["rpc", "call", "--group", "x", "y"],
        &["rpc", "serve", "x"],
        &["rpc", "serve", "x", "--exec", "true", "--concurrency", "0"],
        &["rpc", "counter", "x", "--name", "a\u{7}"],
        &["sim", "scenario", "no-such-file"],
    ] {
        let output = unisono(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?} prints no error");
    }
}

#[test]
fn bad_parameters_of_the_papers_are_named() {
    for (arguments, word) in [
        (&["predict", "delay", "--members", "1"][..], "members"),
        (&["predict", "delay", "--members", "4", "--resilience", "4"], "resilience"),
        (&["predict", "delay", "--set", "nonsense=x2"], "nonsense"),
        (&["predict", "delay", "--set", "copy"], "copy"),
        (&["predict", "delay", "--set", "copy=-1"], "copy"),
        (&["predict", "delay", "--set", "rho=2"], "rho"),
        (&["predict", "throughput", "--members", "3", "--senders", "4"], "senders"),
        (&["predict", "throughput", "--members", "30", "--groups", "100"], "groups"),
        (&["run", "all", "--quick", "--set", "copy=x-2"], "copy"),
        (&["run", "KT93-27", "KT94"], "KT94"),
        (&["predict", "lookup", "--members", "100"], "members"),
        (&["predict", "delay", "--clients", "3"], "clients"),
        (&["predict", "delay", "--rate", "100mbit", "--set", "rate=10"], "--rate"),
        (&["predict", "lookups", "--service", "single", "--servers", "2"], "--servers 2"),
        (&["predict", "lookups", "--service", "rpc", "--servers", "3"], "--servers 3"),
        (&["predict", "delay", "--set", "long=x2"], "long"),
        (&["predict", "delay", "--set", "scale=x2"], "scale"),
        (&["predict", "lookup", "--set", "datagram=x2"], "datagram"),
        (&["run", "KT93-27", "--quick", "--report", "/dev/null/report"], "/dev/null/report"),
        (&["run", "KT93-27", "--quick", "--page", "/dev/null"], "papers run all"),
        (&["run", "all", "--quick", "--seed", "2", "--check-page", "/dev/null"], "--seed"),
        (&["run", "all", "--check-page", "/dev/null/page"], "/dev/null/page"),
    ] {
        let output = unisono([&["papers"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?} does not name {word}: {said}");
    }
}

#[test]
fn a_prediction_of_the_papers_without_a_result_fails_and_says_why() {
    let output = unisono(["papers", "predict", "delay", "--set", "receive_ring=1", "--bytes", "8000"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("delivers nothing") && said.contains("receive_ring"), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_report_of_the_papers_that_cannot_be_written_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("papers.html");
    std::fs::create_dir(&page).unwrap();
    let report = folder.path().to_str().unwrap();
    let output = unisono(["papers", "run", "KT93-27-r1", "--quick", "--report", report]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(page.to_str().unwrap()), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn views_are_explained_where_they_are_shown() {
    for command in ["listen", "members", "status"] {
        let output = unisono([command, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("[ann|2.1f3a90bc]") && text.contains("the sequencer and the epoch"),
            "{command}: {text}"
        );
    }
}

#[test]
fn durations_have_units_or_the_unit_of_their_option() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("unisono.toml");
    std::fs::write(&config, "patience = '2s'\nlocate = 150").unwrap();
    let config = config.to_str().unwrap();
    for flags in
        [&["--patience", "150ms", "--locate", "2s"][..], &["--patience", "150"], &["--config", config]]
    {
        let output = unisono([&["doctor"], flags].concat());
        assert_ne!(output.status.code(), Some(2), "{flags:?}: {output:?}");
    }
    std::fs::write(config, "patience = 'soon'").unwrap();
    let output = unisono(["doctor", "--config", config]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a duration such as 150ms or 2s"), "{said}");
}

#[test]
fn a_number_out_of_range_is_reported_with_the_option_and_what_it_takes() {
    for (arguments, option, taken) in [
        (["listen", "x", "--resilience", "-1"], "--resilience", "from 0 to 255"),
        (["chat", "x", "--resilience", "many"], "--resilience", "from 0 to 255"),
        (["listen", "x", "--count", "-1"], "--count", "0 or more"),
        (["status", "x", "--patience", "-5"], "--patience", "0 or more"),
        (["members", "x", "--watch", "-1"], "--watch", "from 0.001 to 86400"),
        (["members", "x", "--watch", "2d"], "--watch", "from 0.001 to 86400"),
        (["status", "x", "--locate", "soon"], "--locate", "such as 150ms or 2s"),
        (["rpc", "call", "--deadline=soon", "x"], "--deadline", "such as 150ms or 2s"),
        (["bench", "throughput", "--seconds", "1500ms"], "--seconds", "from 1 to 3600"),
        (["bench", "throughput", "--bytes", "2MiB"], "--bytes", "from 1 to 1048576"),
        (["sim", "run", "--minutes", "30s"], "--minutes", "from 1 to 100000"),
        (["send", "x", "--min-members", "-1"], "--min-members", "up to 256"),
        (["bench", "latency", "--members", "many"], "--members", "from 2 to 64"),
        (["bench", "latency", "--bytes", "65536"], "--bytes", "from 0 to"),
        (["bench", "throughput", "--bytes", "0"], "--bytes", "from 1 to 1048576"),
        (["sim", "run", "--threads", "0"], "--threads", "from 1 to"),
        (["sim", "replay", "--profile=perf", "x"], "SEED", "from 0 to"),
        (["lab", "exec", "0", "--"], "HOST", "from 1 to"),
        (["lab", "cut", "1", "x"], "TO", "from 1 to"),
    ] {
        let output = unisono(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(option) && said.contains(taken), "{arguments:?}: {said}");
    }
}

#[test]
fn seeds_without_an_address_are_reported_before_the_search() {
    // A process must not found a second group because DNS does not answer.
    for command in [&["listen", "x"][..], &["send", "x", "text"], &["members", "x"]] {
        let output = unisono([command, &["--seeds", "nowhere.invalid", "--seeds-timeout", "10ms"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("none of the seeds (nowhere.invalid)") && said.contains("getent"), "{said}");
    }
    let output = unisono(["members", "x", "--seeds", "nowhere.invalid,127.0.0.1:9"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (warned, failed) =
        (said.find("nowhere.invalid has no address"), said.find("no member of this group"));
    assert!(warned.is_some() && warned < failed, "{said}");
}

#[test]
fn a_join_waits_for_an_address_of_its_seeds_and_says_so() {
    let arguments = ["listen", "x", "--seeds", "nowhere.invalid", "--seeds-timeout", "soon"];
    assert_eq!(unisono(arguments).status.code(), Some(2), "no duration");
    let arguments = ["listen", "x", "--seeds", "nowhere.invalid", "--seeds-timeout", "1h"];
    let mut child = command().args(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waits = lines.find(|line| line.contains("waiting for an address of seed nowhere.invalid"));
    let running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(waits.is_some() && running);
}

#[test]
fn seeds_that_cannot_be_asked_are_reported_and_no_group_is_founded() {
    let (four, six, far) = ("127.0.0.1:9", "[::1]:9", "255.255.255.255:9");
    let both = format!("{four},{six}");
    for (seeds, bind, status, advice) in [
        (both.as_str(), None, 2, "--bind ADDRESS"),
        (six, Some("127.0.0.1"), 2, "--bind ADDRESS"),
        (far, Some("127.0.0.1"), 1, "`ip route get 255.255.255.255`"),
    ] {
        let flags = ["--insecure", "--seeds", seeds].into_iter();
        let flags: Vec<_> = flags.chain(bind.into_iter().flat_map(|bind| ["--bind", bind])).collect();
        for command in [&["listen", "x"][..], &["status", "x"]] {
            let output = unisono([command, &flags].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(status), "{command:?} {flags:?}: {said}");
            assert!(said.contains(advice) && !said.contains("founded it"), "{said}");
        }
        let output = unisono([&["doctor"], &flags[..]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("bad   seeds") && said.contains(advice), "{said}");
        assert!(said.contains("good  address"), "{said}");
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_reported() {
    let output = unisono(["sim", "replay", "1", "--trace", "/dev/full"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write to /dev/full"), "{said}");
}

#[test]
fn histories_are_enumerated_and_one_that_fails_is_shown() {
    let output = unisono(["sim", "enumerate", "--steps", "1", "--json"]);
    let summary = json(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(summary["failed"].as_array().is_some_and(Vec::is_empty), "{summary}");
    assert!(summary["histories"].as_u64().unwrap() > 200, "{summary}");
    let history =
        "slow=2,3 wait@applies1 cut2@append1 crash1@applies1 crash3@0 heal@quiet return3@0 last=2,3";
    for (planted, status) in [(&[][..], 0), (&["--planted", "SurvivorForgets"], 1)] {
        let one = ["sim", "enumerate", "--durability", "one", "--trace", "/dev/null", "--history", history];
        let output = unisono([&one, planted].concat());
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
}

#[test]
fn a_closed_or_full_standard_error_changes_no_exit_status() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    for stderr in [Stdio::from(full()), unread.into()] {
        let status = command().args(["explain", "zz"]).stderr(stderr).status().unwrap();
        assert_eq!(status.code(), Some(2));
    }
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&["explain", "00"][..], &["--help"], &["send", "--help"], &["--version"]] {
        let output = command().args(arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{arguments:?}: {said}");
        // A reader that closes the pipe wants no more output: no error.
        let (reader, unread) = std::io::pipe().unwrap();
        drop(reader);
        assert!(command().args(arguments).stdout(unread).status().unwrap().success(), "{arguments:?}");
    }
}

// Another user may have written settings, seeds and keys, which error messages quote.
#[test]
fn quoted_text_steers_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("unisono.toml");
    for text in [
        &b"key = \x1b[31m"[..],
        b"'\xc2\x9b31m' = 1",
        b"bind = \"\\u001b[31m\"",
        b"transport = \"\\u001b[31m\"",
        b"seeds = [\"\\u001b[31m\"]",
        b"key = \"\\u001b[31m\"",
    ] {
        std::fs::write(&config, text).unwrap();
        let output = unisono(["status", "absent", "--config", config.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && !said.is_empty());
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    }
}

#[test]
fn a_flag_overrides_the_environment() {
    let run = |flags: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_unisono"))
            .args(["listen", "x"])
            .args(flags)
            .env("UNISONO_BIND", "nonsense")
            .env("UNISONO_KEY", "absent.key")
            .output()
            .unwrap()
    };
    assert!(String::from_utf8_lossy(&run(&[]).stderr).contains("nonsense"));
    assert!(String::from_utf8_lossy(&run(&["--bind", "127.0.0.1"]).stderr).contains("absent.key"));
}

#[test]
fn a_switch_in_the_environment_takes_all_boolean_words() {
    for (value, on) in [("1", true), ("yes", true), ("true", true), ("0", false), ("no", false)] {
        let output = Command::new(env!("CARGO_BIN_EXE_unisono"))
            .args(["explain", "00"])
            .env("UNISONO_JSON", value)
            .env("UNISONO_SEEDS", "")
            .output()
            .unwrap();
        assert_eq!(output.stdout.starts_with(b"{"), on, "{value}: {output:?}");
    }
}

#[test]
fn a_key_is_readable_by_its_owner_only_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let first = unisono_in(folder.path(), ["keygen", "group.key", "--json"]);
    assert_eq!(json(&first)["file"], "group.key");
    let file = folder.path().join("group.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&file).unwrap();
    assert_eq!(unisono_in(folder.path(), ["keygen", "group.key"]).status.code(), Some(1));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    for nowhere in ["absent/group.key", "group.key/another.key"] {
        let refused = unisono_in(folder.path(), ["keygen", nowhere]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(2) && said.contains("name a file in a folder that exists"),
            "{said}"
        );
    }
    let refused = unisono_in(folder.path(), ["keygen", "/proc/group.key"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("takes no new files"), "{said}");
    unisono_in(folder.path(), ["keygen", "other.key"]);
    assert_ne!(std::fs::read(folder.path().join("other.key")).unwrap(), before);
}

#[test]
fn a_key_file_gets_a_next_key_and_then_loses_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let keygen = |arguments: &[&str]| unisono_in(folder.path(), [&["keygen", "--json"], arguments].concat());
    let lines = || -> Vec<String> {
        let text = std::fs::read_to_string(folder.path().join("group.key")).unwrap();
        text.lines().map(String::from).collect()
    };
    keygen(&["group.key"]);
    let first = lines();
    assert_eq!(keygen(&["--retire", "group.key"]).status.code(), Some(1), "it is in use");
    assert_eq!(json(&keygen(&["--next", "group.key"]))["keys"], 2);
    let both = lines();
    assert_eq!((both.len(), &both[0]), (2, &first[0]));
    assert_eq!(keygen(&["--next", "group.key"]).status.code(), Some(1));
    assert_eq!(json(&keygen(&["--retire", "group.key"]))["keys"], 1);
    assert_eq!(lines(), both[1..]);
    assert_eq!(keygen(&["--next", "--retire", "group.key"]).status.code(), Some(2));
    assert_eq!(keygen(&["--next", "absent.key"]).status.code(), Some(2));
}

#[test]
fn datagrams_are_explained_and_bad_ones_too() {
    let output = unisono(["explain", "00:11:22", "--json"]);
    let words = json(&output)["words"].to_string();
    assert!(words.contains("3 bytes") && words.contains("cannot be read"), "{words}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.pcap");
    let mut capture = vec![0xd4, 0xc3, 0xb2, 0xa1];
    capture.resize(20, 0);
    capture.extend([1, 0, 0, 0]);
    std::fs::write(&file, capture).unwrap();
    let output = unisono(["explain", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no UDP datagram"));
    // An endless file is not read to its end.
    assert_eq!(unisono(["explain", "/dev/zero"]).status.code(), Some(1));
}

/// Returns the first datagram of a process that looks for a group, as hexadecimal digits.
fn question(folder: &std::path::Path, more: &[&str]) -> String {
    let seed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    seed.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let address = seed.local_addr().unwrap().to_string();
    let output = unisono_in(
        folder,
        ["status", "absent", "--bind", "127.0.0.1", "--seeds", &address].iter().chain(more),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let mut datagram = [0; 2000];
    let bytes = seed.recv(&mut datagram).unwrap();
    datagram[..bytes].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn sealed_datagrams_are_explained_with_the_key_only() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["right.key", "wrong.key"] {
        unisono_in(folder.path(), ["keygen", key]);
    }
    let explain = |hex: &str, more: &[&str]| -> String {
        let output = unisono_in(folder.path(), ["explain", hex].iter().chain(more));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let open = question(folder.path(), &[]);
    assert!(explain(&open, &[]).contains("Ask"), "{}", explain(&open, &[]));
    let sealed = question(folder.path(), &["--key", "right.key"]);
    assert!(explain(&sealed, &[]).contains("cannot be read without the key"));
    assert!(explain(&sealed, &["--key", "wrong.key"]).contains("do not open"));
    let words = explain(&sealed, &["--key", "right.key"]);
    assert!(words.contains("genuine") && words.contains("Ask"), "{words}");
}

#[test]
fn the_doctor_finds_other_versions_of_the_wire_format() {
    let mine = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut datagram = [0; 60];
    datagram[..3].copy_from_slice(b"UN\x07");
    let mut doctor = command();
    doctor
        .args(["doctor", "--json", "--bind", &free.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut doctor = doctor.spawn().unwrap();
    while doctor.try_wait().unwrap().is_none() {
        // The doctor may not listen yet, or no longer.
        let _ = mine.send_to(&datagram, free);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let text = String::from_utf8_lossy(&doctor.wait_with_output().unwrap().stdout).into_owned();
    let line = text.lines().find(|line| line.contains(r#""check":"versions""#)).unwrap();
    let check: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(check["good"], false, "{line}");
    let (finding, address) = (check["finding"].as_str().unwrap(), mine.local_addr().unwrap().to_string());
    assert!(finding.contains("version 7") && finding.contains(&address), "{finding}");
}

#[test]
fn the_doctor_reports_success_or_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("open.key"), "no key").unwrap();
    let mine = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = mine.local_addr().unwrap().to_string();
    let run = ["doctor", "--json", "--key", "open.key", "--bind", &taken];
    let output = unisono_in(folder.path(), run);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let checks: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let check = |name: &str| checks.iter().find(|check| check["check"] == name).unwrap();
    for bad in ["key", "port"] {
        assert_eq!(check(bad)["good"], false, "{text}");
        assert!(check(bad)["advice"].is_string(), "{text}");
    }
    assert!(check("key")["finding"].is_string(), "{text}");
    let open = unisono(["doctor", "--insecure"]);
    let open = String::from_utf8_lossy(&open.stdout).into_owned();
    assert!(open.contains("anyone on the network") && !open.contains("stays on this machine"), "{open}");
    let seeds = unisono(["doctor", "--seeds", "127.0.0.1:9"]);
    let seeds = String::from_utf8_lossy(&seeds.stdout).into_owned();
    assert!(seeds.contains("resolves to 127.0.0.1:9; not asked"), "{seeds}");
    let unsealed = unisono(["doctor", "--seeds", "192.0.2.7:7195"]);
    let unsealed = String::from_utf8_lossy(&unsealed.stdout).into_owned();
    assert!(unsealed.contains("not checked: without a key nothing is sent"), "{unsealed}");
    // With flags that a member would refuse, a check fails.
    for flags in [["--seeds", "192.0.2.7:7195"], ["--bind", "192.0.2.7"], ["--key", "no.key"]] {
        let output = unisono_in(folder.path(), [&["doctor"], &flags[..]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {said}");
        assert!(said.contains("`unisono keygen "), "{flags:?}: {said}");
    }
    assert_eq!(unisono(["doctor", "--patience", "1"]).status.code(), Some(2));
    assert_eq!(check("datagrams")["good"], true, "{text}");
    assert!(["seeds", "multicast", "buffers", "clock"].iter().all(|name| check(name)["good"].is_boolean()));
    assert!(json(&output)["bad"].as_u64().unwrap() >= 2);
    assert_eq!(output.status.code(), Some(1));
}

/// A worker of this process, controlled by hand.
struct Worker {
    process: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(parent: u32) -> Worker {
        let mut process = Command::new(env!("CARGO_BIN_EXE_unisono"))
            .args(["worker", &parent.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Worker { process, answers }
    }

    fn ask(&mut self, instruction: &str) -> serde_json::Value {
        writeln!(self.process.stdin.as_mut().unwrap(), "{instruction}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{instruction} was answered '{line}': {error}"))
    }

    fn end(mut self) -> Option<i32> {
        drop(self.process.stdin.take());
        let deadline = Instant::now() + common::PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::yield_now();
        }
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        panic!("a worker outlived its standard input");
    }
}

#[test]
fn a_worker_ends_with_its_input_and_serves_only_its_parent() {
    assert_eq!(Worker::start(std::process::id()).end(), Some(0));
    assert_eq!(Worker::start(1).end(), Some(1));
}

#[test]
fn the_bare_path_is_measured_by_datagrams_and_by_multicast() {
    let address = |worker: &mut Worker| {
        let assignment =
            r#"{"Floor":{"location":{"processor":null,"namespace":null,"address":"127.0.0.1"},"bytes":100}}"#;
        worker.ask(assignment)["At"].as_str().unwrap().to_string()
    };
    for multicast in [false, true] {
        let [mut relay, mut sender, mut other] = [(); 3].map(|()| Worker::start(std::process::id()));
        let [to_relay, to_sender, to_other] = [&mut relay, &mut sender, &mut other].map(address);
        let group =
            format!("\"239.255.77.{}:{}\"", std::process::id() % 250, to_relay.rsplit(':').next().unwrap());
        let group = if multicast { group } else { "null".to_string() };
        let to = if multicast { group.clone() } else { format!("\"{to_sender}\",\"{to_other}\"") };
        assert_eq!(relay.ask(&format!(r#"{{"Relay":{{"to":[{to}]}}}}"#)), "Ready");
        assert_eq!(other.ask(&format!(r#"{{"Receive":{{"multicast":{group}}}}}"#)), "Ready");
        for path in ["rpc", "relay"] {
            let took = sender.ask(&format!(
                r#"{{"Send":{{"relay":"{to_relay}","multicast":{group},"path":"{path}","untimed":2,"timed":30}}}}"#
            ));
            let took = took["Took"].as_array().unwrap().clone();
            assert_eq!(took.len(), 30, "{path}, multicast {multicast}");
            assert!(took.iter().all(|ns| (1..10_000_000_000).contains(&ns.as_u64().unwrap())));
        }
        let used = [&mut relay, &mut sender, &mut other]
            .map(|worker| worker.ask(r#""Usage""#)["Used"].as_u64().unwrap());
        assert!(used.iter().all(|&ns| ns > 0));
        for worker in [relay, sender, other] {
            assert_eq!(worker.end(), Some(0));
        }
    }
}
