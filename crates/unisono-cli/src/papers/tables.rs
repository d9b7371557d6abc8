//! The tables of docs/papers.md and of the report. Each is made once here, with the words that belong to it, and written as
//! Markdown or as HTML.

use super::figures;
use crate::bench::report::escaped;
use std::fmt::Write;
use unisono_sim::papers::{Costs, Quantity, Row, Use};

/// Columns that hold sentences.
const WORDS: [&str; 2] = ["here", "why"];

/// A table and the words around it.
pub(super) struct Table {
    /// Text above it.
    above: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Text below it.
    below: String,
}

impl Table {
    fn new(columns: &'static [&'static str], rows: Vec<Vec<String>>) -> Table {
        Table { above: "", columns, rows, below: String::new() }
    }

    /// True if it has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns it as Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.above.is_empty() {
            let _ = writeln!(text, "{}\n", self.above);
        }
        let _ = writeln!(text, "| {} |\n|{}", self.columns.join(" | "), "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        if !self.below.is_empty() {
            let _ = writeln!(text, "\n{}", self.below);
        }
        text
    }

    /// Returns it as HTML.
    pub(super) fn html(&self) -> String {
        let mut text = String::new();
        if !self.above.is_empty() {
            let _ = writeln!(text, "<p>{}</p>", escaped(self.above));
        }
        let head = self.columns.iter().map(|column| format!("<th>{}</th>", escaped(column)));
        let _ = writeln!(text, "<div class=\"wide\"><table>\n<tr>{}</tr>", head.collect::<String>());
        for row in &self.rows {
            let cell = |(column, cell): (&&str, &String)| match WORDS.contains(column) {
                true => format!("<td class=\"words\">{}</td>", escaped(cell)),
                false => format!("<td>{}</td>", escaped(cell)),
            };
            let _ = writeln!(text, "<tr>{}</tr>", self.columns.iter().zip(row).map(cell).collect::<String>());
        }
        text.push_str("</table></div>\n");
        if !self.below.is_empty() {
            let _ = writeln!(text, "<p>{}</p>", escaped(&self.below));
        }
        text
    }
}

fn shown(number: Option<f64>) -> String {
    number.map_or_else(String::new, figures::number)
}

/// Returns the rows of these uses.
pub(super) fn points(rows: &[Row], uses: &[Use]) -> Table {
    let row = |row: &Row| {
        vec![
            row.point.clone(),
            row.use_.name().into(),
            figures::conditions(row),
            shown(row.paper),
            shown(row.simulated),
            figures::error(row),
            shown(row.ours),
            row.unit.clone(),
        ]
    };
    Table::new(
        &["point", "use", "conditions", "paper", "simulated", "error", "ours", "unit"],
        rows.iter().filter(|row| uses.contains(&row.use_)).map(row).collect(),
    )
}

/// Returns all rows that are run again, with what real processes gave.
pub(super) fn all_points(rows: &[Row]) -> Table {
    let uses = [Use::Fit, Use::Predict, Use::Count, Use::Order, Use::Exception, Use::Print];
    let run = rows.iter().filter(|row| uses.contains(&row.use_));
    let words = run.map(|row| {
        let why = row.why.as_deref().or(row.ours_why.as_deref()).unwrap_or_default();
        [figures::here(row).unwrap_or_default(), why.into()]
    });
    let cells = points(rows, &uses).rows.into_iter().zip(words);
    Table::new(
        &["point", "use", "conditions", "paper", "simulated", "error", "ours", "unit", "here", "why"],
        cells.map(|(cells, words)| cells.into_iter().chain(words).collect()).collect(),
    )
}

/// Returns the exceptions with their reasons.
pub(super) fn exceptions(rows: &[Row]) -> Table {
    let row = |row: &Row| {
        vec![
            row.point.clone(),
            figures::conditions(row),
            shown(row.paper),
            shown(row.simulated),
            shown(row.ours),
            row.unit.clone(),
            row.why.clone().unwrap_or_default(),
        ]
    };
    Table {
        above: "The testbed does not predict these, and does not have to:",
        ..Table::new(
            &["point", "conditions", "paper", "simulated", "ours", "unit", "why"],
            rows.iter().filter(|row| row.use_ == Use::Exception).map(row).collect(),
        )
    }
}

/// Returns how near a constant comes in each figure.
pub(super) fn constants(rows: &[Row]) -> Table {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let row = |(figure, what, constant, simulated)| vec![figure, what, percent(constant), percent(simulated)];
    Table {
        above: "If each number of a figure were predicted to be the figure's first, the largest error would be this. Where a \
                constant comes as\nnear as the testbed, the figure is no evidence for it.",
        below: "The lines of KTV93 Figs 7 and 9 compare operations and services of different kinds, so a constant is far from \
                them whatever the\ntestbed does. Figures with two points or fewer have no line."
            .into(),
        ..Table::new(
            &["figure", "quantity", "a constant", "the testbed"],
            figures::constants(rows).into_iter().map(row).collect(),
        )
    }
}

/// A delay above this multiple of the papers' protocol, and a throughput below the other, is a miss.
const DELAY_OVER: f64 = 1.05;
const THROUGHPUT_UNDER: f64 = 0.9;

/// Returns where our protocol misses, of delays and throughputs.
pub(super) fn misses(rows: &[Row]) -> Table {
    let is_miss = |row: &Row, ratio: f64| match row.what {
        Quantity::Delay | Quantity::DelayUnderLoad | Quantity::DelayPerMember => Some(ratio > DELAY_OVER),
        Quantity::Throughput => Some(ratio < THROUGHPUT_UNDER),
        _ => None,
    };
    let compared = rows.iter().filter_map(|row| {
        let (ours, simulated) = row.ours.zip(row.simulated)?;
        Some((row, simulated, ours, is_miss(row, ours / simulated)?))
    });
    let compared: Vec<_> = compared.collect();
    let misses = compared.iter().filter(|(.., is_miss)| *is_miss).map(|(row, simulated, ours, _)| {
        let numbers = [simulated, ours].map(|number| figures::number(*number));
        let ratio = format!("{:.2}", ours / simulated);
        [row.point.clone(), figures::conditions(row)].into_iter().chain(numbers).chain([ratio]).collect()
    });
    let misses: Vec<_> = misses.collect();
    Table {
        below: format!("{} of {} delays and throughputs.", misses.len(), compared.len()),
        ..Table::new(&["point", "conditions", "simulated", "ours", "ratio"], misses)
    }
}

/// Returns what our ring gives in RMP's place.
pub(super) fn ring(rows: &[Row]) -> Table {
    let row = |(row, numbers): (&Row, [String; 4])| {
        let names = [row.point.clone(), figures::conditions(row)];
        names.into_iter().chain(numbers).chain([row.unit.clone()]).collect()
    };
    Table::new(
        &[
            "point",
            "conditions",
            "RMP, simulated",
            "our ring",
            "with its own timers alone",
            "our sequencer",
            "unit",
        ],
        figures::ring(rows).into_iter().map(row).collect(),
    )
}

/// Returns the costs with their origins.
pub(super) fn costs(costs: &Costs) -> Table {
    let row = |parameter: &unisono_sim::papers::Parameter| {
        vec![
            parameter.parameter.into(),
            parameter.machine.name().into(),
            figures::number(parameter.value),
            parameter.unit.into(),
            parameter.origin.name().into(),
            parameter.from.unwrap_or_default().into(),
            parameter.meaning.into(),
        ]
    };
    Table::new(
        &["cost", "machine", "value", "unit", "origin", "from", "meaning"],
        costs.parameters().iter().map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_table_have_the_same_columns_cells_and_words() {
        let table = Table {
            above: "Above:",
            below: "Below.".into(),
            ..Table::new(&["point", "why"], vec![vec!["P-1".into(), "a < b".into()]])
        };
        assert_eq!(table.markdown(), "Above:\n\n| point | why |\n|---|---|\n| P-1 | a < b |\n\nBelow.\n");
        let html = table.html();
        for part in ["<p>Above:</p>", "<th>point</th><th>why</th>", "<td>P-1</td>", "<p>Below.</p>"] {
            assert!(html.contains(part), "{html} lacks {part}");
        }
        assert!(html.contains("<td class=\"words\">a &lt; b</td>"), "{html}");
    }

    #[test]
    fn exceptions_have_our_number_beside_the_others() {
        assert!(["paper", "simulated", "ours"].iter().all(|name| exceptions(&[]).columns.contains(name)));
    }
}
