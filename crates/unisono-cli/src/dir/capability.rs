//! Capabilities as arguments: `@FILE` names a file with one, `-` stands for a line of standard input. The digits themselves
//! are taken too, with a warning, because other users of the machine can read a command line.

use super::session::At;
use crate::output::{quoted, tell};
use crate::problem::Problem;
use std::io::{self, BufRead, Read};
use std::sync::Once;
use unisono_dir::{Capability, CapabilityFileError, Place, looks_like_a_capability};

/// Maximum length of a line with a capability in bytes; the same as of a file with one.
const LINE_BYTES_MAX: u64 = 256;

/// Returns the capability that an argument is or names. The error contains nothing of it.
pub(crate) fn parse_capability(text: &str) -> Result<Capability, Problem> {
    read(text, &mut io::stdin().lock())
}

/// Returns what an argument names: the object of a capability, or that at a path. `./` begins a path that would otherwise
/// be something else.
pub(crate) fn target(text: &str, at: &At) -> Result<Place, Problem> {
    if names_capability(text) {
        return Ok(Place::of(parse_capability(text)?));
    }
    let path = text.strip_prefix("./").unwrap_or(text);
    Ok(Place { path: super::session::parse_path(path)?, capability: at.capability()? })
}

/// Returns the parts of `CAPABILITY=EXPECTED`. The name of a file may contain `=`: only one after which a capability begins
/// parts them.
pub(crate) fn split_expected(text: &str) -> (&str, Option<&str>) {
    let mut parts = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let digits = !text.starts_with(['@', '-']);
    match parts.find(|(_, expected)| digits || names_capability(expected)) {
        Some((capability, expected)) => (capability, Some(expected)),
        None => (text, None),
    }
}

/// Returns the capability of `--cap`, which takes a file with or without `@`, or `-`.
pub(crate) fn of_cap(file: &std::path::Path) -> Result<Capability, Problem> {
    match file.to_str() {
        Some(text) if text == "-" || text.starts_with('@') => parse_capability(text),
        _ => Ok(unisono_dir::read_capability(file)?),
    }
}

/// True for what [`parse_capability`] takes, and for digits that are not quite a capability.
fn names_capability(text: &str) -> bool {
    text == "-" || text.starts_with('@') || looks_like_a_capability(text)
}

fn read(text: &str, input: &mut impl BufRead) -> Result<Capability, Problem> {
    if text == "-" {
        return read_line(input);
    }
    if let Some(file) = text.strip_prefix('@') {
        return unisono_dir::read_capability(file).map_err(|error| match error {
            CapabilityFileError::Missing { .. } => Problem::usage(format!(
                "there is no file {}: @FILE names a file with a capability",
                quoted(file)
            )),
            CapabilityFileError::NotAFile => {
                Problem::usage("@ is followed by the name of a file, not a capability")
            }
            error => error.into(),
        });
    }
    let capability = text.parse().map_err(Problem::usage)?;
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tell(
            "every user of this machine can read the capability in this command line: write it to a file with mode 0600 \
             (@FILE), or to standard input (-)",
        );
    });
    Ok(capability)
}

/// Reads the next line, and no more: what follows may be another capability, or the content of a file.
fn read_line(input: &mut impl BufRead) -> Result<Capability, Problem> {
    let mut line = String::new();
    let read = input.take(LINE_BYTES_MAX).read_line(&mut line);
    let read = read
        .map_err(|error| Problem::usage(format!("cannot read a capability from standard input: {error}")))?;
    match read {
        0 => Err(Problem::usage("standard input ended where a capability was expected (-)")),
        _ => line.trim().parse().map_err(|reason| Problem::usage(format!("standard input: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_dir::{Check, ObjectNumber, Port};

    fn of(object: u64) -> Capability {
        Capability::of_owner(Port(7), ObjectNumber(object), Check::from_bits(1))
    }

    #[test]
    fn each_dash_takes_the_next_line_and_leaves_the_rest() {
        let text = format!("{}\n  {} \nthe content", of(1).reveal(), of(2).reveal());
        let mut input = text.as_bytes();
        assert_eq!(read("-", &mut input).unwrap(), of(1));
        assert_eq!(read("-", &mut input).unwrap(), of(2));
        assert_eq!(input, b"the content");
        assert!(read("-", &mut &b""[..]).is_err());
        assert!(read("-", &mut &[b'a'; 1 << 20][..]).is_err());
    }

    #[test]
    fn an_expected_capability_begins_after_an_equals_sign() {
        let digits = of(1).reveal();
        let both = format!("{digits}={digits}");
        for (text, parts) in [
            (&digits[..], (&digits[..], None)),
            (&both, (&digits, Some(&digits[..]))),
            ("@new", ("@new", None)),
            ("@new=@old", ("@new", Some("@old"))),
            ("@a=b=@c=d", ("@a=b", Some("@c=d"))),
            ("@a=b", ("@a=b", None)),
            ("@a=-", ("@a", Some("-"))),
            ("-=@old", ("-", Some("@old"))),
            ("12=34", ("12", Some("34"))),
        ] {
            assert_eq!(split_expected(text), parts, "{text}");
        }
    }
}
