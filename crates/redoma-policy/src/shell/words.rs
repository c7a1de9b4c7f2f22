//! Words: quotes of all kinds, variables and what is substituted.

use compact_str::ToCompactString as _;

use super::parse::{Parser, ends_bare};
use super::tree::{Change, Part, Parts, Quoting, Variable, Word};
use crate::facts::Text;

/// Parentheses that close further away are taken for those of commands, so that looking ahead costs little.
const LONGEST_ARITHMETIC: usize = 1024;

/// Where the characters of a word come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// At blanks and operators.
    Command,
    /// At blanks only.
    Test,
}

impl Parser<'_> {
    pub(super) fn word(&mut self) -> Option<Word> {
        self.word_until(Ends::Command)
    }

    pub(super) fn test_word(&mut self) -> Option<Word> {
        self.word_until(Ends::Test)
    }

    fn word_until(&mut self, ends: Ends) -> Option<Word> {
        let mut word = Word { at: self.offset(), parts: Parts::new() };
        let start = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => break,
                b'<' | b'>' if self.peek_at(1) == Some(b'(') && ends == Ends::Command => {
                    self.at += 2;
                    let body = self.substituted();
                    word.parts.push(Part::Process(body));
                }
                b'(' if ends == Ends::Command && opens_array(&word) => {
                    let array = self.array();
                    word.parts.push(array);
                }
                b'(' if ends == Ends::Command && self.opens_pattern(start) => self.pattern(&mut word.parts),
                b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' if ends == Ends::Command => break,
                b'\\' | b'\'' | b'"' | b'`' | b'$' => self.special(&mut word.parts),
                _ => self.bare(&mut word.parts),
            }
        }
        (self.at > start).then_some(word)
    }

    /// `@(a|b)` and its kin, which are part of a word.
    fn opens_pattern(&self, start: usize) -> bool {
        self.at > start && matches!(self.code[self.at - 1], b'@' | b'!' | b'?' | b'*' | b'+')
    }

    fn pattern(&mut self, parts: &mut Parts) {
        let rest = &self.code[self.at..];
        let stop = rest.iter().position(|byte| matches!(byte, b'\n' | b')')).unwrap_or(rest.len());
        let end = if rest.get(stop) == Some(&b')') { stop + 1 } else { stop };
        push_bare(parts, &self.text[self.at..self.at + end]);
        self.at += end;
    }

    /// Characters that mean themselves.
    fn bare(&mut self, parts: &mut Parts) {
        let rest = &self.code[self.at..];
        let end = rest.iter().position(|byte| ends_bare(*byte)).unwrap_or(rest.len()).max(1);
        push_bare(parts, &self.text[self.at..self.at + end]);
        self.at += end;
    }

    fn special(&mut self, parts: &mut Parts) {
        match self.peek() {
            Some(b'\\') => self.backslash(parts),
            Some(b'\'') => {
                self.at += 1;
                let rest = &self.code[self.at..];
                let end = rest.iter().position(|byte| *byte == b'\'');
                if end.is_none() {
                    self.trouble();
                }
                let length = end.unwrap_or(rest.len());
                parts.push(Part::Quoted(self.text[self.at..self.at + length].into()));
                self.at += length + usize::from(end.is_some());
            }
            Some(b'"') => {
                self.at += 1;
                self.double_quoted(parts, Some(b'"'));
            }
            Some(b'`') => self.backticks(parts, Quoting::Bare),
            _ => self.dollar(parts, Quoting::Bare),
        }
    }

    fn backslash(&mut self, parts: &mut Parts) {
        self.at += 1;
        let Some(next) = self.text[self.at..].chars().next() else { return };
        self.at += next.len_utf8();
        if next != '\n' {
            push_quoted(parts, next.encode_utf8(&mut [0; 4]));
        }
    }

    /// The text of a here-document.
    pub(super) fn here_parts(&mut self) -> Parts {
        let mut parts = Parts::new();
        self.double_quoted(&mut parts, None);
        parts
    }

    /// Up to the closing byte, or to the end of the text.
    fn double_quoted(&mut self, parts: &mut Parts, end: Option<u8>) {
        // An empty pair of quotes is a word too.
        parts.push(Part::Quoted(Text::default()));
        loop {
            let rest = &self.code[self.at..];
            let stop = rest.iter().position(|byte| matches!(byte, b'\\' | b'$' | b'`') || Some(*byte) == end);
            let length = stop.unwrap_or(rest.len());
            push_quoted(parts, &self.text[self.at..self.at + length]);
            self.at += length;
            match self.peek() {
                None => {
                    if end.is_some() {
                        self.trouble();
                    }
                    return;
                }
                byte if byte == end => {
                    self.at += 1;
                    return;
                }
                Some(b'\\') => match self.peek_at(1) {
                    Some(b'\n') => self.at += 2,
                    Some(b'$' | b'`' | b'\\' | b'"' | b'}') => self.backslash(parts),
                    _ => {
                        push_quoted(parts, "\\");
                        self.at += 1;
                    }
                },
                Some(b'`') => self.backticks(parts, Quoting::Quoted),
                _ => self.dollar(parts, Quoting::Quoted),
            }
        }
    }

    fn backticks(&mut self, parts: &mut Parts, quoting: Quoting) {
        self.at += 1;
        let mut text = String::new();
        let mut characters = self.text[self.at..].chars();
        let mut closed = false;
        while let Some(character) = characters.next() {
            match character {
                '`' => {
                    closed = true;
                    break;
                }
                '\\' => match characters.next() {
                    Some(next @ ('`' | '\\' | '$')) => text.push(next),
                    Some(next) => text.extend(['\\', next]),
                    None => text.push('\\'),
                },
                _ => text.push(character),
            }
        }
        let next = self.code.len() - characters.as_str().len();
        if !closed {
            self.trouble();
        }
        if self.enter() {
            let body = self.within(&text, |inner| inner.list(&[]));
            self.leave();
            self.at = next;
            parts.push(Part::Substitution { body, quoting });
        }
    }

    /// Commands up to the parenthesis that closes them.
    fn substituted(&mut self) -> Vec<super::tree::Node> {
        if !self.enter() {
            return Vec::new();
        }
        let body = self.list(&[]);
        self.close(b')');
        self.leave();
        body
    }

    fn dollar(&mut self, parts: &mut Parts, quoting: Quoting) {
        self.at += 1;
        match self.peek() {
            Some(b'(') if self.peek_at(1) == Some(b'(') && self.is_arithmetic(self.at + 2) => {
                self.at += 2;
                if self.enter() {
                    let inner = self.arithmetic();
                    self.leave();
                    parts.push(Part::Arithmetic(inner.into_vec()));
                }
            }
            Some(b'(') => {
                self.at += 1;
                let body = self.substituted();
                parts.push(Part::Substitution { body, quoting });
            }
            Some(b'{') => {
                self.at += 1;
                if self.enter() {
                    let variable = self.braced(quoting);
                    self.leave();
                    parts.push(Part::Variable(Box::new(variable)));
                }
            }
            Some(b'\'') if quoting == Quoting::Bare => {
                self.at += 1;
                let text = self.ansi_quoted();
                parts.push(Part::Quoted(text.into()));
            }
            Some(b'"') if quoting == Quoting::Bare => {
                self.at += 1;
                self.double_quoted(parts, Some(b'"'));
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let name = self.name();
                parts.push(Part::Variable(Box::new(Variable { name, quoting, change: Change::None })));
            }
            Some(byte @ (b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                self.at += 1;
                let name = char::from(byte).to_compact_string();
                parts.push(Part::Variable(Box::new(Variable { name, quoting, change: Change::None })));
            }
            _ if quoting == Quoting::Bare => push_bare(parts, "$"),
            _ => push_quoted(parts, "$"),
        }
    }

    fn name(&mut self) -> Text {
        let rest = &self.code[self.at..];
        let end =
            rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(rest.len());
        let name = self.text[self.at..self.at + end].into();
        self.at += end;
        name
    }

    /// `${…}` after its brace.
    fn braced(&mut self, quoting: Quoting) -> Variable {
        let indirect = self.peek() == Some(b'!') && self.peek_at(1) != Some(b'}');
        let length = self.peek() == Some(b'#') && self.peek_at(1) != Some(b'}');
        if indirect || length {
            self.at += 1;
        }
        let mut name = self.name();
        if name.is_empty()
            && let Some(byte @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) = self.peek()
        {
            name.push(char::from(byte));
            self.at += 1;
        }
        if self.peek() == Some(b'[') {
            let word = self.braced_word(b']');
            if let [Part::Quoted(_)] | [] = word.parts.as_slice() {
            } else if !matches!(word.parts.as_slice(), [Part::Bare(_)]) {
                let rest = self.braced_word(b'}');
                let parts = word.parts.into_iter().chain(rest.parts).collect();
                return Variable { name, quoting, change: Change::Other(Word { at: word.at, parts }) };
            }
        }
        let start = self.at;
        let rest = self.braced_word(b'}');
        let end = self.at.saturating_sub(1).max(start);
        let text = self.text.get(start..end).unwrap_or_default();
        let change = if length { Change::Other(rest) } else { change(text, rest, indirect) };
        Variable { name, quoting, change }
    }

    /// Up to the closing byte, with quotes and expansions.
    fn braced_word(&mut self, end: u8) -> Word {
        let mut word = Word { at: self.offset(), parts: Parts::new() };
        loop {
            match self.peek() {
                None => {
                    self.trouble();
                    return word;
                }
                Some(byte) if byte == end => {
                    self.at += 1;
                    return word;
                }
                Some(b'\\' | b'\'' | b'"' | b'`' | b'$') => self.special(&mut word.parts),
                Some(_) => {
                    let rest = &self.code[self.at..];
                    let stop = rest.iter().position(|byte| b"\\'\"`$".contains(byte) || *byte == end);
                    let length = stop.unwrap_or(rest.len());
                    push_bare(&mut word.parts, &self.text[self.at..self.at + length]);
                    self.at += length;
                }
            }
        }
    }

    /// Whether what begins here ends with `))`, and not with a `)` of its own.
    pub(super) fn is_arithmetic(&self, start: usize) -> bool {
        let mut open = 0_usize;
        let rest = self.code.get(start..).unwrap_or_default();
        for (index, byte) in rest.iter().enumerate().take(LONGEST_ARITHMETIC) {
            match byte {
                b'(' => open += 1,
                b')' if open > 0 => open -= 1,
                b')' => return rest.get(index + 1) == Some(&b')'),
                _ => {}
            }
        }
        false
    }

    /// Up to `))`: only what is substituted matters.
    pub(super) fn arithmetic(&mut self) -> Parts {
        let mut parts = Parts::new();
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None => {
                    self.trouble();
                    return parts;
                }
                Some(b'(') => {
                    open += 1;
                    self.at += 1;
                }
                Some(b')') if open > 0 => {
                    open -= 1;
                    self.at += 1;
                }
                Some(b')') => {
                    self.at += 1;
                    if self.peek() == Some(b')') {
                        self.at += 1;
                    }
                    return parts;
                }
                Some(b'\\' | b'"' | b'`' | b'$') => self.special(&mut parts),
                Some(_) => self.at += 1,
            }
        }
    }

    /// `$'…'` after its first quote.
    fn ansi_quoted(&mut self) -> String {
        let mut bytes = Vec::new();
        loop {
            let Some(byte) = self.peek() else {
                self.trouble();
                break;
            };
            self.at += 1;
            match byte {
                b'\'' => break,
                b'\\' => self.ansi_escape(&mut bytes),
                _ => bytes.push(byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn ansi_escape(&mut self, bytes: &mut Vec<u8>) {
        let Some(byte) = self.peek() else { return };
        self.at += 1;
        let push_char = |bytes: &mut Vec<u8>, number: u32| {
            let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
        };
        match byte {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'a' => bytes.push(7),
            b'b' => bytes.push(8),
            b'e' | b'E' => bytes.push(27),
            b'f' => bytes.push(12),
            b'v' => bytes.push(11),
            b'x' => {
                let number = self.digits(16, 2);
                bytes.push(u8::try_from(number).unwrap_or_default());
            }
            b'u' => {
                let number = self.digits(16, 4);
                push_char(bytes, number);
            }
            b'U' => {
                let number = self.digits(16, 8);
                push_char(bytes, number);
            }
            b'0'..=b'7' => {
                self.at -= 1;
                let number = self.digits(8, 3);
                bytes.push(u8::try_from(number & 0xff).unwrap_or_default());
            }
            _ => bytes.push(byte),
        }
    }

    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut number = 0_u32;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(radix)) else { break };
            number = number.wrapping_mul(radix).wrapping_add(digit);
            self.at += 1;
        }
        number
    }
}

/// What stands after the name in `${name…}`; `text` is how it was written.
fn change(text: &str, rest: Word, indirect: bool) -> Change {
    if indirect {
        return Change::Indirect;
    }
    let without = |mut word: Word, length: usize| {
        if let Some(Part::Bare(first)) = word.parts.first_mut() {
            *first = first.get(length..).unwrap_or_default().into();
        }
        word
    };
    match text.as_bytes() {
        [b':', b'-' | b'=', ..] => Change::Default(without(rest, 2)),
        [b'-' | b'=', ..] => Change::Default(without(rest, 1)),
        [b':', b'+', ..] => Change::Alternative(without(rest, 2)),
        [b'+', ..] => Change::Alternative(without(rest, 1)),
        [] => Change::None,
        [b':', b'?', ..] | [b'?', ..] if !text.contains(['$', '`']) => Change::None,
        [b':', ..] if !text.contains(['$', '`']) => Change::Slice(text[1..].to_owned()),
        [b'^', b'^'] => Change::Upper,
        [b',', b','] => Change::Lower,
        [b'/', ..] if !text.contains(['$', '`', '*', '?', '[', '\\', '"', '\'', '#', '%']) => {
            let all = text.starts_with("//");
            let pattern = text.trim_start_matches('/');
            let (from, to) = pattern.split_once('/').unwrap_or((pattern, ""));
            Change::Replace { all, from: from.to_owned(), to: to.to_owned() }
        }
        _ => Change::Other(rest),
    }
}

fn opens_array(word: &Word) -> bool {
    matches!(word.parts.last(), Some(Part::Bare(text)) if text.ends_with('='))
}

fn push_bare(parts: &mut Parts, text: &str) {
    match parts.last_mut() {
        Some(Part::Bare(before)) => before.push_str(text),
        _ => parts.push(Part::Bare(text.into())),
    }
}

fn push_quoted(parts: &mut Parts, text: &str) {
    match parts.last_mut() {
        Some(Part::Quoted(before)) => before.push_str(text),
        _ => parts.push(Part::Quoted(text.into())),
    }
}
