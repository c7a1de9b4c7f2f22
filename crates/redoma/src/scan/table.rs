//! Findings for people: by file, and at the end what to do about each kind.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use redoma_policy::scan::{Kind, Level};

use super::skipped::Skipped;
use super::{Outcome, origin_name};
use crate::terminal::harmless;

pub(super) fn print(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let is_colourful = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let paint =
        |code: &str, text: String| if is_colourful { format!("\x1b[{code}m{text}\x1b[0m") } else { text };
    let widest = outcome.risks().map(|risk| risk.kind.id.len()).max().unwrap_or(0);
    let mut kinds: BTreeMap<&str, &Kind> = BTreeMap::new();
    for file in &outcome.files {
        writeln!(out, "{}", paint("1", harmless(&file.path)))?;
        for risk in &file.risks {
            let place = match risk.cell {
                Some(cell) => format!("cell {cell}, {}", risk.at.line),
                None => risk.at.line.to_string(),
            };
            let level = paint(colour(risk.level), format!("{:<8}", risk.level.name()));
            let excerpt = harmless(&risk.excerpt.chars().take(100).map(without_tabs).collect::<String>());
            let (kind, origin) = (risk.kind.id, origin_name(risk.origin));
            writeln!(out, "  {place:>6}  {level}  {kind:<widest$}  {origin:<9}  {excerpt}")?;
            kinds.insert(kind, risk.kind);
        }
        writeln!(out)?;
    }
    for (id, kind) in kinds {
        writeln!(out, "{}: {}", paint("1", id.to_owned()), kind.title)?;
        writeln!(out, "  why:  {}", kind.why)?;
        writeln!(out, "  then: {}", kind.advice)?;
    }
    summary(out, outcome)
}

/// Tabs are usual in source code, and read better as spaces than escaped.
fn without_tabs(character: char) -> char {
    if character == '\t' { ' ' } else { character }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::Low => "2",
        Level::Medium => "33",
        Level::High => "31",
        Level::Critical => "1;31",
    }
}

fn summary(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let count = |level| outcome.risks().filter(|risk| risk.level == level).count();
    let total = outcome.risks().count();
    if total > 0 {
        writeln!(out)?;
    }
    let by_level: Vec<String> = Level::ALL
        .iter()
        .rev()
        .filter(|&&level| count(level) > 0)
        .map(|&level| format!("{} {}", count(level), level.name()))
        .collect();
    let by_level = if by_level.is_empty() { String::new() } else { format!(" ({})", by_level.join(", ")) };
    let word = if total == 1 { "finding" } else { "findings" };
    writeln!(
        out,
        "{total} {word}{by_level} in {} of {} files, {} lines",
        outcome.files.len(),
        outcome.scanned,
        outcome.lines
    )?;
    if outcome.ignored > 0 {
        writeln!(out, "{} more are answered for by comments", outcome.ignored)?;
    }
    if outcome.known > 0 {
        writeln!(out, "{} more are in the baseline", outcome.known)?;
    }
    skipped(out, outcome)
}

/// What was left out: a count of all by reason, and which ones as far as that is short.
fn skipped(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    const MOST: usize = 10;
    if outcome.skipped.is_empty() {
        return Ok(());
    }
    let counts: Vec<String> = outcome
        .skipped_by(Skipped::label)
        .into_iter()
        .map(|(label, count)| format!("{count} {label}"))
        .collect();
    let total = outcome.skipped.len();
    let word = if total == 1 { "file" } else { "files" };
    writeln!(out, "{total} {word} not read, or not to the end: {}", counts.join(", "))?;
    for (path, why) in outcome.skipped.iter().take(MOST) {
        writeln!(out, "  {} ({})", harmless(path), why.why())?;
    }
    if total > MOST {
        writeln!(out, "  and {} more, which --json lists", total - MOST)?;
    }
    Ok(())
}
