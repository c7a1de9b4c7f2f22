//! Sudden ends, full disks, and other writers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redoma_model::{AuditKind, AuditSync};

use super::*;

const FOLDER: &str = "REDOMA_TEST_AUDIT";
const SYNC: &str = "REDOMA_TEST_AUDIT_SYNC";

/// Another process that does what a test of this name does.
fn child(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("audit::tests::crashes::{name}");
    command.args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    command
}

/// Appends from 8 threads without end. Each record is told after the call came back.
#[test]
#[ignore = "what `acknowledged_records_survive_a_kill` kills"]
fn appends_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let sync = if std::env::var_os(SYNC).is_some() { AuditSync::Disk } else { AuditSync::Kernel };
    let settings = AuditSettings { sync, ..small_segments(200_000) };
    let audit = Audit::open(Path::new(&folder), settings).unwrap();
    if let FoundAudit::Broken(why) = audit.found() {
        panic!("{why}");
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let audit = &audit;
            scope.spawn(move || {
                for count in 0.. {
                    let what = format!("{}-{thread}-{count}", std::process::id());
                    let appended = audit.append(&admin("ana", &what)).unwrap();
                    // One write: whole lines also where threads share the pipe.
                    let line = format!("ack {} {what}\n", appended.tip.seq);
                    io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn killed_under_load(rounds: u64, is_disk: bool) {
    let folder = folder();
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let mut command = child("appends_until_it_is_killed", folder.path());
        if is_disk {
            command.env(SYNC, "1");
        }
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(running.stdout.take().unwrap());
        let reading = std::thread::spawn(move || {
            let lines = out.lines().map_while(Result::ok);
            lines.filter_map(|line| line.strip_prefix("ack ").map(ToOwned::to_owned)).collect::<Vec<_>>()
        });
        // From before the first record to well into the work.
        std::thread::sleep(Duration::from_millis(20 + (round * 37) % 180));
        running.kill().unwrap();
        running.wait().unwrap();
        acknowledged.extend(reading.join().unwrap());
        let found = sound(folder.path());
        assert!(found.is_keyed);
    }
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    let records = query_folder(folder.path(), &all()).unwrap();
    let by_seq: std::collections::HashMap<u64, &AuditRecord> =
        records.iter().map(|record| (record.seq, record)).collect();
    for line in &acknowledged {
        let Some((seq, what)) = line.split_once(' ') else { continue };
        // The last line of a killed process may be cut in the pipe.
        let Ok(seq) = seq.parse() else { continue };
        let record = by_seq.get(&seq).unwrap_or_else(|| panic!("record {seq} is gone"));
        let AuditEvent::Admin(action) = &record.event else { panic!("{record:?}") };
        assert!(action.what.starts_with(what), "{record:?}: {what}");
    }
    let audit = Audit::open(folder.path(), AuditSettings::default()).unwrap();
    assert!(!matches!(audit.found(), FoundAudit::Broken(_)), "{:?}", audit.found());
    audit.append(&admin("ana", "goes on")).unwrap();
    drop(audit);
    sound(folder.path());
}

#[test]
fn acknowledged_records_survive_a_kill() {
    killed_under_load(30, false);
}

#[test]
fn acknowledged_records_survive_a_kill_with_a_synced_disk() {
    killed_under_load(5, true);
}

/// A power cut or a kill in the middle of a write: whatever is left of the last record, it is cut off, told, and the chain
/// goes on.
#[test]
fn a_torn_tail_of_any_length_is_cut_off_and_told() {
    let original = folder();
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    audit.append(&admin("ana", "acknowledged")).unwrap();
    drop(audit);
    let head = fs::read(original.path().join("head")).unwrap();
    let whole = fs::read(segment::path(original.path(), 1)).unwrap();
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    audit.append(&admin("ana", "never acknowledged")).unwrap();
    drop(audit);
    let longer = fs::read(segment::path(original.path(), 1)).unwrap();
    fs::write(original.path().join("head"), head).unwrap();
    for length in whole.len()..longer.len() {
        let copy = copy(original.path());
        let path = segment::path(copy.path(), 1);
        fs::write(&path, &longer[..length]).unwrap();
        let torn = (length - whole.len()) as u64;
        assert_eq!(sound(copy.path()).unfinished_bytes, torn);
        let audit = Audit::open(copy.path(), AuditSettings::default()).unwrap();
        match audit.found() {
            FoundAudit::Sound => assert_eq!(torn, 0),
            FoundAudit::Recovered(recovery) => {
                assert_eq!((recovery.cut_bytes, recovery.lost_records), (torn, 0));
            }
            other => panic!("{length}: {other:?}"),
        }
        let after = audit.append(&admin("ana", "after")).unwrap();
        let recovered = audit.query(&AuditQuery { kinds: vec![AuditKind::Recovered], ..all() }).unwrap();
        assert_eq!(recovered.len(), usize::from(torn > 0));
        drop(audit);
        assert_eq!(sound(copy.path()).head, after.tip);
    }
}

/// Killed between the last record of one segment and the first of the next.
#[test]
fn a_rotation_that_was_interrupted_is_put_in_order() {
    let original = example();
    let next = segment::numbers(original.path()).unwrap().last().unwrap() + 1;
    for left in [&b""[..], b"{\"kind\":\"segment\",\"form"] {
        let copy = copy(original.path());
        fs::write(segment::path(copy.path(), next), left).unwrap();
        sound(copy.path());
        let audit = Audit::open(copy.path(), small_segments(1500)).unwrap();
        assert!(!matches!(audit.found(), FoundAudit::Broken(_)), "{:?}", audit.found());
        for number in 0..9 {
            audit.append(&ended("ana", number)).unwrap();
        }
        drop(audit);
        sound(copy.path());
    }
}

/// The machine went down: what was on disk for certain must be there, what came after it may not.
#[test]
fn what_a_power_cut_took_is_told_and_more_than_that_is_a_cut() {
    let original = folder();
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    let synced = audit.append(&admin("ana", "synced")).unwrap().tip;
    for _ in 0..4 {
        audit.append(&admin("ana", "in the kernel only")).unwrap();
    }
    let key = AuditKey::read(&AuditKey::file(original.path())).unwrap().unwrap();
    drop(audit);
    let head::Found::Here(mut head) = head::Head::read(original.path(), Some(&key)).unwrap() else {
        panic!()
    };
    head.synced = synced;
    let path = segment::path(original.path(), 1);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    for (boot, kept, lost) in
        [("another", 4, 2), ("another", 2, 4), ("another", 1, 0), (&*head.boot.clone(), 4, 0)]
    {
        head.boot = boot.to_owned();
        let copy = copy(original.path());
        fs::write(copy.path().join("head"), head.bytes(&key).unwrap()).unwrap();
        fs::write(segment::path(copy.path(), 1), lines[..kept].concat()).unwrap();
        let is_cut = lost == 0;
        assert_eq!(flaws(copy.path()).is_empty(), !is_cut, "{boot} {kept}");
        if !is_cut {
            assert_eq!(sound(copy.path()).lost_records, lost);
        }
        let audit = Audit::open(copy.path(), AuditSettings::default()).unwrap();
        match audit.found() {
            FoundAudit::Recovered(recovery) => assert_eq!((recovery.lost_records, is_cut), (lost, false)),
            FoundAudit::Broken(_) => assert!(is_cut),
            other => panic!("{other:?}"),
        }
        audit.append(&admin("ana", "after")).unwrap();
        drop(audit);
        assert_eq!(flaws(copy.path()).is_empty(), !is_cut);
    }
}

#[test]
fn two_writers_are_one_too_many() {
    let folder = folder();
    let audit = Audit::open(folder.path(), AuditSettings::default()).unwrap();
    let second = Audit::open(folder.path(), AuditSettings::default());
    assert!(matches!(second, Err(AuditError::Locked { .. })), "{second:?}");
    drop(audit);
    Audit::open(folder.path(), AuditSettings::default()).unwrap();
}

#[test]
fn many_threads_make_one_chain() {
    let folder = folder();
    let audit = Audit::open(folder.path(), small_segments(50_000)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let audit = &audit;
            scope.spawn(move || {
                let mut last = 0;
                for count in 0..500 {
                    let appended = audit.append(&admin("ana", &format!("{thread}-{count}"))).unwrap();
                    assert!(appended.tip.seq > last);
                    last = appended.tip.seq;
                }
            });
        }
    });
    let records = audit.query(&AuditQuery { kinds: vec![AuditKind::Admin], ..all() }).unwrap();
    let distinct: std::collections::HashSet<_> =
        records.iter().map(|record| format!("{:?}", record.event)).collect();
    assert_eq!((records.len(), distinct.len()), (4000, 4000));
    drop(audit);
    sound(folder.path());
}

/// `verify` and readers work while others write, rotate and remove.
#[test]
fn a_growing_audit_verifies_at_any_moment() {
    let folder = folder();
    let retention = redoma_model::Retention::For(redoma_model::Span::millis(50));
    let audit = Audit::open(folder.path(), AuditSettings { retention, ..small_segments(20_000) }).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                audit.append(&ended("ana", 1)).unwrap();
                count += 1;
                if count % 500 == 0 {
                    audit.prune().unwrap();
                }
            }
        });
        let looking = scope.spawn(|| {
            for _ in 0..100 {
                sound(folder.path());
                query_folder(folder.path(), &AuditQuery { limit: 5, newest_first: true, ..all() }).unwrap();
            }
        });
        let result = looking.join();
        is_over.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

/// In a file system of 1 MiB, in a mount namespace of its own.
#[test]
fn on_a_full_disk_appending_fails_and_goes_on_when_there_is_room() {
    let folder = folder();
    let inner = child("fills_the_disk", folder.path());
    let mut script = Command::new("unshare");
    script
        .args(["-rm", "sh", "-c", "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\""])
        .arg(folder.path());
    script.arg(inner.get_program()).args(inner.get_args()).env(FOLDER, folder.path());
    let output = script.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

#[test]
#[ignore = "run by `on_a_full_disk_appending_fails_and_goes_on_when_there_is_room`"]
fn fills_the_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![0; 200 << 10]).unwrap();
    let settings = AuditSettings { code: KeptCode::Text, ..AuditSettings::default() };
    let audit = Audit::open(&folder.join("audit"), settings).unwrap();
    let mut written = 0;
    let error = loop {
        match audit.append(&admin("ana", &"x".repeat(3000))) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000);
    };
    assert!(error.is_full(), "{error}");
    assert!(written > 50);
    // What is there is whole, and many at once fail as one does.
    assert_eq!(sound(&folder.join("audit")).unfinished_bytes, 0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| audit.append(&admin("ana", &"y".repeat(20_000))).unwrap_err());
        }
    });
    assert_eq!(sound(&folder.join("audit")).unfinished_bytes, 0);
    fs::remove_file(ballast).unwrap();
    let after = audit.append(&admin("ana", "there is room")).unwrap();
    drop(audit);
    assert_eq!(sound(&folder.join("audit")).head, after.tip);
}

/// Order is what the chain says, whatever the clock does.
#[test]
fn a_clock_that_was_set_back_breaks_nothing() {
    let original = folder();
    drop(Audit::open(original.path(), AuditSettings::default()).unwrap());
    let key = AuditKey::read(&AuditKey::file(original.path())).unwrap().unwrap();
    let path = segment::path(original.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    let header: AuditRecord = serde_json::from_slice(&bytes).unwrap();
    // A record of the year 2100, as a host with a wrong clock writes it.
    let tip: Tip = format!("{}:{}", header.seq, header.hash).parse().unwrap();
    let place = seal::Place { at: 4_102_444_800_000, seq: 2, prev: tip.hash };
    Body::new(&admin("ana", "in the future")).unwrap().place(&place, &key, &mut bytes);
    fs::write(&path, bytes).unwrap();
    let audit = Audit::open(original.path(), AuditSettings::default()).unwrap();
    assert_eq!(*audit.found(), FoundAudit::Sound);
    let now = audit.append(&admin("ana", "now")).unwrap();
    assert!(now.at < place.at && now.tip.seq == 3);
    let found = audit.query(&AuditQuery { since: Some(now.at), until: Some(now.at + 1), ..all() }).unwrap();
    assert!(found.iter().any(|record| record.seq == 3) && !found.iter().any(|record| record.seq == 2));
    drop(audit);
    sound(original.path());
}
