//! Working out texts ahead of a program: joining what is known, decoding what is written in code.
//!
//! Shared by the readers of Python and JavaScript. Nothing here grows without bound: a text longer than [`MAX_TEXT`] or a
//! list of more than [`MAX_ITEMS`] is not known any more.

use crate::facts::{Source, Text, Value};

pub(crate) const MAX_TEXT: usize = 64 << 10;
pub(crate) const MAX_ITEMS: usize = 4096;

/// Where a value comes from at worst; nothing for constants.
pub(crate) fn source_of(value: &Value) -> Option<Source> {
    match value {
        Value::Known(_) => None,
        Value::List(values) => values.iter().filter_map(source_of).max(),
        Value::Begins(_, source) | Value::Unknown(source) => Some(*source),
    }
}

/// Something made of these that can't be worked out.
pub(crate) fn made_of<'a>(values: impl IntoIterator<Item = &'a Value>) -> Value {
    Value::Unknown(values.into_iter().filter_map(source_of).max().unwrap_or(Source::Variable))
}

/// `left + right`.
pub(crate) fn joined(left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::Known(mut left), Value::Known(right)) => {
            left.push_str(&right);
            text(left)
        }
        (Value::Known(left), Value::Begins(right, source)) if left.len() + right.len() <= MAX_TEXT => {
            Value::Begins(left + &right, source)
        }
        (Value::Known(left), right) if !left.is_empty() => {
            Value::Begins(left, source_of(&right).unwrap_or(Source::Variable))
        }
        (Value::Begins(left, source), right) => Value::Begins(left, source.max_with(source_of(&right))),
        (Value::List(mut left), Value::List(right)) => {
            left.extend(right);
            list(left)
        }
        // A command with more arguments than are known is still that command.
        (Value::List(mut left), right) if !left.is_empty() => {
            left.push(made_of([&right]));
            list(left)
        }
        (left, right) => made_of([&left, &right]),
    }
}

trait Worst {
    fn max_with(self, other: Option<Source>) -> Source;
}

impl Worst for Source {
    fn max_with(self, other: Option<Source>) -> Source {
        other.map_or(self, |other| self.max(other))
    }
}

pub(crate) fn text(text: impl Into<Text>) -> Value {
    let text = text.into();
    if text.len() <= MAX_TEXT { Value::Known(text) } else { Value::Unknown(Source::Variable) }
}

pub(crate) fn list(values: Vec<Value>) -> Value {
    let list = Value::List(values);
    if items(&list) <= MAX_ITEMS { list } else { made_of([&list]) }
}

/// Values inside, at all levels.
fn items(value: &Value) -> usize {
    match value {
        Value::List(values) => 1 + values.iter().map(items).sum::<usize>(),
        _ => 1,
    }
}

/// How much memory a copy takes, roughly.
pub(crate) fn weight(value: &Value) -> usize {
    match value {
        Value::Known(text) | Value::Begins(text, _) => 32 + text.len(),
        Value::List(values) => 32 + values.iter().map(weight).sum::<usize>(),
        Value::Unknown(_) => 32,
    }
}

/// One of two, when it can't be told which.
pub(crate) fn either(left: Value, right: &Value) -> Value {
    if left == *right { left } else { made_of([&left, right]) }
}

/// Both alphabets, with or without padding, white space skipped.
pub(crate) fn base64(text: &str) -> Option<String> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    for byte in text.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' | b'\n' | b'\r' | b' ' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

pub(crate) fn hex(text: &str) -> Option<String> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(|character| character.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    String::from_utf8(pairs.iter().map(|[high, low]| high << 4 | low).collect()).ok()
}

pub(crate) fn rot13(text: &str) -> String {
    let turn = |character: char, first: u8| {
        u8::try_from(character).map_or(character, |byte| char::from((byte - first + 13) % 26 + first))
    };
    text.chars()
        .map(|character| match character {
            'a'..='z' => turn(character, b'a'),
            'A'..='Z' => turn(character, b'A'),
            _ => character,
        })
        .collect()
}

/// A number as a program writes it, also negative ones and those with a base.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    let text = value.known()?.trim().replace('_', "");
    let (digits, base) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'o' | b'O', ..] => (&text[2..], 8),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        _ => (text.as_str(), 10),
    };
    i64::from_str_radix(digits, base).ok()
}

/// The character of that code.
pub(crate) fn character(code: &Value) -> Option<char> {
    char::from_u32(u32::try_from(integer(code)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::{base64, hex, joined, rot13};
    use crate::facts::{Source, Value};

    #[test]
    fn codes_are_read() {
        assert_eq!(base64("cm0gLXJmIC8=").as_deref(), Some("rm -rf /"));
        assert_eq!(base64("cm0gLXJmIC8").as_deref(), Some("rm -rf /"));
        assert_eq!(base64("not base64!"), None);
        assert_eq!(hex("726d 2d").as_deref(), Some("rm-"));
        assert_eq!(hex("726"), None);
        assert_eq!(rot13("Uryyb!"), "Hello!");
    }

    #[test]
    fn what_follows_a_known_beginning_keeps_its_source() {
        let known = || Value::Known("rm ".into());
        let input = Value::Unknown(Source::Input);
        assert_eq!(joined(known(), input.clone()), Value::Begins("rm ".into(), Source::Input));
        let longer = joined(joined(known(), Value::Unknown(Source::Variable)), input);
        assert_eq!(longer, Value::Begins("rm ".into(), Source::Input));
        assert_eq!(joined(known(), known()), Value::Known("rm rm ".into()));
    }
}
