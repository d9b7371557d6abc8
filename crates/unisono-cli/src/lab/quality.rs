//! The quality of a lab's network: its rate, and the part of the datagrams that it loses.

use std::fmt;
use std::str::FromStr;

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(u64);

impl Rate {
    /// Minimum rate: below 64 kbit/s a join does not get through in time.
    const BITS_MIN: u64 = 64_000;
    const UNITS: [(&str, u64); 4] =
        [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];

    /// Returns bits per second.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns bytes per millisecond.
    pub(crate) fn bytes_per_ms(self) -> u64 {
        self.0 / 8000
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let bits = Rate::UNITS.iter().find_map(|(unit, factor)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*factor)
        });
        match bits {
            Some(bits) if bits >= Rate::BITS_MIN => Ok(Rate(bits)),
            Some(_) => Err("the rate must be at least 64kbit".into()),
            None => Err("a rate is a whole number with a unit, as in 10mbit or 512kbit".into()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) =
            Rate::UNITS.iter().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(&("bit", 1));
        write!(to, "{}{unit}", self.0 / factor)
    }
}

/// The part of the datagrams that is lost at random, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loss(f64);

impl Loss {
    /// Returns the loss as a probability from 0 to 1.
    pub(crate) fn probability(self) -> f64 {
        self.0 / 100.0
    }
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Loss, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(Loss)
            .ok_or_else(|| "a loss is a percentage, as in 1% or 0.5%".into())
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_and_printed_alike() {
        for (text, bits) in [("10mbit", 10_000_000), ("512kbit", 512_000), ("1gbit", 1_000_000_000)] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.bits(), rate.to_string().as_str()), (bits, text));
        }
        assert_eq!("10000kbit".parse::<Rate>().unwrap().to_string(), "10mbit");
        for bad in ["10", "mbit", "-1mbit", "1.5mbit", "99999999999999999gbit", "10 mbit", "9kbit"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_loss_is_a_percentage() {
        let loss: Loss = "0.5%".parse().unwrap();
        assert_eq!((loss.probability(), loss.to_string().as_str()), (0.005, "0.5%"));
        for bad in ["1", "%", "101%", "-1%", "NaN%"] {
            assert!(bad.parse::<Loss>().is_err(), "{bad}");
        }
    }
}
