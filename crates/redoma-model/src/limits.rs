//! What one execution may use. A [`Limits`] that exists is complete and within its ranges.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{ByteSize, Cores, Span};

/// Which limit: in results (`limit`, `limits_hit`), in errors, in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    Wall,
    CpuTime,
    Cpus,
    Memory,
    Swap,
    Pids,
    Disk,
    Files,
    Output,
    Nofile,
    Io,
}

impl LimitName {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::CpuTime => "cpu_time",
            Self::Cpus => "cpus",
            Self::Memory => "memory",
            Self::Swap => "swap",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Files => "files",
            Self::Output => "output",
            Self::Nofile => "nofile",
            Self::Io => "io",
        }
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit `{name}` = {value} is out of range; it goes from {least} to {most}")]
pub struct LimitError {
    pub name: LimitName,
    pub value: String,
    pub least: String,
    pub most: String,
}

/// The limits in force for one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// From the program's start to its end.
    pub wall: Span,
    /// User plus system time of the whole process tree.
    pub cpu_time: Span,
    /// How many cores' worth of time per second.
    pub cpus: Cores,
    /// Everything the sandbox holds in memory: its processes, and its files, which live in memory too.
    pub memory: ByteSize,
    /// Swap on top of `memory`.
    pub swap: ByteSize,
    /// Processes and threads at one time.
    pub pids: u64,
    /// Bytes in all the files of the sandbox together: workspace, `/tmp`, home, `/dev/shm`.
    pub disk: ByteSize,
    /// Files and folders in the sandbox.
    pub files: u64,
    /// Bytes kept of stdout, and as many of stderr: the first half and the last half.
    pub output: ByteSize,
    /// Open files per process.
    pub nofile: u64,
    /// Bytes per second read from the disk under the runtime; unlimited where nothing is said.
    pub io: Option<ByteSize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Span::secs(30),
            cpu_time: Span::secs(30),
            cpus: Cores::whole(2),
            memory: ByteSize::gib(1),
            swap: ByteSize(0),
            pids: 128,
            disk: ByteSize::mib(256),
            files: 10_000,
            output: ByteSize::mib(1),
            nofile: 1024,
            io: None,
        }
    }
}

/// Some limits, to lay over others: the flags over the profile over the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsPatch {
    pub wall: Option<Span>,
    pub cpu_time: Option<Span>,
    pub cpus: Option<Cores>,
    pub memory: Option<ByteSize>,
    pub swap: Option<ByteSize>,
    pub pids: Option<u64>,
    pub disk: Option<ByteSize>,
    pub files: Option<u64>,
    pub output: Option<ByteSize>,
    pub nofile: Option<u64>,
    pub io: Option<ByteSize>,
}

impl Limits {
    /// These limits with `patch` laid over them, checked against the range of each.
    ///
    /// The lower ends are what a program needs to start at all (Node alone takes eleven threads and some 40 MiB);
    /// the upper ends catch a slip of the keyboard, not ambition.
    pub fn with(&self, patch: &LimitsPatch) -> Result<Self, LimitError> {
        use LimitName as L;
        let day = Span::secs(86_400);
        Ok(Self {
            wall: within(L::Wall, patch.wall, self.wall, Span::millis(10), day)?,
            cpu_time: within(L::CpuTime, patch.cpu_time, self.cpu_time, Span::millis(10), day)?,
            cpus: within(L::Cpus, patch.cpus, self.cpus, Cores(10), Cores::whole(1024))?,
            memory: within(L::Memory, patch.memory, self.memory, ByteSize::mib(8), ByteSize::gib(4096))?,
            swap: within(L::Swap, patch.swap, self.swap, ByteSize(0), ByteSize::gib(4096))?,
            pids: within(L::Pids, patch.pids, self.pids, 1, 1_000_000)?,
            disk: within(L::Disk, patch.disk, self.disk, ByteSize::kib(64), ByteSize::gib(4096))?,
            files: within(L::Files, patch.files, self.files, 16, 100_000_000)?,
            output: within(L::Output, patch.output, self.output, ByteSize(16), ByteSize::gib(1))?,
            nofile: within(L::Nofile, patch.nofile, self.nofile, 16, 1_048_576)?,
            io: match patch.io.or(self.io) {
                Some(io) => Some(within(L::Io, None, io, ByteSize::kib(64), ByteSize::gib(1024))?),
                None => None,
            },
        })
    }
}

fn within<T: PartialOrd + fmt::Display + Copy>(
    name: LimitName,
    wanted: Option<T>,
    base: T,
    least: T,
    most: T,
) -> Result<T, LimitError> {
    let value = wanted.unwrap_or(base);
    if value < least || value > most {
        return Err(LimitError {
            name,
            value: value.to_string(),
            least: least.to_string(),
            most: most.to_string(),
        });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_only_what_it_names() {
        let patch = LimitsPatch { wall: Some(Span::secs(5)), ..LimitsPatch::default() };
        let limits = Limits::default().with(&patch).unwrap();
        assert_eq!(limits, Limits { wall: Span::secs(5), ..Limits::default() });
    }

    #[test]
    fn zero_and_absurd_limits_are_refused_with_the_range() {
        let patch = LimitsPatch { wall: Some(Span::secs(0)), ..LimitsPatch::default() };
        let error = Limits::default().with(&patch).unwrap_err();
        assert_eq!(error.to_string(), "limit `wall` = 0ms is out of range; it goes from 10ms to 1d");
        for patch in [
            LimitsPatch { pids: Some(0), ..LimitsPatch::default() },
            LimitsPatch { memory: Some(ByteSize(0)), ..LimitsPatch::default() },
            LimitsPatch { disk: Some(ByteSize(u64::MAX)), ..LimitsPatch::default() },
            LimitsPatch { nofile: Some(3), ..LimitsPatch::default() },
        ] {
            assert!(Limits::default().with(&patch).is_err(), "{patch:?}");
        }
    }
}
