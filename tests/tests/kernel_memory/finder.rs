//! The finder: drives every system call that a sandbox allows (`tests/finder`), one family at a time, and compares what Linux's
//! memory grows by with what the sandbox's control group is charged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use redoma_tests::host_memory::{Charge, Growth, Snapshot, mebibytes, page_tables_of};
use redoma_tests::{Mode, host, redoma, text_of};
use rustix::process::{Pid, Signal, kill_process};

/// Kernel memory that a family may take beyond its sandbox's charge, and leave behind. An empty sandbox on a busy machine
/// shows up to 3 MiB.
const MAX_UNCHARGED: i64 = 8 << 20;
/// Memory that grows in proportion to charged memory is bounded by the memory limit. Nodes of the trees that the kernel keeps
/// mappings in are a tenth of the mappings' own charge.
const MAX_SHARE_OF_CHARGE: i64 = 4;
/// Families whose memory is not counted, with the bound that holds all the same and its reason.
const BOUNDED: [(&str, i64, &str); 2] = [
    (
        "folders listed (tmpfs and runtime)",
        64 << 20,
        "ext4 keeps the names of a block for each open folder: at most 16,384 descriptors",
    ),
    (
        "sockets: TCP connected, not accepted",
        48 << 20,
        "a connection that waits is charged when it is accepted: at most 4,096, and those of one sample",
    ),
];
/// The pause between two looks at the host's counters.
const PAUSE: Duration = Duration::from_millis(60);
/// No family takes longer; its own clock stops it earlier.
const FAMILY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that the kernel may take to give memory back when a sandbox is gone.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The effect of a family of calls on the host's memory.
struct Finding {
    family: String,
    /// The driver's own count; none if a limit ended the sandbox before it was told.
    held: Option<u64>,
    /// The largest growth that was seen, and the charge at that moment.
    host: i64,
    charged: i64,
    /// The largest growth beyond the charge, and all about that moment.
    uncharged: i64,
    worst: Growth,
    left: i64,
}

impl Finding {
    fn allowed(&self) -> i64 {
        let bounded = BOUNDED.iter().find(|(family, ..)| *family == self.family);
        let share = self.charged / MAX_SHARE_OF_CHARGE;
        bounded.map_or(MAX_UNCHARGED, |(_, most, _)| *most).max(share)
    }

    fn is_fine(&self) -> bool {
        self.uncharged <= self.allowed() && self.left <= MAX_UNCHARGED
    }

    fn verdict(&self) -> &'static str {
        match (self.is_fine(), self.held) {
            (false, _) => "**uncounted**",
            (true, None) => "ended by a limit",
            _ if self.uncharged > MAX_UNCHARGED => "bounded",
            (true, Some(0)) => "refused",
            (true, Some(_)) => "counted",
        }
    }
}

fn finder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("finder/finder.py")
}

/// The calls that the sandbox's filter lets through, by name.
fn allowed_calls() -> BTreeMap<String, u32> {
    let rules = redoma_jail::seccomp::rules();
    let allowed = rules.iter().filter(|rule| rule.is_ever_allowed());
    allowed.map(|rule| (rule.name.trim_start_matches("SYS_").to_owned(), rule.number)).collect()
}

/// Measures a family. The counters are the whole host's, and other processes only ever add to them: growth that belongs to the
/// family comes each time, so that of two measurements the smaller one is nearer to the truth. A second one is made if the
/// first is beyond its bound.
fn measure(mode: Mode, family: &str, calls: &str, input: &Path) -> Finding {
    let first = drive(mode, family, calls, input);
    if first.is_fine() {
        return first;
    }
    let mut second = drive(mode, family, calls, input);
    second.left = second.left.min(first.left);
    if first.uncharged < second.uncharged { Finding { left: second.left, ..first } } else { second }
}

/// Drives one family in a sandbox of its own, and watches the host meanwhile.
fn drive(mode: Mode, family: &str, calls: &str, input: &Path) -> Finding {
    let before = Snapshot::take();
    let mut command = redoma(mode, ["run", "--quiet", "--wall", "60s"]);
    if family.contains("inputs") {
        command.arg("--in").arg(input);
    }
    command.arg(finder()).args([family, calls]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("redoma starts");
    let supervisor = child.id();
    let lines = lines_of(&mut child);
    let mut finding = Finding {
        family: family.to_owned(),
        held: None,
        host: 0,
        charged: 0,
        uncharged: 0,
        worst: before.since(&before),
        left: 0,
    };
    let deadline = Instant::now() + FAMILY_TIMEOUT;
    loop {
        let said = lines.recv_timeout(PAUSE);
        // The charge is read first: growth between the two looks counts against the sandbox.
        let charge = Charge::of_supervisor(supervisor);
        let tables = page_tables_of(supervisor);
        let growth = Snapshot::take().since(&before);
        let charged =
            i64::try_from((charge.kernel + charge.sockets).saturating_sub(tables)).unwrap_or(i64::MAX);
        // A group that is gone has no charge to compare with.
        if charge.all > 0 {
            let sockets = i64::try_from(charge.sockets).unwrap_or(i64::MAX);
            // Other processes of the host disturb both measures, but not in the same way.
            let uncharged = (growth.quiet_kernel - charged).min(growth.unaccounted - sockets);
            if growth.quiet_kernel > finding.host {
                (finding.host, finding.charged) = (growth.quiet_kernel, charged);
            }
            if uncharged > finding.uncharged {
                (finding.uncharged, finding.worst) = (uncharged, growth);
            }
        }
        match said {
            Ok(line) => {
                finding.held = line.strip_prefix("HOLDING ").and_then(|count| count.trim().parse().ok());
                assert!(finding.held.is_some(), "{family}: {line}");
                break;
            }
            Err(RecvTimeoutError::Timeout) => assert!(Instant::now() < deadline, "{family} hangs"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let code = end(child);
    // 137: ended by a limit. A driver that failed would prove nothing.
    assert!(finding.held.is_some() || code == Some(137), "{family}: ended with {code:?}");
    finding.left = settled(&before, supervisor);
    finding
}

/// Passes on the lines that a child prints.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (send, lines) = channel();
    let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
    std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
    lines
}

/// Ends a run as an operator would.
fn end(mut child: Child) -> Option<i32> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    child.wait().expect("it ends").code()
}

/// Growth that is left when the sandbox is gone and the kernel has had time to free its memory.
fn settled(before: &Snapshot, supervisor: u32) -> i64 {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let growth = Snapshot::take().since(before);
        let left = growth.quiet_kernel.min(growth.unaccounted + growth.dentries);
        let is_gone = host::cgroups_of(supervisor).is_empty();
        if (is_gone && left <= MAX_UNCHARGED / 2) || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(PAUSE);
    }
}

fn table(findings: &[Finding]) -> String {
    let mut table =
        "| family | objects | host grew | charged | not charged | left behind | verdict |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for finding in findings {
        let held = finding.held.map_or_else(|| "–".to_owned(), |held| held.to_string());
        let _ = writeln!(
            table,
            "| {} | {held} | {} | {} | {} | {} | {} |",
            finding.family,
            mebibytes(finding.host),
            mebibytes(finding.charged),
            mebibytes(finding.uncharged),
            mebibytes(finding.left),
            finding.verdict()
        );
    }
    table
}

#[test]
fn every_allowed_call_takes_only_memory_that_is_counted() {
    // The charge does not depend on the mode, and a plain user can't read the host's caches.
    if !Mode::available().contains(&Mode::Root) {
        return;
    }
    let (code, said, errors) =
        text_of(&mut redoma(Mode::Root, ["run", "--quiet", finder().to_str().unwrap_or_default(), "list"]));
    assert_eq!(code, 0, "{errors}");
    let families: Vec<(String, Vec<String>)> =
        serde_json::from_str(&said).expect("the finder lists its families");
    let driven: BTreeSet<_> = families.iter().flat_map(|(_, calls)| calls).collect();
    let allowed = allowed_calls();
    let missing: Vec<_> = allowed.keys().filter(|call| !driven.contains(call)).collect();
    assert!(
        missing.is_empty(),
        "tests/finder/finder.py drives no {missing:?}, which the filter lets through"
    );

    let folder = tempfile::tempdir_in("/var/tmp").expect("/var/tmp is writable");
    let input = folder.path().join("input.txt");
    std::fs::write(&input, "x").expect("a new folder is writable");
    let calls = serde_json::to_string(&allowed).expect("names and numbers are JSON");
    let findings: Vec<_> =
        families.iter().map(|(family, _)| measure(Mode::Root, family, &calls, &input)).collect();
    let table = table(&findings);
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernel-memory.md");
    std::fs::write(&place, &table).expect("target/ is writable");
    let uncounted: Vec<_> = findings
        .iter()
        .filter(|finding| !finding.is_fine())
        .map(|finding| {
            format!(
                "{}: {} held, {} uncharged, {} left: {}",
                finding.family,
                finding.held.unwrap_or(0),
                mebibytes(finding.uncharged),
                mebibytes(finding.left),
                finding.worst
            )
        })
        .collect();
    assert!(uncounted.is_empty(), "{}\n{table}", uncounted.join("\n"));
}
