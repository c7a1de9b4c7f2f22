//! A kernel's process and the checkpoints behind it, oldest first.
//!
//! The newest checkpoint is asked for as soon as a cell has ended, and made while its answer is put together: it holds what
//! variables are until the next cell. Older ones are those that cells can be undone to. Of a cell that can be [run
//! again](super::repeats) none is made.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redoma_jail::kernel::{self, FIRST_TO_GO, KernelProcess, TO_BE_SPARED, Words};
use rustix::process::Pid;

use super::leaving::{Leaving, MOST_LEAVING, let_go};
use super::orders::{Answer, Heard, Order, Slow, Wait, has_hung_up};
use super::repeats::{Repeatable, Repeats};

#[derive(Debug)]
pub(super) struct Lineage {
    init: Pid,
    head: KernelProcess,
    is_dead: bool,
    /// Cells whose effects are in the head's variables.
    cells: u64,
    checkpoints: Vec<Checkpoint>,
    /// What its processes, and those of its branches, say.
    words: Arc<Mutex<Words>>,
    /// A checkpoint was asked for, and has not been heard of.
    asked: Option<Asked>,
    /// Both ends of the next one's line.
    line: Option<(OwnedFd, OwnedFd)>,
    /// Those that were let go and may not have ended yet.
    leaving: Vec<Leaving>,
    /// Pipes and sockets of the code's that kept the last one from being made.
    foreign: u64,
    /// When the last one was refused.
    refused_at: Option<Instant>,
    /// Whether any are wanted.
    has_checkpoints: bool,
    /// How far the return to a checkpoint has come, if one is under way.
    restoring: Option<Restoring>,
}

/// A return to the newest checkpoint. A request that can't wait any longer leaves it to the next one.
#[derive(Debug)]
struct Restoring {
    stage: Stage,
    /// Cells that have to be run again, oldest first.
    repeats: VecDeque<Repeatable>,
    failures: u32,
}

#[derive(Debug)]
enum Stage {
    /// The processes of the old head have to end first.
    Ending,
    Waking(Order),
    Repeating {
        /// Whether there is a checkpoint to return to if this fails, once that is known.
        is_safe: Option<bool>,
        /// Whether the head was told to run the first of the cells.
        is_told: bool,
        order: Order,
    },
}

/// What came of an attempt to go on from a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restored {
    Yes,
    /// Its process has ended or is stuck: an older checkpoint is next.
    No,
}

static NEXT_ORDER: AtomicU64 = AtomicU64::new(1);
/// Maximum number of lines that are read where no caller waits; the rest is read with the next cell.
const MAX_LINES_AT_ONCE: usize = 64;
/// A refusal is good for so long: pipes and sockets may be closed without a cell.
const REFUSAL: Duration = Duration::from_millis(100);

/// Whether a checkpoint can be spared once it is known. If not, its original has to be until then, and so are the children that it
/// has meanwhile, for good.
fn can_spare() -> bool {
    rustix::process::geteuid().is_root()
}

#[derive(Debug)]
pub(super) struct Checkpoint {
    cells: u64,
    process: KernelProcess,
    /// What came after it and has none of its own.
    then: Repeats,
}

impl Checkpoint {
    /// The last of the states that can be had from it, by the cells in it.
    fn last(&self) -> u64 {
        self.cells + self.then.count()
    }

    fn has(&self, cells: u64) -> bool {
        (self.cells..=self.last()).contains(&cells)
    }
}

/// A checkpoint of so many cells, with our end of its line.
#[derive(Debug)]
struct Asked {
    /// Unique in this process: branches hear the same words, and a copy may answer late.
    id: u64,
    cells: u64,
    line: OwnedFd,
    order: Order,
}

impl Lineage {
    pub(super) fn new(
        head: KernelProcess,
        init: Pid,
        words: Arc<Mutex<Words>>,
        has_checkpoints: bool,
    ) -> Self {
        Self {
            init,
            head,
            is_dead: false,
            cells: 0,
            checkpoints: Vec::new(),
            words,
            asked: None,
            line: None,
            leaving: Vec::new(),
            foreign: 0,
            refused_at: None,
            has_checkpoints,
            restoring: None,
        }
    }

    pub(super) fn head(&self) -> &KernelProcess {
        &self.head
    }

    pub(super) fn head_pidfd(&self) -> Option<OwnedFd> {
        self.head.pidfd().try_clone_to_owned().ok()
    }

    /// Cells whose effects are in the variables, or will be when a restore that is under way is complete.
    pub(super) fn cells(&self) -> u64 {
        match &self.restoring {
            None => self.cells,
            Some(Restoring { stage: Stage::Ending, .. }) => {
                self.checkpoints.last().map_or(0, Checkpoint::last)
            }
            Some(restoring) => self.cells + restoring.repeats.len() as u64,
        }
    }

    /// A cell has ended. If it can be run again, and there is something to do that from, no checkpoint is needed.
    pub(super) fn note_cell(&mut self, repeatable: Option<Repeatable>) {
        if let Some(cell) = repeatable
            && self.asked.is_none()
            && let Some(newest) = self.checkpoints.last_mut()
            && newest.last() == self.cells
        {
            newest.then.add(cell);
        }
        self.cells += 1;
    }

    /// Which of these are not this one's: processes that code has left behind. The checkpoint that was asked for is waited for, if
    /// there is anybody who may be it.
    pub(super) fn count_others(&mut self, living: &[Pid], wait: Wait<'_>) -> usize {
        self.leaving.retain(|leaving| kernel::is_alive(leaving.pidfd.as_fd()));
        let count = |lineage: &Self| living.iter().filter(|pid| !lineage.is_own(**pid)).count();
        if self.asked.is_some() && count(self) > 0 {
            let _ = self.settle(wait);
        }
        count(self)
    }

    fn is_own(&self, pid: Pid) -> bool {
        let is_checkpoint = |checkpoint: &Checkpoint| checkpoint.process.pid() == pid;
        self.head.pid() == pid
            || self.checkpoints.iter().any(is_checkpoint)
            || self.leaving.iter().any(|leaving| leaving.pid == pid)
    }

    pub(super) fn checkpoint_pids(&self) -> Vec<Pid> {
        self.checkpoints.iter().map(|checkpoint| checkpoint.process.pid()).collect()
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.is_dead && self.head.is_alive()
    }

    /// A process inside has ended.
    pub(super) fn note_end(&mut self, inner_pid: i32) {
        self.is_dead |= inner_pid == self.head.inner_pid();
        self.checkpoints.retain(|checkpoint| checkpoint.process.inner_pid() != inner_pid);
    }

    /// Whether variables as they are now would survive the head.
    pub(super) fn is_covered(&self) -> bool {
        self.checkpoints.last().is_some_and(|newest| newest.last() == self.cells)
    }

    /// Whether there is a checkpoint of them as they are now, from which nothing has to be run again.
    pub(super) fn has_spare(&self) -> bool {
        self.checkpoints.last().is_some_and(|newest| newest.cells == self.cells)
    }

    pub(super) fn has_checkpoint(&self) -> bool {
        !self.checkpoints.is_empty()
    }

    /// How many pipes and sockets keep checkpoints from being made.
    pub(super) fn foreign(&self) -> u64 {
        self.foreign
    }

    /// How many of the last cells can be taken back.
    pub(super) fn undoable(&self) -> u64 {
        let has = |cells: u64| self.checkpoints.iter().any(|checkpoint| checkpoint.has(cells));
        (1..=self.cells).take_while(|count| has(self.cells - count)).last().unwrap_or(0)
    }

    /// Makes what the next checkpoint needs, while there is nothing else to do.
    pub(super) fn prepare_line(&mut self) {
        if self.has_checkpoints && self.line.is_none() {
            self.line = kernel::new_line().ok();
        }
    }

    /// Asks for a checkpoint, if variables as they are now would not survive. It is heard of [later](Self::settle).
    pub(super) fn ask_for_checkpoint(&mut self) {
        if !self.is_covered() {
            self.ask_for_spare();
        }
    }

    /// The same, even if they would survive by having cells run again.
    pub(super) fn ask_for_spare(&mut self) {
        if self.has_checkpoints && !self.is_dead && self.asked.is_none() && !self.has_spare() {
            self.prepare_line();
            let Some((ours, theirs)) = self.line.take() else { return };
            if !can_spare() {
                // The copy inherits it.
                self.head.set_oom_score(TO_BE_SPARED);
            }
            let id = NEXT_ORDER.fetch_add(1, Ordering::Relaxed);
            let words = format!("checkpoint {id}");
            if self.head.tell_with(words.as_bytes(), theirs.as_fd()).is_ok() {
                self.asked = Some(Asked { id, cells: self.cells, line: ours, order: Order::new() });
            } else {
                self.head.set_oom_score(FIRST_TO_GO);
            }
        }
    }

    /// The same for one that could not be made, unless it was just refused.
    pub(super) fn ask_again(&mut self) {
        if self.refused_at.is_none_or(|at| at.elapsed() > REFUSAL) {
            self.ask_for_checkpoint();
        }
    }

    /// Waits until what was asked for is there, or is known not to come.
    pub(super) fn settle(&mut self, wait: Wait<'_>) -> Result<(), Slow> {
        while let Some(asked) = &mut self.asked {
            match asked.order.hear(&self.head, &self.words, wait)? {
                Heard::Answer(answer) => self.heed(&answer),
                // The head goes on, and its copy has said nothing: without a line from here it ends by itself.
                Heard::Skipped => self.note_refusal(0),
                Heard::Ended | Heard::Stuck => {
                    self.asked = None;
                    self.is_dead = true;
                    self.head.set_oom_score(FIRST_TO_GO);
                }
            }
        }
        Ok(())
    }

    /// Takes in what is there already; whether nothing is waited for any more.
    pub(super) fn take_in(&mut self) -> bool {
        for _ in 0..MAX_LINES_AT_ONCE {
            if self.asked.is_none() {
                return true;
            }
            let line = self.words.lock().unwrap_or_else(PoisonError::into_inner).next_line();
            let Some(line) = line else { return false };
            self.heed(&Answer::parse(&line));
        }
        self.asked.is_none()
    }

    fn heed(&mut self, answer: &Answer) {
        let Some(Asked { id, cells, .. }) = self.asked else { return };
        if answer.checkpoint == Some(id) {
            if let Some(Asked { line, .. }) = self.asked.take()
                && let Ok(process) = KernelProcess::of_checkpoint(answer.pid, self.init, &self.head, line)
            {
                if can_spare() {
                    process.spare();
                }
                self.forget_from(cells);
                self.checkpoints.push(Checkpoint { cells, process, then: Repeats::default() });
                (self.foreign, self.refused_at) = (0, None);
            }
        } else if answer.none == Some(id) {
            self.note_refusal(answer.foreign);
        }
        if self.asked.is_none() && !can_spare() {
            self.head.set_oom_score(FIRST_TO_GO);
        }
    }

    /// The head makes no checkpoint, because of this many open pipes and sockets if there are any.
    fn note_refusal(&mut self, foreign: u64) {
        self.asked = None;
        (self.foreign, self.refused_at) = (foreign, Some(Instant::now()));
        if !can_spare() {
            self.head.set_oom_score(FIRST_TO_GO);
        }
    }

    /// Keeps the checkpoint of what is now and so many older ones.
    pub(super) fn keep_at_most(&mut self, older: usize) {
        let keep = older + usize::from(self.has_spare());
        let surplus = self.checkpoints.len().saturating_sub(keep.max(1));
        self.leaving.retain(|leaving| kernel::is_alive(leaving.pidfd.as_fd()));
        for checkpoint in self.checkpoints.drain(..surplus) {
            let Checkpoint { process, .. } = &checkpoint;
            process.step_back();
            self.leaving.push(Leaving { pid: process.pid(), pidfd: process.shared_pidfd() });
            let_go(checkpoint, self.leaving.len() > MOST_LEAVING);
        }
    }

    /// Ends those at once that were let go.
    pub(super) fn hurry(&mut self) {
        for leaving in &self.leaving {
            kernel::end(leaving.pidfd.as_fd());
        }
    }

    /// Lets go of the checkpoint that is the same as the head.
    pub(super) fn drop_spare(&mut self) {
        if self.has_spare() {
            self.checkpoints.pop();
        }
    }

    pub(super) fn drop_all(&mut self) {
        self.checkpoints.clear();
    }

    /// Lets go of all checkpoints that are newer than what was before the last `count` cells. Whether there is one of then.
    pub(super) fn drop_newer(&mut self, count: u64) -> bool {
        let Some(wanted) = self.cells.checked_sub(count) else { return false };
        let Some(at) = self.checkpoints.iter().rposition(|checkpoint| checkpoint.has(wanted)) else {
            return false;
        };
        self.checkpoints.truncate(at + 1);
        let newest = &mut self.checkpoints[at];
        newest.then.keep(wanted - newest.cells);
        true
    }

    /// Whether the session returns to a checkpoint.
    pub(super) fn is_restoring(&self) -> bool {
        self.restoring.is_some()
    }

    /// Whether the processes of the old head have to end before a restore goes on.
    pub(super) fn is_ending(&self) -> bool {
        matches!(&self.restoring, Some(Restoring { stage: Stage::Ending, .. }))
    }

    pub(super) fn begin_restore(&mut self) {
        self.is_dead = true;
        self.restoring.get_or_insert_with(|| Restoring {
            stage: Stage::Ending,
            repeats: VecDeque::new(),
            failures: 0,
        });
    }

    /// Makes the newest checkpoint the head; whether there is one.
    pub(super) fn wake_newest(&mut self) -> bool {
        self.asked = None;
        (self.foreign, self.refused_at) = (0, None);
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clear();
        while let Some(Checkpoint { cells, process, then }) = self.checkpoints.pop() {
            if process.wake().is_ok() {
                self.head = process;
                self.cells = cells;
                self.is_dead = false;
                if let Some(restoring) = &mut self.restoring {
                    restoring.stage = Stage::Waking(Order::new());
                    restoring.repeats = then.into_cells().into();
                }
                return true;
            }
        }
        self.restoring = None;
        false
    }

    /// Waits for the woken head, and has it run again the cells that its checkpoint lacks.
    pub(super) fn go_on(&mut self, wait: Wait<'_>) -> Result<Restored, Slow> {
        loop {
            let Some(restoring) = &mut self.restoring else { return Ok(Restored::Yes) };
            match &mut restoring.stage {
                Stage::Ending => return Ok(Restored::No),
                Stage::Waking(order) => match order.hear(&self.head, &self.words, wait)? {
                    // It reads later messages only when it is awake.
                    heard if heard.is_awake() => {
                        restoring.stage =
                            Stage::Repeating { is_safe: None, is_told: false, order: Order::new() };
                        self.head.set_oom_score(FIRST_TO_GO);
                        self.ask_for_checkpoint();
                    }
                    Heard::Answer(_) | Heard::Skipped => {}
                    Heard::Ended | Heard::Stuck => {
                        restoring.stage = Stage::Ending;
                        return Ok(Restored::No);
                    }
                },
                Stage::Repeating { .. } if restoring.repeats.is_empty() => self.restoring = None,
                Stage::Repeating { is_safe: None, .. } => {
                    // A checkpoint of the same state as before: cells can be undone to it, and this can be tried again.
                    self.settle(wait)?;
                    if self.is_dead {
                        self.begin_ending();
                        return Ok(Restored::No);
                    }
                    let has_spare = self.has_spare();
                    if let Some(Restoring { stage: Stage::Repeating { is_safe, .. }, .. }) =
                        &mut self.restoring
                    {
                        *is_safe = Some(has_spare);
                    }
                }
                Stage::Repeating { .. } => {
                    if let Some(restored) = self.repeat_one(wait)? {
                        return Ok(restored);
                    }
                }
            }
        }
    }

    /// Runs the next cell again; what came of the restore, if that is decided.
    fn repeat_one(&mut self, wait: Wait<'_>) -> Result<Option<Restored>, Slow> {
        let Some(Restoring { stage: Stage::Repeating { is_safe, is_told, order }, repeats, failures }) =
            &mut self.restoring
        else {
            return Ok(Some(Restored::No));
        };
        let Some(cell) = repeats.front() else { return Ok(None) };
        if !*is_told {
            match self.head.tell(&cell.order()) {
                Ok(()) => *is_told = true,
                Err(errno) if has_hung_up(errno) => {}
                // The host is short of memory, or the line is full.
                Err(_) => return Err(Slow),
            }
        }
        let heard = if *is_told { order.hear(&self.head, &self.words, wait)? } else { Heard::Ended };
        match heard {
            Heard::Answer(answer) if answer.again == Some(cell.number) && answer.fine => {
                *is_told = false;
                order.begin_next();
                let cell = repeats.pop_front();
                self.note_cell(cell);
                Ok(None)
            }
            // It did not do the same, and there is nothing better.
            Heard::Answer(answer) if answer.again == Some(cell.number) && *is_safe != Some(true) => {
                self.restoring = None;
                Ok(Some(Restored::Yes))
            }
            Heard::Answer(answer) if answer.again != Some(cell.number) => Ok(None),
            _ => {
                // The cells that succeeded are tried once more without the others.
                let is_last_try = *failures > 0;
                *failures += 1;
                if is_last_try {
                    self.forget_repeats();
                }
                self.begin_ending();
                Ok(Some(Restored::No))
            }
        }
    }

    /// The head is of no use: the restore starts over with the newest checkpoint.
    fn begin_ending(&mut self) {
        self.is_dead = true;
        if let Some(restoring) = &mut self.restoring {
            restoring.stage = Stage::Ending;
            restoring.repeats.clear();
        }
    }

    /// A state that was not come to by cells alone, or that there is a checkpoint of, is not to be had by running cells again.
    fn forget_from(&mut self, cells: u64) {
        for checkpoint in &mut self.checkpoints {
            checkpoint.then.keep(cells.saturating_sub(checkpoint.cells + 1));
        }
    }

    /// Without what would have to be run again from the newest checkpoint.
    pub(super) fn forget_repeats(&mut self) {
        if let Some(newest) = self.checkpoints.last_mut() {
            newest.then.keep(0);
        }
    }

    /// Another one, which goes on from what is now: its head is the newest checkpoint.
    pub(super) fn branch(&mut self, wait: Wait<'_>) -> Result<Option<Self>, Slow> {
        if !self.has_spare() {
            return Ok(None);
        }
        let Some(Checkpoint { cells, process, .. }) = self.checkpoints.pop() else { return Ok(None) };
        if process.wake().is_err() {
            return Ok(None);
        }
        let mut branch =
            Self { cells, ..Self::new(process, self.init, Arc::clone(&self.words), self.has_checkpoints) };
        Ok(branch.wait_until_awake(wait)?.then_some(branch))
    }

    /// Waits for the head to say that it listens; whether it does.
    pub(super) fn wait_until_awake(&mut self, wait: Wait<'_>) -> Result<bool, Slow> {
        let mut order = Order::new();
        loop {
            match order.hear(&self.head, &self.words, wait)? {
                heard if heard.is_awake() => {
                    self.head.set_oom_score(FIRST_TO_GO);
                    return Ok(true);
                }
                Heard::Answer(_) | Heard::Skipped => {}
                Heard::Ended | Heard::Stuck => return Ok(false),
            }
        }
    }

    /// Has the head give back what memory it can; whether it is done. What is found then may have a last word.
    pub(super) fn tidy(&mut self, wait: Wait<'_>) -> bool {
        self.forget_from(self.cells);
        let mut is_tidied = false;
        if self.head.tell(b"tidy").is_ok() {
            let mut order = Order::new();
            while let Ok(Heard::Answer(answer)) = order.hear(&self.head, &self.words, wait) {
                is_tidied = answer.tidied;
                if is_tidied {
                    break;
                }
            }
        }
        is_tidied
    }
}
