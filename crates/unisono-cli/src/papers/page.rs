//! docs/papers.md: what the testbed says of each point, with the reasons.
//!
//! The numbers are written by the program, and the gate fails if the page is older than they are. The words around them
//! are in `page.txt`.

use super::tables;
use std::fmt::Write;
use unisono_sim::papers::{Costs, Row, Use};

/// The page without its tables. A line `{name}` stands for a table.
const TEXT: &str = include_str!("page.txt");

/// Returns the page.
pub(super) fn page(rows: &[Row], costs: &Costs) -> String {
    let mut page = String::new();
    for line in TEXT.lines() {
        match line {
            "{judged}" => {
                let judged = [Use::Fit, Use::Predict, Use::Count, Use::Order];
                page.push_str(&tables::points(rows, &judged).markdown());
            }
            "{exceptions}" => page.push_str(&tables::exceptions(rows).markdown()),
            "{lost}" => page.push_str(&tables::points(rows, &[Use::Print]).markdown()),
            "{constants}" => page.push_str(&tables::constants(rows).markdown()),
            "{ours}" => page.push_str(&tables::misses(rows).markdown()),
            "{ring}" => page.push_str(&tables::ring(rows).markdown()),
            "{costs}" => page.push_str(&tables::costs(costs).markdown()),
            text => {
                let _ = writeln!(page, "{text}");
            }
        }
    }
    page
}
