//! Governance of code: what a program would do, as far as its text tells, and whether that is allowed. Pure: no I/O.
//!
//! This is governance, the jail is the wall: a program that hides what it does from a reader is not stopped here, and need
//! not be.
//!
//! Code goes through a parser of its own language and comes out as *facts* (`facts.rs`): commands that are run, functions
//! that are called, modules that are imported, and what can't be seen. Rules and `redoma scan` look at facts only.
//!
//! | room | subject |
//! |---|---|
//! | `facts.rs` | what code does: the words that readers and rules share |
//! | `python/`, `javascript/`, `shell/` | readers |
//! | `nested.rs` | code in code, and what looking into it may cost |
//! | `rules/` | rules, the examples that prove them, the shipped ones |
//! | `libraries.rs` | what may be imported |
//! | `scan/` | where a code base runs what it was given |
//! | `policy.rs` | a profile's policy: code in, verdict out |
//! | `folding.rs`, `scope.rs`, `commands.rs` | what the readers of Python and JavaScript share |

mod commands;
pub mod facts;
mod folding;
pub mod javascript;
mod libraries;
pub mod nested;
mod policy;
pub mod python;
mod rules;
pub mod scan;
mod scope;
pub mod shell;

pub use policy::{Decided, Explained, Finding, Origin, Policy, PolicyError, Verdict};
pub use rules::{RuleError, language_named, parse as parse_rules};

use std::panic::{AssertUnwindSafe, catch_unwind};

use facts::{Fact, Language, Opaque, Position, What, Why};

/// What a program does, as far as its text tells.
///
/// Code is hostile, and parsers have mistakes: one that panics over a text has not read it, and whoever asked goes on.
pub fn read(language: Language, code: &str) -> Vec<Fact> {
    let read = || match language {
        Language::Python => python::read(code),
        Language::JavaScript | Language::TypeScript => javascript::read(code, language),
        Language::Bash => shell::read(code),
    };
    // Nothing that the reader may have left half done is looked at again.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let what = What::Opaque(Opaque { by: nested::name_of(language).to_owned(), why: Why::NotParsed });
        vec![Fact { what, at: Position { line: 1, column: 1 }, language, depth: 0 }]
    })
}
