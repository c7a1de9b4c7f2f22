//! What a session with live variables needs of whoever provides sandboxes.

use std::fmt::Debug;
use std::sync::Arc;

use redoma_jail::cgroup::Weight;
use redoma_model::{CellReport, FileName, RunReport};

use crate::harvest::HarvestError;
use crate::meter::Took;
use crate::outlet::Outlet;
use crate::request::{RunError, Terms};
use crate::staging::Input;
use crate::supervise::{Cancel, Observer};

/// What a kernel is made with.
#[derive(Debug)]
pub struct KernelRequest<'a> {
    pub terms: &'a Terms,
    /// The first cell: what it imports says which libraries to have at hand.
    pub code: &'a [u8],
    /// Bytes of the files that will be put there at once.
    pub files: u64,
    /// How many cells can be undone; none means that there are no checkpoints at all.
    pub undo: Option<usize>,
}

/// A cell to be run.
#[derive(Debug)]
pub struct Cell<'a> {
    pub language: &'a str,
    pub code: &'a [u8],
    pub terms: &'a Terms,
    /// Where the files go that it makes or changes.
    pub out: &'a mut dyn Outlet,
    /// Whether the observer shows output as it comes.
    pub live: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct CellEnd {
    pub report: RunReport,
    pub cell: CellReport,
    /// Why the files that it made could not be kept.
    pub not_kept: Option<HarvestError>,
    /// Where its time went.
    pub took: Took,
}

/// A session's live process. One thing at a time; dropping it ends everything in it.
pub trait Kernel: Debug + Send {
    /// Runs a cell to its end.
    fn run(
        &mut self,
        cell: Cell<'_>,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<CellEnd, RunError>;

    /// Puts files into the workspace, in place of what has their names.
    fn put_files(&mut self, files: &[Input]) -> Result<(), RunError>;

    /// Removes files from the workspace, as far as they are there.
    fn remove_files(&mut self, names: &[FileName]);

    /// Cells whose effects are in its variables.
    fn cells(&self) -> u64;

    /// How many of the last cells can be taken back.
    fn undoable(&mut self) -> u64;

    /// Makes variables what they were before the last `count` cells. Only as many as are undoable.
    fn undo(&mut self, count: u64, cancel: &Cancel) -> Result<(), RunError>;

    /// A second kernel, with the variables of this one as they are now, and an empty workspace.
    fn branch(&mut self, cancel: &Cancel) -> Result<Box<dyn Kernel>, RunError>;

    /// Does what there is to do before the next cell, while nobody waits for it.
    fn prepare(&mut self);

    /// Comes back when no other kernel stands in its way: a branch may.
    fn wait_until_free(&self, cancel: &Cancel) -> Result<(), RunError>;

    /// What the last cell made could not be kept: it is to be handed out again.
    fn forget_harvest(&mut self);

    /// Stops every process of it, until the next cell. Whether that can be done here.
    fn freeze(&mut self) -> bool;

    /// Of one that is frozen: gives back what memory can be. Its cells can't be undone any more.
    fn reclaim(&mut self);

    fn is_frozen(&self) -> bool;

    /// Whether there is still somebody to talk to, or a checkpoint that can be.
    fn can_go_on(&mut self) -> bool;

    fn memory(&self) -> Option<u64>;

    /// How much of the processor it gets, where that can be set.
    fn weight(&self) -> Option<Weight> {
        None
    }

    /// For whoever wants something while a cell runs.
    fn handle(&self) -> Arc<dyn KernelHandle>;
}

/// What can be done to a kernel while it runs a cell, from any thread.
pub trait KernelHandle: Debug + Send + Sync {
    /// Asks the cell that runs to stop; it may have something to say about that.
    fn interrupt(&self);
}
