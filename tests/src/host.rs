//! The host seen from outside: what one run has left there. Everything a run makes carries the number of the process that
//! made it, so that runs of other tests at the same time don't disturb.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Every control group that a `redoma` process with this number has made and not removed.
pub fn cgroups_of(supervisor: u32) -> Vec<PathBuf> {
    cgroups().into_iter().filter(|(maker, _)| *maker == supervisor).map(|(_, path)| path).collect()
}

/// All control groups of runs, with the number of the process that made each.
pub fn cgroups() -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), 6, &mut |path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        found.extend(maker_of(name).map(|maker| (maker, path.to_owned())));
    });
    found
}

/// The process that a run's name tells of.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix("redoma-run-")?.split('-').nth(1)?.parse().ok()
}

fn is_tag_of(name: &str, supervisor: u32) -> bool {
    maker_of(name) == Some(supervisor)
}

fn walk(folder: &Path, depth: usize, visit: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        visit(&entry.path());
        if depth > 0 {
            walk(&entry.path(), depth - 1, visit);
        }
    }
}

/// Processes with this uid, in any of their four uids. Zombies count: they are left too. But not those that have ended after
/// their supervisor, as a sandbox's init may: the host's first process collects them, when it likes (here every two seconds).
pub fn processes_of_uid(uid: u32) -> Vec<String> {
    processes(|status| {
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let is_collected =
            field("State:").is_some_and(|state| state.starts_with('Z')) && field("PPid:") == Some("1");
        let is_theirs =
            field("Uid:").is_some_and(|uids| uids.split_whitespace().any(|one| one == uid.to_string()));
        is_theirs && !is_collected
    })
}

/// Processes that sit in a control group of this supervisor's.
pub fn processes_in_groups_of(supervisor: u32) -> Vec<String> {
    processes_in_groups_of_any(&BTreeSet::from([supervisor]))
}

/// The child of a process that has this name.
pub fn child_named(parent: u32, name: &str) -> Option<u32> {
    pids().into_iter().find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        field("PPid:") == Some(&parent.to_string()) && field("Name:") == Some(name)
    })
}

/// Processes that sit in a control group of any of these.
pub fn processes_in_groups_of_any(supervisors: &BTreeSet<u32>) -> Vec<String> {
    let mut found = Vec::new();
    for pid in pids() {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if groups.split(['/', '\n']).filter_map(maker_of).any(|maker| supervisors.contains(&maker)) {
            found.push(format!("{pid}: {}", groups.replace('\n', " ")));
        }
    }
    found
}

fn processes(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    pids()
        .into_iter()
        .filter_map(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            is_wanted(&status).then(|| format!("{pid} {}", status.lines().next().unwrap_or_default()))
        })
        .collect()
}

fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Run folders of this supervisor's below a data folder.
pub fn run_folders_of(data_dir: &Path, supervisor: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(data_dir.join("run")) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| is_tag_of(name, supervisor)))
        .map(|entry| entry.path())
        .collect()
}

/// Mounts of this mount namespace, one line each without their numbers.
pub fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" ")).collect()
}

/// What of a run that has ended is still there when its janitor has had time for all of it.
pub fn left_for_good(supervisor: u32, uid: Option<u32>, data_dir: &Path) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(3);
    loop {
        let left = leftovers(supervisor, uid, data_dir);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Everything that a run by `supervisor` with the sandbox uid `uid` (root mode only) has left behind.
pub fn leftovers(supervisor: u32, uid: Option<u32>, data_dir: &Path) -> Vec<String> {
    let mut left: Vec<String> =
        cgroups_of(supervisor).iter().map(|path| format!("cgroup {}", path.display())).collect();
    left.extend(processes_in_groups_of(supervisor).into_iter().map(|process| format!("process {process}")));
    left.extend(
        uid.map(processes_of_uid).unwrap_or_default().into_iter().map(|process| format!("process {process}")),
    );
    left.extend(run_folders_of(data_dir, supervisor).iter().map(|path| format!("folder {}", path.display())));
    left.extend(mounts().into_iter().filter(|line| line.contains(".redoma") || line.contains("redoma-run")));
    left
}
