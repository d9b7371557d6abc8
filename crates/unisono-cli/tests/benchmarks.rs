//! Tests of benchmarks from the command line, with real processes and sockets.
//!
//! One test runs at a time: with several, members would get no processor, and would be suspected.

mod common;

use common::{WATCHFUL, alone, json, persistently, tried, unisono};

/// Runs a benchmark until all of these fields are positive: while the machine stands still they may be 0.
fn measured(run: &[&str], fields: &[&str]) -> serde_json::Value {
    let counted = |rows: &[serde_json::Value]| {
        let positive = |row: &serde_json::Value, field| row[field].as_f64().is_some_and(|value| value > 0.0);
        rows.iter().all(|row| fields.iter().all(|field| positive(row, *field)))
    };
    let measure = || {
        let output = unisono([&["bench"], run, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|row| serde_json::from_str(row).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let rows = persistently(measure, |rows| counted(rows));
    assert!(!rows.is_empty() && counted(&rows), "{rows:?} lack one of {fields:?}");
    serde_json::Value::Array(rows)
}

#[test]
fn latency_is_measured_beside_its_floor() {
    let _alone = alone();
    let run = ["latency", "--members", "2", "--messages", "100", "--resilience", "1"];
    let fields = [
        "p50_us",
        "p90_us",
        "p99_us",
        "p999_us",
        "max_us",
        "udp_rpc_p50_us",
        "udp_path_p50_us",
        "ratio_rpc",
        "ratio_path",
        "ratio_r0",
        "datagrams_per_message",
        "cpu_us_per_message",
        "udp_path_cpu_us",
    ];
    let summary = &measured(&run, &fields)[0];
    assert_eq!((&summary["bench"], &summary["messages"]), (&"latency".into(), &100.into()));
    assert!(summary["rounds"].as_u64() >= Some(5) && summary["ratio_spread"][0].is_number(), "{summary}");
}

#[test]
fn every_copy_of_a_datagram_is_counted() {
    let _alone = alone();
    for (transport, copies) in [("unicast", 3.0), ("multicast", 2.0)] {
        let run =
            ["bench", "latency", "--members", "3", "--messages", "500", "--json", "--transport", transport];
        let measure = || {
            let output = unisono(run);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            json(&output)
        };
        // One datagram to the sequencer, and from there to the two others; now and then a heartbeat, and more of them
        // while the machine stands still.
        let usual = |summary: &serde_json::Value| {
            (copies..copies + 0.2).contains(&summary["datagrams_per_message"].as_f64().unwrap())
        };
        let summary = persistently(measure, usual);
        assert!(usual(&summary), "{summary}");
        assert_eq!(summary["transport"], transport, "the floor uses the same transport: {summary}");
    }
}

#[test]
fn throughput_is_measured_beside_its_floor() {
    let _alone = alone();
    let run = ["throughput", "--members", "3", "--senders", "2", "--bytes", "100", "--seconds", "1"];
    let fields = [
        "ordered_per_s",
        "mb_per_s",
        "udp_fanout_per_s",
        "ratio_fanout",
        "send_p50_us",
        "send_p99_us",
        "datagrams_per_message",
        "cpu_us_per_message",
    ];
    let summary = &measured(&run, &fields)[0];
    assert_eq!(summary["order_identical"], true, "{summary}");
    // Messages in pieces, from all members including the sequencer.
    measured(&["throughput", "--members", "2", "--bytes", "8000", "--seconds", "1"], &["mb_per_s"]);
    assert_eq!(unisono(["bench", "throughput", "--members", "2", "--senders", "3"]).status.code(), Some(2));
}

#[test]
fn messages_that_may_be_early_are_timed_at_a_receiver_and_counted_without_an_order() {
    let _alone = alone();
    for order in ["sequencer", "token"] {
        let quality = ["--quality", "unordered", "--members", "3", "--order", order];
        let latency = [&["latency", "--messages", "100"][..], &quality].concat();
        let summary = &measured(&latency, &["p50_us", "ordered_p50_us", "ratio_ordered"])[0];
        assert_eq!(summary["timed_at"], "receiver", "{summary}");
        let throughput = [&["throughput", "--bytes", "100", "--seconds", "1"][..], &quality].concat();
        let summary = &measured(&throughput, &["ordered_per_s"])[0];
        assert_eq!((&summary["same_messages"], &summary["order_identical"]), (&true.into(), &().into()));
    }
}

#[test]
fn passes_of_the_token_are_counted_and_are_no_hand_overs() {
    let _alone = alone();
    let token = ["--order", "token"];
    let throughput = ["throughput", "--members", "3", "--bytes", "100", "--seconds", "1"];
    let latency = ["latency", "--members", "2", "--messages", "100"];
    let parallel = ["parallel", "--groups", "1", "--members", "2", "--seconds", "1"];
    for run in [&throughput[..], &latency, &parallel] {
        let summary = &measured(&[run, &token].concat(), &["passes"])[0];
        assert_eq!((&summary["order"], &summary["hand_overs"]), (&"token".into(), &0.into()), "{summary}");
        assert!(summary["null_passes"].as_u64() <= summary["passes"].as_u64(), "{summary}");
    }
    let output =
        tried(&["bench", "failover", "--members", "3", "--trials", "1", "--order", "token", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(json(&output)["passes"].as_u64() > Some(0), "{output:?}");
}

#[test]
fn calls_are_measured_beside_their_floor() {
    let _alone = alone();
    let run = ["rpc", "--calls", "100", "--seconds", "1", "--in-flight", "4", "--servers", "2", "--outside"];
    let fields = [
        "outside_p50_us",
        "ratio_call_send",
        "p50_us",
        "max_us",
        "alone_p50_us",
        "udp_rpc_p50_us",
        "group_p50_us",
        "ratio_rpc",
        "ratio_group",
        "calls_per_s",
        "cpu_us_per_call",
        "udp_rpc_cpu_us",
        "datagrams_per_call",
    ];
    let summary = &measured(&run, &fields)[0];
    let named = (&summary["bench"], &summary["calls"], &summary["servers"]);
    assert_eq!(named, (&"rpc".into(), &100.into(), &2.into()));
    let shares = summary["server_shares"].as_array().unwrap();
    let sum: f64 = shares.iter().map(|share| share.as_f64().unwrap()).sum();
    assert!(shares.len() == 2 && (0.99..1.01).contains(&sum), "{summary}");
}

const FEW: [&str; 4] = ["--operations", "50", "--seconds", "1"];

#[test]
fn lookups_in_a_directory_are_measured_beside_null_calls() {
    let _alone = alone();
    let run = ["dir", "--op", "lookup", "--consistency", "local", "--clients", "2", "--in-flight", "8"];
    let fields = [
        "ops_per_s",
        "p50_us",
        "p99_us",
        "loaded_p50_us",
        "call_p50_us",
        "udp_rpc_p50_us",
        "ratio_call",
        "calls_per_s",
        "ratio_calls_per_s",
        "busiest_over_idlest",
    ];
    let summary = &measured(&[&run[..], &FEW].concat(), &fields)[0];
    let named = (&summary["bench"], &summary["op"], &summary["consistency"]);
    assert_eq!(named, (&"dir".into(), &"lookup".into(), &"local".into()), "{summary}");
    assert!(summary["rows_written"].is_null() && summary["ratio_against"].is_null(), "{summary}");
}

#[test]
fn a_free_lock_is_measured_beside_a_message_that_a_majority_holds() {
    let _alone = alone();
    let fields = ["p50_us", "p99_us", "majority_send_p50_us", "ratio_majority"];
    let summary = &measured(&["locks", "--locks", "100"], &fields)[0];
    let named = (&summary["bench"], &summary["members"], &summary["locks"]);
    assert_eq!(named, (&"locks".into(), &3.into(), &100.into()), "{summary}");
}

#[test]
fn changes_of_a_directory_are_measured_beside_other_services() {
    let _alone = alone();
    for (op, against) in [
        ("append-delete", "pair"),
        ("append-delete", "single"),
        ("append-delete", "files"),
        ("tmp-file", "pair"),
        ("tmp-file", "files"),
        ("mixed", "single"),
    ] {
        let run = ["dir", "--op", op, "--against", against];
        let fields =
            ["ops_per_s", "p50_us", "ratio_call_send", "ratio_sync", "ratio_against", "against_p50_us"];
        let summary = &measured(&[&run[..], &FEW].concat(), &fields)[0];
        assert_eq!(summary["against"], against, "{summary}");
    }
}

#[test]
fn rows_and_files_that_went_are_in_no_snapshot() {
    let _alone = alone();
    for op in ["append-delete", "tmp-file"] {
        let run = ["dir", "--op", op, "--durability", "memory", "--in-flight", "16"];
        let summary = &measured(&[&run[..], &FEW].concat(), &["ops_per_s", "ratio_call_send"])[0];
        assert_eq!((&summary["rows_written"], &summary["ratio_sync"]), (&0.into(), &().into()), "{summary}");
    }
}

#[test]
fn a_server_with_rows_comes_back_while_the_others_go_on() {
    let _alone = alone();
    let run = ["dir", "--op", "start", "--rows", "3000", "--seconds", "1", "--in-flight", "4"];
    let run = [&run, &WATCHFUL[..]].concat();
    let fields =
        ["back_us", "ops_before_per_s", "ops_without_per_s", "ops_meanwhile_per_s", "ratio_meanwhile"];
    assert_eq!(measured(&run, &fields)[0]["rows"], 3000);
}

#[test]
fn commands_go_on_beside_a_server_that_comes_back() {
    let _alone = alone();
    let run = ["replica", "--op", "return", "--durability", "majority", "--seconds", "1"];
    let run = [&run, &WATCHFUL[..]].concat();
    let fields = ["back_us", "before_per_s", "alone_per_s", "beside_per_s", "slowest_half_second_per_s"];
    let summary = &measured(&run, &fields)[0];
    assert!(summary["slowest_half_second_per_s"].as_f64() <= summary["beside_per_s"].as_f64(), "{summary}");
    for (options, reason) in [
        (&["--durability", "memory"][..], "on disk"),
        (&["--servers", "2", "--durability", "one"], "--servers 3"),
    ] {
        let output = unisono([&["bench", "replica", "--op", "return"], options].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(reason), "{output:?}");
    }
}

#[test]
fn each_server_of_a_directory_may_have_a_folder_of_its_own() {
    let _alone = alone();
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let paths = folders.each_ref().map(|folder| folder.path().to_str().unwrap());
    let disks = paths.join(",");
    let run = ["dir", "--op", "append-delete", "--against", "pair", "--disks", &disks];
    measured(&[&run[..], &FEW].concat(), &["p50_us", "ratio_against"]);
    let left = |path: &&str| std::fs::read_dir(path).unwrap().count();
    assert_eq!(paths.iter().map(left).sum::<usize>(), 0, "they are empty again");
}

#[test]
fn a_sweep_has_a_row_for_each_number_of_servers_and_clients() {
    let _alone = alone();
    let run =
        ["dir", "--op", "append-delete", "--sweep", "--servers", "2", "--clients", "2", "--seconds", "1"];
    let rows = measured(&run, &["ops_per_s", "p50_us", "busiest_over_idlest"]);
    let number = |row: &serde_json::Value, field| row[field].as_u64().unwrap();
    let numbers = rows.as_array().unwrap().iter().map(|row| (number(row, "servers"), number(row, "clients")));
    assert_eq!(numbers.collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn options_of_a_directorys_benchmark_that_do_not_fit_are_refused() {
    for (options, reason) in [
        (&["--op", "append-delete", "--consistency", "local"][..], "for lookups"),
        (&["--op", "start", "--against", "pair"], "leave --against out"),
        (&["--op", "start", "--servers", "2"], "--servers 3"),
        (&["--op", "start", "--operations", "50"], "leave --operations out"),
        (&["--op", "lookup", "--rows", "10"], "for --op start"),
        (&["--sweep", "--against", "pair"], "--sweep measures under load alone"),
        (&["--servers", "10"], "from 1 to 9"),
        (&["--disks", "/tmp,/tmp"], "there are 3 servers"),
        (&["--disks", "/tmp", "--sweep", "--servers", "1"], "leave --disks out"),
        (&["--disks", "/tmp,/tmp,/nonexistent/y"], "/nonexistent/y"),
        (&["--op", "append-delete", "--log-dir", "/nonexistent/x"], "/nonexistent/x"),
    ] {
        let output = unisono([&["bench", "dir"], options].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(reason), "{options:?}: {said}");
    }
}

#[test]
fn parallel_groups_are_measured_together() {
    let _alone = alone();
    let run = ["parallel", "--groups", "3", "--members", "2", "--seconds", "1"];
    let rows = measured(&run, &["ordered_per_s", "ratio_one_group", "send_p50_us", "processors_busy"]);
    let rows = rows.as_array().unwrap();
    let groups: Vec<u64> = rows.iter().map(|row| row["groups"].as_u64().unwrap()).collect();
    assert_eq!(groups, [1, 2, 3]);
    assert!(rows.iter().all(|row| row["order_identical"] == true), "{rows:?}");
    assert_eq!(unisono(["bench", "parallel", "--groups", "100", "--members", "3"]).status.code(), Some(2));
}

#[test]
fn a_report_is_a_page_with_plots_and_every_measurement() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report");
    let command = ["bench", "parallel", "--groups", "2", "--seconds", "1", "--json", "--report"];
    let output = unisono([&command[..], &[path.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = json(&output);
    // One group and two, of 2, 4 and 8 members.
    assert_eq!((&summary["measurements"], &summary["failures"]), (&6.into(), &serde_json::json!([])));
    let page = std::fs::read_to_string(summary["report"].as_str().unwrap()).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("bench parallel --groups 2"), "the page shows the command");
    let lines = std::fs::read_to_string(path.join("parallel.jsonl")).unwrap();
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    assert_eq!(lines.lines().count(), 6);
    std::fs::write(folder.path().join("file"), "").unwrap();
    let inside = folder.path().join("file/report");
    let nowhere = unisono([&command[..], &[inside.to_str().unwrap()]].concat());
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
}

#[test]
fn failover_is_timed_and_checked() {
    let _alone = alone();
    for how in ["kill", "pause", "cut"] {
        let run = ["bench", "failover", "--members", "3", "--trials", "1", "--how", how, "--json"];
        let output = tried(&run);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let summary = json(&output);
        for field in ["detect_ms_p50", "resume_ms_p50", "resume_ms_max", "acknowledged"] {
            assert!(summary[field].as_f64().is_some_and(|value| value > 0.0), "{field} in {summary}");
        }
        assert_eq!((&summary["lost_acknowledged"], &summary["how"]), (&0.into(), &how.into()));
    }
}
