//! `Debug` of errors as a sentence, so that `fn main() -> Result<(), E>` prints what a person can read.

use core::error::Error;
use core::fmt::{self, Write};

/// Writes `name: sentence`, and the error's sources after further colons. Control characters are escaped: a sentence
/// may quote bytes from the network.
#[doc(hidden)]
pub fn write_sentence(
    f: &mut fmt::Formatter<'_>,
    name: fmt::Arguments<'_>,
    error: &dyn Error,
) -> fmt::Result {
    let mut visible = Visible(f);
    write!(visible, "{name}: {error}")?;
    let sources = core::iter::successors(error.source(), |&source| source.source());
    for source in sources {
        write!(visible, ": {source}")?;
    }
    Ok(())
}

/// Escapes control characters.
struct Visible<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Visible<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let visible = part.trim_end_matches(char::is_control);
            self.0.write_str(visible)?;
            write!(self.0, "{}", part[visible.len()..].escape_debug())?;
        }
        Ok(())
    }
}

/// Implements `Debug` for error types: the variant's name (a struct's type name), then the sentence of `Display`. After
/// `of` come variants that contain another error and add nothing to its sentence: their name, then the `Debug` of that
/// error. After `by` come variants that contain a reason and have a sentence for it: their name, the `Debug` of the
/// reason, then the sentence.
///
/// ```text
/// TooLarge: the message has 9 bytes; this group takes at most 8
/// Refused: WindowFull: the send window is full; try again when messages under way have been ordered
/// Join: TimedOut: the group was found but did not admit this process in time: try again
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_sentence {
    ($error:ident) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::write_sentence(f, format_args!("{}", stringify!($error)), self)
            }
        }
    };
    ($error:ident { $($plain:ident),* $(; of $($wrapper:ident),+)? $(; by $($reasoned:ident),+)? }) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $($error::$plain { .. } => {
                        $crate::write_sentence(f, format_args!("{}", stringify!($plain)), self)
                    })*
                    $($($error::$wrapper(error) => write!(f, "{}: {error:?}", stringify!($wrapper)),)+)?
                    $($($error::$reasoned(reason) => {
                        let name = stringify!($reasoned);
                        $crate::write_sentence(f, format_args!("{name}: {reason:?}"), self)
                    })+)?
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::error::{ConfigError, SendError};
    use crate::event::Suspicion;
    use alloc::format;
    use thiserror::Error;

    #[derive(Error)]
    enum Sample {
        #[error("no line is {0:?}, and none contains {0}")]
        Quotes(&'static str),
        #[error("the member is suspected")]
        Suspected(Suspicion),
        #[error("nothing was sent")]
        Caused(#[source] SendError),
        #[error(transparent)]
        Refused(#[from] SendError),
    }

    debug_as_sentence!(Sample { Quotes, Caused; of Refused; by Suspected });

    #[test]
    fn an_error_is_printed_as_its_variant_and_its_sentence() {
        let large = SendError::TooLarge { bytes: 9, max: 8 };
        let sentence = "the message has 9 bytes; this group takes at most 8";
        assert_eq!(format!("{large:?}"), format!("TooLarge: {sentence}"));
        assert_eq!(format!("{:?}", Sample::from(large)), format!("Refused: TooLarge: {sentence}"));
        assert_eq!(format!("{:?}", Sample::Caused(large)), format!("Caused: nothing was sent: {sentence}"));
        let suspected = Sample::Suspected(Suspicion::Silent);
        assert_eq!(format!("{suspected:?}"), "Suspected: Silent: the member is suspected");
        let config = ConfigError { parameter: "window", value: 0, allowed: "1 to 65,536" };
        assert_eq!(format!("{config:?}"), "ConfigError: window is 0; it must be 1 to 65,536");
    }

    #[test]
    fn control_characters_of_a_sentence_are_escaped() {
        let quotes = Sample::Quotes("\u{1b}[2Jü\n\0");
        assert_eq!(
            format!("{quotes:?}"),
            r#"Quotes: no line is "\u{1b}[2Jü\n\0", and none contains \u{1b}[2Jü\n\0"#
        );
    }
}
