//! Names of rows and columns, and paths of names.

use crate::codec::{Reader, Writer};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// Maximum length of a name in bytes: 255.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum number of names in a path: 256.
pub const PATH_NAMES_MAX: usize = 256;
/// Maximum length of a path in bytes, with a slash between two names: 4,096.
pub const PATH_BYTES_MAX: usize = 4096;

/// A name: 1 to 255 bytes of UTF-8 without `/` and control characters, and neither `.` nor `..`, which in other systems
/// are no names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

/// The text is no name or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotAName {
    /// A name has no character.
    #[error(
        "a name has at least one character; a path has one slash between two names, and none at its ends"
    )]
    Empty,
    /// A name is too long.
    #[error("a name has at most {NAME_BYTES_MAX} bytes, and this one has {bytes}")]
    Long {
        /// Length of the name in bytes.
        bytes: usize,
    },
    /// A character is not allowed.
    #[error("character {position} of a name is a control character or a slash; use others")]
    Character {
        /// Position of the first such character, from 1.
        position: usize,
    },
    /// The name is `.` or `..`.
    #[error("`.` and `..` are no names here: a path only leads down from its directory")]
    Dots,
    /// A path has too many names.
    #[error(
        "a path has at most {PATH_NAMES_MAX} names, and this one has {names}; name a directory further down"
    )]
    Names {
        /// Number of names.
        names: usize,
    },
    /// A path is too long.
    #[error(
        "a path has at most {PATH_BYTES_MAX} bytes, and this one has {bytes}; name a directory further down"
    )]
    Path {
        /// Length of the path in bytes.
        bytes: usize,
    },
}

impl Name {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.short(self.0.as_bytes());
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Name> {
        let bytes = from.short()?;
        core::str::from_utf8(&bytes).ok()?.parse().ok()
    }
}

impl FromStr for Name {
    type Err = NotAName;
    fn from_str(text: &str) -> Result<Name, NotAName> {
        let bytes = text.len();
        match text {
            "" => return Err(NotAName::Empty),
            "." | ".." => return Err(NotAName::Dots),
            _ if bytes > NAME_BYTES_MAX => return Err(NotAName::Long { bytes }),
            _ => {}
        }
        match text.chars().position(|character| character == '/' || character.is_control()) {
            Some(index) => Err(NotAName::Character { position: index + 1 }),
            None => Ok(Name(text.into())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path from a directory down: names with a slash between two. The empty path is that directory.
///
/// ```
/// use unisono_table::Path;
/// let path: Path = "home/ann".parse()?;
/// assert_eq!(path.to_string(), "home/ann");
/// assert!("".parse::<Path>()?.is_empty());
/// assert!("home//ann".parse::<Path>().is_err());
/// # Ok::<(), unisono_table::NotAName>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Name>);

impl From<Name> for Path {
    /// Returns the path of a row of the directory where it begins.
    fn from(name: Name) -> Path {
        Path(Vec::from([name]))
    }
}

impl Path {
    /// True if it is the path of the directory where it begins.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names, the first one first.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// Returns the path of the parent directory, and the last name; `None` for the empty path.
    pub(crate) fn split_last(&self) -> Option<(&[Name], &Name)> {
        self.0.split_last().map(|(last, parents)| (parents, last))
    }

    /// Returns the path of a row of the directory at this path.
    ///
    /// # Errors
    /// The path would be too long.
    pub fn join(&self, name: &Name) -> Result<Path, NotAName> {
        let mut names = self.0.clone();
        names.push(name.clone());
        Path::from_names(names)
    }

    fn from_names(names: Vec<Name>) -> Result<Path, NotAName> {
        let bytes = names.iter().map(|name| name.0.len() + 1).sum::<usize>().saturating_sub(1);
        match names.len() {
            names if names > PATH_NAMES_MAX => Err(NotAName::Names { names }),
            _ if bytes > PATH_BYTES_MAX => Err(NotAName::Path { bytes }),
            _ => Ok(Path(names)),
        }
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u16(self.0.len() as u16);
        self.0.iter().for_each(|name| name.write(out));
    }

    /// Returns the number of names of the path that follows, without taking it.
    pub(crate) fn names_ahead(from: &Reader) -> Option<usize> {
        from.u16_ahead().map(usize::from)
    }

    /// Takes a path without reading its names, and returns an empty one.
    pub(crate) fn pass_over(from: &mut Reader) -> Option<Path> {
        let count = usize::from(from.u16()?);
        let passed = (0..count.min(PATH_NAMES_MAX + 1)).map(|_| from.pass_over_short());
        passed.collect::<Option<()>>().filter(|()| count <= PATH_NAMES_MAX).map(|()| Path::default())
    }

    pub(crate) fn read(from: &mut Reader) -> Option<Path> {
        let count = usize::from(from.u16()?);
        let names = from.many(count.min(PATH_NAMES_MAX + 1), Name::read)?;
        Path::from_names(names).ok()
    }
}

impl FromStr for Path {
    type Err = NotAName;
    fn from_str(text: &str) -> Result<Path, NotAName> {
        if text.is_empty() {
            return Ok(Path::default());
        }
        let names = text.split('/').count();
        if names > PATH_NAMES_MAX {
            return Err(NotAName::Names { names });
        }
        Path::from_names(text.split('/').map(str::parse).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            name.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn names_are_what_their_rule_says() {
        for good in ["a", "läßt", "...", "a b", "~", &"x".repeat(255)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        let long = "x".repeat(256);
        for (bad, reason) in [
            ("", NotAName::Empty),
            (".", NotAName::Dots),
            ("..", NotAName::Dots),
            ("ab/c", NotAName::Character { position: 3 }),
            ("ä\u{1}", NotAName::Character { position: 2 }),
            ("\u{85}", NotAName::Character { position: 1 }),
            (&long, NotAName::Long { bytes: 256 }),
        ] {
            assert_eq!(bad.parse::<Name>(), Err(reason), "{bad:?}");
        }
    }

    #[test]
    fn paths_are_bounded() {
        let of = |names: usize| vec!["y"; names].join("/");
        assert_eq!(of(256).parse::<Path>().unwrap().names().len(), 256);
        assert_eq!(of(4096).parse::<Path>(), Err(NotAName::Names { names: 4096 }));
        let wide = vec!["x".repeat(255); 17].join("/");
        assert_eq!(wide.parse::<Path>(), Err(NotAName::Path { bytes: 17 * 256 - 1 }));
        for bad in ["/", "/a", "a/", "a//b"] {
            assert_eq!(bad.parse::<Path>(), Err(NotAName::Empty), "{bad}");
        }
        assert_eq!(vec!["x".repeat(240); 17].join("/").parse::<Path>().unwrap().names().len(), 17);
        assert_eq!("a/b".parse::<Path>().unwrap().to_string(), "a/b");
        assert_eq!("a".parse::<Path>().unwrap().join(&"b".parse().unwrap()), "a/b".parse());
    }
}
