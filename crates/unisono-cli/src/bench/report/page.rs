//! Writes the page of a report: one HTML file that loads nothing from elsewhere.

use super::chart::Chart;
use super::{Page, machine};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 74rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
figure { display: inline-block; margin: 0 1rem 1.5rem 0; vertical-align: top; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { vertical-align: bottom; white-space: normal; }
td.words { text-align: left; white-space: normal; min-width: 20rem; }
.facts td { text-align: left; white-space: normal; } .facts td:first-child { color: #666; }
code { font-size: .95em; }
";

/// A column of the table.
#[derive(Clone, Copy)]
pub(in crate::bench) struct Column {
    pub(in crate::bench) heading: &'static str,
    pub(in crate::bench) field: &'static str,
}

/// Returns the beginning of a page: its title, and the facts about the machine and the command.
pub(crate) fn head(title: &str) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n<table class=\"facts\">\n"
    );
    for (name, fact) in machine::facts() {
        let fact =
            if name == "command" { format!("<code>{}</code>", escaped(&fact)) } else { escaped(&fact) };
        let _ = writeln!(page, "<tr><td>{name}</td><td>{fact}</td></tr>");
    }
    page.push_str("</table>\n");
    page
}

/// Returns the page with its plots and its table.
pub(super) fn page(report: &Page, plots: &[(&Chart, String)], columns: &[Column]) -> String {
    let mut page = head(report.title);
    page.push_str("<h2>Plots</h2>\n");
    for (chart, svg) in plots {
        // Plots use the same names inside, which would clash in one page.
        let svg = svg.replace("kuva-", &format!("{}-", chart.name));
        let _ = writeln!(page, "<figure><figcaption>{}</figcaption>{svg}</figure>", escaped(chart.title));
    }
    page.push_str(
        "<p>Dashed: bare UDP without a protocol on the same machine, measured in turns with the group.</p>\n",
    );
    if !report.failures.is_empty() {
        page.push_str("<h2>Measurements that failed</h2>\n<ul>\n");
        for failure in &report.failures {
            let _ = writeln!(page, "<li>{}</li>", escaped(failure));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<h2>All measurements</h2>\n<div class=\"wide\"><table>\n<tr><th>varied</th>");
    for column in columns {
        let _ = write!(page, "<th>{}</th>", escaped(column.heading));
    }
    page.push_str("</tr>\n");
    for point in &report.points {
        let _ = write!(page, "<tr><td>{}</td>", escaped(&point.sweep));
        for column in columns {
            let _ = write!(page, "<td>{}</td>", escaped(&cell(&point.object[column.field])));
        }
        page.push_str("</tr>\n");
    }
    let file = format!("{}.jsonl", report.bench);
    let _ = writeln!(
        page,
        "</table></div>\n<p>All fields of each measurement are in <code>{file}</code>, beside this page.</p>"
    );
    page
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" to "),
        Value::Number(number) => number.as_f64().map_or_else(String::new, |number| match number {
            number if number.fract() == 0.0 || number.abs() >= 1000.0 => format!("{number:.0}"),
            number if number.abs() >= 100.0 => format!("{number:.1}"),
            number => format!("{number}"),
        }),
        other => other.to_string(),
    }
}

/// Returns the text with the characters escaped that mean something in HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
