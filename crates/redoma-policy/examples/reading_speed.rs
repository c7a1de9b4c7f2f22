//! How long reading takes: `cargo run --release -p redoma-policy --example reading_speed -- FILE…`
//!
//! Each file is repeated or cut to about 100 KB and read ten times; the best and the worst time are shown. Without files,
//! hostile texts are read instead.

#![expect(clippy::print_stdout, reason = "it is what an example is for")]

use std::time::{Duration, Instant};

use redoma_policy::facts::{Fact, Language};
use redoma_policy::{javascript, python};

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        hostile();
    }
    for file in files {
        let language = match file.rsplit('.').next() {
            Some("py") => Language::Python,
            Some("ts") => Language::TypeScript,
            _ => Language::JavaScript,
        };
        let Ok(text) = std::fs::read_to_string(&file) else {
            println!("{file}: can't be read");
            continue;
        };
        let times = 100_000_usize.div_ceil(text.len().max(1));
        let text = if text.len() > 100_000 { cut(&text).to_owned() } else { text.repeat(times) };
        let (mut took, mut facts) = (Vec::new(), 0);
        for _ in 0..10 {
            let (time, found) = timed(&text, language);
            took.push(time);
            facts = found.len();
        }
        took.sort();
        println!("{:>7} bytes {facts:>6} facts {:>9.2?} … {:>9.2?}  {file}", text.len(), took[0], took[9]);
    }
}

/// Whole lines, about 100 KB.
fn cut(text: &str) -> &str {
    let end = text[..text.floor_char_boundary(100_000)].rfind('\n').unwrap_or(0);
    &text[..end]
}

fn timed(text: &str, language: Language) -> (Duration, Vec<Fact>) {
    let start = Instant::now();
    let facts = match language {
        Language::Python => python::read(text),
        language => javascript::read(text, language),
    };
    (start.elapsed(), facts)
}

fn hostile() {
    let pieces = [
        "(",
        "[",
        "{",
        "f(",
        "(a = ",
        "(a, ",
        "(a: ",
        "(a?: ",
        "async (",
        "async (a, ",
        "<T>(a, ",
        "a<b>(",
        "a<b<",
        "A<x, ",
        "a ? (b) : ",
        "a ? (b) => (c) : ",
        "({a: ",
        "({a = ",
        "([a, ",
        "((a",
        "a => ",
        "`${",
        "<a>",
        "{ a: ",
        "if (a) ",
        "a.",
        "'a'+",
        "!",
        "lambda: ",
        "not ",
        "f'{",
        "a[",
        "x = [",
        "(a=(b)=>(",
        "a?(b,",
        "a?(b=",
        "<a.b<c>>(d=>",
    ];
    for piece in pieces {
        for count in [24, 90, 150, 250, 500, 660, 990, 1990, 2990, 33_000] {
            let text = piece.repeat(count);
            for language in [Language::Python, Language::JavaScript, Language::TypeScript] {
                let (time, facts) = timed(&text, language);
                if time > Duration::from_millis(20) {
                    println!("{piece:>16} × {count:<6} {language:?}: {time:.2?}, {} facts", facts.len());
                }
            }
        }
    }
}
