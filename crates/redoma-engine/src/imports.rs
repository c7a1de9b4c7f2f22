//! Which modules a Python program names, to pick the zygote that has them loaded.
//!
//! A guess is enough: a module that was missed is imported the ordinary way, one that was only mentioned costs nothing but a
//! larger zygote. So this reads lines and not a syntax tree: hostile source can't make it recurse, and it takes
//! microseconds. It looks at `import` and `from` statements wherever they begin a line or follow a semicolon or colon.

use std::collections::BTreeSet;
use std::io::Read;

use crate::staging::Input;

/// As much of a program is looked at; imports are at its beginning.
const MOST_BYTES: usize = 256 << 10;
/// As many modules of its own are, beside it.
const MOST_MODULES: usize = 8;

/// The top-level names of the modules that `source` imports.
pub(crate) fn imported_modules(source: &[u8]) -> BTreeSet<&str> {
    let source = source.get(..MOST_BYTES).unwrap_or(source);
    let mut modules = BTreeSet::new();
    for line in source.split(|byte| matches!(byte, b'\n' | b'\r' | b';')) {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let statement = line.trim_start();
        let statement = match statement.find("import ") {
            None => continue,
            // `try: import numpy`, `if True: from x import y`.
            Some(at) => match statement[..at].rfind(": ") {
                Some(colon) => statement[colon + 1..].trim_start(),
                None => statement,
            },
        };
        if let Some(rest) = statement.strip_prefix("from ") {
            modules.extend(top_level(rest));
        } else if let Some(rest) = statement.strip_prefix("import ") {
            modules.extend(rest.split(',').filter_map(top_level));
        }
    }
    modules
}

/// The source of those inputs that are modules with one of these names: what they import is wanted too.
pub(crate) fn read_imported(inputs: &[Input], names: &BTreeSet<&str>) -> Vec<Vec<u8>> {
    let is_imported = |input: &&Input| {
        let name = input.name.to_str().unwrap_or_default();
        let module = name.strip_suffix("/__init__.py").or_else(|| name.strip_suffix(".py"));
        module.is_some_and(|module| names.contains(module))
    };
    let read = |input: &Input| {
        let mut source = Vec::new();
        let file = input.open().ok()?;
        file.take(MOST_BYTES as u64).read_to_end(&mut source).ok().map(|_| source)
    };
    inputs.iter().filter(is_imported).take(MOST_MODULES).filter_map(read).collect()
}

/// `a` of `a.b as c`.
fn top_level(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    Some(&text[..end]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Vec<&str> {
        imported_modules(source.as_bytes()).into_iter().collect()
    }

    #[test]
    fn the_usual_ways_to_import_are_seen() {
        let source = "\
import os, sys
import numpy as np, pandas.core as pc
from matplotlib import pyplot as plt
from .local import x
def f():
    from scipy.stats import norm
try: import seaborn
except ImportError: pass
x = 1; import sklearn
important = 'no import here'
";
        assert_eq!(of(source), ["matplotlib", "numpy", "os", "pandas", "scipy", "seaborn", "sklearn", "sys"]);
    }

    #[test]
    fn whatever_the_bytes_are_there_is_an_answer() {
        for source in [
            &b"import \xff\nimport os"[..],
            b"import",
            b"import ",
            b"from ",
            b"import ,,,",
            b": import : import x",
        ] {
            let _ = imported_modules(source);
        }
        assert_eq!(of(""), Vec::<&str>::new());
        let long = "import a\n".repeat(100_000);
        assert_eq!(of(&long), ["a"]);
    }
}
