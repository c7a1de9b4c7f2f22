//! What a file is, by its name and its first line.

use crate::facts::Language;

/// What a scan can look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    Code(Language),
    Notebook,
    Sudoers,
    /// YAML that describes containers.
    Container,
    Dockerfile,
}

/// Says what a file is, if it is something to look at; `start` is how it begins, a kilobyte or so.
pub fn subject_of(path: &str, start: &[u8]) -> Option<Subject> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let lower = name.to_lowercase();
    if lower == "sudoers" || folder.ends_with("sudoers.d") || lower.ends_with(".sudoers") {
        return Some(Subject::Sudoers);
    }
    if lower == "dockerfile"
        || lower == "containerfile"
        || lower.starts_with("dockerfile.")
        || lower.ends_with(".dockerfile")
    {
        return Some(Subject::Dockerfile);
    }
    // Made by a program of other files.
    if lower.contains(".min.") || lower.ends_with(".bundle.js") {
        return None;
    }
    let code = |language| Some(Subject::Code(language));
    match lower.rsplit_once('.').map(|(_, extension)| extension) {
        Some("py" | "pyw" | "pyi") => code(Language::Python),
        Some("js" | "mjs" | "cjs" | "jsx") => code(Language::JavaScript),
        Some("ts" | "mts" | "cts" | "tsx") => code(Language::TypeScript),
        Some("sh" | "bash" | "zsh" | "ksh" | "bats") => code(Language::Bash),
        Some("ipynb") => Some(Subject::Notebook),
        Some("yml" | "yaml") => Some(Subject::Container),
        _ => by_first_line(start).map(Subject::Code),
    }
}

fn by_first_line(start: &[u8]) -> Option<Language> {
    let line = start.strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
    let line = String::from_utf8_lossy(&line[..end]);
    line.split_whitespace().find_map(|word| {
        let program = word.rsplit('/').next().unwrap_or(word);
        match program {
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" => Some(Language::Bash),
            "node" | "nodejs" | "bun" => Some(Language::JavaScript),
            "deno" | "ts-node" | "tsx" => Some(Language::TypeScript),
            program if program.starts_with("python") || program.starts_with("pypy") => Some(Language::Python),
            _ => None,
        }
    })
}
