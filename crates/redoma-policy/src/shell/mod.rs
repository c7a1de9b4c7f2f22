//! Reading shell scripts.
//!
//! `parse.rs`, `compound.rs` and `words.rs` make a tree of the text in one pass, `expand.rs` says what words become, `walk.rs` goes through the tree and
//! writes down what runs. The parser is our own. A table-driven one in C (tree-sitter-bash) was measured first: 20 ms for 100
//! KB, four times of what a whole check may take, and it would be C that reads hostile text in the server's process. This one
//! needs about one byte read per byte, is bounded in depth, and what it can't make sense of it reports and steps over.

mod compound;
mod expand;
mod parse;
mod runners;
mod tree;
mod walk;
mod words;
mod wrappers;

use crate::facts::{Fact, Language};
use crate::nested::{self, Places};

/// Readers of other languages write this variable where they don't know a word of a command.
pub(crate) const UNKNOWN_VARIABLE: &str = "unknown";

/// What a shell script does.
pub fn read(code: &str) -> Vec<Fact> {
    nested::reading(code, Language::Bash, || {
        let script = parse::parse(code);
        let mut found = walk::walk(&script);
        // Its memory is what the facts go to next.
        drop(script);
        found.sort_by_key(walk::Found::order);
        let mut places = Places::new(code);
        let mut facts = Vec::with_capacity(found.len());
        for found in found {
            let at = places.of(found.at);
            found.add_to(&mut facts, at);
        }
        facts
    })
}

#[cfg(test)]
mod tests;
