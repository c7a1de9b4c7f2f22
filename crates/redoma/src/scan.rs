//! `redoma scan`: where a code base runs what it was given, for people and for CI.
//!
//! What is found and how it is rated is `redoma_policy::scan`'s; here are the files, the threads, the baseline and the
//! forms of output.
//!
//! | room | subject |
//! |---|---|
//! | `walk.rs` | which files |
//! | `ignore_file.rs` | what `.gitignore` leaves out |
//! | `baseline.rs` | what was there before |
//! | `skipped.rs` | what was not read, and why |
//! | `table.rs`, `sarif.rs` | output for people, for CI |

mod baseline;
mod ignore_file;
mod sarif;
mod skipped;
mod table;
mod walk;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use redoma_policy::facts::Source;
use redoma_policy::scan::{
    Level, Risk, Scanned, Subject, is_minified, is_minified_name, scan_file, subject_of,
};

use crate::terminal;
use baseline::Baseline;
use skipped::Skipped;
use walk::{Candidate, Walked};

#[derive(Debug, Args)]
#[command(after_help = "\
Finds where Python, JavaScript, TypeScript and shell code runs code, commands or data that it was given: eval, exec,
os.system, subprocess, pickle, child_process, new Function, vm, bash -c, curl | sh and more; also over-wide sudoers lines
and containers that give away the host. Notebooks are read cell by cell. Nothing is run, nothing leaves this machine.

How a risk is rated: by where the argument comes from. A constant is low, a variable medium, a parameter of the function
or input high, input that reaches a shell critical.

To leave a finding out, say why in its line or in a comment above it:
  os.system(command)  # redoma: ignore[python-shell] command is one of the three above

For code that is there already, write a baseline once; only what is new counts from then on:
  redoma scan --write-baseline .redoma-baseline.json .
  redoma scan --baseline .redoma-baseline.json .

Exit codes: 0 if nothing at or above --fail-on was found, 1 if something was, 2 if the command line is wrong.

Examples:
  redoma scan .
  redoma scan --min-risk high src tests/run.sh
  redoma scan --sarif . > redoma.sarif          for code scanning in CI
  redoma scan --json --fail-on never . | jq '.findings[].kind'")]
pub struct ScanArguments {
    /// Files and folders to look at
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long, conflicts_with = "sarif")]
    json: bool,
    /// Print SARIF 2.1.0 instead of a table
    #[arg(long)]
    sarif: bool,
    /// Leave out what this file lists
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// List everything that is found in this file, for --baseline
    #[arg(long, value_name = "FILE", conflicts_with = "baseline")]
    write_baseline: Option<PathBuf>,
    /// Show nothing below this: low, medium, high or critical
    #[arg(long, value_name = "RISK", default_value = "low")]
    min_risk: Threshold,
    /// End with 1 if something of this risk or above is found: low, medium, high, critical or never
    #[arg(long, value_name = "RISK", default_value = "high")]
    fail_on: FailOn,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Threshold {
    Low,
    Medium,
    High,
    Critical,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FailOn {
    Low,
    Medium,
    High,
    Critical,
    Never,
}

impl From<Threshold> for Level {
    fn from(threshold: Threshold) -> Self {
        match threshold {
            Threshold::Low => Self::Low,
            Threshold::Medium => Self::Medium,
            Threshold::High => Self::High,
            Threshold::Critical => Self::Critical,
        }
    }
}

impl FailOn {
    fn level(self) -> Option<Level> {
        Some(match self {
            Self::Low => Level::Low,
            Self::Medium => Level::Medium,
            Self::High => Level::High,
            Self::Critical => Level::Critical,
            Self::Never => return None,
        })
    }
}

/// A file in which something was found.
struct FileFindings {
    path: String,
    risks: Vec<Risk>,
}

/// All that came out.
#[derive(Default)]
struct Outcome {
    files: Vec<FileFindings>,
    /// In the order of their names.
    skipped: Vec<(String, Skipped)>,
    scanned: usize,
    lines: usize,
    /// By comments.
    ignored: usize,
    /// In the baseline.
    known: usize,
}

impl Outcome {
    fn risks(&self) -> impl Iterator<Item = &Risk> {
        self.files.iter().flat_map(|file| &file.risks)
    }
}

pub fn scan(arguments: &ScanArguments) -> Result<ExitCode> {
    match outcome(arguments) {
        Ok(outcome) => {
            print(arguments, &outcome).context("can't write the findings")?;
            let fails = |level| outcome.risks().any(|risk| risk.level >= level);
            let is_failed =
                arguments.write_baseline.is_none() && arguments.fail_on.level().is_some_and(fails);
            Ok(ExitCode::from(u8::from(is_failed)))
        }
        Err(error) => {
            terminal::error(&format!("{error:#}"));
            Ok(ExitCode::from(2))
        }
    }
}

fn outcome(arguments: &ScanArguments) -> Result<Outcome> {
    let baseline = arguments.baseline.as_deref().map(Baseline::load).transpose()?.unwrap_or_default();
    let mut walked = Walked::default();
    for path in &arguments.paths {
        walk::collect(path, &mut walked)?;
    }
    let Walked { mut candidates, skipped } = walked;
    candidates.sort_by(|left, right| left.order().cmp(&right.order()));
    candidates.dedup_by(|left, right| left.path == right.path);

    let mut outcome = Outcome { skipped, ..Outcome::default() };
    for (path, read) in scan_all(&candidates) {
        let scanned = match read {
            Ok(scanned) => scanned,
            Err(why) => {
                outcome.skipped.push((path, why));
                continue;
            }
        };
        outcome.scanned += 1;
        outcome.lines += scanned.lines;
        outcome.ignored += scanned.ignored;
        outcome.skipped.extend(scanned.unread.map(|why| (path.clone(), Skipped::NotParsed(why))));
        if !scanned.risks.is_empty() {
            outcome.files.push(FileFindings { path, risks: scanned.risks });
        }
    }
    outcome.skipped.sort();
    outcome.skipped.dedup();
    if let Some(path) = &arguments.write_baseline {
        let count = Baseline::of(&outcome.files).store(path)?;
        terminal::done(&format!("{count} findings are in {} now", path.display()));
    }
    let least = Level::from(arguments.min_risk);
    for file in &mut outcome.files {
        let all = file.risks.len();
        file.risks.retain(|risk| !baseline.holds(&risk.fingerprint));
        outcome.known += all - file.risks.len();
        file.risks.retain(|risk| risk.level >= least);
    }
    outcome.files.retain(|file| !file.risks.is_empty());
    Ok(outcome)
}

/// Reads all files, on as many threads as there are cores. The answers are in the order of the files.
fn scan_all(candidates: &[Candidate]) -> Vec<(String, Result<Scanned, Skipped>)> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(candidates.len().max(1));
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (next, finished) = (&next, &finished);
    let mut results: Vec<(usize, String, Result<Scanned, Skipped>)> = std::thread::scope(|scope| {
        let work = move || {
            let mut results = Vec::new();
            while let Some(candidate) = candidates.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(read) = scan_one(candidate) {
                    results.push((candidate.number(candidates), candidate.shown.clone(), read));
                }
                finished.fetch_add(1, Ordering::Relaxed);
            }
            results
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        show_progress(candidates.len(), finished, || {
            workers.iter().all(std::thread::ScopedJoinHandle::is_finished)
        });
        workers.into_iter().flat_map(|worker| worker.join().expect("readers don't panic")).collect()
    });
    results.sort_by_key(|(number, ..)| *number);
    results.into_iter().map(|(_, path, read)| (path, read)).collect()
}

/// A bar on a terminal if it takes longer than a blink; nothing elsewhere.
fn show_progress(of: usize, finished: &AtomicUsize, is_done: impl Fn() -> bool) {
    let start = Instant::now();
    let mut progress = None;
    while !is_done() {
        std::thread::sleep(Duration::from_millis(5));
        if terminal::is_live() && start.elapsed() > Duration::from_millis(300) {
            let progress = progress.get_or_insert_with(|| terminal::Progress::start("scanning"));
            progress.count(finished.load(Ordering::Relaxed), of, "files");
        }
    }
    if let Some(progress) = progress {
        progress.finish();
    }
}

/// Reads one file; nothing if it is not something to look at.
fn scan_one(candidate: &Candidate) -> Option<Result<Scanned, Skipped>> {
    if is_minified_name(&candidate.shown) {
        return Some(Err(Skipped::Minified));
    }
    let bytes = match std::fs::read(&candidate.path) {
        Ok(bytes) => bytes,
        Err(error) => {
            terminal::warning(&format!("can't read {}: {error}", candidate.shown));
            return Some(Err(Skipped::Unreadable));
        }
    };
    let start = &bytes[..bytes.len().min(1024)];
    let subject = subject_of(&candidate.shown, start)?;
    if start.contains(&0) {
        return Some(Err(Skipped::NotText));
    }
    if matches!(subject, Subject::Code(_)) && is_minified(&bytes) {
        return Some(Err(Skipped::Minified));
    }
    Some(Ok(scan_file(&candidate.shown, &bytes, subject)))
}

fn print(arguments: &ScanArguments, outcome: &Outcome) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if arguments.sarif {
        let document = serde_json::to_string_pretty(&sarif::document(outcome))?;
        writeln!(out, "{}", terminal::harmless_json(&document))?;
    } else if arguments.json {
        let document = serde_json::to_string_pretty(&json(outcome))?;
        writeln!(out, "{}", terminal::harmless_json(&document))?;
    } else {
        table::print(&mut out, outcome)?;
    }
    out.flush()
}

fn json(outcome: &Outcome) -> serde_json::Value {
    let findings: Vec<_> = outcome
        .files
        .iter()
        .flat_map(|file| file.risks.iter().map(move |risk| finding(&file.path, risk)))
        .collect();
    let skipped: Vec<_> = outcome
        .skipped
        .iter()
        .map(|(path, why)| serde_json::json!({ "file": path, "reason": why.id(), "why": why.why() }))
        .collect();
    serde_json::json!({
        "version": 1,
        "files": outcome.scanned,
        "lines": outcome.lines,
        "ignored": outcome.ignored,
        "in_baseline": outcome.known,
        "skipped": outcome.skipped_by(Skipped::id),
        "skipped_files": skipped,
        "findings": findings,
    })
}

fn finding(path: &str, risk: &Risk) -> serde_json::Value {
    serde_json::json!({
        "kind": risk.kind.id,
        "risk": risk.level,
        "origin": origin_name(risk.origin),
        "file": path,
        "cell": risk.cell,
        "line": risk.at.line,
        "column": risk.at.column,
        "excerpt": risk.excerpt,
        "title": risk.kind.title,
        "why": risk.kind.why,
        "advice": risk.kind.advice,
        "fingerprint": risk.fingerprint,
    })
}

fn origin_name(origin: Option<Source>) -> &'static str {
    match origin {
        None => "constant",
        Some(Source::Variable) => "variable",
        Some(Source::Parameter) => "parameter",
        Some(Source::Input) => "input",
    }
}

/// As it is shown and remembered: relative to the current folder if it is below it.
fn shown_path(path: &Path) -> String {
    let below =
        std::env::current_dir().ok().and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    let path = below.as_deref().unwrap_or(path);
    let plain: PathBuf =
        path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect();
    plain.to_string_lossy().into_owned()
}
