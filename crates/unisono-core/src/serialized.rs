//! What serde derives do not do well: names are checked, qualities have names, and random numbers are digits in text.
//!
//! A uid has 64 random bits and an instance 128. Many readers of JSON round integers above 2^53, and TOML has none above
//! 2^63. So text formats have the hexadecimal digits that people see, and binary formats have the number.

use crate::identity::Name;
use crate::quality::Quality;
use core::fmt;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines a module for `serde(with)`: a number that is a fixed number of hexadecimal digits in text formats.
macro_rules! digits {
    ($name:ident, $number:ident, $digits:literal) => {
        pub(crate) mod $name {
            use super::*;

            pub(crate) fn serialize<S: Serializer>(
                number: &$number,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(&format_args!("{number:0width$x}", width = $digits))
                } else {
                    number.serialize(serializer)
                }
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$number, D::Error> {
                if deserializer.is_human_readable() {
                    deserializer.deserialize_str(Digits)
                } else {
                    $number::deserialize(deserializer)
                }
            }

            struct Digits;

            impl Visitor<'_> for Digits {
                type Value = $number;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, "{} hexadecimal digits", $digits)
                }

                fn visit_str<E: Error>(self, text: &str) -> Result<$number, E> {
                    // `from_str_radix` accepts a sign too.
                    let fits = text.len() == $digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                    let number = fits.then(|| $number::from_str_radix(text, 16).ok()).flatten();
                    number.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
                }
            }
        }
    };
}

digits!(digits_64, u64, 16);
digits!(digits_128, u128, 32);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Refuses a text that is not a name. An empty text is the default name: that of a member whose name is not known.
impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

impl Serialize for Quality {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quality {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quality, D::Error> {
        deserializer.deserialize_str(QualityText)
    }
}

struct QualityText;

impl Visitor<'_> for QualityText {
    type Value = Quality;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quality")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quality, E> {
        text.parse().map_err(E::custom)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Name, E> {
        if text.is_empty() { Ok(Name::default()) } else { text.parse().map_err(E::custom) }
    }
}
