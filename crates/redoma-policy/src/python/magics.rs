//! What notebooks add to Python: `!command`, `%magic` lines, and cells that are in another language as a whole.

use ruff_python_ast::IpyEscapeKind;

use super::Reader;
use crate::commands;
use crate::facts::{Fact, Language, Position, Value};
use crate::nested;

impl Reader<'_> {
    /// A line that begins with `!`, `%` or `?`.
    pub(super) fn escape(&mut self, kind: IpyEscapeKind, line: &str, offset: usize) {
        let at = self.places.of(offset);
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let facts = match kind {
            IpyEscapeKind::Shell | IpyEscapeKind::ShCap => shell(line, at),
            IpyEscapeKind::Magic | IpyEscapeKind::Magic2 => match name {
                "sx" | "system" | "sh" | "bash" => shell(rest, at),
                // Lines that are programs' own.
                "pip" | "conda" | "mamba" | "uv" | "ls" | "rm" | "cp" | "mv" | "mkdir" | "rmdir" | "cat"
                | "man" => shell(line, at),
                "run" => shell(&format!("python3 {rest}"), at),
                "time" | "timeit" | "prun" | "memit" => nested::read_inside(Language::Python, rest, at),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        self.facts.extend(facts);
    }
}

impl Reader<'_> {
    /// Lines that look like a notebook's, of a text that is not read as one.
    pub(super) fn escapes_by_line(&mut self, code: &str) {
        let mut offset = 0;
        for line in code.split_inclusive('\n') {
            let text = line.trim();
            if let Some(command) = text.strip_prefix('!') {
                self.escape(IpyEscapeKind::Shell, command.trim_start_matches('!'), offset);
            } else if let Some(magic) = text.strip_prefix('%') {
                self.escape(IpyEscapeKind::Magic, magic.trim_start_matches('%'), offset);
            }
            offset += line.len();
        }
    }
}

fn shell(line: &str, at: Position) -> Vec<Fact> {
    commands::line("!", &Value::Known(line.into()), at)
}

/// The facts of a cell that begins with `%%name`, if that makes it something else than Python.
pub(super) fn whole_cell(code: &str) -> Option<Vec<Fact>> {
    // Blank lines and comments may stand before it.
    let mut start = code.trim_start();
    while start.starts_with('#') {
        start = start.split_once('\n')?.1.trim_start();
    }
    let start = start.strip_prefix("%%")?;
    let (first, body) = start.split_once('\n').unwrap_or((start, ""));
    let mut words = first.split_whitespace();
    let mut name = words.next()?;
    let rest = first.trim_start()[name.len()..].trim();
    let line = u32::try_from(code[..code.len() - start.len()].matches('\n').count()).unwrap_or(0) + 1;
    let at = Position { line, column: 1 };
    let mut of_line = match name {
        // The rest of the line is a program with its arguments, or runs first.
        "script" => shell(rest, at),
        "time" | "timeit" | "prun" => nested::read_inside(Language::Python, without_options(rest), at),
        _ => Vec::new(),
    };
    if name == "script" {
        name = words.find(|word| !word.starts_with('-')).unwrap_or("");
    }
    let language = match name.rsplit('/').next()? {
        "bash" | "sh" | "system" | "sx" | "!" => Language::Bash,
        "js" | "javascript" | "node" => Language::JavaScript,
        "python" | "python3" | "python2" | "pypy" | "time" | "timeit" | "capture" | "prun" => {
            Language::Python
        }
        // Text for a file, a page, a chart.
        "writefile" | "file" | "html" | "HTML" | "markdown" | "latex" | "svg" | "SVG" => {
            return Some(Vec::new());
        }
        _ => Language::Python,
    };
    let lines_before = code[..code.len() - body.len()].matches('\n').count();
    let mut facts = match language {
        Language::Python => super::read(body),
        other => nested::read_inside(other, body, Position { line: 1, column: 1 }),
    };
    for fact in &mut facts {
        fact.at.line += u32::try_from(lines_before).unwrap_or(0);
    }
    of_line.append(&mut facts);
    Some(of_line)
}

/// What follows the options of a line such as `%%timeit -n 10 setup`.
fn without_options(line: &str) -> &str {
    let mut rest = line;
    while let Some(option) = rest.strip_prefix('-') {
        let (letters, after) = option.split_once(char::is_whitespace).unwrap_or((option, ""));
        rest = after.trim_start();
        // Those that take a number, apart from it.
        if letters.len() == 1 && rest.starts_with(|letter: char| letter.is_ascii_digit()) {
            rest = rest.split_once(char::is_whitespace).map_or("", |(_, after)| after.trim_start());
        }
    }
    rest
}
