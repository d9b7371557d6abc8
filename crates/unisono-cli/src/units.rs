//! Parses durations and sizes such as `150ms`, `2s` and `4MiB`. A number without a unit has the default unit of its
//! option.

use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use unisono::SlowMember;

/// Range of options in seconds: 1 ms to 1 day.
const SECONDS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);
/// Units of sizes, in bytes. Those with an `i` are powers of 1024, as in IEC 80000; the others are powers of 1000.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// What an option in milliseconds takes, for error messages.
const MILLISECONDS: &str = "a duration such as 150ms or 2s, or a whole number of milliseconds, 0 or more";

/// Parses a duration. A number without a unit counts milliseconds.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map(Duration::from_millis).ok();
    number.or_else(|| with_unit(text)).ok_or_else(|| MILLISECONDS.into())
}

/// Parses a duration from 1 ms to 1 day. A number without a unit counts seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let duration = number.or_else(|| with_unit(text)).filter(|duration| SECONDS.contains(duration));
    duration
        .ok_or_else(|| "a duration such as 150ms or 2s, or a number of seconds, from 0.001 to 86400".into())
}

/// Parses what happens to a slow member: `wait`, or a duration. A number without a unit counts seconds.
pub(crate) fn slow_member(text: &str) -> Result<SlowMember, String> {
    match text {
        "wait" => Ok(SlowMember::Wait),
        time => seconds(time).map(SlowMember::ExcludeAfter).map_err(|error| format!("wait, or {error}")),
    }
}

/// Returns a parser of whole numbers of seconds in this range, written as a number or as a duration.
pub(crate) fn whole_seconds(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    whole("seconds", "5s", Duration::from_secs(1), range)
}

/// Returns a parser of whole numbers of minutes in this range, written as a number or as a duration.
pub(crate) fn whole_minutes(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    whole("minutes", "90m or 2h", Duration::from_secs(60), range)
}

fn whole(
    units: &'static str,
    example: &'static str,
    unit: Duration,
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let in_units = |duration: Duration| {
            let whole = duration.as_nanos().is_multiple_of(unit.as_nanos());
            whole.then(|| duration.as_secs() / unit.as_secs())
        };
        let number = text.parse().ok().or_else(|| with_unit(text).and_then(in_units));
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            format!("a duration such as {example}, or a whole number of {units}, from {from} to {to}")
        })
    }
}

/// Returns a parser of sizes in this range, written with or without a unit.
pub(crate) fn bytes(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        size(text).filter(|bytes| range.contains(bytes)).ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            format!("a size such as 512, 4KiB or 1MB, from {from} to {to} bytes")
        })
    }
}

/// Parses a duration in which every number has a unit. Refuses signs and numbers without a unit.
fn with_unit(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|_| text.ends_with(char::is_alphabetic))
}

/// Parses a whole number of bytes or of a unit. Case does not matter: no two units differ in case only.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim_start() {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A duration in the settings file: a whole number of milliseconds, or a text with units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Milliseconds(pub(crate) Duration);

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Milliseconds, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl de::Visitor<'_> for Reader {
    type Value = Milliseconds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MILLISECONDS)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Milliseconds, E> {
        let number = u64::try_from(number);
        number
            .map_err(|_| E::invalid_value(de::Unexpected::Other("a number below 0"), &self))
            .and_then(|n| self.visit_u64(n))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Milliseconds, E> {
        Ok(Milliseconds(Duration::from_millis(number)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Milliseconds, E> {
        let duration = milliseconds(text);
        duration.map(Milliseconds).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_has_the_unit_of_its_option() {
        assert_eq!(milliseconds("150"), Ok(Duration::from_millis(150)));
        assert_eq!(milliseconds("0"), Ok(Duration::ZERO));
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(slow_member("2"), Ok(SlowMember::ExcludeAfter(Duration::from_secs(2))));
        assert_eq!(slow_member("500ms"), Ok(SlowMember::ExcludeAfter(Duration::from_millis(500))));
        assert_eq!(slow_member("wait"), Ok(SlowMember::Wait));
        assert!(slow_member("0").is_err() && slow_member("for ever").is_err());
        assert_eq!(whole_seconds(1..=9)("5"), Ok(5));
        assert_eq!(whole_minutes(1..=9)("5"), Ok(5));
        assert_eq!(bytes(0..=9)("0"), Ok(0));
    }

    #[test]
    fn durations_and_sizes_have_units() {
        for read in [milliseconds, seconds] {
            assert_eq!(read("150ms"), Ok(Duration::from_millis(150)));
            assert_eq!(read("2s"), Ok(Duration::from_secs(2)));
            assert_eq!(read("1m 30s"), Ok(Duration::from_secs(90)));
        }
        assert_eq!(whole_seconds(1..=3600)("1m"), Ok(60));
        assert_eq!(whole_minutes(1..=3600)("2h"), Ok(120));
        for (text, size) in [("4MiB", 4 << 20), ("4 mib", 4 << 20), ("1kB", 1000), ("1KiB", 1024), ("7B", 7)]
        {
            assert_eq!(bytes(0..=u64::MAX)(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn invalid_durations_and_sizes_are_refused() {
        for text in ["", "-1", "-1s", "soon", "1.5", "3 parsecs", "1s2", "s", "99999999999999999999"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
        for text in ["", "-1", "0", "0s", "2d", "nan", "inf", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["", "1500ms", "0", "2h", "1.5"] {
            assert!(whole_seconds(1..=3600)(text).is_err(), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "4M", "4MiBB", "20000000000GiB", "11"] {
            assert!(bytes(0..=10)(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_has_numbers_and_texts() {
        #[derive(Deserialize)]
        struct File {
            patience: Milliseconds,
        }
        let read =
            |value: &str| toml::from_str::<File>(&format!("patience = {value}")).map(|file| file.patience.0);
        assert_eq!(read("150").unwrap(), Duration::from_millis(150));
        assert_eq!(read("'2s'").unwrap(), Duration::from_secs(2));
        for value in ["-1", "'soon'", "1.5", "true"] {
            let error = read(value).unwrap_err().to_string();
            assert!(error.contains("a duration such as 150ms or 2s"), "{value}: {error}");
        }
    }
}
