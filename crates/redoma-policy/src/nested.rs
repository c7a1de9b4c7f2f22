//! Code in code, and what it may cost to look into it.
//!
//! `os.system("…")`, `eval("…")` and `sh -c '…'` hold programs of their own, which are read in their turn. A stranger can
//! write a small text that unfolds into a large one at each level, so one allowance is shared by all that one reading
//! leads to: so many programs deep, so many bytes in total. What goes beyond is [`Why::TooDeep`], never read in part.
//!
//! Parsers and visitors recurse as deep as the text is nested. Each language bounds that depth by a quick look at the text
//! before it parses, and [`with_stack_for`] makes sure that the stack is large enough for it.

use std::cell::Cell;

use crate::facts::{Fact, Language, Opaque, Position, What, Why};
use crate::{javascript, python, shell};

/// The largest text that is read.
pub const MAX_BYTES: usize = 4 << 20;

/// How many programs may be inside each other.
const MAX_PROGRAMS: u8 = 6;

/// How much code inside of code is read in total.
const MAX_INNER_BYTES: usize = 1 << 20;

/// How deep a text may be nested, in brackets, operators and blocks together.
pub(crate) const MAX_NESTING: usize = 3000;

#[derive(Clone, Copy)]
struct Allowance {
    programs: u8,
    bytes: usize,
}

thread_local! {
    /// What is left, while something is being read.
    static LEFT: Cell<Option<Allowance>> = const { Cell::new(None) };
}

/// Whether this thread is reading something. What panics then is a parser over a hostile text, and is seen to.
pub fn is_reading() -> bool {
    LEFT.get().is_some()
}

/// Runs a reader on `code` within the allowance, which the outermost reader opens.
pub(crate) fn reading(code: &str, language: Language, read: impl FnOnce() -> Vec<Fact>) -> Vec<Fact> {
    let outer = LEFT.get();
    let allowance = match outer {
        None => Allowance { programs: MAX_PROGRAMS, bytes: MAX_INNER_BYTES },
        Some(left) if left.programs == 0 || left.bytes < code.len() => return too_deep(language),
        Some(left) => Allowance { programs: left.programs - 1, bytes: left.bytes - code.len() },
    };
    if code.len() > MAX_BYTES {
        return too_deep(language);
    }
    LEFT.set(Some(allowance));
    let _closes = Closes(outer);
    read()
}

/// Puts the allowance back, also if the reader panics: the thread reads other texts later.
struct Closes(Option<Allowance>);

impl Drop for Closes {
    fn drop(&mut self) {
        // The bytes stay spent for whoever reads next; the level is free again.
        let spent = LEFT.get().map_or(0, |left| left.bytes);
        LEFT.set(self.0.map(|outer| Allowance { programs: outer.programs, bytes: spent }));
    }
}

/// One fact: this can't be looked into.
pub(crate) fn too_deep(language: Language) -> Vec<Fact> {
    let what = What::Opaque(Opaque { by: name_of(language).to_owned(), why: Why::TooDeep });
    vec![Fact { what, at: Position { line: 1, column: 1 }, language, depth: 0 }]
}

pub(crate) fn name_of(language: Language) -> &'static str {
    match language {
        Language::Python => "python",
        Language::JavaScript => "javascript",
        Language::TypeScript => "typescript",
        Language::Bash => "bash",
    }
}

/// The facts of a program that stands inside another one, one level deeper and where the one around it stands.
pub(crate) fn read_inside(language: Language, code: &str, at: Position) -> Vec<Fact> {
    let mut facts = match language {
        Language::Python => python::read(code),
        Language::JavaScript | Language::TypeScript => javascript::read(code, language),
        Language::Bash => shell::read(code),
    };
    for fact in &mut facts {
        fact.at = at;
        fact.depth = fact.depth.saturating_add(1);
    }
    facts
}

/// Runs something that recurses `nesting` levels deep, at `per_level` bytes each, on a stack that has room for it.
pub(crate) fn with_stack_for<T>(nesting: usize, per_level: usize, run: impl FnOnce() -> T) -> T {
    // What is needed beside the recursion: the reader itself, the folding of values, inner programs' first frames.
    const BASE: usize = 512 << 10;
    let needed = BASE + nesting * per_level;
    stacker::maybe_grow(needed, needed, run)
}

/// Finds lines and columns. Asked in the order of the text it costs one pass over it.
pub(crate) struct Places<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// The last answer on a line: offset and column.
    last: (usize, u32),
    last_line: usize,
}

impl<'a> Places<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect(), last: (0, 1), last_line: 1 }
    }

    pub(crate) fn of(&mut self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = self.starts[line - 1];
        // From the last answer if that is on this line, in either direction: lines can be as long as a program.
        let (from, known) =
            if self.last.0 >= start && self.last_line == line { self.last } else { (start, 1) };
        let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let column = if from <= offset {
            known.saturating_add(count(&self.text[from..offset]))
        } else {
            known.saturating_sub(count(&self.text[offset..from]))
        };
        self.last_line = line;
        self.last = (offset, column);
        Position { line: u32::try_from(line).unwrap_or(u32::MAX), column }
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, Position};

    #[test]
    fn places_count_characters_in_any_order() {
        let mut places = Places::new("aé\nü = x\n");
        let at = |line, column| Position { line, column };
        assert_eq!(places.of(0), at(1, 1));
        assert_eq!(places.of(3), at(1, 3));
        assert_eq!(places.of(9), at(2, 5));
        assert_eq!(places.of(6), at(2, 2));
        assert_eq!(places.of(1), at(1, 2));
        assert_eq!(places.of(99), at(3, 1));
    }
}
