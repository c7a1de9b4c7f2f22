//! This process, under the names that Prometheus' own clients use for it.

use std::fs;
use std::sync::LazyLock;

use redoma_engine::meter::Exposition;
use rustix::process::{Resource, getrlimit};

/// What `/proc` counts time in: a hundredth of a second on every Linux, whatever the kernel's own tick.
const TICKS: f64 = 100.0;

/// A value that can't be had has no sample.
pub(super) fn write(page: &mut Exposition) {
    static STARTED: LazyLock<Option<f64>> = LazyLock::new(started);
    let stat = Stat::read();
    let cpu = stat.as_ref().and_then(|stat| Some((stat.number(14)? + stat.number(15)?) / TICKS));
    let mut seconds = page.counter("process_cpu_seconds", "CPU time of the service itself.");
    if let Some(cpu) = cpu {
        seconds.number(&[], cpu);
    }
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        let mut samples = page.gauge(name, help);
        if let Some(value) = value {
            samples.number(&[], value);
        }
    };
    let of_stat = |field: usize| stat.as_ref().and_then(|stat| stat.number(field));
    gauge("process_resident_memory_bytes", "Memory that the service holds.", resident());
    gauge("process_virtual_memory_bytes", "Address space of the service.", of_stat(23));
    gauge("process_threads", "Threads of the service.", of_stat(20));
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    let as_number = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
    // The one that counts is among them.
    gauge(
        "process_open_fds",
        "Open files of the service.",
        open.map(|count| as_number(count.saturating_sub(1))),
    );
    let most = getrlimit(Resource::Nofile)
        .current
        .map(|most| as_number(usize::try_from(most).unwrap_or(usize::MAX)));
    gauge("process_max_fds", "Open files that the service may have.", most);
    gauge("process_start_time_seconds", "When the service started, since 1970.", *STARTED);
}

/// `/proc/self/stat`, from behind the name, which can hold anything.
struct Stat(String);

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        Some(Self(text.rsplit_once(')')?.1.to_owned()))
    }

    /// By its number in `proc_pid_stat(5)`.
    fn number(&self, field: usize) -> Option<f64> {
        self.0.split_whitespace().nth(field - 3)?.parse().ok()
    }
}

/// In `status` it is in KiB, and not in pages, whose size differs from machine to machine.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn started() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + Stat::read()?.number(22)? / TICKS)
}
