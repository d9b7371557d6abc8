//! Compares the events of a scenario with the expected ones.

use std::fmt;

/// The result of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Differences from what was expected; empty if there are none.
    pub problems: Vec<String>,
    /// The events that each process received, in the form of `expect` lines.
    pub told: String,
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.iter().try_for_each(|problem| writeln!(f, "{problem}"))?;
        if !self.problems.is_empty() {
            write!(f, "events received:\n{}", self.told)?;
        }
        Ok(())
    }
}

/// Returns a description of the first line that differs from what was expected.
pub(super) fn difference(expected: &[String], found: &[String]) -> Option<String> {
    let mut place = 0;
    let mut skips = false;
    for line in expected {
        if line == "..." {
            skips = true;
            continue;
        }
        let next = if skips {
            found[place..].iter().position(|one| one == line).map(|distance| place + distance)
        } else {
            found.get(place).filter(|one| *one == line).map(|_| place)
        };
        match next {
            Some(next) => place = next + 1,
            None => {
                let received = found.get(place).map_or("no further event", String::as_str);
                return Some(format!("expected `{line}`, received `{received}`"));
            }
        }
        skips = false;
    }
    match found.get(place) {
        Some(more) if !skips => Some(format!("expected no further event, received `{more}`")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|line| line.to_string()).collect()
    }

    #[test]
    fn lines_are_compared_in_order() {
        let found = lines(&["1 joined 1", "2 message 0 \"a\"", "3 message 0 \"b\""]);
        assert_eq!(difference(&found, &found), None);
        assert_eq!(difference(&lines(&["...", "3 message 0 \"b\""]), &found), None);
        assert_eq!(difference(&lines(&["1 joined 1", "..."]), &found), None);
        assert!(difference(&lines(&["1 joined 1"]), &found).is_some());
        assert!(difference(&lines(&["...", "2 message 0 \"a\""]), &found).is_some());
        assert!(difference(&lines(&["1 joined 1", "3 message 0 \"b\"", "..."]), &found).is_some());
        assert!(difference(&lines(&["1 joined 1"]), &[]).is_some());
    }
}
