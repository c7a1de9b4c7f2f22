//! What names mean where they stand: modules and functions that were imported, values that were assigned.
//!
//! Assignments are followed in the order of the text. One that may or may not happen (in an `if`, a loop, a `try`) leaves
//! either the old value or the new one, which is not known then.

use std::collections::HashMap;

use crate::facts::{Source, Value};
use crate::folding;

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Meaning {
    /// A module, or a function in one: `os`, `os.system`.
    Path(String),
    Value(Value),
    /// A function or class of this program.
    Own,
}

#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) meaning: Meaning,
    /// It came out of base64, gzip or the like.
    pub(crate) is_decoded: bool,
}

impl Bound {
    pub(crate) fn value(value: Value) -> Self {
        Self { meaning: Meaning::Value(value), is_decoded: false }
    }

    pub(crate) fn unknown(source: Source) -> Self {
        Self::value(Value::Unknown(source))
    }

    pub(crate) fn own() -> Self {
        Self { meaning: Meaning::Own, is_decoded: false }
    }

    pub(crate) fn path(path: impl Into<String>) -> Self {
        Self { meaning: Meaning::Path(path.into()), is_decoded: false }
    }
}

/// The names of one function, or of the module.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    names: HashMap<String, Bound>,
    /// How many blocks that may not run are around what is being read.
    pub(crate) conditions: usize,
    /// How many of them are loops.
    pub(crate) loops: usize,
    /// The function's name.
    pub(crate) function: Option<String>,
    /// Whether it has copied the process.
    pub(crate) has_forked: bool,
}

impl Scope {
    pub(crate) fn of(function: Option<&str>) -> Self {
        Self { function: function.map(str::to_owned), ..Self::default() }
    }

    pub(crate) fn bind(&mut self, name: &str, bound: Bound) {
        let bound = match self.names.get(name) {
            Some(before) if self.conditions > 0 => merged(before, bound),
            _ => bound,
        };
        self.names.insert(name.to_owned(), bound);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Bound> {
        self.names.get(name)
    }

    /// Changes the list that a name stands for, if it does: more is in it now, in a way that may not be known.
    /// Says whether the name is this scope's.
    pub(crate) fn add_to_list(&mut self, name: &str, more: &[Value]) -> bool {
        let is_certain = self.conditions == 0;
        let Some(bound) = self.names.get_mut(name) else { return false };
        if let Meaning::Value(value @ Value::List(_)) = &mut bound.meaning {
            let added =
                if is_certain && !more.is_empty() { more.to_vec() } else { vec![folding::made_of(more)] };
            let before = std::mem::replace(value, Value::Unknown(Source::Variable));
            *value = folding::joined(before, Value::List(added.clone()));
            if let Value::List(values) = value
                && values.is_empty()
            {
                *values = added;
            }
        }
        true
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.names.remove(name);
    }
}

fn merged(before: &Bound, now: Bound) -> Bound {
    let is_decoded = before.is_decoded || now.is_decoded;
    let meaning = match (&before.meaning, now.meaning) {
        // `run = None`, then `run = os.system` in a branch: the one that does something counts.
        (Meaning::Path(path), _) => Meaning::Path(path.clone()),
        (Meaning::Value(before), Meaning::Value(now)) => {
            Meaning::Value(folding::either(before.clone(), &now))
        }
        (_, now) => now,
    };
    Bound { meaning, is_decoded }
}
