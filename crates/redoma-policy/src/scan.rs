//! Finds dynamic execution in source code: where a program runs code, commands or data that it was given.
//!
//! The readers say what a text does (`facts.rs`); here each fact that runs something is given a kind, and a level by where
//! its argument comes from: a constant is low, a variable medium, a parameter or input high, input in a shell critical.
//! Sudoers files, containers' descriptions and notebooks are read too. Pure: files come in as bytes.
//!
//! | room | subject |
//! |---|---|
//! | `kinds.rs` | what is found, why it matters, what to do |
//! | `rating.rs` | from a fact to a kind and a level |
//! | `subject.rs` | what a file is |
//! | `notebook.rs` | cells as one text |
//! | `package.rs` | scripts of a `package.json` |
//! | `sudoers.rs`, `containers.rs` | files that are not code |
//! | `ignoring.rs` | comments that say why a finding is no risk |

mod containers;
mod ignoring;
mod kinds;
mod notebook;
mod package;
mod rating;
mod subject;
mod sudoers;

use std::collections::HashMap;

pub use kinds::{ALL as ALL_KINDS, Kind, Level, named as kind_named};
pub use subject::{Subject, is_minified_name, subject_of};

use crate::facts::{Fact, Language, Position, Source, What, Why};

/// One place where something is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Risk {
    pub kind: &'static Kind,
    pub level: Level,
    /// Where its argument comes from; nothing for a constant.
    pub origin: Option<Source>,
    pub at: Position,
    /// Of a notebook, counted from 1; the line is within it.
    pub cell: Option<u32>,
    /// The line, without what is around it.
    pub excerpt: String,
    /// The same after lines were added above, or the code was indented otherwise.
    pub fingerprint: String,
}

/// What came out of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    pub risks: Vec<Risk>,
    /// Why it could not be read, as a whole or in part.
    pub unread: Option<Why>,
    /// How many findings a comment answers for.
    pub ignored: usize,
    pub lines: usize,
}

/// Whether a program made it of other code, so that nobody reads or mends it: lines are longer than people write.
pub fn is_minified(bytes: &[u8]) -> bool {
    let lines = lines_in(bytes) + 1;
    bytes.len() > 5_000 && bytes.len() / lines > 400
}

fn lines_in(bytes: &[u8]) -> usize {
    bytes.split(|&byte| byte == b'\n').count() - 1
}

/// Looks at one file. The path names it in fingerprints and is not opened.
pub fn scan_file(path: &str, bytes: &[u8], subject: Subject) -> Scanned {
    let text = String::from_utf8_lossy(bytes);
    let mut scan = Scan { path, seen: HashMap::new(), scanned: Scanned::default() };
    scan.scanned.lines = lines_in(bytes);
    match subject {
        Subject::Code(language) => scan.code(&text, language, |line| (None, line)),
        Subject::Notebook => scan.notebook(&text),
        Subject::Sudoers => scan.lines(&text, sudoers::find(&text)),
        Subject::Container => scan.lines(&text, containers::find(&text)),
        Subject::Dockerfile => {
            scan.lines(&text, containers::find(&text));
            for (line, script) in containers::run_lines(&text) {
                scan.code_at(&text, &script, Position { line, column: 1 });
            }
        }
        Subject::Package => match package::scripts(&text) {
            Some(scripts) => scripts.iter().for_each(|(at, script)| scan.code_at(&text, script, *at)),
            None => scan.scanned.unread = Some(Why::NotParsed),
        },
    }
    scan.scanned.risks.sort_by_key(|risk| (risk.cell, risk.at));
    scan.scanned
}

struct Scan<'p> {
    path: &'p str,
    /// How often a kind was found in a line of the same text.
    seen: HashMap<(&'static str, String), usize>,
    scanned: Scanned,
}

/// A finding of the line-wise readers.
struct LineFound {
    line: u32,
    kind: &'static Kind,
    level: Level,
}

impl Scan<'_> {
    fn code(&mut self, text: &str, language: Language, cell_of: impl Fn(u32) -> (Option<u32>, u32)) {
        let facts = crate::read(language, text);
        self.note_unread(&facts);
        let around = rating::Surroundings::of(&facts);
        let lines: Vec<&str> = text.lines().collect();
        let mut last = None;
        for fact in &facts {
            if !matches!(fact.what, What::Call(_) | What::Command(_) | What::Import(_)) {
                continue;
            }
            let statement = Statement { lines: &lines, at: fact.at, language: fact.language };
            let Some(found) = rating::of_fact(fact, &around, &|| statement.text()) else { continue };
            // A program in another one, or a pipe's end that is written down twice, is found once.
            if last == Some((found.kind.id, fact.at)) {
                continue;
            }
            last = Some((found.kind.id, fact.at));
            let (cell, line) = cell_of(fact.at.line);
            let risk = Risk {
                kind: found.kind,
                level: found.level,
                origin: found.origin,
                at: Position { line, column: fact.at.column },
                cell,
                excerpt: String::new(),
                fingerprint: String::new(),
            };
            self.add(risk, &lines, fact.at.line);
        }
    }

    /// A script that stands somewhere in something else.
    fn code_at(&mut self, text: &str, script: &str, at: Position) {
        let before = self.scanned.risks.len();
        let lines: Vec<&str> = text.lines().collect();
        let mut inner = Scan { path: self.path, seen: HashMap::new(), scanned: Scanned::default() };
        inner.code(script, Language::Bash, |line| (None, line));
        for risk in inner.scanned.risks {
            let same = |known: &Risk| known.kind == risk.kind && known.at == at;
            if !self.scanned.risks[before..].iter().any(same) {
                self.add(Risk { at, ..risk }, &lines, at.line);
            }
        }
    }

    fn notebook(&mut self, text: &str) {
        let Some(notebook) = notebook::parse(text) else {
            self.scanned.unread = Some(Why::NotParsed);
            return;
        };
        for part in notebook {
            self.code(&part.text, part.language, |line| part.cell_of(line));
        }
    }

    fn lines(&mut self, text: &str, found: Vec<LineFound>) {
        let lines: Vec<&str> = text.lines().collect();
        for LineFound { line, kind, level } in found {
            let at = Position { line, column: 1 };
            let risk = Risk {
                kind,
                level,
                origin: None,
                at,
                cell: None,
                excerpt: String::new(),
                fingerprint: String::new(),
            };
            self.add(risk, &lines, line);
        }
    }

    fn note_unread(&mut self, facts: &[Fact]) {
        let why = facts.iter().find_map(|fact| match &fact.what {
            What::Opaque(opaque)
                if matches!(opaque.why, Why::NotParsed | Why::TooDeep) && fact.depth == 0 =>
            {
                Some(opaque.why)
            }
            _ => None,
        });
        self.scanned.unread = self.scanned.unread.or(why);
    }

    /// Adds a finding unless a comment answers for it; `line` is where it stands in `lines`.
    fn add(&mut self, mut risk: Risk, lines: &[&str], line: u32) {
        let at = usize::try_from(line).unwrap_or(1).saturating_sub(1);
        let text = lines.get(at).copied().unwrap_or("");
        match ignoring::answer(lines, at, risk.kind.id) {
            ignoring::Answer::None => {}
            ignoring::Answer::Reason => {
                self.scanned.ignored += 1;
                return;
            }
            ignoring::Answer::NoReason => {
                let without = Risk {
                    kind: &kinds::IGNORE_WITHOUT_REASON,
                    level: Level::Low,
                    origin: None,
                    ..risk.clone()
                };
                self.finish(without, text);
            }
        }
        risk.excerpt = String::new();
        self.finish(risk, text);
    }

    fn finish(&mut self, mut risk: Risk, text: &str) {
        let plain: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let times = self.seen.entry((risk.kind.id, plain.clone())).or_default();
        *times += 1;
        risk.fingerprint = fingerprint(&[risk.kind.id, self.path, &plain, &times.to_string()]);
        risk.excerpt = shortened(text.trim());
        self.scanned.risks.push(risk);
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 160;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// FNV-1a, 128 bits: to tell findings apart, not to withstand somebody who makes them up.
fn fingerprint(parts: &[&str]) -> String {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    format!("{hash:032x}")
}

/// Where a fact stands in the text.
struct Statement<'t> {
    lines: &'t [&'t str],
    at: Position,
    language: Language,
}

impl Statement<'_> {
    /// The text from there to the end of the call or of the command, a few lines at most.
    fn text(&self) -> String {
        let from = usize::try_from(self.at.line).unwrap_or(1).saturating_sub(1);
        let skip = usize::try_from(self.at.column).unwrap_or(1).saturating_sub(1);
        let mut text = String::new();
        let mut depth = 0_i32;
        for (number, line) in self.lines.iter().skip(from).take(12).enumerate() {
            let line = if number == 0 {
                line.char_indices().nth(skip).map_or("", |(at, _)| &line[at..])
            } else {
                line
            };
            let line = &line[..line.floor_char_boundary(400)];
            text.push_str(line);
            if self.language == Language::Bash {
                if !line.ends_with('\\') {
                    break;
                }
            } else {
                for byte in line.bytes() {
                    depth += match byte {
                        b'(' | b'[' | b'{' => 1,
                        b')' | b']' | b'}' => -1,
                        _ => 0,
                    };
                }
                if depth <= 0 {
                    break;
                }
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests;
