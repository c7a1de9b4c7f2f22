//! What people see: one way to say an error, a note, a step of long work. All of it goes to stderr.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Instant;

fn paint(code: &str, text: &str) -> String {
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

fn say(line: &str) {
    // Nobody to tell if stderr is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether a terminal obeys it, or turns or hides other letters for it.
fn is_hostile(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{61c}' | '\u{feff}')
}

/// Text with names in it that others chose: nothing in it may act on a terminal, or turn a line around. Every command passes
/// what it prints through this, through [`harmless_lines`] or through [`harmless_json`].
pub fn harmless(text: &str) -> String {
    let one = |letter: char| {
        if is_hostile(letter) { letter.escape_unicode().to_string() } else { letter.to_string() }
    };
    text.chars().map(one).collect()
}

/// The same for JSON, which stays the JSON of the same value: strings are the only place for such letters but line ends.
pub fn harmless_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter != '\n' && is_hostile(letter) {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// A value as JSON on one line.
pub fn json_line(value: &impl serde::Serialize) -> String {
    harmless_json(&serde_json::to_string(value).unwrap_or_default())
}

/// The same for what may have several lines.
pub fn harmless_lines(text: &str) -> String {
    text.split('\n').map(harmless).collect::<Vec<_>>().join("\n")
}

pub fn error(message: &str) {
    say(&format!("{} {}", paint("1;31", "redoma: error:"), harmless_lines(message)));
}

pub fn note(message: &str) {
    say(&format!("{} {}", paint("2", "redoma:"), harmless_lines(message)));
}

pub fn done(message: &str) {
    say(&format!("{} {}", paint("1;32", "✓"), harmless_lines(message)));
}

pub fn warning(message: &str) {
    say(&format!("{} {}", paint("1;33", "!"), harmless_lines(message)));
}

/// Whether somebody watches: a line can be rewritten.
pub fn is_live() -> bool {
    std::io::stderr().is_terminal()
}

/// A step of long work: one line that is rewritten as it goes on, or on a plain file only its start and its end.
#[derive(Debug)]
pub struct Progress {
    title: String,
    start: Instant,
    live: bool,
}

impl Progress {
    pub fn start(title: &str) -> Self {
        let progress =
            Self { title: title.to_owned(), start: Instant::now(), live: std::io::stderr().is_terminal() };
        if progress.live {
            progress.update("");
        } else {
            say(&format!("… {}", harmless(title)));
        }
        progress
    }

    pub fn update(&self, detail: &str) {
        if self.live {
            let seconds = self.start.elapsed().as_secs();
            let mut line = harmless(&format!("… {} {detail} ({seconds}s)", self.title));
            line.truncate(line.floor_char_boundary(110));
            let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
            let _ = std::io::stderr().flush();
        }
    }

    /// `12 of 100` as a bar.
    pub fn count(&self, at: usize, of: usize, detail: &str) {
        let width = 24;
        let filled = (at * width).checked_div(of).unwrap_or(0).min(width);
        self.update(&format!("[{}{}] {at}/{of} {detail}", "#".repeat(filled), "·".repeat(width - filled)));
    }

    pub fn finish(self) {
        if self.live {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
        done(&format!("{} ({:.1}s)", self.title, self.start.elapsed().as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "ana\x1b[2J\n\u{7f}\u{202e}x\u{9b}\u{feff}é👩";

    #[test]
    fn nothing_acts_on_a_terminal() {
        assert_eq!(harmless(HOSTILE), "ana\\u{1b}[2J\\u{a}\\u{7f}\\u{202e}x\\u{9b}\\u{feff}é👩");
        assert_eq!(harmless_lines("a\x07\nb"), "a\\u{7}\nb");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "name": HOSTILE, "list": [1, "\u{2028}"] });
        for text in [json_line(&value), harmless_json(&serde_json::to_string_pretty(&value).unwrap())] {
            assert!(!text.chars().any(|letter| letter != '\n' && is_hostile(letter)), "{text:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        }
    }
}
