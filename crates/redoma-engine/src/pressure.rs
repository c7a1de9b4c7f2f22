//! How hard the host breathes: memory, processes, and the time that tasks stand still for want of something (PSI). A thread looks
//! twice in a second; everybody else reads one number.
//!
//! | level | what follows |
//! |---|---|
//! | [`Level::Normal`] | nothing |
//! | [`Level::Tight`] | pools keep one sandbox each; if it is memory that is scarce, the live session not used for longest is let go |
//! | [`Level::Critical`] | pools are emptied, and no program is started: whoever asks is told to come back. What runs goes on |
//!
//! What sandboxes *may* use is not added up: most programs use a hundredth of it, and limits that could not be promised to all at
//! once are still limits. What counts is what is really left.
//!
//! Stalls alone don't make it critical, and cost nobody a live session. A program that thrashes inside its own memory limit stalls
//! too, and that must not be others' trouble: it takes stalls *and* little memory. The processor is not looked at for levels: it is shared fairly,
//! and whoever waits for it waits in a queue.
//!
//! A level is taken at once and left slowly: one step at a time, after things were clearly better for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How hard it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Normal,
    Tight,
    Critical,
}

impl Level {
    const ALL: [Self; 3] = [Self::Normal, Self::Tight, Self::Critical];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Tight => "tight",
            Self::Critical => "critical",
        }
    }
}

/// From where on it is how hard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureLimits {
    /// Below so many available bytes nothing is started.
    pub reserve_bytes: u64,
    /// The same in percent of all memory; the larger of the two counts.
    pub reserve_percent: u64,
    /// Below so many times the reserve, memory is tight.
    pub tight_times: u64,
    /// Percent of the last ten seconds in which somebody stood still for want of memory: then it is tight.
    pub stalled_some: f64,
    /// Percent of them in which everybody did: then, and if memory is tight too, it is critical.
    pub stalled_full: f64,
    /// Percent of all process numbers that are taken.
    pub pids_tight: u64,
    pub pids_critical: u64,
    /// How often a better state must be seen, one after the other, before a level is left.
    pub calm_looks: u32,
}

impl Default for PressureLimits {
    fn default() -> Self {
        Self {
            reserve_bytes: 256 << 20,
            reserve_percent: 5,
            tight_times: 2,
            stalled_some: 40.0,
            stalled_full: 20.0,
            pids_tight: 75,
            pids_critical: 90,
            calm_looks: 6,
        }
    }
}

/// How often the thread looks.
pub const EVERY: Duration = Duration::from_millis(500);

/// What was seen at one moment. What this host does not tell is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Bytes that could still be had: of the host, and of the control group that this process is in.
    pub available: Option<u64>,
    pub total: Option<u64>,
    /// Percent of the last ten seconds, by PSI.
    pub memory_some: Option<f64>,
    pub memory_full: Option<f64>,
    pub cpu_some: Option<f64>,
    pub io_full: Option<f64>,
    /// Percent of process numbers in use.
    pub pids_percent: Option<u64>,
}

impl PressureLimits {
    fn reserve(&self, sample: &Sample) -> u64 {
        // Where there is little memory at all, so much can't be kept: a quarter of it at most.
        let total = sample.total.unwrap_or(u64::MAX);
        self.reserve_bytes.max(total / 100 * self.reserve_percent).min(total / 4)
    }

    /// How hard it is, with each limit made stricter by so many percent: to leave a level takes more than not to enter it.
    fn level(&self, sample: &Sample, stricter: u64) -> Level {
        let reserve = self.reserve(sample) / 100 * (100 + stricter);
        let share =
            |percent: f64| percent * 100.0 / (100.0 + f64::from(u32::try_from(stricter).unwrap_or(0)));
        let is_below = |bytes: u64| sample.available.is_some_and(|available| available < bytes);
        let has_pids =
            |percent: u64| sample.pids_percent.is_some_and(|used| used >= percent * 100 / (100 + stricter));
        let is_scarce = is_below(reserve.saturating_mul(self.tight_times));
        let stalls = |seen: Option<f64>, percent: f64| seen.is_some_and(|seen| seen >= share(percent));
        let is_thrashing = stalls(sample.memory_full, self.stalled_full) && is_scarce;
        if is_below(reserve) || is_thrashing || has_pids(self.pids_critical) {
            Level::Critical
        } else if is_scarce || stalls(sample.memory_some, self.stalled_some) || has_pids(self.pids_tight) {
            Level::Tight
        } else {
            Level::Normal
        }
    }
}

/// The monitor. Cheap to ask, from any thread.
#[derive(Debug)]
pub struct Pressure {
    limits: PressureLimits,
    host: HostFiles,
    level: AtomicU8,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Sample,
    /// Looks in a row at which things were better than the level says.
    calm: u32,
}

/// How much stricter a limit is for leaving a level, in percent.
const HYSTERESIS: u64 = 25;

impl Pressure {
    /// Looks for the first time.
    pub fn new(limits: PressureLimits) -> Self {
        Self::of(limits, HostFiles::find(Path::new("/proc"), Path::new("/sys/fs/cgroup")))
    }

    fn of(limits: PressureLimits, host: HostFiles) -> Self {
        let pressure = Self { limits, host, level: AtomicU8::new(0), state: Mutex::default() };
        pressure.look();
        pressure
    }

    pub fn level(&self) -> Level {
        Level::ALL[usize::from(self.level.load(Ordering::Relaxed)).min(2)]
    }

    pub fn last(&self) -> Sample {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Whether little memory is left, whatever stalls.
    pub fn memory_is_scarce(&self) -> bool {
        let sample = self.last();
        let enough = self.limits.reserve(&sample).saturating_mul(self.limits.tight_times);
        sample.available.is_some_and(|available| available < enough)
    }

    /// Whether this kernel tells of stalls (`CONFIG_PSI`).
    pub fn tells_stalls(&self) -> bool {
        self.last().memory_some.is_some()
    }

    /// Looks around: to be called every [`EVERY`].
    pub fn look(&self) -> Level {
        let sample = self.host.sample();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = sample;
        let (current, seen) = (self.level(), self.limits.level(&sample, 0));
        let next = if seen > current {
            state.calm = 0;
            seen
        } else if self.limits.level(&sample, HYSTERESIS) < current {
            state.calm += 1;
            if state.calm < self.limits.calm_looks {
                current
            } else {
                state.calm = 0;
                if current == Level::Critical { Level::Tight } else { Level::Normal }
            }
        } else {
            state.calm = 0;
            current
        };
        self.level.store(next as u8, Ordering::Relaxed);
        next
    }
}

/// Where the kernel tells it.
#[derive(Debug, Clone)]
struct HostFiles {
    proc: PathBuf,
    /// Pairs of files (usage, limit) of the control groups that this process is in, up to the root.
    memory_groups: Vec<(PathBuf, PathBuf)>,
    pids_groups: Vec<(PathBuf, PathBuf)>,
}

impl HostFiles {
    fn find(proc: &Path, cgroup: &Path) -> Self {
        let own = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
        let mut files = Self { proc: proc.to_owned(), memory_groups: Vec::new(), pids_groups: Vec::new() };
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let has = |name: &str| controllers.split(',').any(|known| known == name);
            if controllers.is_empty() {
                files.memory_groups.extend(up_from(cgroup, path, ["memory.current", "memory.max"]));
                files.pids_groups.extend(up_from(cgroup, path, ["pids.current", "pids.max"]));
            }
            if has("memory") {
                let names = ["memory.usage_in_bytes", "memory.limit_in_bytes"];
                files.memory_groups.extend(up_from(&cgroup.join("memory"), path, names));
            }
            if has("pids") {
                files.pids_groups.extend(up_from(&cgroup.join("pids"), path, ["pids.current", "pids.max"]));
            }
        }
        files
    }

    fn sample(&self) -> Sample {
        let meminfo = fs::read_to_string(self.proc.join("meminfo")).unwrap_or_default();
        let kib = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
        };
        let (mut available, mut total) =
            (kib("MemAvailable:").map(|n| n << 10), kib("MemTotal:").map(|n| n << 10));
        for (usage, limit) in &self.memory_groups {
            if let Some((left, limit)) = left_in_group(usage, limit) {
                available = Some(available.map_or(left, |bytes| bytes.min(left)));
                total = Some(total.map_or(limit, |bytes| bytes.min(limit)));
            }
        }
        let memory = self.stalls("memory");
        Sample {
            available,
            total,
            memory_some: memory.0,
            memory_full: memory.1,
            cpu_some: self.stalls("cpu").0,
            io_full: self.stalls("io").1,
            pids_percent: self.pids_percent(),
        }
    }

    /// `some` and `full` of the last ten seconds.
    fn stalls(&self, what: &str) -> (Option<f64>, Option<f64>) {
        let text = fs::read_to_string(self.proc.join("pressure").join(what)).unwrap_or_default();
        let of = |kind: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
            line.split_whitespace().find_map(|field| field.strip_prefix("avg10=")?.parse().ok())
        };
        (of("some "), of("full "))
    }

    fn pids_percent(&self) -> Option<u64> {
        let loadavg = fs::read_to_string(self.proc.join("loadavg")).ok();
        // `0.1 0.2 0.3 running/all last`: all threads of the host.
        let threads =
            loadavg.and_then(|text| text.split_whitespace().nth(3)?.split('/').nth(1)?.parse::<u64>().ok());
        let most = number(&self.proc.join("sys/kernel/pid_max"));
        let of_host = threads.zip(most).map(|(threads, most)| threads * 100 / most.max(1));
        let of_groups = self.pids_groups.iter().filter_map(|(current, most)| {
            let (current, most) = (number(current)?, number(most)?);
            Some(current * 100 / most.max(1))
        });
        of_groups.chain(of_host).max()
    }
}

/// Both files of a group and of all above it, as far as they are there.
fn up_from(root: &Path, path: &str, names: [&str; 2]) -> Vec<(PathBuf, PathBuf)> {
    let groups = Path::new(path.trim_start_matches('/')).ancestors().map(|group| root.join(group));
    let files = groups.map(|group| (group.join(names[0]), group.join(names[1])));
    files.filter(|(usage, limit)| usage.exists() && limit.exists()).collect()
}

/// Bytes that a group could still take, and its limit; nothing where it has none.
fn left_in_group(usage: &Path, limit: &Path) -> Option<(u64, u64)> {
    let limit_bytes = number(limit).filter(|bytes| *bytes < 1 << 60)?;
    // What is only kept of files in case somebody reads them again goes when it is needed.
    let stat = fs::read_to_string(usage.with_file_name("memory.stat")).unwrap_or_default();
    let field =
        |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let cache = field("total_inactive_file ").or_else(|| field("inactive_file ")).unwrap_or(0);
    let used = number(usage)?.saturating_sub(cache);
    Some((limit_bytes.saturating_sub(used), limit_bytes))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn sample(available: u64) -> Sample {
        Sample { available: Some(available), total: Some(16 * GIB), ..Sample::default() }
    }

    fn level(sample: &Sample) -> Level {
        PressureLimits::default().level(sample, 0)
    }

    #[test]
    fn what_is_left_decides() {
        assert_eq!(level(&sample(8 * GIB)), Level::Normal);
        assert_eq!(level(&sample(GIB)), Level::Tight, "less than twice 5 % of 16 GiB");
        assert_eq!(level(&sample(GIB / 2)), Level::Critical);
        assert_eq!(level(&Sample::default()), Level::Normal, "a host that tells nothing is not refused");
        let small = Sample { available: Some(200 << 20), total: Some(512 << 20), ..Sample::default() };
        assert_ne!(level(&small), Level::Critical, "a small host can still run something");
    }

    #[test]
    fn a_program_that_thrashes_in_its_own_limit_stops_nobody_else() {
        let thrashing = Sample { memory_some: Some(95.0), memory_full: Some(90.0), ..sample(8 * GIB) };
        assert_eq!(level(&thrashing), Level::Tight);
        assert_eq!(level(&Sample { available: Some(GIB), ..thrashing }), Level::Critical);
        assert_eq!(
            level(&Sample { cpu_some: Some(100.0), io_full: Some(100.0), ..sample(8 * GIB) }),
            Level::Normal
        );
    }

    #[test]
    fn process_numbers_can_run_out_too() {
        assert_eq!(level(&Sample { pids_percent: Some(80), ..sample(8 * GIB) }), Level::Tight);
        assert_eq!(level(&Sample { pids_percent: Some(95), ..sample(8 * GIB) }), Level::Critical);
    }

    /// A host made of files.
    struct FakeHost(tempfile::TempDir);

    impl FakeHost {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("proc/self/cgroup", "0::/system.slice/redoma.service\n");
            write("proc/loadavg", "0.5 0.4 0.3 2/300 12345\n");
            write("proc/sys/kernel/pid_max", "32768\n");
            let host = Self(folder);
            host.memory(8 * GIB);
            host
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn memory(&self, available: u64) {
            let text = format!("MemTotal: {} kB\nMemAvailable:  {} kB\n", (16 * GIB) >> 10, available >> 10);
            self.write("proc/meminfo", &text);
        }

        fn pressure(&self) -> Pressure {
            let files = HostFiles::find(&self.0.path().join("proc"), &self.0.path().join("cgroup"));
            Pressure::of(PressureLimits::default(), files)
        }
    }

    #[test]
    fn a_level_is_taken_at_once_and_left_slowly() {
        let host = FakeHost::new();
        let pressure = host.pressure();
        assert_eq!((pressure.level(), pressure.tells_stalls()), (Level::Normal, false));
        host.memory(GIB / 4);
        assert_eq!(pressure.look(), Level::Critical);
        // Just above the limit is not clearly better.
        host.memory(900 << 20);
        for _ in 0..20 {
            assert_eq!(pressure.look(), Level::Critical);
        }
        host.memory(8 * GIB);
        let levels: Vec<_> = (0..14).map(|_| pressure.look()).collect();
        assert_eq!(levels[..5], [Level::Critical; 5]);
        assert_eq!(levels[5..11], [Level::Tight; 6]);
        assert_eq!(levels[11], Level::Normal);
    }

    #[test]
    fn the_services_own_group_counts_where_it_is_tighter_than_the_host() {
        let host = FakeHost::new();
        let group = "cgroup/system.slice/redoma.service";
        host.write(&format!("{group}/memory.max"), &(2 * GIB).to_string());
        host.write(&format!("{group}/memory.current"), &(2 * GIB - (64 << 20)).to_string());
        host.write(&format!("{group}/memory.stat"), "anon 1\ninactive_file 0\n");
        host.write("cgroup/system.slice/memory.max", "max");
        host.write("cgroup/system.slice/memory.current", "1");
        let pressure = host.pressure();
        assert_eq!(pressure.last().available, Some(64 << 20));
        assert_eq!(pressure.level(), Level::Critical);
        host.write(&format!("{group}/memory.stat"), &format!("anon 1\ninactive_file {GIB}\n"));
        pressure.look();
        assert_eq!(
            pressure.last().available,
            Some(GIB + (64 << 20)),
            "a cache of files is no want of memory"
        );
    }

    #[test]
    fn stalls_and_process_numbers_are_read() {
        let host = FakeHost::new();
        host.write("proc/pressure/memory", "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=3.25 avg60=0.00 avg300=0.00 total=1\n");
        host.write("proc/pressure/cpu", "some avg10=99.00 avg60=0.00 avg300=0.00 total=1\n");
        host.write("cgroup/system.slice/redoma.service/pids.max", "200");
        host.write("cgroup/system.slice/redoma.service/pids.current", "190");
        let seen = host.pressure().last();
        assert_eq!((seen.memory_some, seen.memory_full, seen.cpu_some), (Some(12.5), Some(3.25), Some(99.0)));
        assert_eq!(seen.pids_percent, Some(95));
        assert!(!host.pressure().memory_is_scarce(), "stalls and processes are not memory");
        host.memory(GIB);
        assert!(host.pressure().memory_is_scarce());
    }
}
