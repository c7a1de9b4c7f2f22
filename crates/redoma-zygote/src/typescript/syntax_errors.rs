//! What is wrong with a source, told the way compilers tell it:
//!
//! ```text
//! main.ts:2:11: Expected a semicolon or an implicit semicolon after a statement, but found none
//!   let total price = 1;
//!             ^
//!   help: Try inserting a semicolon here
//! ```
//!
//! Columns count UTF-16 code units from 1, as in Node's stack traces and in TypeScript's own
//! messages. The text is safe to show: no colours, no control characters from the source, and of
//! bounded length whatever the source is.

use std::{error::Error, fmt, ops::Range};

use oxc_diagnostics::{LabeledSpan, OxcDiagnostic};

/// How many errors are kept. Nobody reads on after that many, and a hostile source has millions.
const MOST_ERRORS: usize = 50;

/// How many characters of a message are shown. It may quote a name from the source.
const LONGEST_MESSAGE: usize = 300;

/// How many characters of a source line are shown before the error's column, and after it.
const EXCERPT_REACH: usize = 80;

/// Everything that is wrong with a source, in the order of the source. At least one error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxErrors {
    errors: Vec<SyntaxError>,
    /// How many more there were than [`MOST_ERRORS`].
    omitted: usize,
}

/// One thing that is wrong with a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where.
    pub position: Position,
    /// What.
    pub message: String,
    /// The line of the source, or the part of it around the error.
    pub excerpt: String,
    /// The part of the excerpt that is wrong, in characters; never empty.
    pub marked: Range<usize>,
    /// Hints, and other places in the source that matter to this error.
    pub notes: Vec<String>,
}

/// A place in a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The name that the source was given.
    pub file_name: String,
    /// From 1.
    pub line: usize,
    /// From 1, in UTF-16 code units.
    pub column: usize,
}

impl SyntaxErrors {
    pub(super) fn new(mut diagnostics: Vec<OxcDiagnostic>, source: &str, file_name: &str) -> Self {
        let place = |diagnostic: &OxcDiagnostic| main_label(diagnostic).map(LabeledSpan::offset);
        diagnostics.sort_by_key(place);
        // A second error in the same place is what the first one led to.
        diagnostics.dedup_by_key(|diagnostic| place(diagnostic));
        let omitted = diagnostics.len().saturating_sub(MOST_ERRORS);
        diagnostics.truncate(MOST_ERRORS);
        let numbered = NumberedSource::of(source, file_name);
        Self { errors: diagnostics.iter().map(|one| numbered.describe(one)).collect(), omitted }
    }

    /// The errors, first things first. If there are very many, not all of them.
    #[must_use]
    pub fn errors(&self) -> &[SyntaxError] {
        &self.errors
    }
}

impl Error for SyntaxErrors {}

impl fmt::Display for SyntaxErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        if self.omitted > 0 {
            write!(f, "\n… and {} more errors", self.omitted)?;
        }
        Ok(())
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tabs are repeated so that the carets stay below what they point at.
        let indent: String = self
            .excerpt
            .chars()
            .take(self.marked.start)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let carets = "^".repeat(self.marked.len());
        write!(f, "{}: {}\n  {}\n  {indent}{carets}", self.position, self.message, self.excerpt)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file_name, self.line, self.column)
    }
}

/// The place that an error is about. If oxc does not say which of several it is, it is the last:
/// what comes before it is what it contradicts.
fn main_label(diagnostic: &OxcDiagnostic) -> Option<&LabeledSpan> {
    diagnostic
        .labels
        .iter()
        .find(|label| label.primary())
        .or_else(|| diagnostic.labels.iter().max_by_key(|label| label.offset()))
}

/// A source with its line ends found.
struct NumberedSource<'s> {
    source: &'s str,
    file_name: &'s str,
    /// Where each line's text is, its end not included.
    lines: Vec<Range<usize>>,
}

impl<'s> NumberedSource<'s> {
    fn of(source: &'s str, file_name: &'s str) -> Self {
        let mut lines = Vec::new();
        let mut start = 0;
        let mut characters = source.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            // ECMAScript's line terminators, by which stack traces count, too.
            if !matches!(character, '\n' | '\r' | '\u{2028}' | '\u{2029}') {
                continue;
            }
            lines.push(start..at);
            start = at + character.len_utf8();
            if character == '\r' && characters.next_if(|&(_, next)| next == '\n').is_some() {
                start += 1;
            }
        }
        lines.push(start..source.len());
        Self { source, file_name, lines }
    }

    fn describe(&self, diagnostic: &OxcDiagnostic) -> SyntaxError {
        let main = main_label(diagnostic);
        let (start, end) = main.map_or((0, 0), |label| {
            (label.offset() as usize, label.offset() as usize + label.len() as usize)
        });
        let (line, start) = self.find(start);
        let (excerpt, marked) = self.excerpt(line, start, end);

        let mut notes = Vec::new();
        if let Some(help) = &diagnostic.help {
            notes.push(format!("help: {}", message(help)));
        }
        for label in &diagnostic.labels {
            if let Some(text) = label.label()
                && Some(label) != main
            {
                notes.push(format!("{}: {}", self.position(label.offset() as usize), message(text)));
            }
        }
        SyntaxError {
            position: self.position(start),
            message: message(&diagnostic.message),
            excerpt,
            marked,
            notes,
        }
    }

    /// The index of the line in which a byte is, and the byte's place made sure to be in its text.
    fn find(&self, byte: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|line| line.start <= byte).saturating_sub(1);
        let text = &self.lines[line];
        (line, self.source.floor_char_boundary(byte.clamp(text.start, text.end)))
    }

    fn position(&self, byte: usize) -> Position {
        let (line, byte) = self.find(byte);
        let before = &self.source[self.lines[line].start..byte];
        Position {
            file_name: visible(self.file_name).collect(),
            line: line + 1,
            column: before.encode_utf16().count() + 1,
        }
    }

    /// The source around the bytes from `start` to `end`, and which of its characters these are.
    fn excerpt(&self, line: usize, start: usize, end: usize) -> (String, Range<usize>) {
        let text = self.lines[line].clone();
        let before = &self.source[text.start..start];
        let after = &self.source[start..text.end];
        let end = self.source.floor_char_boundary(end.clamp(start, text.end));

        let from = before.char_indices().rev().nth(EXCERPT_REACH - 1).map_or(0, |(at, _)| at);
        let to = after.char_indices().nth(EXCERPT_REACH).map_or(after.len(), |(at, _)| at);

        let mut excerpt = String::new();
        if from > 0 {
            excerpt.push('…');
        }
        excerpt.extend(visible(&before[from..]));
        let mark = excerpt.chars().count();
        excerpt.extend(visible(&after[..to]));
        let marked = self.source[start..end].chars().take(EXCERPT_REACH).count().max(1);
        if to < after.len() {
            excerpt.push('…');
        }
        (excerpt, mark..mark + marked)
    }
}

/// A message fit to be shown in one line.
fn message(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut message: String = visible(&words).take(LONGEST_MESSAGE).collect();
    if words.chars().nth(LONGEST_MESSAGE).is_some() {
        message.push('…');
    }
    message
}

/// The text with a visible character in place of every control character but the tab.
fn visible(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|character| match character {
        '\t' => '\t',
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        other if other.is_control() => '\u{fffd}',
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use oxc_span::Span;

    use super::*;

    fn error_at(source: &str, start: u32, end: u32) -> String {
        let diagnostic = OxcDiagnostic::error("Wrong").with_label(Span::new(start, end));
        SyntaxErrors::new(vec![diagnostic], source, "main.ts").to_string()
    }

    #[test]
    fn the_carets_are_below_what_is_wrong() {
        assert_eq!(error_at("one\n\ttwo three\n", 9, 14), "main.ts:2:6: Wrong\n  \ttwo three\n  \t    ^^^^^");
    }

    #[test]
    fn columns_count_utf16_units_and_carets_count_characters() {
        assert_eq!(error_at("😀😀x", 8, 9), "main.ts:1:5: Wrong\n  😀😀x\n    ^");
    }

    #[test]
    fn every_line_terminator_of_the_language_ends_a_line() {
        let source = "a\nb\r\nc\rd\u{2028}e\u{2029}f";
        let end = u32::try_from(source.len()).unwrap();
        assert_eq!(error_at(source, end - 1, end), "main.ts:6:1: Wrong\n  f\n  ^");
    }

    #[test]
    fn the_end_of_the_file_is_a_place() {
        assert_eq!(error_at("", 0, 0), "main.ts:1:1: Wrong\n  \n  ^");
        assert_eq!(error_at("x\r\n", 3, 3), "main.ts:2:1: Wrong\n  \n  ^");
    }

    #[test]
    fn a_place_that_does_not_exist_does_no_harm() {
        assert_eq!(error_at("é", 1, 1), "main.ts:1:1: Wrong\n  é\n  ^");
        assert_eq!(error_at("x", 1000, 2000), "main.ts:1:2: Wrong\n  x\n   ^");
    }

    #[test]
    fn a_span_over_several_lines_is_marked_in_its_first() {
        assert_eq!(error_at("ab\ncd", 1, 5), "main.ts:1:2: Wrong\n  ab\n   ^");
    }

    #[test]
    fn the_place_is_the_main_one_or_else_the_last() {
        let position = |labels: [LabeledSpan; 2]| {
            let diagnostic = OxcDiagnostic::error("Wrong").with_labels(labels);
            let errors = SyntaxErrors::new(vec![diagnostic], "a\nb", "main.ts");
            (errors.errors()[0].position.line, errors.errors()[0].notes.clone())
        };
        let (first, second) = (Span::new(0, 1), Span::new(2, 3));
        assert_eq!(
            position([first.label("one"), second.label("two")]),
            (2, vec!["main.ts:1:1: one".to_owned()])
        );
        assert_eq!(
            position([first.primary_label("one"), second.label("two")]),
            (1, vec!["main.ts:2:1: two".to_owned()])
        );
    }

    #[test]
    fn control_characters_of_the_source_are_not_shown() {
        assert_eq!(error_at("\0\u{1b}[31m!", 6, 7), "main.ts:1:7: Wrong\n  ␀␛[31m!\n        ^");
    }

    #[test]
    fn a_long_line_is_cut_on_both_sides() {
        let source = "a".repeat(500) + "!" + &"b".repeat(500);
        let shown = error_at(&source, 500, 501);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "main.ts:1:501: Wrong");
        assert_eq!(lines[1], format!("  …{}!{}…", "a".repeat(80), "b".repeat(79)));
        assert_eq!(lines[2], format!("   {}^", " ".repeat(80)));
    }

    #[test]
    fn a_message_that_quotes_the_source_is_cut() {
        let diagnostic = OxcDiagnostic::error("x".repeat(100_000)).with_label(Span::new(0, 1));
        let shown = SyntaxErrors::new(vec![diagnostic], "y", "main.ts").to_string();
        assert!(shown.starts_with("main.ts:1:1: xxx") && shown.len() < 400, "{shown}");
    }

    #[test]
    fn errors_come_in_the_order_of_the_source_once_each_and_not_without_end() {
        let mut diagnostics: Vec<_> = (0..70)
            .rev()
            .map(|line| OxcDiagnostic::error("Wrong").with_label(Span::new(line * 2, line * 2 + 1)))
            .collect();
        diagnostics.push(OxcDiagnostic::error("Wrong again").with_label(Span::new(0, 1)));
        let errors = SyntaxErrors::new(diagnostics, &"x\n".repeat(70), "main.ts");
        let lines: Vec<_> = errors.errors().iter().map(|error| error.position.line).collect();
        assert_eq!(lines, (1..=50).collect::<Vec<_>>());
        assert!(errors.to_string().ends_with("\n… and 20 more errors"), "{errors}");
    }
}
