//! docs/papers.md: what the testbed says of each point, with the reasons.
//!
//! The numbers are written by the program, and the gate fails if the page is older than they are. The words around them
//! are in `page.txt`.

use super::figures;
use std::fmt::Write;
use unisono_sim::papers::{Costs, Quantity, Row, Use};

/// The page without its tables. A line `{name}` stands for a table.
const TEXT: &str = include_str!("page.txt");

/// Returns the page.
pub(super) fn page(rows: &[Row], costs: &Costs) -> String {
    let mut page = String::new();
    for line in TEXT.lines() {
        match line {
            "{judged}" => points(&mut page, rows, &[Use::Fit, Use::Predict, Use::Count, Use::Order]),
            "{exceptions}" => exceptions(&mut page, rows),
            "{lost}" => points(&mut page, rows, &[Use::Print]),
            "{constants}" => constants(&mut page, rows),
            "{ours}" => ours(&mut page, rows),
            "{ring}" => ring(&mut page, rows),
            "{costs}" => parameters(&mut page, costs),
            text => {
                let _ = writeln!(page, "{text}");
            }
        }
    }
    page
}

fn shown(number: Option<f64>) -> String {
    number.map_or_else(String::new, figures::number)
}

fn points(page: &mut String, rows: &[Row], uses: &[Use]) {
    page.push_str("| point | use | conditions | paper | simulated | error | ours | unit |\n");
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in rows.iter().filter(|row| uses.contains(&row.use_)) {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.point,
            row.use_.name(),
            figures::conditions(row),
            shown(row.paper),
            shown(row.simulated),
            figures::error(row),
            shown(row.ours),
            row.unit
        );
    }
}

fn exceptions(page: &mut String, rows: &[Row]) {
    page.push_str("| point | paper | simulated | ours | unit | why |\n|---|---|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row.use_ == Use::Exception) {
        let why = row.why.as_deref().unwrap_or_default();
        let numbers = [row.paper, row.simulated, row.ours].map(shown).join(" | ");
        let _ = writeln!(page, "| {} | {numbers} | {} | {why} |", row.point, row.unit);
    }
}

fn constants(page: &mut String, rows: &[Row]) {
    page.push_str("| figure | quantity | a constant | the testbed |\n|---|---|---|---|\n");
    for (figure, what, constant, simulated) in figures::constants(rows) {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let _ = writeln!(page, "| {figure} | {what} | {} | {} |", percent(constant), percent(simulated));
    }
}

/// A delay above this multiple of the papers' protocol, and a throughput below the other, is a miss.
const DELAY_OVER: f64 = 1.05;
const THROUGHPUT_UNDER: f64 = 0.9;

/// Lists where our protocol misses, of delays and throughputs.
fn ours(page: &mut String, rows: &[Row]) {
    page.push_str("| point | conditions | simulated | ours | ratio |\n|---|---|---|---|---|\n");
    let mut misses = 0;
    for row in rows {
        let Some((ours, simulated)) = row.ours.zip(row.simulated) else { continue };
        let ratio = ours / simulated;
        let is_miss = match row.what {
            Quantity::Delay | Quantity::DelayUnderLoad => ratio > DELAY_OVER,
            Quantity::Throughput => ratio < THROUGHPUT_UNDER,
            _ => false,
        };
        if is_miss {
            misses += 1;
            let numbers = [simulated, ours].map(figures::number).join(" | ");
            let _ =
                writeln!(page, "| {} | {} | {numbers} | {ratio:.2} |", row.point, figures::conditions(row));
        }
    }
    let all = rows.iter().filter(|row| row.ours.is_some() && is_compared(row)).count();
    let _ = writeln!(page, "\n{misses} of {all} delays and throughputs.");
}

fn ring(page: &mut String, rows: &[Row]) {
    page.push_str("| point | conditions | RMP, simulated | our ring | with its own timers alone | our sequencer | unit |\n");
    page.push_str("|---|---|---|---|---|---|---|\n");
    for (row, numbers) in figures::ring(rows) {
        let (conditions, numbers) = (figures::conditions(row), numbers.join(" | "));
        let _ = writeln!(page, "| {} | {conditions} | {numbers} | {} |", row.point, row.unit);
    }
}

fn is_compared(row: &Row) -> bool {
    matches!(row.what, Quantity::Delay | Quantity::DelayUnderLoad | Quantity::Throughput)
}

fn parameters(page: &mut String, costs: &Costs) {
    page.push_str(
        "| cost | machine | value | unit | origin | from | meaning |\n|---|---|---|---|---|---|---|\n",
    );
    for parameter in costs.parameters() {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            parameter.parameter,
            parameter.machine.name(),
            figures::number(parameter.value),
            parameter.unit,
            parameter.origin.name(),
            parameter.from.unwrap_or_default(),
            parameter.meaning
        );
    }
}
