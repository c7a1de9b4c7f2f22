//! What counts as running into a wall. Most of it is told by the report of a run; what only the kernel sees comes from its
//! audit log, where that can be heard (`redoma_jail::violations`).

use redoma_model::{LimitName, RunReport};

use crate::harvest;

const SIGSYS: i32 = 31;

/// A kind of it. What a program may do in all innocence (a link in its workspace, an allocation too large) is told apart
/// from what none does by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The run was ended by a system call of another architecture.
    Sigsys,
    /// The sandbox's memory was used up, and the kernel killed for it.
    MemoryLimit,
    /// A process or thread too many was asked for.
    PidsLimit,
    DiskLimit,
    FilesLimit,
    /// Something was said in a frame that makes no sense, or in another's name.
    RefusedFrame,
    /// A symbolic or hard link was left where files are collected.
    Link,
    /// A device was.
    Device,
    /// A file that claims to be larger than it can be was.
    SparseFile,
    /// A program called more tools at once than any honest one.
    ToolFlood,
}

impl Violation {
    pub(super) const ALL: [Self; 10] = [
        Self::Sigsys,
        Self::MemoryLimit,
        Self::PidsLimit,
        Self::DiskLimit,
        Self::FilesLimit,
        Self::RefusedFrame,
        Self::Link,
        Self::Device,
        Self::SparseFile,
        Self::ToolFlood,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sigsys => "sigsys",
            Self::MemoryLimit => "memory_limit",
            Self::PidsLimit => "pids_limit",
            Self::DiskLimit => "disk_limit",
            Self::FilesLimit => "files_limit",
            Self::RefusedFrame => "refused_frame",
            Self::Link => "link",
            Self::Device => "device",
            Self::SparseFile => "sparse_file",
            Self::ToolFlood => "tool_flood",
        }
    }

    /// What a report tells. One of each kind at most: a run with a thousand links is one run.
    pub(super) fn of_report(report: &RunReport) -> impl Iterator<Item = Self> {
        let left = |reasons: &[&str]| {
            report.skipped_files.iter().any(|skipped| reasons.contains(&skipped.reason.as_str()))
        };
        let hit = |limit| report.limits_hit.contains(&limit);
        let seen = [
            (Self::Sigsys, report.signal_number == Some(SIGSYS)),
            (Self::MemoryLimit, hit(LimitName::Memory)),
            (Self::PidsLimit, hit(LimitName::Pids)),
            (Self::DiskLimit, hit(LimitName::Disk)),
            (Self::FilesLimit, hit(LimitName::Files)),
            (Self::Link, left(&[harvest::LINK, harvest::HARD_LINK])),
            (Self::Device, left(&[harvest::DEVICE])),
            (Self::SparseFile, left(&[harvest::SPARSE])),
            (Self::ToolFlood, report.too_many_tool_calls),
        ];
        seen.into_iter().filter_map(|(kind, is_so)| is_so.then_some(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_in_a_place_of_its_own() {
        for (index, kind) in Violation::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{}", kind.name());
        }
    }
}
