//! Reading programs before they run, in processes that have given up everything but memory (`redoma_jail::recluse`): the
//! texts are hostile, and so parsers never see them in the process that has rights.
//!
//! A few readers wait; each reads one text at a time and says what it found. One that takes too long, dies or talks nonsense
//! is ended, and what it was given counts as something that could not be read. One that can't be started at all is an error:
//! nothing runs unread.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | who reads next |
//! | `process.rs` | one of them, from the outside |
//! | `inside.rs` | and from the inside |

mod inside;
mod process;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redoma_model::Owner;
use redoma_policy::facts::{Fact, Language, Opaque, Position, What, Why};

use crate::request::RunError;
use crate::supervise::Cancel;
use crate::turns::{Concurrency, Turns};

pub use inside::be_reader;
use process::{Reader, Trouble};

/// What a reader is called: how it is started, and what `ps` shows.
pub const NAME: &str = "redoma-reader";

/// CPU time that a reader may use for one text; a text of ordinary length takes some milliseconds.
const MAX_CPU: Duration = Duration::from_secs(5);
/// Maximum time for a text on a busy host, where a reader may get little CPU.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// A reader is replaced after so many texts, and after one that is so long: it keeps the memory that it took.
const MOST_TEXTS: u32 = 10_000;
const LONG: usize = 512 << 10;

/// Those who read.
#[derive(Debug)]
pub struct Readers {
    program: PathBuf,
    /// Fair between owners: one with many long texts does not keep others from having theirs read.
    turns: Turns,
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    /// `program` is this one, at a path that stays when it is replaced on disk: `/proc/self/exe`.
    pub fn new(program: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // One more than would be busy, so that nobody who has all the others keeps somebody else waiting.
        let turns = Turns::new(Concurrency { running: cores.max(2) + 2, ..Concurrency::default() });
        Self { program, turns, idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a program does, as far as its text tells.
    pub fn read(
        &self,
        owner: &Owner,
        language: Language,
        code: &str,
        cancel: &Cancel,
    ) -> Result<Vec<Fact>, RunError> {
        if code.len() > redoma_policy::nested::MAX_BYTES {
            return Ok(vec![unread(language, Why::TooDeep)]);
        }
        let _turn = self.turns.wait(owner, cancel)?;
        // One that waited may have died meanwhile, which is not the text's doing; that a new one does is.
        for attempt in 0..2 {
            let waiting = if attempt == 0 { self.idle().pop() } else { None };
            let mut reader = match waiting {
                Some(reader) => reader,
                None => Reader::start(&self.program, READ_TIMEOUT).map_err(RunError::Reader)?,
            };
            match reader.read(language, code, READ_TIMEOUT) {
                Ok(facts) => {
                    if reader.texts() < MOST_TEXTS && code.len() < LONG {
                        self.idle().push(reader);
                    }
                    return Ok(facts);
                }
                Err(Trouble::Died) => {}
                Err(Trouble::Unread(why)) => return Ok(vec![unread(language, why)]),
            }
        }
        Ok(vec![unread(language, Why::NotParsed)])
    }
}

/// What there is to say of a text that a reader did not survive.
fn unread(language: Language, why: Why) -> Fact {
    let what = What::Opaque(Opaque { by: "the reader".to_owned(), why });
    Fact { what, at: Position { line: 1, column: 1 }, language, depth: 0 }
}
