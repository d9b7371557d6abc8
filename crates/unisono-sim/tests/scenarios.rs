//! Every script in `scenarios/` gives the expected events.

use std::fs;
use std::path::Path;
use unisono_sim::Scenario;

#[test]
fn every_scenario_goes_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut problems = String::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("the folder is readable").path();
        if path.extension().is_none_or(|extension| extension != "scenario") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the script is readable");
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let course = scenario.run(None);
        if !course.problems.is_empty() {
            problems.push_str(&format!("{}:\n{course}\n", path.display()));
        }
        count += 1;
    }
    assert!(problems.is_empty(), "{problems}");
    assert!(count >= 2, "no scripts were found");
}
