//! The words that every part of Redoma shares: limits, profiles, isolation layers, results, sessions and their files.
//!
//! Nothing here does I/O. Values are parsed at the edge (a flag, a TOML file, a request) into these types and
//! never checked again inside: a [`Limits`] that exists is within its ranges.

pub mod audit;
pub mod cell;
pub mod file_name;
pub mod ids;
pub mod isolation;
pub mod limits;
pub mod name;
pub mod policy;
pub mod profile;
pub mod rates;
pub mod report;
pub mod session;
pub mod units;
pub mod verdict;

pub use audit::{
    AuditEvent, AuditKind, AuditPruning, AuditQuery, AuditRecord, AuditRecovery, AuditSettings, AuditSync,
    AuditedAction, AuditedArtifact, AuditedCode, AuditedEnd, AuditedFile, AuditedKey, AuditedServer,
    AuditedSession, AuditedStart, AuditedVerdict, Decision, KeptCode, KeptOutput, SegmentHeader,
    UnknownAuditKind, Who,
};
pub use cell::{Bundle, CellReport, KernelState, KernelStatus, Output};
pub use file_name::{BadFileName, FileName};
pub use ids::{ExecutionId, FileId, KeyId, NotAnId, SessionId};
pub use isolation::{IsolationReport, Layer, UnknownLayer};
pub use limits::{LimitError, LimitName, Limits, LimitsPatch};
pub use name::{BadName, MAX_NAME_BYTES, Name, one_line};
pub use policy::{Action, Class, PolicyMode, PolicyPatch, PolicySettings};
pub use profile::{Libraries, Network, Profile, ProfileAssignment, ProfilePatch, Retention};
pub use rates::{Allowance, AllowancePatch, Bound, Period, Rate, RateError, Rates, RatesPatch};
pub use report::{Captured, Ending, HarvestedFile, RunReport, SkippedFile, Usage, UsedOf};
pub use session::{Origin, Owner, Principal, Resource, ResourceKind, Role, Session, StoredFile};
pub use units::{ByteSize, Cores, Span, UnitError};
pub use verdict::{Finding, Verdict};
