//! Kernel objects that no memory limit counts, and the bound that a sandbox has on them.
//!
//! Linux charges most of what a process makes it allocate to the process's memory cgroup, but not all: the inner part of an
//! eventfd, epoll instance or timerfd, a file lock, the listing that ext4 keeps for an open folder, and a TCP connection
//! that was not accepted yet, are charged to no group (`tests/tests/kernel_memory` measures them). Nearly all of these
//! belong to a descriptor. The limit on those is per process; this module bounds their sum, and the number of TCP sockets,
//! which need no descriptor while they wait to be accepted or closed.
//!
//! The supervisor looks at each sample, and ends a run that holds too much by the `nofile` limit.

use std::fs;

use redoma_jail::Sandbox;
use redoma_jail::cgroup::Group;
use redoma_model::Limits;

/// Descriptors of all processes together, as a multiple of the limit on one process.
const MAX_DESCRIPTORS_PER_NOFILE: u64 = 16;
/// TCP sockets of the whole sandbox, with those that wait to be accepted.
const MAX_TCP_PER_NOFILE: u64 = 4;
/// TCP connections that are closed and linger (`TIME_WAIT`). Each takes a tenth of an open one's memory.
const MAX_TIME_WAIT_PER_NOFILE: u64 = 32;

/// Whether the sandbox holds more kernel objects than it may. `processes` is an upper bound of how many it has.
pub(crate) fn is_too_much(sandbox: &Sandbox, group: &dyn Group, limits: &Limits, processes: u64) -> bool {
    let tcp = TcpSockets::of(sandbox.pid().as_raw_nonzero().get());
    tcp.open > MAX_TCP_PER_NOFILE * limits.nofile
        || tcp.time_wait > MAX_TIME_WAIT_PER_NOFILE * limits.nofile
        // So few processes can't hold as many.
        || (processes > MAX_DESCRIPTORS_PER_NOFILE
            && has_more_descriptors(group, MAX_DESCRIPTORS_PER_NOFILE * limits.nofile))
}

/// Whether the processes of a group have more than `most` descriptors in all.
fn has_more_descriptors(group: &dyn Group, most: u64) -> bool {
    let mut total = 0;
    for pid in group.members() {
        total += descriptors_of(pid.as_raw_nonzero().get(), most - total);
        if total >= most {
            return true;
        }
    }
    false
}

/// The number of a process's descriptors, or `enough` if there are more; none of one that has ended.
fn descriptors_of(pid: i32, enough: u64) -> u64 {
    let folder = format!("/proc/{pid}/fd");
    let Ok(meta) = fs::metadata(&folder) else { return 0 };
    // Since Linux 6.2 the folder's size is their number. Before, they have to be counted.
    if meta.len() > 0 {
        return meta.len().min(enough);
    }
    let entries = fs::read_dir(&folder).into_iter().flatten();
    u64::try_from(entries.take(usize::try_from(enough).unwrap_or(usize::MAX)).count()).unwrap_or(u64::MAX)
}

/// The TCP sockets in a process's network namespace.
#[derive(Debug, Default, PartialEq, Eq)]
struct TcpSockets {
    open: u64,
    time_wait: u64,
}

impl TcpSockets {
    fn of(pid: i32) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
        Self::parse(&read("sockstat"), &read("sockstat6"))
    }

    /// Of lines like `TCP: inuse 3 orphan 0 tw 2 alloc 5 mem 1` and `TCP6: inuse 0`. Only `inuse` and `tw` are the
    /// namespace's own.
    fn parse(sockstat: &str, sockstat6: &str) -> Self {
        let value = |text: &str, protocol: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(protocol))?;
            let mut words = line.split_whitespace().skip_while(|word| *word != key);
            words.nth(1)?.parse::<u64>().ok()
        };
        Self {
            open: value(sockstat, "TCP:", "inuse").unwrap_or(0)
                + value(sockstat6, "TCP6:", "inuse").unwrap_or(0),
            time_wait: value(sockstat, "TCP:", "tw").unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_sockets_are_read() {
        let sockstat = "sockets: used 9\nTCP: inuse 3 orphan 0 tw 2 alloc 5 mem 1\nUDP: inuse 4 mem 0\n";
        let sockstat6 = "TCP6: inuse 2\nUDP6: inuse 1\n";
        assert_eq!(TcpSockets::parse(sockstat, sockstat6), TcpSockets { open: 5, time_wait: 2 });
        assert_eq!(TcpSockets::parse("", ""), TcpSockets::default());
    }

    #[test]
    fn descriptors_are_counted() {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let before = descriptors_of(own, u64::MAX);
        let more: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null")).collect();
        assert!(descriptors_of(own, u64::MAX) >= before + 40, "{before}");
        assert_eq!(descriptors_of(own, 10), 10);
        drop(more);
    }
}
