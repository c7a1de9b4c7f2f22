//! Lines of sudoers files that let somebody do more than was meant.

use super::LineFound;
use super::kinds::{self, Level};

/// Programs that can start others, so that running one as root is running everything as root.
const ESCAPES: &[&str] = &[
    "vi",
    "vim",
    "nvim",
    "view",
    "nano",
    "emacs",
    "ed",
    "less",
    "more",
    "man",
    "find",
    "awk",
    "gawk",
    "sed",
    "perl",
    "python",
    "python3",
    "ruby",
    "node",
    "lua",
    "php",
    "bash",
    "sh",
    "zsh",
    "dash",
    "ksh",
    "env",
    "su",
    "tar",
    "zip",
    "rsync",
    "git",
    "ssh",
    "scp",
    "docker",
    "podman",
    "tee",
    "cp",
    "mv",
    "dd",
    "chmod",
    "chown",
    "mount",
    "strace",
    "gdb",
    "tcpdump",
    "nmap",
    "screen",
    "tmux",
    "systemctl",
    "journalctl",
    "crontab",
    "pip",
    "npm",
    "make",
    "xargs",
];

pub(super) fn find(text: &str) -> Vec<LineFound> {
    let mut found = Vec::new();
    let mut whole = String::new();
    let mut start = 0;
    for (number, line) in text.lines().enumerate() {
        let number = u32::try_from(number + 1).unwrap_or(u32::MAX);
        if whole.is_empty() {
            start = number;
        }
        if let Some(line) = line.strip_suffix('\\') {
            whole.push_str(line);
            continue;
        }
        whole.push_str(line);
        let line = std::mem::take(&mut whole);
        if let Some((kind, level)) = of_line(line.split('#').next().unwrap_or("").trim()) {
            found.push(LineFound { line: start, kind, level });
        }
    }
    found
}

fn of_line(line: &str) -> Option<(&'static kinds::Kind, Level)> {
    if let Some(defaults) = line.strip_prefix("Defaults") {
        return defaults.contains("!authenticate").then_some((&kinds::SUDOERS_ALL, Level::High));
    }
    if line.contains("_Alias") || line.starts_with('@') {
        return None;
    }
    let (who, what) = line.split_once('=')?;
    let who = who.split_whitespace().next()?;
    let needs_password = !what.contains("NOPASSWD:");
    // `(runas) TAG: TAG: commands`
    let what = what.trim();
    let what =
        what.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(what, |(_, commands)| commands);
    let commands: Vec<&str> =
        what.split(',').map(without_tags).filter(|command| !command.is_empty()).collect();
    if commands.contains(&"ALL") {
        return match (who, needs_password) {
            ("root", _) => None,
            ("ALL", _) | (_, false) => Some((&kinds::SUDOERS_ALL, Level::Critical)),
            // What distributions ship for administrators.
            ("%sudo" | "%wheel" | "%admin", true) => Some((&kinds::SUDOERS_ALL, Level::Low)),
            (_, true) => Some((&kinds::SUDOERS_ALL, Level::Medium)),
        };
    }
    let allowed = || commands.iter().filter(|command| !command.starts_with('!'));
    if allowed().any(|command| command.contains(['*', '?'])) {
        let level = if needs_password { Level::Medium } else { Level::High };
        return Some((&kinds::SUDOERS_WILDCARD, level));
    }
    let is_escape = |command: &&&str| {
        let program = command.split_whitespace().next().unwrap_or("");
        let name = program.rsplit('/').next().unwrap_or(program);
        // With its arguments fixed, a file tool does one thing; a shell's or an editor's arguments hold nothing.
        let has_arguments = command.split_whitespace().nth(1).is_some();
        ESCAPES.contains(&name) && !has_arguments
            || matches!(name, "vi" | "vim" | "nano" | "less" | "more" | "bash" | "sh" | "su" | "man")
    };
    let level = if needs_password { Level::Medium } else { Level::High };
    allowed().find(is_escape).map(|_| (&kinds::SUDOERS_ESCAPE, level))
}

/// Without `NOPASSWD:` and the like.
fn without_tags(command: &str) -> &str {
    let mut command = command.trim();
    while let Some((tag, rest)) = command.split_once(':')
        && tag.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
    {
        command = rest.trim();
    }
    command
}
