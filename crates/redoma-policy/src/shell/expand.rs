//! What words become: variables with constants are followed, quotes are gone, lists in braces are written out.
//!
//! Everything a script can blow up (`a=$b$b`, `{1,2}{1,2}…`) is paid for from one budget; when that is spent, values are
//! simply not known any more.

use std::collections::HashMap;

use compact_str::format_compact;
use smallvec::SmallVec;

use super::tree::{Change, Part, Quoting, Variable, Word};
use super::walk::Walker;
use crate::facts::{Source, Text, Value};

/// Where scripts run, and whose home that is.
pub(super) const WORKSPACE: &str = "/mnt/data";
const HOME: &str = "/home/sandbox";
/// What a field costs beside its text.
const FIELD: usize = 32;
/// Longer values are not followed.
const LONGEST: usize = 64 << 10;
/// Longer words with braces, and more alternatives in them, stay as they are written.
const LONGEST_BRACES: usize = 4096;
const MOST_BRACES: usize = 64;

/// What a script has set so far.
#[derive(Debug)]
pub(super) struct Variables {
    pub values: HashMap<Text, Value>,
    /// What the variable of a loop becomes, one after the other.
    pub each: HashMap<Text, Vec<Value>>,
    pub folder: Text,
    /// Whether all that was set has been seen: not after `source`.
    pub complete: bool,
    pub functions_deep: usize,
}

impl Default for Variables {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            each: HashMap::new(),
            folder: WORKSPACE.into(),
            complete: true,
            functions_deep: 0,
        }
    }
}

/// What one word became: one argument or several.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub fields: SmallVec<[Value; 1]>,
    /// Whether the shell would look for files by the first one.
    pub is_glob: bool,
    /// Programs whose output is in it.
    pub programs: Vec<Text>,
}

/// What the words of a command became.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pub fields: Vec<Value>,
    /// Whether the shell would look for a file by the program's name.
    pub is_glob: bool,
}

impl Line {
    fn extend(&mut self, fields: impl IntoIterator<Item = Value>, is_glob: bool) {
        if self.fields.is_empty() {
            self.is_glob = is_glob;
        }
        self.fields.extend(fields);
    }
}

impl Expanded {
    /// As one text: in assignments, here-documents and strings nothing is split.
    pub fn joined(self) -> Value {
        let mut fields = self.fields.into_iter();
        let Some(first) = fields.next() else { return Value::EMPTY };
        fields
            .fold(first, |before, field| concatenated(concatenated(before, Value::Known(" ".into())), field))
    }
}

/// One text after the other.
pub(super) fn concatenated(before: Value, after: Value) -> Value {
    match (before, after) {
        (Value::Known(mut before), Value::Known(after)) => {
            if before.len() + after.len() > LONGEST {
                return Value::Begins(before, Source::Variable);
            }
            before.push_str(&after);
            Value::Known(before)
        }
        (Value::Known(before), Value::Begins(after, source)) => Value::Begins(before + &after, source),
        (Value::Known(before), Value::Unknown(source)) if before.is_empty() => Value::Unknown(source),
        (Value::Known(before), Value::Unknown(source)) => Value::Begins(before, source),
        (Value::Known(before), Value::List(values)) => {
            let after = values.into_iter().next().unwrap_or(Value::EMPTY);
            concatenated(Value::Known(before), after)
        }
        (before, _) => before,
    }
}

/// Fields in the making.
#[derive(Default)]
struct Fields {
    done: SmallVec<[Value; 1]>,
    current: Option<Value>,
    is_glob: bool,
    is_first_glob: bool,
    programs: Vec<Text>,
}

impl Fields {
    fn append(&mut self, value: Value) {
        self.current = Some(match self.current.take() {
            None => value,
            Some(before) => concatenated(before, value),
        });
    }

    /// Ends a field.
    fn split(&mut self) {
        if let Some(value) = self.current.take() {
            if self.done.is_empty() {
                self.is_first_glob = self.is_glob;
            }
            self.done.push(value);
        }
        self.is_glob = false;
    }

    /// Something that is not in quotes: blanks in it end a field.
    fn append_split(&mut self, text: &str) {
        for (index, piece) in text.split([' ', '\t', '\n']).enumerate() {
            if index > 0 {
                self.split();
            }
            if !piece.is_empty() {
                self.append(Value::Known(piece.into()));
                self.is_glob |= is_glob(piece);
            }
        }
    }
}

fn is_glob(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

impl Walker<'_> {
    /// As [`Walker::expand`], to the end of a line. Most words stand for themselves.
    pub(super) fn expand_onto(&mut self, word: &Word, line: &mut Line, programs: &mut Vec<Text>) {
        let (text, is_glob) = match word.parts.as_slice() {
            [Part::Quoted(text)] => (text, false),
            [Part::Bare(text)] if !text.bytes().any(|byte| matches!(byte, b'{' | b'~')) => {
                (text, is_glob(text))
            }
            _ => {
                let expanded = self.expand(word);
                line.extend(expanded.fields, expanded.is_glob);
                programs.extend(expanded.programs);
                return;
            }
        };
        self.pay(text.len());
        line.extend([Value::Known(text.clone())], is_glob);
    }

    /// What a word becomes, after everything that is substituted in it has been looked at.
    pub(super) fn expand(&mut self, word: &Word) -> Expanded {
        if let Some(texts) = braces(word) {
            self.pay(texts.iter().map(Text::len).sum());
            let is_glob = texts.first().is_some_and(|text| is_glob(text));
            let fields = texts.into_iter().map(Value::Known).collect();
            return Expanded { fields, is_glob, programs: Vec::new() };
        }
        let mut fields = Fields::default();
        for (index, part) in word.parts.iter().enumerate() {
            self.expand_part(part, index == 0, word.parts.len() > 1, &mut fields);
        }
        fields.split();
        Expanded { fields: fields.done, is_glob: fields.is_first_glob, programs: fields.programs }
    }

    fn expand_part(&mut self, part: &Part, is_first: bool, is_within: bool, fields: &mut Fields) {
        match part {
            Part::Bare(text) => {
                self.pay(text.len());
                fields.is_glob |= is_glob(text);
                fields.append(Value::Known(if is_first { home(text) } else { text.clone() }));
            }
            Part::Quoted(text) => {
                self.pay(text.len());
                fields.append(Value::Known(text.clone()));
            }
            Part::Variable(variable) => self.expand_variable(variable, is_within, fields),
            Part::Substitution { body, quoting } => {
                let flow = self.substitution(body);
                fields.programs.extend(flow.programs);
                match flow.output {
                    Value::Known(text) if *quoting == Quoting::Bare => {
                        self.pay(text.len());
                        fields.append_split(&text);
                    }
                    value => fields.append(value),
                }
            }
            Part::Process(body) => {
                let flow = self.substitution(body);
                fields.programs.extend(flow.programs);
                fields.append(Value::Unknown(Source::Variable));
            }
            Part::Arithmetic(parts) => {
                let mut within = Fields::default();
                for part in parts {
                    self.expand_part(part, false, true, &mut within);
                }
                fields.append(Value::Unknown(Source::Variable));
            }
            Part::Array(words) => {
                let mut values = Vec::new();
                for word in words {
                    let expanded = self.expand(word);
                    fields.programs.extend(expanded.programs);
                    values.extend(expanded.fields);
                }
                fields.append(Value::List(values));
            }
        }
    }

    fn expand_variable(&mut self, variable: &Variable, is_within: bool, fields: &mut Fields) {
        let value = match &variable.change {
            Change::None => self.variable(&variable.name, is_within),
            Change::Default(word) => {
                let expanded = self.expand(word);
                fields.programs.extend(expanded.programs.iter().cloned());
                match self.variables.values.get(&variable.name) {
                    Some(Value::Known(text)) if text.is_empty() => expanded.joined(),
                    Some(value) => value.clone(),
                    None => expanded.joined(),
                }
            }
            Change::Alternative(word) => {
                let expanded = self.expand(word);
                fields.programs.extend(expanded.programs.iter().cloned());
                if self.variables.values.contains_key(&variable.name) {
                    expanded.joined()
                } else {
                    Value::EMPTY
                }
            }
            Change::Other(word) => {
                let expanded = self.expand(word);
                fields.programs.extend(expanded.programs);
                Value::Unknown(Source::Variable)
            }
            Change::Indirect => match self.variable(&variable.name, is_within) {
                Value::Known(name) => self.variable(&name, is_within),
                value => value,
            },
            change => match self.variable(&variable.name, is_within) {
                Value::Known(text) => changed(&text, change),
                value => value,
            },
        };
        match value {
            Value::Known(text) if variable.quoting == Quoting::Bare => {
                self.pay(text.len() + FIELD * text.bytes().filter(u8::is_ascii_whitespace).count());
                fields.append_split(&text);
            }
            Value::List(values) => {
                for (index, value) in values.into_iter().enumerate() {
                    if index > 0 {
                        fields.split();
                    }
                    self.pay(FIELD + value.known().map_or(1, str::len));
                    fields.append(value);
                }
            }
            value => {
                self.pay(value.known().map_or(1, str::len));
                fields.append(value);
            }
        }
    }

    /// What a variable holds.
    fn variable(&self, name: &str, is_within: bool) -> Value {
        if self.is_broke() {
            return Value::Unknown(Source::Variable);
        }
        if let Some(value) = self.variables.values.get(name) {
            return value.clone();
        }
        if let Some(values) = self.variables.each.get(name) {
            return Value::List(values.clone());
        }
        let is_positional = matches!(name, "@" | "*") || name.bytes().all(|byte| byte.is_ascii_digit());
        match name {
            super::UNKNOWN_VARIABLE => Value::Unknown(Source::Variable),
            "HOME" => Value::Known(HOME.into()),
            "PWD" => Value::Known(self.variables.folder.clone()),
            "IFS" => Value::Known(" \t\n".into()),
            _ if is_positional && self.variables.functions_deep > 0 => Value::Unknown(Source::Parameter),
            // A run's script has no arguments: `r$@m` is `rm`.
            _ if is_positional && is_within && name != "0" => Value::EMPTY,
            _ if is_positional => Value::Unknown(Source::Input),
            // The environment's names are in capitals, and nothing else is there before a script sets it.
            _ if self.variables.complete && name.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                Value::EMPTY
            }
            _ => Value::Unknown(Source::Input),
        }
    }
}

fn home(text: &str) -> Text {
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format_compact!("{HOME}{rest}"),
        Some(rest) if rest == "root" || rest.starts_with("root/") => format_compact!("/{rest}"),
        _ => text.into(),
    }
}

fn changed(text: &str, change: &Change) -> Value {
    let result = match change {
        Change::Upper => text.to_uppercase(),
        Change::Lower => text.to_lowercase(),
        Change::Replace { from, .. } if from.is_empty() => text.to_owned(),
        Change::Replace { all: true, from, to } => {
            if text.len().saturating_mul(to.len() + 1) > LONGEST {
                return Value::Unknown(Source::Variable);
            }
            text.replace(from, to)
        }
        Change::Replace { from, to, .. } => text.replacen(from, to, 1),
        Change::Slice(range) => match slice(text, range) {
            Some(piece) => piece,
            None => return Value::Unknown(Source::Variable),
        },
        _ => return Value::Unknown(Source::Variable),
    };
    Value::Known(result.into())
}

/// `${text:start:length}` with numbers.
fn slice(text: &str, range: &str) -> Option<String> {
    let mut numbers = range.splitn(2, ':').map(|number| number.trim().parse::<isize>());
    let start = numbers.next()?.ok()?;
    let length = numbers.next().transpose().ok()?;
    let count = text.chars().count();
    let start = if start < 0 { count.saturating_sub(start.unsigned_abs()) } else { start.unsigned_abs() };
    let taken = match length {
        None => count,
        Some(length) if length >= 0 => length.unsigned_abs(),
        Some(length) => count.saturating_sub(start).saturating_sub(length.unsigned_abs()),
    };
    Some(text.chars().skip(start).take(taken).collect())
}

/// What `{a,b}` stands for, if a word has that and nothing else to expand.
fn braces(word: &Word) -> Option<Vec<Text>> {
    let has_braces = word
        .parts
        .iter()
        .any(|part| matches!(part, Part::Bare(text) if text.contains('{') && text.contains(',')));
    if !has_braces {
        return None;
    }
    let mut characters = Vec::new();
    for part in &word.parts {
        match part {
            Part::Bare(text) => characters.extend(text.chars().map(|character| (character, true))),
            Part::Quoted(text) => characters.extend(text.chars().map(|character| (character, false))),
            _ => return None,
        }
    }
    if characters.len() > LONGEST_BRACES {
        return None;
    }
    let mut open = vec![characters];
    let mut done = Vec::new();
    while let Some(text) = open.pop() {
        match first_braces(&text) {
            Some((start, end, commas)) => {
                let mut from = start + 1;
                let mut alternatives = Vec::new();
                for comma in commas.into_iter().chain([end]) {
                    let mut alternative = text[..start].to_vec();
                    alternative.extend(&text[from..comma]);
                    alternative.extend(&text[end + 1..]);
                    alternatives.push(alternative);
                    from = comma + 1;
                }
                open.extend(alternatives.into_iter().rev());
                if open.len() + done.len() > MOST_BRACES {
                    return None;
                }
            }
            None => done.push(home(&text.into_iter().map(|(character, _)| character).collect::<String>())),
        }
    }
    done.retain(|text| !text.is_empty());
    Some(done)
}

/// The first braces with a comma in them: where they open and close, and where their commas are.
fn first_braces(text: &[(char, bool)]) -> Option<(usize, usize, Vec<usize>)> {
    let mut from = 0;
    // Braces that never close are looked at once.
    for _ in 0..MOST_BRACES {
        let start = from + text.get(from..)?.iter().position(|character| *character == ('{', true))?;
        let mut depth = 0_usize;
        let mut commas = Vec::new();
        for (index, character) in text.iter().enumerate().skip(start) {
            match character {
                ('{', true) => depth += 1,
                ('}', true) => {
                    depth -= 1;
                    if depth == 0 {
                        if commas.is_empty() {
                            break;
                        }
                        return Some((start, index, commas));
                    }
                }
                (',', true) if depth == 1 => commas.push(index),
                _ => {}
            }
        }
        from = start + 1;
    }
    None
}
