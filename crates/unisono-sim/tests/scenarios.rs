//! Every script in `scenarios/` goes as it says.

use std::fs;
use std::path::Path;
use unisono_sim::Scenario;

#[test]
fn every_scenario_goes_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut problems = String::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_none_or(|extension| extension != "scenario") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
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
