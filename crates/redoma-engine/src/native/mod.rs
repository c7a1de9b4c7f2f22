//! The native backend: sandboxes by this kernel alone, made ahead of time where that is faster.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the backend, and the threads that keep it supplied |
//! | `nursery.rs` | the process tree in which sandboxes are made |
//! | `zygotes.rs` | interpreters with libraries loaded: a tree of them, restarted and rotated |
//! | `pool.rs` | sandboxes that wait |
//! | `overheard.rs` | what the kernel says of them |
//! | `kernel/` | sessions whose process goes on from cell to cell |
//! | `warm.rs` | one run in a sandbox that waited |

mod kernel;
mod nursery;
mod overheard;
mod pool;
mod warm;
mod zygotes;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redoma_jail::janitor::{Janitor, Leftovers, Made, OwnerTag};
use redoma_jail::nursery::{Assignment, Hurry};
use redoma_model::{Layer, Limits, Profile};

use crate::backend::{Assigned, Backend, Restarts, Status};
use crate::host::Host;
use crate::identity::Identities;
use crate::imports::{imported_modules, read_imported};
use crate::kernel::{Kernel, KernelRequest};
use crate::language::{Languages, Warm};
use crate::meter::Counter;
use crate::pressure::{self, Level, Pressure, PressureLimits};
use crate::request::{RunError, RunRequest};
use crate::runtime::Runtime;
use crate::staging::RunFolder;
use crate::tools::Tools;

use kernel::NativeKernel;
use nursery::{Nursery, STAGED};
use overheard::Overheard;
use pool::{Kind, Pool, Ready, Seal};
use warm::WarmRun;
use zygotes::Zygotes;

/// What this program puts into a nursery for those inside.
#[derive(Debug, Clone)]
pub struct InsideFiles {
    /// This program, which is the keeper there.
    pub program: PathBuf,
    pub python_library: &'static [u8],
    pub zygote: &'static str,
    /// What the zygote imports for programs that call tools.
    pub tools: &'static str,
    /// What a session's kernel is made of: names below the nursery's own folder, and contents.
    pub kernel: &'static [(&'static str, &'static str)],
    pub prewarm: &'static str,
}

/// How the backend keeps itself supplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// Sandboxes of each kind that wait at least, and at most.
    pub floor: usize,
    pub ceiling: usize,
    /// A zygote is replaced after so many sandboxes, or when it is so old: its copies share the layout of memory.
    pub zygote_sandboxes: u32,
    pub zygote_age: Duration,
}

impl Default for Supply {
    fn default() -> Self {
        Self { floor: 2, ceiling: 32, zygote_sandboxes: 2000, zygote_age: Duration::from_hours(1) }
    }
}

/// Everything that a backend is made with.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    pub data_dir: PathBuf,
    pub waived: Vec<Layer>,
    /// The profile that sandboxes are made ahead for. Others' requests get what fits of it.
    pub profile: Profile,
    pub inside: InsideFiles,
    pub supply: Supply,
    /// From where on the host is short of something.
    pub pressure: PressureLimits,
    /// Only these languages, if any are named: for whoever knows what comes.
    pub languages: Vec<String>,
}

/// What all threads of the backend share.
#[derive(Debug)]
pub(crate) struct Shared {
    config: NativeConfig,
    host: Host,
    identities: Identities,
    languages: Languages,
    pools: Vec<Pool>,
    zygotes: Zygotes,
    pressure: Arc<Pressure>,
    nursery: Mutex<Option<Arc<Nursery>>>,
    /// Why there is no nursery, for those who wait for one.
    trouble: Mutex<Option<String>>,
    /// Why the last sandbox that was to be made ahead was not.
    last_failure: Mutex<Option<String>>,
    running: AtomicUsize,
    /// Nurseries that had to be made anew.
    nursery_restarts: Counter,
    overheard: Overheard,
    stopping: AtomicBool,
    /// When each thread that keeps the supply up was last seen to move.
    beats: Beats,
    /// Wakes the threads that keep the supply up.
    wake: Condvar,
    wake_lock: Mutex<()>,
}

/// The backend. Dropping it ends everything.
#[derive(Debug)]
pub struct Native {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    undertaker: Mutex<Option<std::sync::mpsc::SyncSender<warm::Remains>>>,
    /// Holds this program as it was when it started.
    _own_program: RunFolder,
    /// Last, so that it outlives what it watches over.
    _janitor: Janitor,
}

/// How often the warden looks around when nobody calls it.
const ROUND: Duration = Duration::from_millis(200);
/// How long a first nursery may take: starting an interpreter and its imports.
const PREPARATION: Duration = Duration::from_mins(2);

impl Native {
    /// Starts it: a janitor, then threads that make a nursery and fill the pools. Must be called while this process has a
    /// single thread, for the janitor's sake.
    pub fn start(mut config: NativeConfig) -> Result<Self, RunError> {
        let host = Host::detect();
        host.layers_or_refuse(&config.waived)?;
        let identities = Identities::find()?;
        let janitor = Janitor::start(
            &Leftovers {
                made: Made::AllOfThisProcess,
                cgroup_parents: host
                    .hierarchy
                    .iter()
                    .flat_map(redoma_jail::cgroup::Hierarchy::parents)
                    .collect(),
                run_parent: config.data_dir.join("run"),
            },
            identities.uids(),
        )?;
        // A runtime that is not there is told now, and not by every request.
        Runtime::find(&config.profile.runtime, &config.data_dir)?;
        let run_parent = config.data_dir.join("run");
        let own_program = RunFolder::make(&run_parent, &OwnerTag::new())?;
        config.inside.program = own_program.keep_program(&config.inside.program)?;
        raise_open_files();
        let languages = Languages::built_in();
        let zygotes = Zygotes::new(&config.profile.preload);
        let wants = |id: &str| config.languages.is_empty() || config.languages.iter().any(|name| name == id);
        let mut kinds = vec![Kind::Exec];
        for language in languages.all().iter().filter(|language| wants(language.id)) {
            match (language.warm, language.stage) {
                (Some(Warm::Zygote), _) => {
                    kinds.extend(
                        (0..zygotes.count()).map(|set| Kind::Zygote { set, name: zygotes.name(set) }),
                    );
                }
                (Some(Warm::Ahead), _) => kinds.push(Kind::Ahead(language.id.to_owned())),
                (None, Some(_)) => kinds.push(Kind::Staged),
                (None, None) => {}
            }
        }
        let pools = [Seal::Ahead, Seal::OnAssignment]
            .into_iter()
            .flat_map(|seal| kinds.iter().map(move |kind| Pool::new(kind.clone(), seal, config.supply)))
            .collect();
        let pressure = Arc::new(Pressure::new(config.pressure));
        let shared = Arc::new(Shared {
            config,
            host,
            identities,
            languages,
            pools,
            zygotes,
            pressure,
            beats: Beats::new(),
            nursery: Mutex::default(),
            trouble: Mutex::default(),
            last_failure: Mutex::default(),
            running: AtomicUsize::new(0),
            nursery_restarts: Counter::default(),
            overheard: Overheard::default(),
            stopping: AtomicBool::new(false),
            wake: Condvar::new(),
            wake_lock: Mutex::default(),
        });
        // Bounded: what has ended and is not yet gone still takes memory. Whoever finds no room ends it itself, in its own turn.
        let (undertaker, remains) = std::sync::mpsc::sync_channel::<warm::Remains>(UNDERTAKERS);
        let remains = Arc::new(Mutex::new(remains));
        let mut threads = Vec::new();
        let mut spawn = |name: &str, work: Box<dyn FnOnce() + Send>| -> std::io::Result<()> {
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
            Ok(())
        };
        // The nursery dies with the thread that made it: this one lives as long as the backend.
        let warden = Arc::clone(&shared);
        spawn("warden", Box::new(move || warden.keep_nursery()))?;
        let watcher = Arc::clone(&shared);
        spawn("pressure", Box::new(move || watcher.watch_pressure()))?;
        for _ in 0..FILLERS {
            let filler = Arc::clone(&shared);
            spawn("filler", Box::new(move || filler.keep_pools_filled()))?;
        }
        for _ in 0..UNDERTAKERS {
            let (waker, remains) = (Arc::clone(&shared), Arc::clone(&remains));
            spawn(
                "undertaker",
                Box::new(move || {
                    loop {
                        let next = remains.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(next) = next else { return };
                        drop(next);
                        waker.wake();
                    }
                }),
            )?;
        }
        Overheard::begin(&shared);
        Ok(Self {
            shared,
            threads,
            undertaker: Mutex::new(Some(undertaker)),
            _own_program: own_program,
            _janitor: janitor,
        })
    }

    /// Makes sure that so many sandboxes of a kind wait; comes back when they do. For measurements.
    pub fn fill(&self, pool: &str, count: usize) -> Result<(), RunError> {
        let pool = self.shared.pools.iter().find(|known| known.name() == pool);
        let Some(pool) = pool else { return Err(std::io::Error::other("there is no such pool").into()) };
        pool.want(count);
        self.shared.wake();
        self.wait_until(|| pool.idle() >= count)
    }

    fn wait_until(&self, is_done: impl Fn() -> bool) -> Result<(), RunError> {
        let deadline = Instant::now() + PREPARATION;
        while !is_done() {
            let trouble = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match trouble {
                Some(trouble) => return Err(std::io::Error::other(trouble).into()),
                None if Instant::now() > deadline => {
                    let last =
                        self.shared.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let why = last.unwrap_or_else(|| "it takes too long".to_owned());
                    return Err(
                        std::io::Error::other(format!("no sandboxes could be made ahead: {why}")).into()
                    );
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        Ok(())
    }
}

/// Each waiting sandbox takes a dozen descriptors; many systems start with a thousand in all, and let one have more.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The most bytes that arguments can take, however they are written down: six for one in JSON.
fn escaped_length(arguments: &[String]) -> usize {
    arguments.iter().map(|argument| argument.len() * 6 + 16).sum()
}

/// What a payload holds beside arguments: paths, the environment, names.
const MOST_ELSE: usize = 16 << 10;

/// What the functions of a run's tools take of it at most.
fn tools_length(request: &RunRequest<'_>) -> usize {
    request.tools.iter().flat_map(Tools::names).map(|name| 2 * name.len() + 64).sum()
}

/// The limits that a sandbox is made with. The others are its supervisor's to look at.
fn of_sandbox(limits: &Limits) -> Limits {
    let Limits { wall, output, .. } = Limits::default();
    Limits { wall, output, ..limits.clone() }
}

/// Threads that end and remove what is left of runs.
const UNDERTAKERS: usize = 2;

/// Threads that make sandboxes ahead of time.
const FILLERS: usize = 2;

impl Backend for Native {
    fn prepare(&self) -> Result<(), RunError> {
        self.wait_until(|| self.shared.pools.iter().all(Pool::is_at_floor))
    }

    fn assign<'a, 'r: 'a>(&'a self, request: RunRequest<'r>) -> Result<Box<dyn Assigned + 'a>, RunError> {
        if self.shared.stopping.load(Ordering::Relaxed) {
            return Err(RunError::ShuttingDown);
        }
        let undertaker = self.undertaker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let run = WarmRun::assign(&self.shared, request, undertaker.ok_or(RunError::ShuttingDown)?)?;
        Ok(Box::new(run))
    }

    fn start_kernel(&self, request: &KernelRequest<'_>) -> Result<Box<dyn Kernel>, RunError> {
        if self.shared.stopping.load(Ordering::Relaxed) {
            return Err(RunError::ShuttingDown);
        }
        Ok(Box::new(NativeKernel::start(&self.shared, request)?))
    }

    fn status(&self) -> Status {
        let nursery = self.shared.current_nursery();
        let (died, worn) = self.shared.zygotes.replaced();
        Status {
            restarts: Restarts { died, worn, nursery: self.shared.nursery_restarts.get() },
            kernel_words: self.shared.overheard.read(),
            pools: self.shared.pools.iter().map(Pool::status).collect(),
            left_out: self.shared.zygotes.left_out(),
            pids: nursery.iter().flat_map(|nursery| nursery.pids()).collect(),
        }
    }

    fn pressure(&self) -> Option<&Arc<Pressure>> {
        Some(&self.shared.pressure)
    }

    fn stuck(&self) -> Option<String> {
        self.shared.beats.stuck()
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.undertaker.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for pool in &self.shared.pools {
            pool.clear();
        }
        self.shared.zygotes.clear();
        self.shared.nursery.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// When threads were last seen to move. One that does not for longer than anything takes that it does hangs.
#[derive(Debug)]
struct Beats {
    warden: Beat,
    /// Any of them.
    fillers: Beat,
    pressure: Beat,
}

#[derive(Debug)]
struct Beat(Mutex<Instant>);

impl Beat {
    fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn age(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// The longest that a thread may take: for all zygotes of a new nursery, one after the other.
const STUCK: Duration = Duration::from_mins(10);

impl Beats {
    fn new() -> Self {
        let now = || Beat(Mutex::new(Instant::now()));
        Self { warden: now(), fillers: now(), pressure: now() }
    }

    fn stuck(&self) -> Option<String> {
        let all = [("warden", &self.warden), ("fillers", &self.fillers), ("pressure", &self.pressure)];
        let (name, beat) = all.into_iter().find(|(_, beat)| beat.age() > STUCK)?;
        Some(format!("the engine's thread `{name}` has not moved for {} s", beat.age().as_secs()))
    }
}

impl Shared {
    /// The life of the thread that looks how the host is.
    fn watch_pressure(&self) {
        while !self.stopping.load(Ordering::Relaxed) {
            self.beats.pressure.beat();
            self.pressure.look();
            self.rest(pressure::EVERY);
        }
    }

    fn wake(&self) {
        drop(self.wake_lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }

    /// Sleeps, but not past the backend's end.
    fn rest(&self, for_long: Duration) {
        let until = Instant::now() + for_long;
        while !self.stopping.load(Ordering::Relaxed) && Instant::now() < until {
            std::thread::sleep(
                Duration::from_millis(20).min(until.saturating_duration_since(Instant::now())),
            );
        }
    }

    fn sleep(&self, at_most: Duration) {
        let guard = self.wake_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stopping.load(Ordering::Relaxed) {
            drop(self.wake.wait_timeout(guard, at_most));
        }
    }

    fn current_nursery(&self) -> Option<Arc<Nursery>> {
        self.nursery.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The warden's life: a nursery is always there, and its zygotes are alive and not too old.
    fn keep_nursery(&self) {
        let mut failures = 0u32;
        while !self.stopping.load(Ordering::Relaxed) {
            self.beats.warden.beat();
            let current = self.current_nursery();
            let is_sound = current.as_ref().is_some_and(|nursery| nursery.is_sound());
            if !is_sound {
                // Those that run in the old one go on; it ends with the last of them.
                if current.is_some() {
                    self.nursery_restarts.add_one();
                }
                self.zygotes.clear();
                for pool in &self.pools {
                    pool.clear();
                }
                let made = Nursery::start(self).map(Arc::new);
                let trouble = made.as_ref().err().map(ToString::to_string);
                *self.nursery.lock().unwrap_or_else(PoisonError::into_inner) = made.ok();
                failures = if trouble.is_some() { failures.saturating_add(1) } else { 0 };
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            }
            if let Some(nursery) = self.current_nursery()
                && self.pools.iter().any(|pool| matches!(pool.kind(), Kind::Zygote { .. }))
            {
                self.zygotes.tend(nursery.keeper(), &self.config.supply, &self.stopping);
            }
            if let Some(nursery) = self.current_nursery() {
                nursery.ignore_output();
            }
            let level = self.pressure.level();
            for pool in &self.pools {
                pool.adjust(level);
            }
            self.wake();
            self.rest(ROUND * 2u32.pow(failures.min(6)));
        }
    }

    /// A filler's life: whenever a pool wants more than it has, and nothing more urgent is going on, make one.
    fn keep_pools_filled(&self) {
        while !self.stopping.load(Ordering::Relaxed) {
            self.beats.fillers.beat();
            let is_quiet = self.running.load(Ordering::Relaxed) == 0;
            let needy =
                self.pools.iter().filter(|pool| pool.wants_more(is_quiet)).max_by_key(|pool| pool.need());
            let needy = needy.filter(|_| self.pressure.level() < Level::Critical);
            let made = needy.and_then(|pool| {
                let _making = pool.note_making();
                match self.make(pool, Hurry::No) {
                    Ok(ready) => Some((pool, ready)),
                    Err(error) => {
                        let mut last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
                        *last = Some(error.to_string());
                        None
                    }
                }
            });
            match made {
                Some((pool, ready)) => pool.put(ready),
                None => self.sleep(if needy.is_some() { Duration::from_millis(20) } else { ROUND }),
            }
        }
    }

    /// A sandbox for this pool, made now.
    fn make(&self, pool: &Pool, hurry: Hurry) -> Result<Ready, RunError> {
        let nursery = self.current_nursery().ok_or(RunError::ShuttingDown)?;
        let by_keeper = |variant: &str| nursery.make(self, nursery.keeper(), variant, pool.seal(), hurry);
        match pool.kind() {
            Kind::Exec => by_keeper(""),
            Kind::Staged => by_keeper(STAGED),
            Kind::Ahead(language) => by_keeper(language),
            Kind::Zygote { set, .. } => {
                let zygote = self.zygotes.get(*set).ok_or(RunError::ShuttingDown)?;
                let made = nursery.make(self, zygote.channel(), "", pool.seal(), hurry);
                zygote.note(made.is_ok());
                made
            }
        }
    }

    /// The best pools for a request, best first. The last always can.
    fn choose(&self, request: &RunRequest<'_>, script: &str) -> Vec<&Pool> {
        let mut kinds = Vec::new();
        match request.language.warm {
            Some(Warm::Zygote) => {
                let mut imports = imported_modules(&request.source.code);
                let own_modules = read_imported(&request.inputs, &imports);
                imports.extend(own_modules.iter().flat_map(|source| imported_modules(source)));
                if request.tools.is_some() {
                    imports.insert("asyncio");
                }
                let sets = self.zygotes.best_for(&imports).into_iter();
                kinds.extend(sets.map(|set| Kind::Zygote { set, name: self.zygotes.name(set) }));
            }
            // It was started for the script of this name.
            Some(Warm::Ahead) if script == request.language.script => {
                kinds.push(Kind::Ahead(request.language.id.to_owned()));
            }
            _ => {}
        }
        // An interpreter of its own knows of no tools.
        if request.tools.is_none() || request.language.warm != Some(Warm::Zygote) {
            kinds.push(if request.language.stage.is_some() { Kind::Staged } else { Kind::Exec });
        }
        let is_usual = request.inputs.is_empty()
            && of_sandbox(&request.terms.limits) == of_sandbox(&self.config.profile.limits)
            && request.source.code.len() * 2 + escaped_length(&request.arguments) + tools_length(request)
                < Assignment::MOST_PAYLOAD / 2;
        let seal = if is_usual { Seal::Ahead } else { Seal::OnAssignment };
        let pool_of = |kind: &Kind| self.pools.iter().find(|pool| pool.kind() == kind && pool.seal() == seal);
        kinds.iter().filter_map(pool_of).collect()
    }

    /// A sandbox for a request: one that waits, else one made on the spot, by whoever can.
    fn take(&self, request: &RunRequest<'_>, script: &str) -> Result<(Ready, &Pool), RunError> {
        if escaped_length(&request.arguments) + tools_length(request) > Assignment::MOST_PAYLOAD - MOST_ELSE {
            return Err(RunError::ArgumentsTooLong);
        }
        let chosen = self.choose(request, script);
        let mut trouble = RunError::ShuttingDown;
        for pool in chosen {
            if let Some(ready) = pool.take() {
                return Ok((ready, pool));
            }
            match self.make(pool, Hurry::Yes) {
                Ok(ready) => return Ok((ready, pool)),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }
}
