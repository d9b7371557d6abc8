//! Saves a backup of the whole service into a file, while it goes on.

use super::{Client, ClientError};
use crate::archive::Writer;
use crate::server::{Begun, PieceQuestion, begin_question};
use bytes::Bytes;
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;
use unisono::rpc::{CallFailure, Port};
use unisono_table::{Capability, Reply};

/// Maximum time for a piece to arrive, at most 1 MiB, whatever the size of the backup. A server that dies is noticed earlier; this
/// is for slow paths. It is less than the time for which a server keeps a backup that no client asks for.
const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// Number of times that a backup is begun again because its server was lost.
const TRIES_MAX: u32 = 5;

/// A backup that was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Number of the last command in it.
    pub number: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Why a backup was not saved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The service did not give it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// Each server that gave it was lost meanwhile.
    #[error("each of {TRIES_MAX} servers that gave the backup was lost before its end; try again")]
    Lost,
}

impl Client {
    /// Saves the state of the service. `owner` is the root's capability with all rights. `open` returns what to write to,
    /// again for each try; `progress` learns how many bytes of how many are written.
    pub fn save<W: io::Write>(
        &self,
        owner: Capability,
        mut open: impl FnMut() -> io::Result<W>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Saved, SaveError> {
        let (_, port) = self.ports(owner.port)?;
        for _ in 0..TRIES_MAX {
            let begun = self.begin_save(port, owner)?;
            let mut out = Writer::new(open()?);
            if self.fetch(port, owner, begun, &mut out, &mut progress)? {
                out.end()?;
                return Ok(Saved { number: begun.number, bytes: begun.bytes + 32 });
            }
        }
        Err(SaveError::Lost)
    }

    fn begin_save(&self, port: Port, owner: Capability) -> Result<Begun, ClientError> {
        let started = Instant::now();
        loop {
            let answer =
                self.calls.start(port, begin_question(owner), self.within).map_err(ClientError::NotSent)?;
            match answer.wait() {
                Ok(answer) => return begun(&answer),
                Err(CallFailure::OtherInstance) => return Err(ClientError::OtherInstance),
                Err(_) => {}
            }
            // The server does not serve at present, or none answers: this waits for one, or says why there is none.
            self.run(&crate::operation::files(owner, Default::default()))?;
            if started.elapsed() > self.within {
                return Err(ClientError::Late { may_have_happened: false });
            }
        }
    }

    /// Writes all pieces; false if the server that keeps them is lost.
    fn fetch<W: io::Write>(
        &self,
        port: Port,
        owner: Capability,
        begun: Begun,
        out: &mut Writer<W>,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<bool, SaveError> {
        let mut offset = 0;
        while offset < begun.bytes {
            let question = PieceQuestion { owner, id: begun.id, offset };
            let piece = self.calls.call_at(port, begun.at, question.encode(), PIECE_WITHIN);
            let piece: Bytes = match piece {
                Ok(piece) if !piece.is_empty() => piece,
                _ => return Ok(false),
            };
            out.write(&piece)?;
            offset += piece.len() as u64;
            progress(offset, begun.bytes);
        }
        Ok(true)
    }
}

/// Returns what a server said to an owner.
fn begun(answer: &Bytes) -> Result<Begun, ClientError> {
    match (Begun::decode(answer), Reply::decode(answer)) {
        (Some(begun), _) => Ok(begun),
        (None, Some(Reply { result: Err(refusal), .. })) => Err(ClientError::Refused(refusal)),
        _ => Err(ClientError::Unreadable),
    }
}
