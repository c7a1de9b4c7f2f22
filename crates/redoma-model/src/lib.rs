//! The words that every part of Redoma shares: limits, profiles, isolation layers, results, sessions and their files.
//!
//! Nothing here does I/O. Values are parsed at the edge (a flag, a TOML file, a request) into these types and
//! never checked again inside: a [`Limits`] that exists is within its ranges.

pub mod cell;
pub mod file_name;
pub mod ids;
pub mod isolation;
pub mod limits;
pub mod profile;
pub mod report;
pub mod session;
pub mod units;

pub use cell::{Bundle, CellReport, KernelState, KernelStatus, Output};
pub use file_name::{BadFileName, FileName};
pub use ids::{ExecutionId, FileId, KeyId, NotAnId, SessionId};
pub use isolation::{IsolationReport, Layer, UnknownLayer};
pub use limits::{LimitError, LimitName, Limits, LimitsPatch};
pub use profile::{Profile, ProfilePatch, Retention};
pub use report::{Captured, Ending, HarvestedFile, RunReport, SkippedFile, Usage, UsedOf};
pub use session::{Origin, Owner, Principal, Resource, ResourceKind, Role, Session, StoredFile};
pub use units::{ByteSize, Cores, Span, UnitError};
