//! How fast the audit takes records and how fast it is verified, on this machine: `docs/audit.md` has figures.
//! `cargo run --release -p redoma-store --example audit_speed [FOLDER]`

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it shows figures to people"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redoma_model::{
    AuditEvent, AuditQuery, AuditSettings, AuditSync, AuditedStart, ExecutionId, KeptCode, SessionId, Who,
};
use redoma_store::Audit;
use redoma_store::audit::{VerifyOptions, verify};

const EACH: Duration = Duration::from_secs(3);

fn event(audit: &Audit, number: u8) -> AuditEvent {
    AuditEvent::ExecutionStarted(Box::new(AuditedStart {
        who: Who {
            client: Some("librechat".to_owned()),
            user: Some(format!("user-{}", number % 50)),
            ..Who::default()
        },
        execution: ExecutionId::from_random([number; 21]),
        session: Some(SessionId::from_random([number % 16; 21])),
        profile: "default".to_owned(),
        language: "python".to_owned(),
        code: audit.code(&"print(6 * 7)\n".repeat(80)),
        verdict: None,
        note: None,
    }))
}

fn append(folder: &Path, sync: AuditSync, code: KeptCode, threads: usize) -> Result<(), Box<dyn Error>> {
    let _ = std::fs::remove_dir_all(folder);
    let audit = Audit::open(folder, AuditSettings { sync, code, ..AuditSettings::default() })?;
    let start = Instant::now();
    let times: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (audit, mut times) = (&audit, Vec::new());
            move || {
                for count in 0.. {
                    let number = u8::try_from((thread * 31 + count) % 256).unwrap_or_default();
                    let one = Instant::now();
                    if audit.append(&event(audit, number)).is_err() || start.elapsed() > EACH {
                        break;
                    }
                    times.push(one.elapsed());
                }
                times
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let took = start.elapsed().as_secs_f64();
    let mut times: Vec<_> = times.into_iter().flatten().collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    println!(
        "{sync:?} {code:?} {threads} threads: {:>8.0} records/s, p50 {:.1} µs, p99 {:.1} µs; lag at the end {}",
        times.len() as f64 / took,
        at(0.5),
        at(0.99),
        audit.lag()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("/var/tmp/redoma-audit-speed"), PathBuf::from);
    for threads in [1, 8] {
        append(&folder, AuditSync::Disk, KeptCode::Hash, threads)?;
    }
    for code in [KeptCode::Text, KeptCode::Hash] {
        for threads in [1, 8] {
            append(&folder, AuditSync::Kernel, code, threads)?;
        }
    }
    let start = Instant::now();
    let sound = verify(&folder, VerifyOptions::default()).map_err(|unsound| format!("{unsound:?}"))?;
    let (took, mib) = (start.elapsed().as_secs_f64(), sound.bytes as f64 / f64::from(1 << 20));
    println!(
        "verify: {mib:.0} MiB, {} records in {took:.2} s: {:.0} MiB/s, {:.0} records/s",
        sound.records,
        mib / took,
        sound.records as f64 / took
    );
    let start = Instant::now();
    let audit = Audit::open(&folder, AuditSettings::default())?;
    println!("open (looks through the last segment): {:.0} ms", start.elapsed().as_secs_f64() * 1000.0);
    for (what, query) in [
        ("the newest 100", AuditQuery { limit: 100, newest_first: true, ..AuditQuery::default() }),
        (
            "one user's newest 100",
            AuditQuery {
                user: Some("user-7".to_owned()),
                limit: 100,
                newest_first: true,
                ..AuditQuery::default()
            },
        ),
        (
            "a user who never was",
            AuditQuery { user: Some("nobody".to_owned()), limit: 100, ..AuditQuery::default() },
        ),
    ] {
        let start = Instant::now();
        let found = audit.query(&query)?.len();
        println!("query, {what}: {found} in {:.1} ms", start.elapsed().as_secs_f64() * 1000.0);
    }
    drop(audit);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
