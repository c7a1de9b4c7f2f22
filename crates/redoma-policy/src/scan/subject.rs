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
    /// `package.json`, whose scripts are lines for the shell.
    Package,
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
    if lower == "package.json" {
        return Some(Subject::Package);
    }
    if is_minified_name(path) {
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

/// Whether a name says that a program made the code in it of other files.
pub fn is_minified_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let is_code = [".js", ".mjs", ".cjs"].iter().any(|end| name.ends_with(end));
    is_code && (name.contains(".min.") || name.ends_with(".bundle.js"))
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
