//! Kernels in this backend's sandboxes: see `redoma_jail::kernel` for their processes.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | a kernel from its start to its end: checkpoints, undo, freezing |
//! | `lineage.rs` | its process and the checkpoints behind it |
//! | `orders.rs` | waiting for its process |
//! | `leaving.rs` | the end of old checkpoints |
//! | `repeats.rs` | cells that are run again instead of being kept in a checkpoint |
//! | `cell.rs` | watching one cell |
//! | `interrupts.rs` | asking it to stop |
//! | `house.rs` | the sandbox, which a kernel shares with its branches |
//! | `files.rs` | its workspace, which lives on between cells |

mod cell;
mod house;
mod interrupts;
mod leaving;
mod lineage;
mod orders;
mod repeats;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use redoma_jail::cgroup::{Group, GroupLimits, GroupUsage, Weight};
use redoma_jail::kernel::TO_BE_SPARED;
use redoma_jail::nursery::SandboxFor;
use redoma_jail::{Event, JailError, Weakening};
use redoma_model::{CellReport, FileName, Output, RunReport};
use rustix::process::Signal;

use super::Shared;
use super::pool::{Kind, Ready, Seal};
use super::warm::{name_libraries, nonce};
use crate::cold::add_group_layers;
use crate::frames::Splitter;
use crate::imports::imported_modules;
use crate::kernel::{Cell, CellEnd, Kernel, KernelHandle, KernelRequest};
use crate::meter::{Phase, Took};
use crate::outcome::report;
use crate::request::{RunError, Terms};
use crate::staging::Input;
use crate::supervise::{Cancel, Observer, Stop};
use crate::transcript::Transcript;
use crate::workspace::WorkspaceFiles;
use cell::{CellEnding, Watching};
use house::House;
use interrupts::Interrupts;
use lineage::{Lineage, Restored};
use orders::{ANSWER_TIMEOUT, Slow, Wait};

/// Processes beyond the code's own: its checkpoints, and those that are about to end.
const OWN_PROCESSES: u64 = 12 + leaving::MOST_LEAVING as u64;
/// A frame of a kernel is at most so long: a picture of 16 MiB in base64, and what is around it.
pub(crate) const LONGEST_FRAME: usize = 24 << 20;
/// Maximum time to wait where no caller needs the answer, or where other sessions wait for the same thread.
const BRIEF_WAIT: Duration = Duration::from_secs(1);
/// From here on older checkpoints go, so that cells have the memory (of the limit, in percent).
const CROWDED: u64 = 60;

/// A session's kernel. The order is that in which its parts go.
#[derive(Debug)]
pub(crate) struct NativeKernel {
    lineage: Lineage,
    /// Which of the house's it is.
    id: u64,
    house: Arc<Mutex<House>>,
    files: WorkspaceFiles,
    handle: Arc<Interrupts>,
    /// How many cells it was told to run, of any outcome.
    number: u64,
    undo: Option<usize>,
    is_frozen: bool,
    /// What its group had used when the last cell ended.
    used: GroupUsage,
    /// Whether it was said that there are no checkpoints while something is open.
    has_told_of_lines: bool,
    /// Cells that the caller knows to be in the variables.
    told_cells: u64,
}

impl NativeKernel {
    pub(super) fn start(shared: &Shared, request: &KernelRequest<'_>) -> Result<Self, RunError> {
        let Ready { sandbox, mut pipes, mut group, identity, nursery, .. } = shared.take_kernel(request)?;
        let mut limits = Weakening::from_environment().limits(&request.terms.limits);
        let of_code = limits.clone();
        // What it begins with does not count against what the code may write, nor do its copies.
        limits.disk.0 = limits.disk.0.saturating_add(request.files);
        limits.pids += OWN_PROCESSES;
        if let Some(group) = &mut group {
            group.set_limits(&GroupLimits::from_limits(&limits, || nursery.runtime().block_device()))?;
        }
        let mut layers = nursery.layers.clone();
        add_group_layers(group.as_deref(), &shared.config.waived, &mut layers)?;
        let mut assignment = nursery.assignment(&limits, group.is_some());
        assignment.kind = SandboxFor::Kernel;
        // Of all its cells together there is no end; of each, the supervisor looks at the clock.
        assignment.rlimits.cpu_seconds = u64::from(u32::MAX);
        let nonce = nonce()?;
        let mut options = serde_json::json!({ "kernel": true, "nonce": nonce });
        name_libraries(&mut options, request.terms);
        let options = options.to_string();
        let (sandbox, process, words) = sandbox.assign_kernel(&assignment, options.as_bytes())?;
        pipes.stdin = None;
        let files = WorkspaceFiles::new(identity.ids);
        let mut lineage =
            Lineage::new(process, sandbox.pid(), Arc::new(Mutex::new(words)), request.undo.is_some());
        let house = House {
            sandbox,
            pipes,
            splitter: Splitter::new(&nonce, LONGEST_FRAME),
            nonce,
            group,
            identity,
            limits: of_code,
            layers,
            landlock_abi: shared.host.landlock_abi,
            nursery,
            current: 0,
            parked: HashMap::new(),
            next: 1,
        };
        if !lineage.wait_until_awake(Wait::at_most(ANSWER_TIMEOUT))? {
            return Err(JailError::EndedEarly.into());
        }
        lineage.ask_for_checkpoint();
        Ok(Self::new(lineage, 0, Arc::new(Mutex::new(house)), files, request.undo))
    }

    fn new(
        lineage: Lineage,
        id: u64,
        house: Arc<Mutex<House>>,
        files: WorkspaceFiles,
        undo: Option<usize>,
    ) -> Self {
        let told_cells = lineage.cells();
        Self {
            lineage,
            id,
            house,
            files,
            handle: Arc::default(),
            number: 0,
            undo,
            is_frozen: false,
            used: GroupUsage::default(),
            has_told_of_lines: false,
            told_cells,
        }
    }

    /// Makes this kernel the one that lives in its sandbox.
    fn move_in(&mut self, house: &mut House) -> Result<(), RunError> {
        if house.current != self.id {
            house.switch_to(self.id).map_err(std::io::Error::from)?;
            self.files.note_move(house.sandbox.workspace());
            self.is_frozen = false;
        } else if std::mem::take(&mut self.is_frozen) {
            house.signal_living(Signal::CONT);
        }
        Ok(())
    }

    /// Everything that must be over before something new begins.
    fn settle(&mut self, house: &mut House, wait: Wait<'_>) -> Result<(), RunError> {
        self.move_in(house)?;
        if self.lineage.is_restoring() && !self.restore(house, wait)? {
            return Err(RunError::KernelLost);
        }
        // Made already, but for one that could not be.
        self.lineage.settle(wait)?;
        self.lineage.ask_again();
        self.lineage.settle(wait)?;
        self.lineage.keep_at_most(self.undo.unwrap_or(0));
        let limit = house.limits.memory.0 / 100 * CROWDED;
        if house.group().and_then(Group::memory_current).is_some_and(|used| used > limit) {
            self.lineage.keep_at_most(0);
            self.lineage.hurry();
        }
        Ok(())
    }

    /// The same, but one that stands still is not disturbed: it has nothing that could change.
    fn settle_if_current(&mut self) {
        let house = Arc::clone(&self.house);
        if !self.is_frozen
            && let Ok(mut house) = house.try_lock()
            && house.current == self.id
        {
            let _ = self.settle(&mut house, Wait::at_most(BRIEF_WAIT));
        }
    }

    /// Goes on with the newest checkpoint. Whether there is one; if not, this kernel is over. If the wait is over first, the next
    /// call continues.
    fn restore(&mut self, house: &mut House, wait: Wait<'_>) -> Result<bool, Slow> {
        if house.group.is_none() {
            return Ok(false);
        }
        self.lineage.begin_restore();
        loop {
            if self.lineage.is_ending() {
                house.end_living_but(&self.lineage.checkpoint_pids(), wait)?;
                house.drop_output();
                if !self.lineage.wake_newest() {
                    return Ok(false);
                }
            }
            if self.lineage.go_on(wait)? == Restored::Yes {
                return Ok(true);
            }
        }
    }

    /// What there is to say once about pipes and sockets that keep checkpoints from being made.
    fn tell_of_lines(&mut self) -> Option<String> {
        let foreign = self.lineage.foreign();
        let is_new = foreign > 0 && !std::mem::replace(&mut self.has_told_of_lines, true);
        self.has_told_of_lines &= foreign > 0;
        is_new.then(|| {
            format!(
                "since the last cell there is no checkpoint: {foreign} pipes or sockets are open in it. Should a cell have to \
                 be ended, variables go back to the last checkpoint"
            )
        })
    }

    /// Waits until the process can take a cell. Whether it had ended, and goes on from a checkpoint.
    fn make_ready(&mut self, house: &mut House, cancel: &Cancel) -> Result<bool, RunError> {
        let wait = Wait::until_cancelled(cancel);
        let mut attempt = || {
            self.settle(house, wait)?;
            self.note_ends(house);
            if self.lineage.is_alive() {
                return Ok(false);
            }
            if !self.restore(house, wait)? {
                return Err(RunError::KernelLost);
            }
            // The next cell may end its process too.
            self.lineage.settle(wait)?;
            Ok(true)
        };
        match attempt() {
            Err(RunError::KernelSlow) if cancel.is_cancelled() => Err(RunError::Cancelled),
            other => other,
        }
    }

    fn note_ends(&mut self, house: &House) {
        while let Ok(Some((pid, _))) = house.sandbox.ended_child(Duration::ZERO) {
            self.lineage.note_end(pid);
        }
    }
}

impl From<Slow> for RunError {
    fn from(_: Slow) -> Self {
        Self::KernelSlow
    }
}

/// The house, when nobody else in it lives any more.
fn enter<'a>(house: &'a Mutex<House>, cancel: Option<&Cancel>) -> Result<MutexGuard<'a, House>, RunError> {
    loop {
        match house.try_lock() {
            Ok(house) => return Ok(house),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(RunError::Cancelled);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for NativeKernel {
    fn drop(&mut self) {
        // Alone in it, the house goes too. While another lives in it, what is left of this one stands still until that is over.
        if Arc::strong_count(&self.house) > 1
            && let Ok(mut house) = self.house.try_lock()
        {
            house.leave(self.id);
        }
    }
}

impl Kernel for NativeKernel {
    fn run(
        &mut self,
        cell: Cell<'_>,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<CellEnd, RunError> {
        let house = Arc::clone(&self.house);
        let mut house = enter(&house, Some(cancel))?;
        let house = &mut *house;
        let has_ended = self.make_ready(house, cancel)?;
        let mut notes = Vec::new();
        let behind = self.told_cells.saturating_sub(self.lineage.cells());
        if has_ended || behind > 0 {
            notes.push(format!(
                "its process had ended since the last cell, and goes on from a checkpoint: {behind} cells are undone"
            ));
        }
        notes.extend(self.tell_of_lines());
        self.number += 1;
        let mut limits = Weakening::from_environment().limits(&cell.terms.limits);
        // The others are the sandbox's, which was made with them.
        limits.memory = house.limits.memory;
        // Of what else it tells, nothing happens between cells but by processes that they left.
        let before = GroupUsage { cpu: house.group().and_then(Group::cpu_time), ..self.used };
        if let Some(group) = house.group() {
            group.reset_peak();
        }
        self.handle.aim(self.lineage.head_pidfd());
        let mut transcript = Transcript::new(observer);
        let running = Instant::now();
        let watched = Watching {
            sandbox: &house.sandbox,
            lineage: &mut self.lineage,
            pipes: &mut house.pipes,
            splitter: &mut house.splitter,
            group: house.group.as_deref(),
            before,
            limits: &limits,
            cancel,
            interrupts: &self.handle,
            observer: &mut transcript,
            live: cell.live,
        }
        .watch(cell.language, cell.code, self.number);
        self.handle.aim(None);
        let cell::Seen { mut watched, ending, notes: said } = watched?;
        transcript.phase(Phase::Run, running, watched.wall);
        notes.extend(said);
        let mut done = CellReport { number: self.number, ..CellReport::default() };
        let has_died = !matches!(ending, CellEnding::Done { .. });
        // How many cells more than this one are undone.
        let mut behind = 0;
        // The cell has ended, also if its caller has left.
        let wait = Wait::until_abandoned(cancel);
        if has_died {
            let cells = self.lineage.cells();
            done.restored = self.restore(house, wait).unwrap_or_else(|Slow| {
                notes.push("the host is busy: the session's process is not ready yet, and the next cell waits for it".to_owned());
                self.lineage.has_checkpoint() || !self.lineage.is_ending()
            });
            done.lost = !done.restored;
            behind = cells - self.lineage.cells().min(cells);
            if done.restored && behind > 0 {
                notes.push(
                    "of the last cells there was no checkpoint: pipes or sockets were open, or there was no memory for it"
                        .to_owned(),
                );
            }
        }
        if let CellEnding::Done { exit_code, .. } = ending {
            watched.event = Event::Exited(exit_code);
        }
        self.used = house.group().map(Group::usage).unwrap_or_default();
        watched.used = since(before, self.used);
        watched.disk.files = watched.disk.files.saturating_sub(house.nursery.own_inodes());
        let stop = watched.stop;
        let terms = Terms { limits: limits.clone(), ..cell.terms.clone() };
        let mut took = Took { run: watched.wall, ..Took::default() };
        let mut report = report(cell.language, &terms, watched, house.isolation(), &mut transcript);
        if has_died {
            explain(&report, &done, stop, behind, &mut transcript);
        }
        done.outputs = transcript.finish();
        done.notes = notes;
        // Whoever else is there could move things about meanwhile, and without an end.
        let is_crowded = self.lineage.count_others(&house.living_pids(), wait) > 0;
        if is_crowded {
            // Nobody can fork while they are stopped.
            let _ = self.lineage.settle(wait);
        }
        let stopped = if is_crowded { house.stop_living() } else { Vec::new() };
        let harvesting = Instant::now();
        let harvested =
            self.files.harvest(house.sandbox.workspace(), ("", b""), limits.disk.0, Some(cell.out));
        took.harvest = harvesting.elapsed();
        observer.phase(Phase::Harvest, harvesting, took.harvest);
        for member in stopped {
            member.signal(Signal::CONT);
        }
        if house.is_shared() && !self.lineage.is_restoring() {
            // Another one may be next, and forks are forbidden while it comes in.
            self.lineage.ask_for_checkpoint();
            let _ = self.lineage.settle(wait);
        }
        self.told_cells = self.lineage.cells();
        let not_kept = harvested.map(|found| found.add_to(&mut report)).err();
        Ok(CellEnd { report, cell: done, not_kept, took })
    }

    fn put_files(&mut self, files: &[Input]) -> Result<(), RunError> {
        let house = Arc::clone(&self.house);
        let mut house = enter(&house, None)?;
        self.move_in(&mut house)?;
        Ok(self.files.put(house.sandbox.workspace(), files)?)
    }

    fn remove_files(&mut self, names: &[FileName]) {
        let house = Arc::clone(&self.house);
        if !names.is_empty()
            && let Ok(mut house) = enter(&house, None)
            && self.move_in(&mut house).is_ok()
        {
            self.files.remove(house.sandbox.workspace(), names);
        }
    }

    fn cells(&self) -> u64 {
        self.lineage.cells()
    }

    fn undoable(&mut self) -> u64 {
        self.settle_if_current();
        self.lineage.undoable().min(self.undo.unwrap_or(0) as u64)
    }

    fn undo(&mut self, count: u64, cancel: &Cancel) -> Result<(), RunError> {
        let house = Arc::clone(&self.house);
        let mut house = enter(&house, Some(cancel))?;
        let wait = Wait::until_cancelled(cancel);
        self.settle(&mut house, wait)?;
        if count == 0 {
            return Ok(());
        }
        if count > self.undo.unwrap_or(0) as u64 || !self.lineage.drop_newer(count) {
            return Err(RunError::NoCheckpoint);
        }
        match self.restore(&mut house, wait) {
            Ok(true) => {}
            Ok(false) => return Err(RunError::KernelLost),
            // The cells are undone; the next one waits for the process.
            Err(Slow) => {
                self.told_cells = self.lineage.cells();
                return Ok(());
            }
        }
        self.told_cells = self.lineage.cells();
        if house.is_shared() {
            // Another one may be next, who must not hear of it.
            let _ = self.lineage.settle(wait);
        }
        Ok(())
    }

    fn branch(&mut self, cancel: &Cancel) -> Result<Box<dyn Kernel>, RunError> {
        let house = Arc::clone(&self.house);
        let mut house = enter(&house, Some(cancel))?;
        let wait = Wait::until_cancelled(cancel);
        self.settle(&mut house, wait)?;
        self.lineage.ask_for_spare();
        self.lineage.settle(wait)?;
        let branched = self.lineage.branch(wait);
        // In place of the one that is the branch now.
        self.lineage.ask_for_checkpoint();
        let lineage = branched?.ok_or(RunError::NoCheckpoint)?;
        let _ = self.lineage.settle(wait);
        let id = house.next;
        house.next += 1;
        let pid = lineage.head().pid();
        lineage.head().set_oom_score(TO_BE_SPARED);
        lineage.head().signal(Signal::STOP);
        house.park(id, pid);
        let files = WorkspaceFiles::new(house.identity.ids);
        let mut branch = Self::new(lineage, id, Arc::clone(&self.house), files, self.undo);
        // What the cells before it were called, those after it must not be.
        branch.number = self.number;
        Ok(Box::new(branch))
    }

    fn freeze(&mut self) -> bool {
        let house = Arc::clone(&self.house);
        // While another one in it lives, this one stands still already.
        let Ok(house) = house.try_lock() else { return true };
        if house.group.is_none() {
            return false;
        }
        if self.is_frozen {
            return true;
        }
        let mut is_only_for_repeats = false;
        let mut is_settled = !self.lineage.is_restoring() && self.lineage.take_in();
        if house.current == self.id && is_settled {
            is_only_for_repeats = self.undo == Some(0) && self.lineage.is_covered();
            is_settled = self.lineage.tidy(Wait::at_most(BRIEF_WAIT));
        }
        // A process that still has something to do is stopped as it is, and does it when it goes on.
        if is_settled && self.lineage.is_alive() {
            // It is the same as the process that it was made of, and can be made again.
            self.lineage.drop_spare();
            // So is one that cells were to be run again from, if none are undone.
            if is_only_for_repeats {
                self.lineage.drop_all();
            }
        }
        self.is_frozen = true;
        if let Some(group) = house.group() {
            group.rest();
        }
        if house.current == self.id {
            house.stop_living();
        }
        true
    }

    fn reclaim(&mut self) {
        // A process that is gone, or returns to a checkpoint, needs them.
        if self.lineage.is_alive() && !self.lineage.is_restoring() {
            self.lineage.drop_all();
        }
        if let Ok(house) = self.house.try_lock()
            && let Some(group) = house.group()
        {
            group.reclaim();
        }
    }

    fn prepare(&mut self) {
        let house = Arc::clone(&self.house);
        if let Ok(mut house) = house.try_lock()
            && house.current == self.id
            && !self.is_frozen
            && self.lineage.take_in()
        {
            let _ = self.settle(&mut house, Wait::at_most(BRIEF_WAIT));
        }
    }

    fn wait_until_free(&self, cancel: &Cancel) -> Result<(), RunError> {
        enter(&self.house, Some(cancel)).map(drop)
    }

    fn forget_harvest(&mut self) {
        self.files.forget_harvest();
    }

    fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    fn can_go_on(&mut self) -> bool {
        let house = Arc::clone(&self.house);
        if let Ok(house) = house.try_lock() {
            self.note_ends(&house);
        }
        if !self.lineage.is_alive() {
            self.settle_if_current();
        }
        self.lineage.is_alive() || self.lineage.has_checkpoint() || self.lineage.is_restoring()
    }

    fn memory(&self) -> Option<u64> {
        self.house.try_lock().ok()?.group().and_then(Group::memory_current)
    }

    fn weight(&self) -> Option<Weight> {
        self.house.try_lock().ok()?.group().map(Group::weight)
    }

    fn handle(&self) -> Arc<dyn KernelHandle> {
        Arc::<Interrupts>::clone(&self.handle)
    }
}

/// A cell that was ended says so where its output ends, for those who read nothing else.
fn explain(
    report: &RunReport,
    done: &CellReport,
    stop: Option<Stop>,
    behind: u64,
    observer: &mut dyn Observer,
) {
    let what = match (stop, report.limit) {
        (_, Some(limit)) => format!("the cell was ended: it reached its limit of {}", limit.name()),
        (Some(Stop::Cancelled), _) => "the cell was cancelled".to_owned(),
        (_, None) => match (&report.signal, report.exit_code) {
            (Some(signal), _) => format!("the cell's process was ended by {signal}"),
            (None, Some(code)) => format!("the cell ended its process (exit code {code})"),
            (None, None) => "the cell's process is gone".to_owned(),
        },
    };
    let state = match (done.restored, behind) {
        (true, 0) => "variables are as they were before it".to_owned(),
        (true, behind) => format!("variables are as they were {behind} cells before it"),
        (false, _) => "all variables are gone; files are kept".to_owned(),
    };
    let name = match (report.limit, stop) {
        (Some(_), _) => "LimitReached",
        (None, Some(Stop::Cancelled)) => "Cancelled",
        (None, _) => "ProcessEnded",
    };
    let value = format!("{what}; {state}");
    let output = Output::Error { name: name.to_owned(), traceback: vec![format!("{name}: {value}")], value };
    observer.shown(&output);
}

/// What was used since.
fn since(before: GroupUsage, now: GroupUsage) -> GroupUsage {
    let less = |now: Option<Duration>, before: Option<Duration>| {
        now.map(|now| now.saturating_sub(before.unwrap_or_default()))
    };
    GroupUsage {
        cpu: less(now.cpu, before.cpu),
        cpu_user: less(now.cpu_user, before.cpu_user),
        cpu_system: less(now.cpu_system, before.cpu_system),
        oom_kills: now.oom_kills.saturating_sub(before.oom_kills),
        forks_refused: now.forks_refused.saturating_sub(before.forks_refused),
        ..now
    }
}

impl Shared {
    /// A sandbox for a kernel: one that waits and is not sealed yet, else one made on the spot.
    fn take_kernel(&self, request: &KernelRequest<'_>) -> Result<Ready, RunError> {
        let imports = imported_modules(request.code);
        let mut trouble = RunError::ShuttingDown;
        for set in self.zygotes.best_for(&imports) {
            let kind = Kind::Zygote { set, name: self.zygotes.name(set) };
            let Some(pool) =
                self.pools.iter().find(|pool| *pool.kind() == kind && pool.seal() == Seal::OnAssignment)
            else {
                continue;
            };
            if let Some(ready) = pool.take() {
                return Ok(ready);
            }
            match self.make(pool, redoma_jail::nursery::Hurry::Yes) {
                Ok(ready) => return Ok(ready),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }
}
