//! `--report DIR`: takes many measurements and writes a page about them.
//!
//! Each benchmark chooses what it varies and which plots it draws. This module does what they have in common: it
//! measures one variation after the other, writes the results as lines of JSON, and writes the page.

mod chart;
mod machine;
mod page;

use super::Summary;
use crate::output::{Output, tell};
use crate::problem::Problem;
use crate::progress;
use anyhow::Context;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) use chart::{Chart, Series};
pub(crate) use chart::{Curve, Look, draw};
pub(super) use page::Column;
pub(crate) use page::{escaped, head};

/// A report while its measurements are taken.
pub(super) struct Page {
    /// Name of the benchmark, with which its files begin.
    pub(super) bench: &'static str,
    pub(super) title: &'static str,
    folder: PathBuf,
    points: Vec<Point>,
    failures: Vec<String>,
}

/// One measurement.
pub(super) struct Point {
    /// Name of the sweep to which it belongs.
    pub(super) sweep: String,
    pub(super) object: Value,
}

impl Page {
    /// Makes a report for this folder, which is made if it does not exist.
    pub(super) fn new(bench: &'static str, title: &'static str, folder: &Path) -> Result<Page, Problem> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Page { bench, title, folder: folder.into(), points: Vec::new(), failures: Vec::new() })
    }

    /// Takes a measurement for each variation. A failed one leaves a gap, which the page names.
    pub(super) fn measure<T>(
        &mut self,
        variations: &[(&str, T)],
        output: &Output,
        measure: impl Fn(&T, &ProgressBar) -> Result<Vec<Summary>, Problem>,
    ) -> Result<(), Problem> {
        let bar = progress::bar(variations.len() as u64, "measurements");
        for (sweep, variation) in variations {
            match measure(variation, &ProgressBar::hidden()) {
                Ok(summaries) => {
                    for summary in summaries {
                        match bar.suspend(|| summary.tell(output)) {
                            Ok(()) => {}
                            Err(problem) => self.failures.push(format!("{:#}", problem.into_error())),
                        }
                        self.points.push(Point { sweep: sweep.to_string(), object: summary.object });
                    }
                }
                Err(problem) => {
                    let failure = format!("{sweep}: {:#}", problem.into_error());
                    bar.suspend(|| tell(&failure));
                    self.failures.push(failure);
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Writes the page, each plot as a file of its own, and the measurements.
    pub(super) fn write(&self, charts: &[Chart], columns: &[Column], output: &Output) -> Result<(), Problem> {
        let mut plots = Vec::new();
        for chart in charts {
            if let Some(svg) = chart.draw(&self.points) {
                self.file(&format!("-{}.svg", chart.name), &svg)?;
                plots.push((chart, svg));
            }
        }
        let lines = self.points.iter().map(|point| format!("{}\n", point.object));
        self.file(".jsonl", &lines.collect::<String>())?;
        let page = self.file(".html", &page::page(self, &plots, columns))?;
        output.say(format_args!("the report: {}", page.display()))?;
        output.object(&json!({
            "bench": self.bench,
            "report": page.display().to_string(),
            "measurements": self.points.len(),
            "failures": self.failures,
        }))?;
        match self.failures.len() {
            0 => Ok(()),
            failed => Err(Problem::failed(format!("{failed} measurements failed: the page names them"))),
        }
    }

    fn file(&self, ending: &str, content: &str) -> Result<PathBuf, Problem> {
        let path = self.folder.join(format!("{}{ending}", self.bench));
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Returns these values and the user's one, sorted and without duplicates.
pub(super) fn with<const N: usize>(values: [u64; N], given: u64) -> Vec<u64> {
    let mut all: Vec<u64> = values.into_iter().chain([given]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_value_is_among_the_others_once() {
        assert_eq!(with([2, 3, 8], 5), [2, 3, 5, 8]);
        assert_eq!(with([2, 3, 8], 3), [2, 3, 8]);
    }

    #[test]
    fn a_page_is_self_contained_and_names_failures() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = Page::new("latency", "Latency", &folder.path().join("new")).unwrap();
        for members in 2..6 {
            let object = json!({"members": members, "p50_us": 10.0 * f64::from(members), "text": "<&>"});
            report.points.push(Point { sweep: "members".into(), object });
        }
        report.failures.push("it was <late>".into());
        let chart = Chart {
            name: "members",
            title: "By members",
            x_label: "members",
            y_label: "µs",
            series: vec![Series::plain(
                "members",
                "group",
                |o| o["members"].as_f64(),
                |o| o["p50_us"].as_f64(),
            )],
        };
        let empty = Chart { name: "none", series: Vec::new(), ..chart.clone() };
        let columns = [Column { heading: "text", field: "text" }, Column { heading: "p50", field: "p50_us" }];
        let output = Output::new(&crate::settings::Settings::default());
        assert!(
            report.write(&[chart, empty], &columns, &output).is_err(),
            "a report with a failed measurement is an error"
        );
        let read = |name: &str| fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        let page = read("latency.html");
        for words in ["<svg", "By members", "&lt;&amp;&gt;", "it was &lt;late&gt;", "processors", "50"] {
            assert!(page.contains(words), "no {words}");
        }
        assert!(
            !page.contains("<script") && !page.contains("src="),
            "the page must load nothing from elsewhere"
        );
        assert_eq!(read("latency.jsonl").lines().count(), 4);
        assert!(read("latency-members.svg").starts_with("<svg"));
        assert!(!folder.path().join("new/latency-none.svg").exists());
    }
}
