//! The host's kernel memory seen from outside, and the part of it that a sandbox's control group was charged for.
//!
//! Linux charges most of what a system call allocates to the caller's memory cgroup, but not all of it. A test takes a
//! [`Snapshot`] before and after an attack, reads the [`Charge`] of the sandbox's group, and compares: growth that no
//! group was charged for is memory that one sandbox takes from all others, whatever its own limit says.
//!
//! The counters belong to the whole host, so that such a test runs alone (`.config/nextest.toml`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::host;

/// The lines of `/proc/meminfo` that tell of kernel memory.
const COUNTERS: [&str; 7] =
    ["Slab", "SUnreclaim", "SReclaimable", "VmallocUsed", "Percpu", "KernelStack", "PageTables"];

/// Lines of `/proc/meminfo` whose sum explains memory in use, but for pages that a driver or a socket took directly.
const EXPLAINED: [&str; 9] = [
    "MemFree",
    "Buffers",
    "Cached",
    "SwapCached",
    "AnonPages",
    "Slab",
    "VmallocUsed",
    "Percpu",
    "PageTables",
];

/// Slab caches that grow with the files that processes of the host read, and with looks at `/proc`.
const NOISY_CACHES: [&str; 6] = [
    "ext4_inode_cache",
    "buffer_head",
    "radix_tree_node",
    "proc_inode_cache",
    "jbd2_journal_head",
    "ext4_groupinfo_4k",
];

/// Number of slab caches and vmalloc callers that a [`Growth`] names.
const MAX_NAMED: usize = 6;

/// The host's counters at one moment. All sizes are in bytes.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    counters: BTreeMap<&'static str, u64>,
    direct_pages: u64,
    caches: BTreeMap<String, Cache>,
    vmalloc: BTreeMap<String, u64>,
}

/// One line of `/proc/slabinfo`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cache {
    /// Objects in use.
    pub objects: u64,
    /// Memory of all objects that its slabs have room for, in use or not.
    pub bytes: u64,
}

impl Snapshot {
    /// Reads the counters. `/proc/slabinfo` and `/proc/vmallocinfo` are readable for root alone; without them the
    /// snapshot names no caches and callers.
    pub fn take() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
        let lines = parse_meminfo(&meminfo);
        let line = |name: &str| lines.get(name).copied().unwrap_or(0);
        let explained: u64 = EXPLAINED.iter().map(|name| line(name)).sum();
        Self {
            counters: COUNTERS.into_iter().map(|name| (name, line(name))).collect(),
            direct_pages: line("MemTotal").saturating_sub(explained),
            caches: parse_slabinfo(&fs::read_to_string("/proc/slabinfo").unwrap_or_default()),
            vmalloc: parse_vmallocinfo(&fs::read_to_string("/proc/vmallocinfo").unwrap_or_default()),
        }
    }

    /// A line of `/proc/meminfo`, in bytes.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// A slab cache. Caches that the kernel merged have the name of one of them.
    pub fn cache(&self, name: &str) -> Cache {
        self.caches.get(name).copied().unwrap_or_default()
    }

    /// Kernel memory without page cache: slab, vmalloc (with kernel stacks), percpu and page tables.
    pub fn kernel(&self) -> u64 {
        ["Slab", "VmallocUsed", "Percpu", "PageTables"].iter().map(|name| self.counter(name)).sum()
    }

    /// The same without page tables and without caches that fill with whatever any process of the host reads: a measure of
    /// what one sandbox did on a machine that does other things, too.
    pub fn quiet_kernel(&self) -> u64 {
        let noise: u64 = NOISY_CACHES.iter().map(|name| self.cache(name).bytes).sum();
        let all: u64 = ["Slab", "VmallocUsed", "Percpu"].iter().map(|name| self.counter(name)).sum();
        all.saturating_sub(noise)
    }

    /// Only what the kernel allocates without charging it to a group, as far as it can be told by the name of a cache: less
    /// precise than [`quiet_kernel`](Self::quiet_kernel), but other processes of the host hardly change it. TCP sockets are
    /// among them: those of connections that wait to be accepted are not charged.
    pub fn unaccounted(&self) -> u64 {
        let slab: u64 =
            self.caches.iter().filter(|(name, _)| !is_accounted(name)).map(|(_, cache)| cache.bytes).sum();
        let is_stack =
            |caller: &str| ["kernel_clone", "unpurged", "alloc_thread_stack_node"].contains(&caller);
        let vmalloc: u64 =
            self.vmalloc.iter().filter(|(caller, _)| !is_stack(caller)).map(|(_, bytes)| bytes).sum();
        slab + vmalloc + self.counter("Percpu")
    }

    /// Pages in use that no other counter explains, such as those of pipes and socket buffers. Noisy: free pages that
    /// wait in a list of each CPU count, too.
    pub fn direct_pages(&self) -> u64 {
        self.direct_pages
    }

    /// Memory of translated BPF programs, which has one budget for the whole host.
    pub fn bpf(&self) -> u64 {
        self.vmalloc.iter().filter(|(caller, _)| is_of_bpf(caller)).map(|(_, bytes)| bytes).sum()
    }

    /// The difference to an earlier moment.
    pub fn since(&self, before: &Self) -> Growth {
        let named = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            let mut grown: Vec<(String, i64)> = now
                .iter()
                .map(|(name, bytes)| (name.clone(), difference(*bytes, then.get(name).copied().unwrap_or(0))))
                .filter(|(_, bytes)| *bytes > 0)
                .collect();
            grown.sort_by_key(|(name, bytes)| (-bytes, name.clone()));
            grown.truncate(MAX_NAMED);
            grown
        };
        let bytes_of = |caches: &BTreeMap<String, Cache>| {
            caches.iter().map(|(name, cache)| (name.clone(), cache.bytes)).collect()
        };
        Growth {
            counters: COUNTERS
                .into_iter()
                .map(|name| (name, difference(self.counter(name), before.counter(name))))
                .collect(),
            kernel: difference(self.kernel(), before.kernel()),
            quiet_kernel: difference(self.quiet_kernel(), before.quiet_kernel()),
            unaccounted: difference(self.unaccounted(), before.unaccounted()),
            direct_pages: difference(self.direct_pages, before.direct_pages),
            bpf: difference(self.bpf(), before.bpf()),
            caches: named(&bytes_of(&self.caches), &bytes_of(&before.caches)),
            dentries: difference(self.cache("dentry").bytes, before.cache("dentry").bytes),
            vmalloc: named(&self.vmalloc, &before.vmalloc),
        }
    }
}

/// The difference between two snapshots, in bytes. Memory that was given back counts below zero.
#[derive(Debug, Clone)]
pub struct Growth {
    counters: BTreeMap<&'static str, i64>,
    /// See [`Snapshot::kernel`].
    pub kernel: i64,
    /// See [`Snapshot::quiet_kernel`].
    pub quiet_kernel: i64,
    /// See [`Snapshot::unaccounted`].
    pub unaccounted: i64,
    /// See [`Snapshot::direct_pages`].
    pub direct_pages: i64,
    /// See [`Snapshot::bpf`].
    pub bpf: i64,
    /// The slab caches that grew most, first the one with the largest growth.
    pub caches: Vec<(String, i64)>,
    /// Names of files that the kernel remembers, those that do not exist among them.
    pub dentries: i64,
    /// The callers of vmalloc that grew most.
    pub vmalloc: Vec<(String, i64)>,
}

impl Growth {
    /// A line of `/proc/meminfo`.
    pub fn counter(&self, name: &str) -> i64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Kernel memory that the group was not charged for.
    pub fn uncharged(&self, charged: u64) -> i64 {
        self.kernel.saturating_sub(i64::try_from(charged).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "kernel {}", mebibytes(self.kernel))?;
        for name in ["SUnreclaim", "SReclaimable", "VmallocUsed", "Percpu", "PageTables"] {
            write!(out, ", {name} {}", mebibytes(self.counter(name)))?;
        }
        write!(out, ", direct pages {}, BPF {}", mebibytes(self.direct_pages), mebibytes(self.bpf))?;
        for (name, bytes) in self.caches.iter().chain(&self.vmalloc) {
            write!(out, "; {name} {}", mebibytes(*bytes))?;
        }
        Ok(())
    }
}

/// Bytes for a table.
#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
pub fn mebibytes(bytes: i64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The memory that a control group is charged for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charge {
    /// Everything: memory of processes, files and the kernel's.
    pub all: u64,
    /// The kernel's part.
    pub kernel: u64,
    /// Socket buffers, which version 1 counts apart.
    pub sockets: u64,
}

impl Charge {
    /// Reads the memory group in this folder, of either version.
    pub fn of_group(folder: &Path) -> Option<Self> {
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        if let Some(all) = number("memory.usage_in_bytes") {
            return Some(Self {
                all,
                kernel: number("memory.kmem.usage_in_bytes").unwrap_or(0),
                sockets: number("memory.kmem.tcp.usage_in_bytes").unwrap_or(0),
            });
        }
        let all = number("memory.current")?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let part = |key: &str| {
            stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
        };
        Some(Self { all, kernel: part("kernel "), sockets: part("sock ") })
    }

    /// The sum over all sandboxes of a supervisor.
    pub fn of_supervisor(supervisor: u32) -> Self {
        memory_groups_of(supervisor).iter().filter_map(|folder| Self::of_group(folder)).fold(
            Self::default(),
            |sum, one| Self {
                all: sum.all + one.all,
                kernel: sum.kernel + one.kernel,
                sockets: sum.sockets + one.sockets,
            },
        )
    }
}

/// The memory of all page tables in a supervisor's sandboxes.
pub fn page_tables_of(supervisor: u32) -> u64 {
    let members = |folder: &PathBuf| fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let of_process = |pid: &str| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
    };
    let groups = memory_groups_of(supervisor);
    groups.iter().map(|group| members(group).lines().filter_map(of_process).sum::<u64>()).sum()
}

/// The memory groups of a supervisor's sandboxes.
pub fn memory_groups_of(supervisor: u32) -> Vec<PathBuf> {
    host::cgroups_of(supervisor)
        .into_iter()
        .filter(|folder| {
            folder.join("memory.usage_in_bytes").exists() || folder.join("memory.current").exists()
        })
        .collect()
}

fn difference(now: u64, then: u64) -> i64 {
    i64::try_from(now).unwrap_or(i64::MAX) - i64::try_from(then).unwrap_or(i64::MAX)
}

/// `Name:   123 kB` to bytes.
fn parse_meminfo(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let kibibytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
            Some((name, kibibytes * 1024))
        })
        .collect()
}

/// `name active total objsize objperslab pagesperslab : … : slabdata active_slabs slabs …`
fn parse_slabinfo(text: &str) -> BTreeMap<String, Cache> {
    text.lines()
        .skip(2)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words.get(index)?.parse::<u64>().ok();
            let cache = Cache { objects: number(1)?, bytes: number(14)? * number(4)? * number(3)? };
            Some(((*words.first()?).to_owned(), cache))
        })
        .collect()
}

/// `0x…-0x…  SIZE caller+0x1/0x2 …`, summed by caller.
fn parse_vmallocinfo(text: &str) -> BTreeMap<String, u64> {
    let mut callers = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(1);
        let Some(bytes) = words.next().and_then(|size| size.parse::<u64>().ok()) else { continue };
        let caller = words.next().unwrap_or_default();
        // Addresses of devices are no memory.
        if line.contains("ioremap") {
            continue;
        }
        let name = caller.split('+').next().unwrap_or_default();
        *callers.entry(name.to_owned()).or_default() += bytes;
    }
    callers
}

/// Whether objects of a slab cache are charged to the group of the process that makes them. Caches that the kernel merged with
/// others tell it by a letter in their common name; of the rest these are known.
fn is_accounted(cache: &str) -> bool {
    const KNOWN: [&str; 14] = [
        "dentry",
        "filp",
        "bfilp",
        "vm_area_struct",
        "anon_vma",
        "anon_vma_chain",
        "task_struct",
        "signal_cache",
        "sighand_cache",
        "files_cache",
        "mm_struct",
        "cred_jar",
        "UNIX",
        "lsm_file_cache",
    ];
    let merged = fs::read_link(Path::new("/sys/kernel/slab").join(cache)).unwrap_or_default();
    let has_letter =
        merged.to_str().is_some_and(|name| name.split('-').next().unwrap_or_default().contains('A'));
    has_letter
        || KNOWN.contains(&cache)
        || NOISY_CACHES.contains(&cache)
        || cache.starts_with("kmalloc-cg-")
        || cache.ends_with("inode_cache")
}

/// Callers of vmalloc on behalf of BPF, by the names that kernels since 5.10 have.
fn is_of_bpf(caller: &str) -> bool {
    caller.starts_with("bpf_") || caller.starts_with("__bpf_") || caller.starts_with("execmem_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_counters_are_read() {
        let snapshot = Snapshot::take();
        assert!(snapshot.counter("Slab") > 1 << 20, "{snapshot:?}");
        assert!(snapshot.kernel() > snapshot.counter("Slab"));
        let growth = snapshot.since(&snapshot);
        assert_eq!((growth.kernel, growth.bpf), (0, 0));
        assert!(growth.caches.is_empty() && growth.vmalloc.is_empty());
    }

    #[test]
    fn a_cache_that_grew_is_named() {
        let header = "slabinfo - version: 2.1\n# name\n";
        let line = |objects: u64, slabs: u64| {
            format!("{header}dentry {objects} 100 192 21 2 : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n")
        };
        let with = |text: &str| Snapshot { caches: parse_slabinfo(text), ..Snapshot::default() };
        let growth = with(&line(90, 30)).since(&with(&line(10, 10)));
        assert_eq!(with(&line(90, 30)).cache("dentry").objects, 90);
        assert_eq!(growth.caches, [("dentry".to_owned(), 20 * 21 * 192)]);
    }

    #[test]
    fn vmalloc_is_summed_by_caller() {
        let text = "0x1-0x2   20480 bpf_prog_alloc_no_stats+0x1/0x2 pages=4 vmalloc\n\
                    0x3-0x4    8192 bpf_prog_alloc_no_stats+0x9/0x2 pages=1 vmalloc\n\
                    0x5-0x6    8192 acpi_os_map_iomem+0x1/0x2 phys=0x0 ioremap\n";
        let snapshot = Snapshot { vmalloc: parse_vmallocinfo(text), ..Snapshot::default() };
        assert_eq!(snapshot.bpf(), 28672);
        assert_eq!(snapshot.vmalloc.len(), 1);
    }
}
