//! `.gitignore`, as far as it is mostly used: names, folders, `*`, `?`, `**`, patterns from the file's folder. Lines that take
//! something back (`!`) are not followed: what they name stays out.

use std::path::{Path, PathBuf};

/// Longer files are no rules that somebody wrote.
const LONGEST: u64 = 256 << 10;
const MOST_PATTERNS: usize = 2000;

#[derive(Debug)]
pub(super) struct IgnoreFile {
    folder: PathBuf,
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    text: String,
    only_folders: bool,
    /// From the file's own folder, not in any.
    is_anchored: bool,
}

impl IgnoreFile {
    /// The one of a folder, if it has one that leaves something out.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let path = folder.join(".gitignore");
        // Whoever wrote the folder may have put something there that never ends, or never begins.
        std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file() && metadata.len() <= LONGEST)?;
        let text = std::fs::read(&path).ok()?;
        let patterns: Vec<_> =
            String::from_utf8_lossy(&text).lines().filter_map(Pattern::parse).take(MOST_PATTERNS).collect();
        (!patterns.is_empty()).then(|| Self { folder: folder.to_owned(), patterns })
    }

    pub(super) fn leaves_out(&self, path: &Path, is_folder: bool) -> bool {
        let Ok(relative) = path.strip_prefix(&self.folder) else { return false };
        let relative = relative.to_string_lossy();
        let name = relative.rsplit('/').next().unwrap_or(&relative);
        self.patterns.iter().any(|pattern| {
            (is_folder || !pattern.only_folders)
                && matches(
                    pattern.text.as_bytes(),
                    if pattern.is_anchored { &relative } else { name }.as_bytes(),
                )
        })
    }
}

impl Pattern {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with(['#', '!']) {
            return None;
        }
        let only_folders = line.ends_with('/');
        let text = line.trim_end_matches('/');
        let is_anchored = text.trim_start_matches("**/").contains('/');
        let text = if is_anchored { text.trim_start_matches('/') } else { text.trim_start_matches("**/") };
        Some(Self { text: text.to_owned(), only_folders, is_anchored })
    }
}

/// Whether a name fits a pattern. Steps back to the last `*` only, so it can't take long.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize, bool)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                let is_double = pattern.get(at + 1) == Some(&b'*');
                at += if is_double { 2 } else { 1 };
                // `a/**/b` fits `a/b` too.
                if is_double && pattern.get(at) == Some(&b'/') && (from == 0 || name[from - 1] == b'/') {
                    at += 1;
                }
                star = Some((at, from, is_double));
                continue;
            }
            Some(b'?') if name[from] != b'/' => {}
            Some(&byte) if byte == name[from] => {}
            _ => match star {
                Some((after, begin, is_double)) if is_double || name[begin] != b'/' => {
                    star = Some((after, begin + 1, is_double));
                    (at, from) = (after, begin + 1);
                    continue;
                }
                _ => return false,
            },
        }
        at += 1;
        from += 1;
    }
    pattern[at.min(pattern.len())..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_fit_as_in_git() {
        for (pattern, name, fits) in [
            ("*.py", "a.py", true),
            ("*.py", "a.pyc", false),
            ("a?c", "abc", true),
            ("build", "build", true),
            ("build", "builds", false),
            ("a/*.js", "a/b.js", true),
            ("a/*.js", "a/b/c.js", false),
            ("a/**/c.js", "a/b/d/c.js", true),
            ("a/**/c.js", "a/c.js", true),
            ("*a*b", "xxaxxb", true),
            ("*a*b", "xxaxxc", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }
}
