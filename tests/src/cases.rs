//! The programs in `tests/attacks/`, with what their first comment lines say of them (`tests/tests/attacks.rs` explains it).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A program that tries to break out.
#[derive(Debug, Clone)]
pub struct Case {
    /// `group::name`.
    pub name: String,
    pub path: PathBuf,
    fields: BTreeMap<String, String>,
}

impl Case {
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }

    /// Who takes part: two sandboxes at the same time, if it says so.
    pub fn roles(&self) -> &'static [&'static str] {
        if self.field("twice").is_some() { &["a", "b"] } else { &["a"] }
    }

    /// The value of a flag for `redoma run`.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let mut words = self.field("flags").unwrap_or_default().split_whitespace();
        words.by_ref().find(|word| *word == name)?;
        words.next()
    }
}

/// All of them, by name.
pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("attacks");
    let mut cases = Vec::new();
    for group in std::fs::read_dir(&folder).expect("the attacks are there").flatten() {
        let Ok(entries) = std::fs::read_dir(group.path()) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let group = group.file_name().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a case can be read");
            let fields = header(&text);
            for needed in ["claim", "weaken"] {
                assert!(fields.contains_key(needed), "{} lacks `{needed}:`", path.display());
            }
            cases.push(Case { name: format!("{group}::{stem}"), path, fields });
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// The `key: value` pairs in the first comment lines.
fn header(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .skip_while(|line| line.starts_with("#!"))
        .map_while(|line| line.strip_prefix("//").or_else(|| line.strip_prefix('#')))
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// Whether any file below has the token in it.
pub fn holds_token(folder: &Path, token: &str) -> bool {
    std::fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => holds_token(&entry.path(), token),
            _ => std::fs::read(entry.path())
                .is_ok_and(|content| content.windows(token.len()).any(|window| window == token.as_bytes())),
        })
    })
}
