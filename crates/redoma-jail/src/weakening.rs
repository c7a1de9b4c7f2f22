//! Walls left out on purpose, to see that attacks then succeed: a test that can't fail proves nothing.
//!
//! Only the attack suite's own build (feature `weaken`, the program `redoma-weakened`) can leave any out, by naming them
//! in `REDOMA_WEAKEN`. In every other build this type is empty, all answers are constants, and the compiler removes the
//! questions.

use redoma_model::Limits;

use crate::plan::{PlanError, TreeEntry};

#[derive(Debug, Clone, Default)]
pub struct Weakening {
    #[cfg(feature = "weaken")]
    walls: Vec<String>,
}

#[cfg(not(feature = "weaken"))]
impl Weakening {
    pub fn from_environment() -> Self {
        Self::default()
    }

    pub const fn has(&self, _wall: &str) -> bool {
        false
    }

    pub fn limits(&self, limits: &Limits) -> Limits {
        limits.clone()
    }

    pub fn extra_binds(&self) -> Result<Vec<TreeEntry>, PlanError> {
        Ok(Vec::new())
    }
}

#[cfg(feature = "weaken")]
impl Weakening {
    pub fn from_environment() -> Self {
        let names = std::env::var("REDOMA_WEAKEN").unwrap_or_default();
        Self { walls: names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect() }
    }

    pub fn has(&self, wall: &str) -> bool {
        self.walls.iter().any(|name| name == wall)
    }

    /// Eight times as much of everything: bombs go past the limit that was asked for, and still end.
    pub fn limits(&self, limits: &Limits) -> Limits {
        use redoma_model::{ByteSize, Span};
        if !self.has("limits") {
            return limits.clone();
        }
        Limits {
            wall: Span(limits.wall.0 * 8),
            cpu_time: Span(limits.cpu_time.0 * 8),
            memory: ByteSize(limits.memory.0 * 8),
            pids: limits.pids * 8,
            disk: ByteSize(limits.disk.0 * 8),
            files: limits.files * 8,
            output: ByteSize(limits.output.0 * 8),
            nofile: limits.nofile * 8,
            ..limits.clone()
        }
    }

    /// The folder that `REDOMA_CANARY` names, at its own path, if the wall `canary` is left out.
    pub fn extra_binds(&self) -> Result<Vec<TreeEntry>, PlanError> {
        use std::path::{Path, PathBuf};
        let Some(folder) =
            std::env::var_os("REDOMA_CANARY").map(PathBuf::from).filter(|_| self.has("canary"))
        else {
            return Ok(Vec::new());
        };
        let inside = folder.strip_prefix("/").unwrap_or(&folder);
        let mut parents: Vec<_> = inside.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
        parents.reverse();
        let mut entries = parents.into_iter().map(TreeEntry::folder).collect::<Result<Vec<_>, _>>()?;
        entries.push(TreeEntry::bind_folder(&folder, inside)?);
        Ok(entries)
    }
}
