//! Whether a condition of a rule holds for a fact.

use redoma_model::policy::{Condition, ExampleLanguage, Place, Unseen};

use super::places::{self, Known};
use crate::facts::{Argument, Call, Command, Fact, Language, Value, What, Why};

/// A text with `*` for any characters and `?` for one.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    Exact(String),
    /// `text*`
    Start(String),
    /// `*text`
    End(String),
    /// `*text*`
    Within(String),
    Any,
    Other(String),
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        let is_plain = |text: &str| !text.contains(['*', '?']);
        let start = text.strip_suffix('*');
        let end = text.strip_prefix('*');
        match (start, end) {
            _ if is_plain(text) => Self::Exact(text.to_owned()),
            _ if text == "*" => Self::Any,
            (Some(start), _) if is_plain(start) => Self::Start(start.to_owned()),
            (_, Some(end)) if is_plain(end) => Self::End(end.to_owned()),
            (Some(_), Some(end)) => match end.strip_suffix('*') {
                Some(within) if is_plain(within) => Self::Within(within.to_owned()),
                _ => Self::Other(text.to_owned()),
            },
            _ => Self::Other(text.to_owned()),
        }
    }

    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(pattern) => text == pattern,
            Self::Start(start) => text.starts_with(start.as_str()),
            Self::End(end) => text.ends_with(end.as_str()),
            // Most texts are shorter than what is looked for, or don't have its first byte.
            Self::Within(within) => {
                text.len() >= within.len()
                    && within.as_bytes().first().is_none_or(|first| text.as_bytes().contains(first))
                    && text.contains(within.as_str())
            }
            Self::Any => true,
            Self::Other(pattern) => matches_stars(pattern.as_bytes(), text.as_bytes()),
        }
    }

    /// What each text that it matches begins with, if that is said.
    pub fn first_byte(&self) -> Option<u8> {
        match self {
            Self::Exact(text) | Self::Start(text) | Self::Other(text) => {
                text.bytes().next().filter(|byte| !matches!(byte, b'*' | b'?'))
            }
            Self::End(_) | Self::Within(_) | Self::Any => None,
        }
    }

    /// The text, if it stands for nothing but itself.
    pub fn exact(&self) -> Option<&str> {
        match self {
            Self::Exact(text) => Some(text),
            _ => None,
        }
    }
}

fn matches_stars(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Where the last star is, and where what it stands for ends so far.
    let mut star = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[next] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((star_at, end)) = star else { return false };
                star = Some((star_at, end + 1));
                at = star_at + 1;
                next = end + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Patterns of which one is to match. Nearly all texts are told off by their first byte.
#[derive(Debug, Default)]
struct Patterns {
    /// Those that say what a match begins with, by that.
    by_first: Vec<(u8, Pattern)>,
    /// The others.
    anywhere: Vec<Pattern>,
}

impl Patterns {
    fn new(texts: &[String]) -> Self {
        let mut all = Self::default();
        for pattern in patterns(texts) {
            match pattern.first_byte() {
                Some(byte) => all.by_first.push((byte, pattern)),
                None => all.anywhere.push(pattern),
            }
        }
        all
    }

    fn is_empty(&self) -> bool {
        self.by_first.is_empty() && self.anywhere.is_empty()
    }

    fn any_matches(&self, text: &str) -> bool {
        let first = text.as_bytes().first();
        self.by_first.iter().any(|(byte, pattern)| Some(byte) == first && pattern.matches(text))
            || self.anywhere.iter().any(|pattern| pattern.matches(text))
    }
}

fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text)).collect()
}

/// Which facts a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Command,
    Call,
    Import,
    Multiplies,
    Opaque,
}

#[derive(Debug)]
pub(super) struct Compiled {
    pub subject: Subject,
    pub names: Vec<Pattern>,
    flags: Vec<Vec<String>>,
    first: Vec<Pattern>,
    reads_from: Vec<Pattern>,
    wrapper: Vec<Pattern>,
    writes: Vec<Pattern>,
    write_places: Vec<Place>,
    named: Vec<(String, Pattern)>,
    argument: Patterns,
    unless_argument: Patterns,
    path: Vec<Place>,
    destination: Vec<Place>,
    why: Vec<Why>,
    language: Vec<Language>,
}

impl Compiled {
    /// What is wrong with it is said in the words of whoever wrote it.
    pub fn new(condition: &Condition) -> Result<Self, &'static str> {
        let is_command = !condition.program.is_empty()
            || !condition.wrapper.is_empty()
            || !condition.reads_from.is_empty()
            || !condition.writes.is_empty();
        let subjects = [
            (is_command, Subject::Command),
            (!condition.call.is_empty(), Subject::Call),
            (!condition.import.is_empty(), Subject::Import),
            (condition.multiplies, Subject::Multiplies),
            (!condition.opaque.is_empty(), Subject::Opaque),
        ];
        let mut said = subjects.into_iter().filter(|(is_said, _)| *is_said).map(|(_, subject)| subject);
        let subject = said.next().ok_or(
            "says nothing that code does; give it `program`, `writes`, `reads_from`, `wrapper`, `call`, `import`, `multiplies` or `opaque`",
        )?;
        if said.next().is_some() {
            return Err("is about several kinds of things; write one `[[rule.match]]` for each");
        }
        let has_command_words =
            !condition.flags.is_empty() || !condition.first.is_empty() || !condition.destination.is_empty();
        if has_command_words && subject != Subject::Command {
            return Err("has `flags`, `first` or `destination`, which only programs have");
        }
        if !condition.named.is_empty() && subject != Subject::Call {
            return Err("has `named`, which only calls have");
        }
        if !condition.by.is_empty() && subject != Subject::Opaque {
            return Err("has `by`, which goes with `opaque` only");
        }
        let has_arguments = !condition.argument.is_empty() || !condition.path.is_empty();
        if has_arguments && !matches!(subject, Subject::Command | Subject::Call) {
            return Err("has `argument` or `path`, which only programs and calls have");
        }
        let keywords = condition
            .named
            .iter()
            .map(|text| {
                text.split_once('=')
                    .map(|(name, value)| (name.to_owned(), Pattern::new(&value.to_lowercase())))
            })
            .collect::<Option<_>>()
            .ok_or("has a `named` that is not written as `name=value`")?;
        let (write_places, writes) = destinations(&condition.writes);
        let names = match subject {
            Subject::Command => &condition.program,
            Subject::Call => &condition.call,
            Subject::Import => &condition.import,
            Subject::Opaque | Subject::Multiplies => &condition.by,
        };
        Ok(Self {
            subject,
            names: patterns(names),
            flags: condition.flags.iter().map(|flag| flag.split('|').map(str::to_owned).collect()).collect(),
            first: patterns(&condition.first),
            reads_from: patterns(&condition.reads_from),
            wrapper: patterns(&condition.wrapper),
            writes,
            write_places,
            named: keywords,
            argument: Patterns::new(&condition.argument),
            unless_argument: Patterns::new(&condition.unless_argument),
            path: condition.path.clone(),
            destination: condition.destination.clone(),
            why: condition.opaque.iter().map(|unseen| why(*unseen)).collect(),
            language: condition.language.iter().map(|language| language_of(*language)).collect(),
        })
    }

    /// Whether it can hold only for a program whose output goes to a file.
    pub fn needs_write(&self) -> bool {
        !self.writes.is_empty() || !self.write_places.is_empty()
    }

    pub fn holds(&self, fact: &Fact) -> bool {
        if !self.language.is_empty() && !self.language.contains(&fact.language) {
            return false;
        }
        match (&fact.what, self.subject) {
            (What::Command(command), Subject::Command) => self.holds_for_command(command),
            (What::Call(call), Subject::Call) => self.holds_for_call(call),
            (What::Import(import), Subject::Import) => import.module.known().is_some_and(|module| {
                self.names.iter().any(|name| {
                    name.matches(module)
                        || name.exact().is_some_and(|name| {
                            module.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '/']))
                        })
                })
            }),
            (What::Multiplies, Subject::Multiplies) => true,
            (What::Opaque(opaque), Subject::Opaque) => {
                self.why.contains(&opaque.why) && any_or_none(&self.names, |name| name.matches(&opaque.by))
            }
            _ => false,
        }
    }

    fn holds_for_command(&self, command: &Command) -> bool {
        let has_name = || {
            let Some(name) = command.name() else { return false };
            self.names.iter().any(|pattern| pattern.matches(name))
        };
        (self.names.is_empty() || has_name())
            && any_or_none(&self.reads_from, |pattern| {
                command.reads_from.iter().any(|program| pattern.matches(program))
            })
            && any_or_none(&self.wrapper, |pattern| {
                command.wrappers.iter().any(|program| pattern.matches(program))
            })
            && self.flags.iter().all(|flag| flag.iter().any(|flag| has_flag(&command.arguments, flag)))
            && self.has_first(command)
            && self.has_arguments(command.arguments.iter())
            && any_or_none(&self.destination, |place| {
                command.arguments.last().is_some_and(|last| value_is_in(last, *place))
            })
            && self.has_writes(command)
    }

    fn has_first(&self, command: &Command) -> bool {
        if self.first.is_empty() {
            return true;
        }
        let first = command.arguments.iter().filter_map(Value::known).find(|text| !text.starts_with('-'));
        first.is_some_and(|text| self.first.iter().any(|pattern| pattern.matches(text)))
    }

    fn has_writes(&self, command: &Command) -> bool {
        if self.writes.is_empty() && self.write_places.is_empty() {
            return true;
        }
        command.redirects.iter().filter(|redirect| redirect.is_write).any(|redirect| {
            self.write_places.iter().any(|place| value_is_in(&redirect.to, *place))
                || redirect
                    .to
                    .known()
                    .is_some_and(|path| self.writes.iter().any(|pattern| pattern.matches(path)))
        })
    }

    fn holds_for_call(&self, call: &Call) -> bool {
        let has = |(name, pattern): &(String, Pattern)| {
            let is_it = |argument: &&Argument| argument.name.as_deref() == Some(name);
            let value = call.arguments.iter().find(is_it).and_then(|argument| argument.value.known());
            value.is_some_and(|value| pattern.matches(&value.to_lowercase()))
        };
        self.names.iter().any(|pattern| pattern.matches(&call.name))
            && self.named.iter().all(has)
            && self.has_arguments(call.arguments.iter().map(|argument| &argument.value))
    }

    fn has_arguments<'v>(&self, arguments: impl Iterator<Item = &'v Value>) -> bool {
        if self.argument.is_empty() && self.path.is_empty() && self.unless_argument.is_empty() {
            return true;
        }
        let mut has_argument = self.argument.is_empty();
        let mut has_path = self.path.is_empty();
        for value in arguments {
            let mut is_refused = false;
            each_text(value, |text| {
                is_refused |= self.unless_argument.any_matches(text);
                has_argument = has_argument || self.argument.any_matches(text);
            });
            if is_refused {
                return false;
            }
            has_path = has_path || self.path.iter().any(|place| value_is_in(value, *place));
        }
        has_argument && has_path
    }
}

/// Texts of a value: of a list, each one's; of one that is known in part, its beginning.
fn each_text(value: &Value, mut look: impl FnMut(&str)) {
    match value {
        Value::Known(text) | Value::Begins(text, _) => look(text),
        Value::List(values) => values.iter().filter_map(Value::known).for_each(look),
        Value::Unknown(_) => {}
    }
}

fn value_is_in(value: &Value, place: Place) -> bool {
    match value {
        Value::Known(text) => !text.starts_with('-') && places::is_in(text, Known::Whole, place),
        Value::Begins(text, _) => places::is_in(text, Known::Beginning, place),
        Value::List(values) => values.iter().any(|value| match value {
            Value::Known(text) => places::is_in(text, Known::Whole, place),
            _ => false,
        }),
        Value::Unknown(_) => false,
    }
}

/// Names of places, and patterns of paths.
fn destinations(texts: &[String]) -> (Vec<Place>, Vec<Pattern>) {
    let mut places = Vec::new();
    let mut paths = Vec::new();
    for text in texts {
        match text.as_str() {
            "root" => places.push(Place::Root),
            "system" => places.push(Place::System),
            "home" => places.push(Place::Home),
            "workspace" => places.push(Place::Workspace),
            "above" => places.push(Place::Above),
            "device" => places.push(Place::Device),
            _ => paths.push(Pattern::new(text)),
        }
    }
    (places, paths)
}

fn any_or_none<T>(items: &[T], holds: impl Fn(&T) -> bool) -> bool {
    items.is_empty() || items.iter().any(holds)
}

/// Whether an option is there: by itself, in a group (`-rf`), with a value (`--x=y`), or cut short (`--recurs`).
fn has_flag(arguments: &[Value], flag: &str) -> bool {
    let options = arguments.iter().filter_map(Value::known).take_while(|text| *text != "--");
    for text in options {
        let found = match flag.as_bytes() {
            [b'-', b'-', ..] => {
                text.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
                    || (text.len() > 4 && flag.starts_with(text))
            }
            [b'-', letter] => {
                text.len() > 1
                    && text.starts_with('-')
                    && !text.starts_with("--")
                    && text.as_bytes()[1..].contains(letter)
            }
            _ => text == flag,
        };
        if found {
            return true;
        }
    }
    false
}

fn why(unseen: Unseen) -> Why {
    match unseen {
        Unseen::Computed => Why::Computed,
        Unseen::Decoded => Why::Decoded,
        Unseen::NotParsed => Why::NotParsed,
        Unseen::TooDeep => Why::TooDeep,
    }
}

pub(super) fn language_of(language: ExampleLanguage) -> Language {
    match language {
        ExampleLanguage::Python => Language::Python,
        ExampleLanguage::JavaScript => Language::JavaScript,
        ExampleLanguage::TypeScript => Language::TypeScript,
        ExampleLanguage::Bash => Language::Bash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(words: &[&str]) -> Vec<Value> {
        words.iter().map(|word| Value::Known((*word).into())).collect()
    }

    #[test]
    fn options_are_found_in_every_spelling() {
        for words in [["-rf", "/"], ["-fr", "/"], ["-vrf", "x"], ["--recursive", "x"], ["--recurs", "x"]] {
            let found = ["-r", "--recursive"].iter().any(|flag| has_flag(&known(&words), flag));
            assert!(found, "{words:?}");
        }
        assert!(!has_flag(&known(&["--", "-r"]), "-r"));
        assert!(!has_flag(&known(&["--verbose", "r"]), "-r"));
        assert!(has_flag(&known(&["/", "-delete"]), "-delete"));
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("mkfs*", "mkfs.ext4", true),
            ("*.so", "x.so", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("of=/dev/*", "of=/dev/sda", true),
            ("rm", "rmdir", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} {text}");
        }
    }
}
