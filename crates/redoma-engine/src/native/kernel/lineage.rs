//! A kernel's process and the checkpoints behind it, oldest first.
//!
//! The newest checkpoint is asked for as soon as a cell has ended, and made while its answer is put together: it holds what
//! variables are until the next cell. Older ones are those that cells can be undone to. Of a cell that can be [run
//! again](super::repeats) none is made.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use redoma_jail::JailError;
use redoma_jail::cgroup::Group;
use redoma_jail::kernel::{self, FIRST_TO_GO, KernelProcess, TO_BE_SPARED, Words};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::Deserialize;

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
}

/// How long a process may take to do what it was told between two cells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'a> {
    pub(super) usual: Duration,
    /// And how much longer if others keep the processor from it: it would lose its last cell for what they do.
    pub(super) starved: Duration,
    /// Its sandbox's: what its own processes take from it is its own affair.
    pub(super) group: Option<&'a dyn Group>,
    /// How much of a processor that has had in a second if it is not starved.
    pub(super) enough: Duration,
}

/// For something that it was told to do.
struct Waiting<'a> {
    deadline: Instant,
    last: Instant,
    group: Option<&'a dyn Group>,
    enough: Duration,
    /// How long its sandbox had had a processor when it was looked at last.
    seen: Option<Duration>,
}

impl<'a> Waiting<'a> {
    fn new(patience: Patience<'a>) -> Self {
        let deadline = Instant::now() + patience.usual;
        let Patience { starved, group, enough, .. } = patience;
        Self { deadline, last: deadline + starved, group, enough, seen: None }
    }
}

/// How it went with cells that were run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeated {
    AllOfThem,
    /// One did not do the same, and what it came to is nothing that was before.
    NotAll,
    /// Their process has come to its end, or to none.
    Lost,
}

/// How often one is looked at that takes longer.
const NEXT_LOOK: Duration = Duration::from_secs(1);
/// A refusal is good for so long: pipes and sockets may be closed without a cell.
const REFUSAL: Duration = Duration::from_millis(100);

/// Whether a checkpoint can be spared once it is known. If not, its original has to be until then, and so are the children that it
/// has meanwhile, for good.
fn can_spare() -> bool {
    rustix::process::geteuid().is_root()
}

/// A checkpoint on its way out.
#[derive(Debug)]
struct Leaving {
    pid: Pid,
    pidfd: Arc<OwnedFd>,
}

/// So many of a session wait for their end at most: each is one of its processes.
pub(super) const MOST_LEAVING: usize = 8;
/// How long they do. A process that ends keeps its processor until all its memory has been given back, a millisecond or two: that is
/// not to be among cells that follow each other closely.
const LAST_MOMENTS: Duration = Duration::from_millis(30);

/// Ends a checkpoint after a while, on a thread that nobody waits for; or the one that has waited longest at once, if this is one too
/// many.
fn let_go(checkpoint: Checkpoint, is_one_too_many: bool) {
    static GONE: OnceLock<Option<Sender<(Checkpoint, bool)>>> = OnceLock::new();
    let gone = GONE.get_or_init(|| {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("undertaker".to_owned());
        thread.spawn(move || be_undertaker(&receiver)).ok().map(|_| sender)
    });
    if let Some(gone) = gone {
        // What can't be sent comes back, and is dropped here.
        let _ = gone.send((checkpoint, is_one_too_many));
    }
}

fn be_undertaker(receiver: &Receiver<(Checkpoint, bool)>) {
    let mut waiting: VecDeque<(Instant, Checkpoint)> = VecDeque::new();
    loop {
        let heard = match waiting.front() {
            Some((since, _)) => receiver.recv_timeout(LAST_MOMENTS.saturating_sub(since.elapsed())),
            None => receiver.recv().map_err(RecvTimeoutError::from),
        };
        match heard {
            Ok((checkpoint, is_one_too_many)) => {
                waiting.push_back((Instant::now(), checkpoint));
                if is_one_too_many {
                    waiting.pop_front();
                }
            }
            Err(RecvTimeoutError::Timeout) => drop(waiting.pop_front()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[derive(Debug)]
struct Checkpoint {
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
    cells: u64,
    line: OwnedFd,
}

/// What a kernel's process says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    awake: Option<u64>,
    /// A checkpoint, by the one that it is, and its number inside.
    checkpoint: Option<u64>,
    pid: i32,
    /// Of this checkpoint there is none.
    none: Option<u64>,
    /// Because so many pipes and sockets are open.
    foreign: u64,
    /// This cell was run again.
    again: Option<u64>,
    /// As well as the first time.
    fine: bool,
    tidied: bool,
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
        }
    }

    pub(super) fn head(&self) -> &KernelProcess {
        &self.head
    }

    pub(super) fn head_pidfd(&self) -> Option<OwnedFd> {
        self.head.pidfd().try_clone_to_owned().ok()
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells
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
    pub(super) fn count_others(&mut self, living: &[Pid], patience: Patience<'_>) -> usize {
        self.leaving.retain(|leaving| kernel::is_alive(leaving.pidfd.as_fd()));
        let count = |lineage: &Self| living.iter().filter(|pid| !lineage.is_own(**pid)).count();
        if self.asked.is_some() && count(self) > 0 {
            self.settle(patience);
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
            let words = format!("checkpoint {}", self.cells);
            if self.head.tell_with(words.as_bytes(), theirs.as_fd()).is_ok() {
                self.asked = Some(Asked { cells: self.cells, line: ours });
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
    pub(super) fn settle(&mut self, patience: Patience<'_>) {
        let mut waiting = Waiting::new(patience);
        while self.asked.is_some() {
            if let Some(answer) = self.hear_from(&mut waiting) {
                self.heed(&answer);
            } else {
                // It does not do what it is told. Whoever needs it goes on from what there is.
                self.asked = None;
                self.is_dead = true;
                self.head.set_oom_score(FIRST_TO_GO);
            }
        }
    }

    /// The next thing that is said, by one that may lack a processor to say it.
    fn hear_from(&mut self, waiting: &mut Waiting<'_>) -> Option<Answer> {
        loop {
            if let Some(answer) = self.hear(waiting.deadline) {
                return Some(answer);
            }
            if self.is_dead || Instant::now() >= waiting.last || !self.is_starved(waiting) {
                return None;
            }
            waiting.deadline = Instant::now() + NEXT_LOOK;
        }
    }

    /// Takes in what is there already; whether nothing is waited for any more.
    pub(super) fn take_in(&mut self) -> bool {
        while self.asked.is_some() {
            let line = self.words.lock().unwrap_or_else(PoisonError::into_inner).next_line();
            let Some(line) = line else { return false };
            self.heed(&serde_json::from_slice(&line).unwrap_or_default());
        }
        true
    }

    fn heed(&mut self, answer: &Answer) {
        let Some(Asked { cells, .. }) = self.asked else { return };
        if answer.checkpoint == Some(cells) {
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
        } else if answer.none == Some(cells) {
            self.asked = None;
            (self.foreign, self.refused_at) = (answer.foreign, Some(Instant::now()));
        }
        if self.asked.is_none() && !can_spare() {
            self.head.set_oom_score(FIRST_TO_GO);
        }
    }

    /// Whether the head would go on if only it had a processor.
    fn is_starved(&self, waiting: &mut Waiting<'_>) -> bool {
        let (Some(true), Some(used)) = (self.head.is_runnable(), waiting.group.and_then(Group::cpu_time))
        else {
            return false;
        };
        waiting.seen.replace(used).is_none_or(|before| used.saturating_sub(before) < waiting.enough)
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

    /// Makes the newest checkpoint the head, if there is one: what has to be run again in it.
    pub(super) fn wake_newest(&mut self) -> Option<Vec<Repeatable>> {
        self.asked = None;
        (self.foreign, self.refused_at) = (0, None);
        while let Some(Checkpoint { cells, process, then }) = self.checkpoints.pop() {
            if process.wake().is_ok() {
                self.head = process;
                self.cells = cells;
                self.is_dead = false;
                return Some(then.into_cells());
            }
        }
        None
    }

    /// Runs cells again.
    pub(super) fn repeat(&mut self, cells: Vec<Repeatable>, patience: Patience<'_>) -> Repeated {
        let mut waiting = Waiting::new(patience);
        for cell in cells {
            if self.head.tell(&cell.order()).is_err() {
                return Repeated::Lost;
            }
            loop {
                match self.hear_from(&mut waiting) {
                    Some(answer) if answer.again == Some(cell.number) && answer.fine => break,
                    Some(answer) if answer.again == Some(cell.number) => return Repeated::NotAll,
                    Some(_) => {}
                    None => return Repeated::Lost,
                }
            }
            self.note_cell(Some(cell));
        }
        Repeated::AllOfThem
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
    pub(super) fn branch(&mut self, patience: Duration) -> Option<Self> {
        if !self.has_spare() {
            return None;
        }
        let Checkpoint { cells, process, .. } = self.checkpoints.pop()?;
        process.wake().ok()?;
        let mut branch =
            Self { cells, ..Self::new(process, self.init, Arc::clone(&self.words), self.has_checkpoints) };
        branch.wait_until_awake(patience).ok()?;
        Some(branch)
    }

    /// Waits for the head to say that it listens.
    pub(super) fn wait_until_awake(&mut self, patience: Duration) -> Result<(), JailError> {
        let deadline = Instant::now() + patience;
        loop {
            match self.hear(deadline) {
                Some(answer) if answer.awake.is_some() => {
                    self.head.set_oom_score(FIRST_TO_GO);
                    return Ok(());
                }
                Some(_) => {}
                None => return Err(JailError::Talk(Errno::TIMEDOUT)),
            }
        }
    }

    /// Has the head give back what memory it can. What is found then may have a last word.
    pub(super) fn tidy(&mut self, patience: Duration) {
        self.forget_from(self.cells);
        let deadline = Instant::now() + patience;
        if self.head.tell(b"tidy").is_ok() {
            while let Some(heard) = self.hear(deadline) {
                if heard.tidied {
                    break;
                }
            }
        }
    }

    /// The next thing that the head or a new checkpoint says; nothing if it says nothing in time, or is gone.
    fn hear(&mut self, deadline: Instant) -> Option<Answer> {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Looked at each time: it may say things without end.
            if Instant::now() >= deadline {
                return None;
            }
            if let Some(line) = words.next_line() {
                return Some(serde_json::from_slice(&line).unwrap_or_default());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut polled = [
                PollFd::from_borrowed_fd(words.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.head.pidfd(), PollFlags::IN),
            ];
            match poll(&mut polled, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Ok(count) if count > 0 => {
                    if !polled[0].revents().contains(PollFlags::IN) {
                        self.is_dead = true;
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }
}
