//! Sessions whose variables live on: which have a kernel, whose turn it is in each, and which of them go when there are too
//! many or nobody uses them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redoma_model::{FileId, KernelState, KernelStatus, Owner, Principal, Session, SessionId};

use super::input_memory::HeldInputs;
use super::{Interpreter, InterpreterError, KernelCounts};
use crate::kernel::{Kernel, KernelHandle};
use crate::request::{RunError, Terms};
use crate::supervise::Cancel;
use crate::turns::{Concurrency, Sharing, Turn, Turns};

/// Cells that wait in one session; more are turned away.
const MOST_WAITING: usize = 32;
/// How long whoever asks for the state waits for those who prepare the next cell.
const MOMENT: Duration = Duration::from_secs(1);
/// How long one of them waits at most.
const PATIENCE: Duration = Duration::from_mins(10);

/// All kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    slots: Mutex<HashMap<SessionId, Arc<Slot>>>,
    /// So many live at the same time.
    most: usize,
    /// Who waits for a turn in any of them: each takes a thread.
    waiting: Mutex<HashMap<Owner, usize>>,
    /// Sessions whose cell has ended, for those who prepare the next one.
    ended: Option<Sender<Arc<Slot>>>,
}

/// Threads that do what there is to do between two cells: they take in the checkpoint, and let old ones go.
const PREPARERS: usize = 2;
/// How long they wait: whoever sends one cell after the other is not to share the processor with them.
const BREATH: Duration = Duration::from_millis(3);
const TRIES: usize = 3;

/// A preparer's life.
fn prepare(ended: &Mutex<Receiver<Arc<Slot>>>) {
    loop {
        let next = lock(ended).recv();
        let Ok(slot) = next else { return };
        for _ in 0..TRIES {
            std::thread::sleep(BREATH);
            slot.is_noted.store(false, Ordering::Relaxed);
            // Until the cell's own turn is over. If another has begun, that has done it already, and will be heard of.
            if let Some(_turn) = slot.turns.try_take(&slot.owner) {
                if let Some(live) = slot.live().as_mut() {
                    live.kernel.prepare();
                }
                break;
            }
        }
    }
}

/// So many wait in all sessions together, and of one owner.
const MOST_WAITING_IN_ALL: usize = 256;
const MOST_WAITING_OF_ONE: usize = 64;

/// One that waits, as long as this lives.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    kernels: &'a Kernels,
    owner: Owner,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.kernels.waiting);
        if let Some(count) = waiting.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.owner);
            }
        }
    }
}

/// A session's place for a kernel.
#[derive(Debug)]
pub(super) struct Slot {
    owner: Owner,
    turns: Turns,
    live: Mutex<Option<Live>>,
    /// Whether there is one: for those who only count.
    is_live: AtomicBool,
    /// Whether those who prepare the next cell have been told of the last.
    is_noted: AtomicBool,
    /// How far it has come down: 0 lives, 1 is frozen, 2 has given back its memory.
    rung: AtomicU8,
    used: Mutex<Instant>,
    handle: Mutex<Option<Arc<dyn KernelHandle>>>,
    /// Ends the cell that runs.
    cancel: Mutex<Option<Arc<Cancel>>>,
    idle: Idle,
}

/// After how long without a cell what becomes of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) freeze: Duration,
    pub(super) reclaim: Duration,
    pub(super) drop: Duration,
}

/// A live kernel, and what the session knows of its workspace.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) kernel: Box<dyn Kernel>,
    /// What its process was started under.
    pub(super) terms: Terms,
    /// Whether variables of earlier cells were lost with the process before, and no cell has told it yet.
    pub(super) is_restarted: bool,
    /// Memory of the files that the server copied into its workspace.
    pub(super) inputs: HeldInputs,
    /// Their sizes, by name. A file that code made takes the sandbox's own memory, and is not among them.
    pub(super) put: HashMap<String, u64>,
    /// The stored file that each name in the workspace is, and whether that is the session's own.
    pub(super) files: HashMap<String, (FileId, bool)>,
    /// What each cell did to files, oldest first: the number of cells that it made, and its changes.
    pub(super) changes: Vec<(u64, Vec<Change>)>,
}

/// What a cell did to a file.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) before: Option<FileId>,
    pub(super) after: Option<FileId>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn new(owner: Owner, idle: Idle) -> Self {
        let turns = Turns::new(Concurrency {
            running: 1,
            waiting: MOST_WAITING,
            patience: PATIENCE,
            sharing: Sharing::FirstCome,
        });
        Self {
            owner,
            turns,
            live: Mutex::default(),
            is_live: AtomicBool::new(false),
            is_noted: AtomicBool::new(false),
            rung: AtomicU8::new(0),
            used: Mutex::new(Instant::now()),
            handle: Mutex::default(),
            cancel: Mutex::default(),
            idle,
        }
    }

    /// The kernel. Only whoever has the turn may ask.
    pub(super) fn live(&self) -> MutexGuard<'_, Option<Live>> {
        lock(&self.live)
    }

    /// It was used otherwise than by a cell.
    pub(super) fn touch(&self) {
        self.rung.store(0, Ordering::Relaxed);
        *lock(&self.used) = Instant::now();
    }

    /// A kernel for a session that has none yet.
    pub(super) fn move_in(&self, live: Live) {
        *lock(&self.live) = Some(live);
        self.is_live.store(true, Ordering::Relaxed);
    }

    /// Whoever has the turn has it for a cell.
    pub(super) fn claim(&self, cancel: &Arc<Cancel>) -> Busy<'_> {
        *lock(&self.cancel) = Some(Arc::clone(cancel));
        Busy(self)
    }

    /// The turn, unless a cell has it: others have it for a moment only.
    fn turn_between_cells(&self) -> Option<Turn<'_>> {
        let deadline = Instant::now() + MOMENT;
        loop {
            if lock(&self.cancel).is_some() || Instant::now() > deadline {
                return None;
            }
            if let Some(turn) = self.turns.try_take(&self.owner) {
                return Some(turn);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A cell begins.
    pub(super) fn begin(&self, live: &Live) {
        self.is_live.store(true, Ordering::Relaxed);
        self.rung.store(0, Ordering::Relaxed);
        *lock(&self.handle) = Some(live.kernel.handle());
    }

    /// Ends the kernel. Only whoever has the turn may.
    pub(super) fn end(&self, live: &mut Option<Live>) {
        self.is_live.store(false, Ordering::Relaxed);
        self.rung.store(0, Ordering::Relaxed);
        drop(live.take());
    }

    /// What this measures of the kernel, unless a cell runs in it.
    fn if_idle(&self, measure: impl Fn(&Live) -> u64) -> u64 {
        let Some(_turn) = self.turns.try_take(&self.owner) else { return 0 };
        self.live().as_ref().map_or(0, measure)
    }

    fn idle_for(&self) -> Duration {
        lock(&self.used).elapsed()
    }

    fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }
}

/// While a cell runs.
pub(super) struct Busy<'a>(&'a Slot);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        lock(&self.0.handle).take();
        lock(&self.0.cancel).take();
    }
}

impl Kernels {
    pub(super) fn new(most: usize) -> Self {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut has_any = false;
        for _ in 0..PREPARERS {
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new().name("preparer".to_owned());
            has_any |= thread.spawn(move || prepare(&receiver)).is_ok();
        }
        // Without them it is done when the next cell comes.
        let ended = has_any.then_some(sender);
        Self { slots: Mutex::default(), most: most.max(1), waiting: Mutex::default(), ended }
    }

    /// A cell of this session has ended.
    pub(super) fn note_end(&self, slot: &Arc<Slot>) {
        if let Some(ended) = &self.ended
            && !slot.is_noted.swap(true, Ordering::Relaxed)
        {
            let _ = ended.send(Arc::clone(slot));
        }
    }

    /// A turn in a session, after those who came before.
    pub(super) fn turn<'a>(&self, slot: &'a Slot, cancel: &Cancel) -> Result<Turn<'a>, RunError> {
        if let Some(turn) = slot.turns.try_take(&slot.owner) {
            return Ok(turn);
        }
        let _waiting = self.wait(&slot.owner)?;
        slot.turns.wait(&slot.owner, cancel)
    }

    fn wait(&self, owner: &Owner) -> Result<Waiting<'_>, RunError> {
        let mut waiting = lock(&self.waiting);
        let all: usize = waiting.values().sum();
        let own = waiting.get(owner).copied().unwrap_or_default();
        // Looked at before there is an entry: an owner who is refused must leave none behind.
        if all >= MOST_WAITING_IN_ALL || own >= MOST_WAITING_OF_ONE {
            return Err(RunError::Busy { running: 0, waiting: all });
        }
        waiting.insert(owner.clone(), own + 1);
        Ok(Waiting { kernels: self, owner: owner.clone() })
    }

    pub(super) fn slot(&self, session: &Session, idle: Idle) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        let slot = slots.entry(session.id.clone());
        Arc::clone(slot.or_insert_with(|| Arc::new(Slot::new(session.owner.clone(), idle))))
    }

    pub(super) fn find(&self, session: &SessionId) -> Option<Arc<Slot>> {
        lock(&self.slots).get(session).map(Arc::clone)
    }

    /// Sessions of an owner that have a kernel.
    pub(super) fn live_of(&self, owner: &Owner) -> HashSet<SessionId> {
        let slots = lock(&self.slots);
        let live = slots.iter().filter(|(_, slot)| slot.owner == *owner && slot.is_live());
        live.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.slots).values().filter(|slot| slot.is_live()).count()
    }

    /// How many there are in each state.
    pub(super) fn by_state(&self) -> KernelCounts {
        let mut counts = KernelCounts { most: self.most, ..KernelCounts::default() };
        for slot in lock(&self.slots).values().filter(|slot| slot.is_live()) {
            let is_busy = lock(&slot.cancel).is_some();
            match slot.rung.load(Ordering::Relaxed) {
                _ if is_busy => counts.busy += 1,
                0 => counts.idle += 1,
                1 => counts.frozen += 1,
                _ => counts.reclaimed += 1,
            }
        }
        counts
    }

    /// Makes room for one more of this owner's: the kernel that was not used for longest goes, of whoever has the most.
    pub(super) fn make_room(&self, owner: &Owner) -> Result<(), RunError> {
        loop {
            let live: Vec<_> = lock(&self.slots).values().filter(|slot| slot.is_live()).cloned().collect();
            if live.len() < self.most {
                return Ok(());
            }
            let mut counts: HashMap<&Owner, usize> = HashMap::new();
            for slot in &live {
                *counts.entry(&slot.owner).or_default() += 1;
            }
            let own = *counts.entry(owner).and_modify(|count| *count += 1).or_insert(1);
            // Nobody with fewer than the one who asks has to give way; of those with as many, the one who asks does.
            let mut candidates: Vec<_> = live
                .iter()
                .map(|slot| (counts[&slot.owner], slot.owner == *owner, slot.idle_for(), slot))
                .filter(|(count, ..)| *count >= own)
                .collect();
            candidates.sort_by_key(|(count, is_own, idle, _)| (*count, *is_own, *idle));
            let ended = candidates.iter().rev().any(|(.., slot)| match slot.turns.try_take(&slot.owner) {
                Some(_turn) => {
                    slot.end(&mut slot.live());
                    true
                }
                None => false,
            });
            if !ended {
                return Err(RunError::Busy { running: live.len(), waiting: 0 });
            }
        }
    }

    /// Looks around: kernels that nobody uses stand still, then go.
    pub(super) fn tend(&self, memory_is_scarce: bool) {
        let slots: Vec<_> =
            lock(&self.slots).iter().map(|(id, slot)| (id.clone(), Arc::clone(slot))).collect();
        for (id, slot) in slots {
            let (idle, is_live) = (slot.idle_for(), slot.is_live());
            let is_over = idle >= slot.idle.drop;
            let rung = slot.rung.load(Ordering::Relaxed);
            let is_next = match rung {
                0 => idle >= slot.idle.freeze,
                1 => idle >= slot.idle.reclaim,
                _ => false,
            };
            if is_live && (is_over || is_next) {
                let Some(_turn) = slot.turns.try_take(&slot.owner) else { continue };
                let slot_live = &mut *slot.live();
                // Somebody may have been quicker.
                if slot.idle_for() < idle {
                    continue;
                }
                if is_over {
                    slot.end(slot_live);
                } else if let Some(live) = slot_live.as_mut() {
                    let is_possible = rung > 0 || live.kernel.freeze();
                    if rung > 0 {
                        live.kernel.reclaim();
                    }
                    slot.rung.store(rung + 1, Ordering::Relaxed);
                    if !is_possible {
                        // What can't stand still must not go on for nobody.
                        slot.end(slot_live);
                    }
                }
            }
            if !slot.is_live() {
                let mut slots = lock(&self.slots);
                // Nobody else can have it: they would have had to come through here.
                if Arc::strong_count(&slot) == 2 {
                    slots.remove(&id);
                }
            }
        }
        if memory_is_scarce {
            self.drop_least_used();
        }
    }

    /// Ends the kernel that was not used for longest, of the owner whose kernels hold the most memory.
    fn drop_least_used(&self) {
        self.drop_least_used_of_largest(|live| live.kernel.memory().unwrap_or(0) + live.inputs.bytes());
    }

    /// The same by the memory of their files, if there is one that has any; whether there was.
    pub(super) fn drop_largest_inputs(&self) -> bool {
        self.drop_least_used_of_largest(|live| live.inputs.bytes())
    }

    fn drop_least_used_of_largest(&self, measure: impl Fn(&Live) -> u64) -> bool {
        let live: Vec<_> = lock(&self.slots).values().filter(|slot| slot.is_live()).cloned().collect();
        let measured: Vec<_> = live.iter().map(|slot| (slot, slot.if_idle(&measure))).collect();
        let mut held: HashMap<&Owner, u64> = HashMap::new();
        for (slot, bytes) in &measured {
            *held.entry(&slot.owner).or_default() += bytes;
        }
        let mut candidates: Vec<_> = measured
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(slot, _)| (held[&slot.owner], slot.idle_for(), slot))
            .collect();
        candidates.sort_by_key(|(memory, idle, _)| (*memory, *idle));
        candidates.iter().rev().any(|(.., slot)| match slot.turns.try_take(&slot.owner) {
            Some(_turn) => {
                slot.end(&mut slot.live());
                true
            }
            None => false,
        })
    }

    pub(super) fn end_all(&self) {
        let slots: Vec<_> = lock(&self.slots).drain().map(|(_, slot)| slot).collect();
        for slot in slots {
            if let Some(cancel) = &*lock(&slot.cancel) {
                cancel.abandon();
            }
            if let Some(_turn) = slot.turns.try_take(&slot.owner) {
                slot.end(&mut slot.live());
            }
        }
    }

    /// A kernel of a session that is gone.
    pub(super) fn forget(&self, session: &SessionId) {
        let slot = lock(&self.slots).remove(session);
        if let Some(slot) = slot
            && let Some(_turn) = slot.turns.try_take(&slot.owner)
        {
            slot.end(&mut slot.live());
        }
    }
}

impl Interpreter {
    /// What the kernel of a session of theirs is doing.
    pub fn kernel(
        &self,
        principal: &Principal,
        session: &SessionId,
    ) -> Result<KernelStatus, InterpreterError> {
        let session = self.session(principal, session, None)?;
        let none =
            KernelStatus { state: KernelState::None, cells: 0, undoable: 0, waiting: 0, memory_bytes: None };
        let Some(slot) = self.kernels.find(&session.id) else { return Ok(none) };
        let waiting = slot.turns.waiting() as u64;
        let Some(_turn) = slot.turn_between_cells() else {
            return Ok(KernelStatus { state: KernelState::Busy, waiting, ..none });
        };
        let mut live = slot.live();
        let Some(live) = live.as_mut() else { return Ok(none) };
        let state = if live.kernel.is_frozen() { KernelState::Frozen } else { KernelState::Idle };
        Ok(KernelStatus {
            state,
            cells: live.kernel.cells(),
            undoable: live.kernel.undoable(),
            waiting,
            memory_bytes: live.kernel.memory(),
        })
    }

    /// Interrupts the cell that runs, if one does: in Python, a `KeyboardInterrupt`. Variables stay as they are.
    pub fn interrupt(&self, principal: &Principal, session: &SessionId) -> Result<(), InterpreterError> {
        let session = self.session(principal, session, None)?;
        if let Some(slot) = self.kernels.find(&session.id)
            && let Some(handle) = &*lock(&slot.handle)
        {
            handle.interrupt();
        }
        Ok(())
    }

    /// Ends the session's kernel, with the cell that runs. The next cell starts another.
    pub fn stop_kernel(&self, principal: &Principal, session: &SessionId) -> Result<(), InterpreterError> {
        let session = self.session(principal, session, None)?;
        let Some(slot) = self.kernels.find(&session.id) else { return Ok(()) };
        if let Some(cancel) = &*lock(&slot.cancel) {
            cancel.abandon();
        }
        let never = Cancel::new().map_err(RunError::from)?;
        let _turn = self.kernels.turn(&slot, &never)?;
        slot.end(&mut slot.live());
        Ok(())
    }

    /// Looks after kernels that nobody uses. To be called about once in a second.
    pub fn tend_kernels(&self) {
        self.kernels.tend(self.engine.memory_is_scarce());
        // They stay where they are until it can be done; the next one who wants to write is told.
        if let Err(error) = self.store.flush() {
            (self.tell)(&format_args!("runs could not be put into their table yet: {error}"));
        }
    }

    /// How many sessions have a kernel.
    pub fn count_kernels(&self) -> usize {
        self.kernels.count()
    }

    /// Ends all kernels.
    pub fn end_kernels(&self) {
        self.kernels.end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: usize) -> Owner {
        Owner { client: "chat".to_owned(), user: Some(number.to_string()) }
    }

    /// Clients may make up users: one who is refused must not stay in a table.
    #[test]
    fn owners_who_are_refused_are_not_remembered() {
        let kernels = Kernels::new(1);
        let places: Vec<_> =
            (0..MOST_WAITING_IN_ALL).map(|number| kernels.wait(&owner(number)).unwrap()).collect();
        for number in 0..1000 {
            assert!(matches!(kernels.wait(&owner(MOST_WAITING_IN_ALL + number)), Err(RunError::Busy { .. })));
        }
        assert_eq!(lock(&kernels.waiting).len(), MOST_WAITING_IN_ALL);
        drop(places);
        assert_eq!(lock(&kernels.waiting).len(), 0);
        let own: Vec<_> = (0..MOST_WAITING_OF_ONE).map(|_| kernels.wait(&owner(0)).unwrap()).collect();
        assert!(matches!(kernels.wait(&owner(0)), Err(RunError::Busy { .. })));
        assert!(kernels.wait(&owner(1)).is_ok());
        drop(own);
    }
}
