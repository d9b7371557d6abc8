//! Files are whole: what is read of a file is what it was created with, or the file is not there; and once it is deleted,
//! nothing is read of it any more. The checker knows no numbers and no model: contents differ from file to file.

use super::Map;
use super::at_end::Promise;
use super::history::{History, Replied};
use crate::record::Mode;
use bytes::Bytes;
use unisono_core::Time;
use unisono_table::{Answer, Command, ObjectNumber, Query, Request};

/// The promise `files_whole`.
#[derive(Debug, Default)]
pub(super) struct FilesWhole;

/// What is known of the files of a run.
#[derive(Debug, Default)]
struct Files {
    /// All contents, and when the command that creates each began.
    contents: Vec<(Bytes, Time)>,
    /// The content of each object whose creation was answered, by its check: a service that began anew may give its number
    /// again.
    objects: Map<(ObjectNumber, u128), Bytes>,
    /// End of the first successful deletion of each object.
    deleted: Map<ObjectNumber, Time>,
}

impl Files {
    fn of(history: &History) -> Files {
        let mut files = Files::default();
        for operation in history.operations() {
            if let Some(Request::Command(Command::CreateFile { content, .. })) =
                Request::decode(&operation.request)
            {
                files.contents.push((content, operation.begin));
            }
        }
        for replied in history.replied() {
            match (&replied.request, &replied.reply.result) {
                (
                    Some(Request::Command(Command::CreateFile { content, .. })),
                    Ok(Answer::Capability(capability)),
                ) => {
                    let object = (capability.object, capability.check.to_bits());
                    files.objects.insert(object, content.clone());
                }
                (Some(Request::Command(Command::DeleteFile { place })), Ok(Answer::Done))
                    if place.path.is_empty() =>
                {
                    files.deleted.entry(place.capability.object).or_insert(replied.end);
                }
                _ => {}
            }
        }
        files
    }

    /// Says what is wrong with what was read.
    fn fault(&self, replied: &Replied<'_>, offset: u64, size: u64, bytes: &[u8]) -> Option<String> {
        let is_part = |content: &Bytes| {
            let begin = content.len().min(offset as usize);
            content.len() as u64 == size && content[begin..].starts_with(bytes)
        };
        let known = self.contents.iter().any(|(content, begun)| *begun <= replied.end && is_part(content));
        (!known).then(|| "no file was created with this content".to_string())
    }
}

impl Promise for FilesWhole {
    const NAME: &'static str = "files_whole";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        let files = Files::of(history);
        for replied in history.replied() {
            let (place, offset, size, bytes) = match (replied.query(), &replied.reply.result) {
                (Some(Query::Read { place, offset, .. }), Ok(Answer::Content { size, bytes })) => {
                    (place, *offset, *size, bytes.clone())
                }
                (Some(Query::Size { place }), Ok(Answer::Size(size))) => {
                    (place, u64::MAX, *size, Bytes::new())
                }
                _ => continue,
            };
            *checked += 1;
            let mut fault = files.fault(&replied, offset, size, &bytes);
            let of_owner = (place.capability.object, place.capability.check.to_bits());
            if let Some(content) = files.objects.get(&of_owner).filter(|_| place.path.is_empty()) {
                let begin = content.len().min(offset as usize);
                if content.len() as u64 != size || !content[begin..].starts_with(&bytes) {
                    fault = Some(format!("it was created with {content:?}"));
                }
            }
            let deleted = files.deleted.get(&place.capability.object).filter(|_| place.path.is_empty());
            let is_late = deleted.is_some_and(|at| *at < replied.operation.begin);
            if is_late && replied.operation.mode != Mode::LocalRead && !history.began_anew() {
                fault = Some("it had been deleted".into());
            }
            if let Some(fault) = fault {
                return Err(format!("{:?} got {:?}: {fault}", replied.request, replied.reply));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::Fixture;
    use super::*;
    use unisono_table::{Check, Place, Refusal};

    const CONTENT: Bytes = Bytes::from_static(b"all of it");

    fn with_file() -> (Fixture, Place) {
        let mut fixture = Fixture::founded();
        let place = fixture.place("file");
        let (masks, secret) = (None, Check::from_bits(5));
        let reply = fixture.command(Command::CreateFile { place, masks, secret, content: CONTENT });
        let Ok(Answer::Capability(file)) = reply.result else { panic!("{reply:?}") };
        (fixture, Place::of(file))
    }

    fn read(place: &Place) -> Query {
        Query::Read { place: place.clone(), offset: 4, length: 2 }
    }

    fn content(size: u64, bytes: &'static [u8]) -> Result<Answer, Refusal> {
        Ok(Answer::Content { size, bytes: Bytes::from_static(bytes) })
    }

    #[test]
    fn accepts_what_the_file_was_created_with_and_its_absence() {
        let (mut fixture, file) = with_file();
        assert_eq!(fixture.query(read(&file)), content(9, b"of"));
        _ = fixture.query(Query::Size { place: file.clone() });
        fixture.command(Command::DeleteFile { place: file.clone() });
        assert!(fixture.query(read(&file)).is_err());
        fixture.good(AtEnd::<FilesWhole>::default());
    }

    #[test]
    fn rejects_another_content_another_length_and_a_deleted_file() {
        for wrong in [content(9, b"OF"), content(8, b"of")] {
            let (mut fixture, file) = with_file();
            fixture.query_with(read(&file), wrong);
            fixture.bad(AtEnd::<FilesWhole>::default());
        }
        let (mut fixture, file) = with_file();
        fixture.command(Command::DeleteFile { place: file.clone() });
        fixture.query_with(read(&file), content(9, b"of"));
        fixture.bad(AtEnd::<FilesWhole>::default());
    }
}
