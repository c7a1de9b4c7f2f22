//! What survives: sessions, the files in them, keys.
//!
//! Metadata and bytes are kept apart, each behind a trait of its own, so that another database or an object store can
//! take the place of `SQLite` and a folder. What holds whatever they are:
//!
//! - A file is acknowledged when its bytes are on disk, and then its metadata. Who is killed between the two leaves a file
//!   that nobody knows of, and a mark by which the next start finds it.
//! - A file is never changed. A new one of the same name is another version; programs see the newest.
//! - Nothing of a session in use is removed.
//!
//! | file | subject |
//! |---|---|
//! | `store.rs` | both together: the operations that everybody else uses |
//! | `metadata.rs` | what is asked of a database |
//! | `sqlite/` | the database of this host |
//! | `blobs.rs` | bytes: in a folder, written whole or not at all |
//! | `pace.rs` | how much CPU time the server spends on storing one owner's files |
//! | `audit/` | who did what, in an order that can't be changed unnoticed |
//! | `only.rs` | a file that one process at a time holds |
//! | `reserve.rs` | removals on a full disk |
//! | `key.rs` | secrets: made, shown once, stored as hashes |
//! | `random.rs` | ids |
//! | `clock.rs` | time that can't be turned back or forward |

pub mod audit;
mod blobs;
mod clock;
mod key;
mod metadata;
mod only;
mod pace;
mod random;
mod reserve;
mod sqlite;
mod store;
mod sync_order;

pub use audit::{Appended, Audit, AuditError};
pub use blobs::{BlobPath, Blobs, FolderBlobs, Incoming, Known, RemovalMark, Written};
pub use clock::Clock;
pub use key::{KeyRecord, NewKey, Secret};
pub use metadata::{
    Added, Beginning, Commit, Disk, ExecutionRecord, FailedLogin, FileRecord, MayGo, Metadata, NewExecution,
    NewFile, OwnerUsage, Quota, Refused, SessionChange, SessionQuery, Totals,
};
pub use only::OnlyOne;
pub use pace::Pace;
pub use random::{new_execution_id, new_session_id};
pub use sqlite::Sqlite;
pub use store::{FileDetails, InUse, NewSession, Outcome, Room, Store, Swept};

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("the database {}: {source}", path.display())]
    Open { path: PathBuf, source: rusqlite::Error },
    /// Written by a newer program: going on could harm it.
    #[error("the database {} is of a newer redoma (version {found}, this one knows {known}); use that one", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{}: {source}", path.display())]
    Files { path: PathBuf, source: io::Error },
    #[error("random numbers: {0}")]
    Random(io::Error),
    #[error("there is no such session")]
    NoSuchSession,
    /// A file that a quota has no room for, where all were to be stored or none.
    #[error("`{name}`: {reason}")]
    NoRoom { name: redoma_model::FileName, reason: String },
    #[error("the database holds something that is not valid: {0}")]
    Invalid(String),
    #[error("a change was lost with another one that went wrong; try again")]
    Lost,
}

impl StoreError {
    /// Whether there is no room left on the device.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Database(error) | Self::Open { source: error, .. } => {
                // The index of the log has a code of its own for it.
                let is_index = error
                    .sqlite_error()
                    .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE);
                is_index || error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            }
            Self::Files { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}
