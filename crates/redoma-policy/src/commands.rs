//! Programs that Python and JavaScript code runs, as facts.

use crate::facts::{Command, Fact, Language, Opaque, Position, Value, What, Why};
use crate::nested;

/// What stands for a word that is not known when a list of words is read as a shell's line.
const UNKNOWN_WORD: &str = "\"$unknown\"";

/// A line for the shell.
pub(crate) fn line(by: &str, line: &Value, at: Position) -> Vec<Fact> {
    let computed = || Fact {
        what: What::Opaque(Opaque { by: by.to_owned(), why: Why::Computed }),
        at,
        language: Language::Bash,
        depth: 1,
    };
    match line {
        Value::Known(line) => nested::read_inside(Language::Bash, line, at),
        // What is known is the line's beginning, and something follows that may be anything.
        Value::Begins(beginning, _) => {
            let mut facts = nested::read_inside(Language::Bash, &format!("{beginning}{UNKNOWN_WORD}"), at);
            facts.push(computed());
            facts
        }
        Value::List(words) => list(by, words, at),
        Value::Unknown(_) => vec![computed()],
    }
}

/// A program and its arguments.
pub(crate) fn list(by: &str, words: &[Value], at: Position) -> Vec<Fact> {
    let Some((program, arguments)) = words.split_first() else { return Vec::new() };
    let is_all_known = words.iter().all(|word| word.known().is_some());
    if let Some(name) = program.known()
        && (is_all_known || takes_code(name))
    {
        // Shells, wrappers and interpreters among them: the shell's reader looks into all of these.
        let line: Vec<String> =
            words.iter().map(|word| word.known().map_or(UNKNOWN_WORD.to_owned(), quoted)).collect();
        return nested::read_inside(Language::Bash, &line.join(" "), at);
    }
    let command = Command {
        program: program.clone(),
        arguments: arguments.to_vec(),
        wrappers: Vec::new(),
        redirects: Vec::new(),
        reads_from: Vec::new(),
    };
    let mut facts =
        vec![Fact { what: What::Command(Box::new(command)), at, language: Language::Bash, depth: 1 }];
    if program.known().is_none() {
        let opaque = Opaque { by: by.to_owned(), why: Why::Computed };
        facts.push(Fact { what: What::Opaque(opaque), at, language: Language::Bash, depth: 1 });
    }
    facts
}

/// Whether a program runs other programs or code that stand in its arguments.
fn takes_code(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(
        name,
        "sh" | "bash"
            | "dash"
            | "zsh"
            | "ksh"
            | "busybox"
            | "sudo"
            | "doas"
            | "su"
            | "env"
            | "xargs"
            | "nohup"
            | "timeout"
            | "nice"
            | "ionice"
            | "setsid"
            | "stdbuf"
            | "chroot"
            | "unshare"
            | "time"
            | "find"
            | "ssh"
            | "node"
            | "perl"
            | "ruby"
    ) || name.starts_with("python")
}

/// One word of a shell's line that stands for this text.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_the_shell_would_change_them() {
        assert_eq!(quoted("/etc/x-1"), "/etc/x-1");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("$(x)"), "'$(x)'");
        assert_eq!(quoted(""), "''");
    }
}
