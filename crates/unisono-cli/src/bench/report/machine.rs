//! Describes the machine, the command and the day of a measurement, without which its numbers mean nothing.

use crate::output::quoted;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// Returns names and values of the facts.
pub(super) fn facts() -> Vec<(&'static str, String)> {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let model = line_of("/proc/cpuinfo", "model name").unwrap_or_default();
    let memory = line_of("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kernel = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    vec![
        ("command", std::env::args().map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")),
        ("version", format!("unisono {}", env!("CARGO_PKG_VERSION"))),
        ("processors", format!("{processors} × {model}")),
        ("memory", memory),
        (
            "system",
            format!("{} {} {}", text(kernel.sysname()), text(kernel.release()), text(kernel.machine())),
        ),
        ("day", day(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))),
    ]
}

fn line_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Returns the date, in UTC, of this number of seconds after the beginning of 1970. The computation lets years begin in
/// March, so that a leap day is the last day of its year.
fn day(seconds: u64) -> String {
    let days = seconds / DAY_SECONDS + 719_468;
    let era_day = days % 146_097;
    let year_of_era = (era_day - era_day / 1460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * year_day + 2) / 153;
    let day = year_day - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = days / 146_097 * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (date, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2000-03-01", 951_868_800),
            ("2024-12-31", 1_735_603_200),
            ("2100-03-01", 4_107_542_400),
        ] {
            assert_eq!(day(seconds), date);
        }
    }
}
