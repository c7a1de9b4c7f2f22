//! Comments that answer for a finding: `redoma: ignore[kind] reason`, in its line or in the line above.

/// What the comments around a line say about a kind.
pub(super) enum Answer {
    None,
    Reason,
    /// It names the kind but does not say why.
    NoReason,
}

const MARK: &str = "redoma: ignore[";

pub(super) fn answer(lines: &[&str], at: usize, kind: &str) -> Answer {
    let here = lines.get(at).map(|line| in_line(line, kind));
    // Above, only a line that is nothing but a comment.
    let above = at.checked_sub(1).and_then(|at| lines.get(at)).filter(|line| is_comment(line));
    match here {
        Some(Answer::None) | None => above.map_or(Answer::None, |line| in_line(line, kind)),
        Some(answer) => answer,
    }
}

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    ["#", "//", "/*", "*"].iter().any(|mark| line.starts_with(mark))
}

fn in_line(line: &str, kind: &str) -> Answer {
    let Some((before, rest)) = line.split_once(MARK) else { return Answer::None };
    let is_in_comment =
        before.contains('#') || before.contains("//") || before.contains("/*") || before.trim() == "*";
    let Some((kinds, reason)) = rest.split_once(']') else { return Answer::None };
    if !is_in_comment || !kinds.split(',').any(|named| named.trim() == kind) {
        return Answer::None;
    }
    let reason = reason.trim().trim_end_matches("*/").trim_matches(|mark: char| !mark.is_alphanumeric());
    if reason.is_empty() { Answer::NoReason } else { Answer::Reason }
}
