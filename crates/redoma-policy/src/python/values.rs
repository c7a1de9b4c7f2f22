//! What expressions come to, as far as that can be worked out without running them.

use compact_str::ToCompactString as _;
use ruff_python_ast::{
    Comprehension, Expr, ExprCall, ExprFString, FStringPart, InterpolatedStringElement, Number, Operator,
    UnaryOp,
};

use super::Reader;
use super::known_calls::{decodes, is_input, is_input_value};
use crate::facts::{Source, Value};
use crate::folding::{self, MAX_ITEMS, either, joined, made_of};
use crate::scope::{Bound, Meaning};

/// How deep an expression is looked into. What is below that is not known.
const MAX_LOOK: u8 = 48;

impl Reader<'_> {
    pub(super) fn value(&mut self, expression: &Expr) -> Value {
        self.value_within(expression, MAX_LOOK)
    }

    fn value_within(&mut self, expression: &Expr, look: u8) -> Value {
        let unknown = Value::Unknown(Source::Variable);
        let Some(look) = look.checked_sub(1) else { return unknown };
        match expression {
            Expr::StringLiteral(literal) => folding::text(literal.value.to_str()),
            Expr::BytesLiteral(literal) => {
                let bytes: Vec<u8> = literal.value.bytes().collect();
                folding::text(String::from_utf8_lossy(&bytes))
            }
            Expr::NumberLiteral(literal) => Value::Known(match &literal.value {
                Number::Int(number) => number.to_compact_string(),
                Number::Float(number) => number.to_string().into(),
                Number::Complex { imag, .. } => format!("{imag}j").into(),
            }),
            Expr::BooleanLiteral(literal) => {
                Value::Known(if literal.value { "True" } else { "False" }.into())
            }
            Expr::NoneLiteral(_) => Value::Known("None".into()),
            Expr::FString(string) => self.f_string(string, look),
            Expr::Name(_) | Expr::Attribute(_) => self.named_value(expression, look),
            Expr::BinOp(_) => self.operation(expression, look),
            Expr::UnaryOp(operation) => match (operation.op, self.value_within(&operation.operand, look)) {
                (UnaryOp::USub, Value::Known(number)) => Value::Known(format!("-{number}").into()),
                (_, value) => made_of([&value]),
            },
            Expr::List(list) => self.list(&list.elts, look),
            Expr::Tuple(tuple) => self.list(&tuple.elts, look),
            Expr::ListComp(each) => self.comprehension(&each.elt, &each.generators, look),
            Expr::Generator(each) => self.comprehension(&each.elt, &each.generators, look),
            Expr::Subscript(subscript) => {
                let value = self.value_within(&subscript.value, look);
                self.element(value, &subscript.slice, look)
            }
            Expr::Call(call) => self.result(call, look),
            Expr::If(choice) => {
                let (left, right) =
                    (self.value_within(&choice.body, look), self.value_within(&choice.orelse, look));
                either(left, &right)
            }
            Expr::BoolOp(operation) => {
                let values: Vec<_> =
                    operation.values.iter().map(|value| self.value_within(value, look)).collect();
                made_of(&values)
            }
            Expr::Named(named) => self.value_within(&named.value, look),
            Expr::Await(waited) => self.value_within(&waited.value, look),
            Expr::Starred(starred) => self.value_within(&starred.value, look),
            Expr::IpyEscapeCommand(_) => Value::Unknown(Source::Input),
            _ => unknown,
        }
    }

    fn named_value(&mut self, expression: &Expr, look: u8) -> Value {
        if let Expr::Name(name) = expression
            && let Some(Bound { meaning: Meaning::Value(value), .. }) = self.bound(&name.id)
        {
            let weight = folding::weight(value);
            let value = value.clone();
            return if self.afford(weight) { value } else { Value::Unknown(Source::Variable) };
        }
        if let Some(path) = self.path(expression) {
            return match path.as_str() {
                "sys.executable" => Value::Known("python3".into()),
                path if is_input_value(path) => Value::Unknown(Source::Input),
                _ => Value::Unknown(Source::Variable),
            };
        }
        match expression {
            Expr::Attribute(attribute) => {
                let owner = self.value_within(&attribute.value, look);
                made_of([&owner])
            }
            _ => Value::Unknown(Source::Variable),
        }
    }

    /// Whether so many bytes more may be copied in this reading.
    fn afford(&mut self, bytes: usize) -> bool {
        let left = self.copies_left.checked_sub(bytes);
        self.copies_left = left.unwrap_or(0);
        left.is_some()
    }

    /// A chain of `+` has its operands taken apart without recursion: people join long texts that way.
    fn operation(&mut self, expression: &Expr, look: u8) -> Value {
        let mut operands = Vec::new();
        let mut rest = expression;
        while let Expr::BinOp(operation) = rest
            && operation.op == Operator::Add
        {
            operands.push(&*operation.right);
            rest = &operation.left;
        }
        let Expr::BinOp(operation) = expression else { return Value::Unknown(Source::Variable) };
        if operands.is_empty() {
            let (left, right) =
                (self.value_within(&operation.left, look), self.value_within(&operation.right, look));
            return match operation.op {
                Operator::Mod if left.known().is_some() => percent(&left, right),
                Operator::Mult => repeated(&left, &right),
                Operator::Div if matches!(left, Value::Known(_) | Value::Begins(..)) => {
                    joined(joined(left, Value::Known("/".into())), right)
                }
                Operator::BitXor => match (folding::integer(&left), folding::integer(&right)) {
                    (Some(left), Some(right)) => Value::Known((left ^ right).to_compact_string()),
                    _ => made_of([&left, &right]),
                },
                Operator::Sub => match (folding::integer(&left), folding::integer(&right)) {
                    (Some(left), Some(right)) => Value::Known(left.wrapping_sub(right).to_compact_string()),
                    _ => made_of([&left, &right]),
                },
                _ => made_of([&left, &right]),
            };
        }
        let mut sum = self.value_within(rest, look);
        let is_number = matches!(rest, Expr::NumberLiteral(_));
        for operand in operands.into_iter().rev() {
            let value = self.value_within(operand, look);
            sum = match (is_number.then(|| folding::integer(&sum)).flatten(), folding::integer(&value)) {
                (Some(left), Some(right)) => Value::Known(left.wrapping_add(right).to_compact_string()),
                _ => joined(sum, value),
            };
        }
        sum
    }

    fn f_string(&mut self, string: &ExprFString, look: u8) -> Value {
        let mut whole = Value::EMPTY;
        for part in &string.value {
            match part {
                FStringPart::Literal(literal) => {
                    whole = joined(whole, Value::Known(literal.value.to_compact_string()));
                }
                FStringPart::FString(inner) => {
                    for element in &inner.elements {
                        let piece = match element {
                            InterpolatedStringElement::Literal(literal) => {
                                Value::Known(literal.value.to_compact_string())
                            }
                            InterpolatedStringElement::Interpolation(field) => {
                                let value = self.value_within(&field.expression, look);
                                if field.format_spec.is_none() && field.debug_text.is_none() {
                                    value
                                } else {
                                    made_of([&value])
                                }
                            }
                        };
                        whole = joined(whole, piece);
                    }
                }
            }
        }
        whole
    }

    fn list(&mut self, elements: &[Expr], look: u8) -> Value {
        let mut values = Vec::new();
        for element in elements.iter().take(MAX_ITEMS) {
            let value = self.value_within(element, look);
            match (element, value) {
                (Expr::Starred(_), Value::List(more)) => values.extend(more),
                (_, value) => values.push(value),
            }
        }
        folding::list(values)
    }

    /// `[chr(c) for c in [1, 2]]`, worked out if the list is known.
    fn comprehension(&mut self, element: &Expr, generators: &[Comprehension], look: u8) -> Value {
        let ([each], Some(look)) = (generators, look.checked_sub(8)) else {
            return Value::Unknown(Source::Variable);
        };
        let over = self.value_within(&each.iter, look);
        let items: Option<Vec<Value>> = match (&over, &each.target) {
            (Value::List(values), Expr::Name(_)) => Some(values.clone()),
            (Value::Known(text), Expr::Name(_)) if text.len() <= MAX_ITEMS => {
                Some(text.chars().map(|character| Value::Known(character.to_compact_string())).collect())
            }
            _ => None,
        };
        let (Some(items), Expr::Name(target), true) = (items, &each.target, each.ifs.is_empty()) else {
            return made_of([&over]);
        };
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            if !self.afford(64) {
                return made_of([&over]);
            }
            self.open_scope(None);
            self.bind(&target.id, Bound::value(item));
            values.push(self.value_within(element, look));
            self.close_scope();
        }
        folding::list(values)
    }

    fn element(&mut self, value: Value, index: &Expr, look: u8) -> Value {
        match (&value, index) {
            (Value::Known(text), Expr::Slice(slice)) if slice.lower.is_none() && slice.upper.is_none() => {
                match slice.step.as_ref().map(|step| self.value_within(step, look)) {
                    None => value,
                    Some(Value::Known(step)) if step == "-1" => Value::Known(text.chars().rev().collect()),
                    Some(_) => Value::Unknown(Source::Variable),
                }
            }
            (Value::List(values), index) => {
                let at = folding::integer(&self.value_within(index, look)).and_then(|at| {
                    let length = i64::try_from(values.len()).ok()?;
                    usize::try_from(if at < 0 { at + length } else { at }).ok()
                });
                at.and_then(|at| values.get(at)).cloned().unwrap_or_else(|| made_of([&value]))
            }
            _ => made_of([&value]),
        }
    }

    /// What a call gives back.
    fn result(&mut self, call: &ExprCall, look: u8) -> Value {
        let arguments: Vec<Value> =
            call.arguments.args.iter().take(64).map(|argument| self.value_within(argument, look)).collect();
        let path = self.path(&call.func);
        let name = match (&path, &*call.func) {
            (Some(path), _) => path.clone(),
            (None, Expr::Attribute(attribute)) => format!(".{}", attribute.attr.id),
            _ => String::new(),
        };
        if let Some(value) = of_function(&name, &arguments) {
            return value;
        }
        if let ("map", Some(function), Some(Value::List(codes))) =
            (name.as_str(), call.arguments.args.first(), arguments.get(1))
            && self.path(function).as_deref() == Some("chr")
        {
            let letters = codes.iter().map(|code| of_function("chr", std::slice::from_ref(code)));
            return letters.collect::<Option<_>>().map_or_else(|| made_of(&arguments), folding::list);
        }
        let mut worst = made_of(&arguments);
        if let Expr::Attribute(attribute) = &*call.func
            && (path.is_none() || !is_input(&name))
        {
            let owner = self.value_within(&attribute.value, look);
            if let Some(value) = of_method(&owner, &attribute.attr.id, &arguments) {
                return value;
            }
            worst = made_of([&owner, &worst]);
        }
        if is_input(&name)
            || path.is_some() && is_input(&format!(".{}", name.rsplit('.').next().unwrap_or("")))
        {
            return Value::Unknown(Source::Input);
        }
        worst
    }

    /// Whether an expression takes something out of base64, gzip or the like.
    pub(super) fn is_decoded(&self, expression: &Expr) -> bool {
        self.is_decoded_within(expression, 12)
    }

    fn is_decoded_within(&self, expression: &Expr, look: u8) -> bool {
        let Some(look) = look.checked_sub(1) else { return false };
        let inside = |expression: &Expr| self.is_decoded_within(expression, look);
        match expression {
            Expr::Call(call) => {
                let name = match (self.path(&call.func), &*call.func) {
                    (Some(path), _) => path,
                    (None, Expr::Attribute(attribute)) => format!(".{}", attribute.attr.id),
                    _ => String::new(),
                };
                decodes(&name) || inside(&call.func) || call.arguments.args.iter().take(8).any(inside)
            }
            Expr::Attribute(attribute) => inside(&attribute.value),
            Expr::Subscript(subscript) => inside(&subscript.value),
            Expr::BinOp(operation) => inside(&operation.left) || inside(&operation.right),
            Expr::ListComp(each) => inside(&each.elt),
            Expr::Generator(each) => inside(&each.elt),
            Expr::Name(name) => {
                decodes(&name.id) || self.bound(&name.id).is_some_and(|bound| bound.is_decoded)
            }
            _ => false,
        }
    }
}

fn of_function(name: &str, arguments: &[Value]) -> Option<Value> {
    let known = |at: usize| arguments.get(at).and_then(Value::known);
    let decoded = |text: Option<String>| text.map(folding::text);
    match (name, arguments) {
        (
            "str" | "bytes" | "bytearray" | "compile" | "pathlib.Path" | "pathlib.PurePath" | "os.fspath"
            | "os.path.expanduser" | "os.path.abspath" | "os.path.realpath" | "textwrap.dedent" | "list"
            | "tuple" | "os.fsencode" | "os.fsdecode",
            [value, ..],
        ) => match value {
            Value::List(codes) if name.starts_with("byte") => {
                codes.iter().map(folding::character).collect::<Option<String>>().map(folding::text)
            }
            value => Some(value.clone()),
        },
        ("chr", [code]) => {
            folding::character(code).map(|character| Value::Known(character.to_compact_string()))
        }
        ("ord", [Value::Known(text)]) => {
            text.chars().next().map(|character| Value::Known(u32::from(character).to_compact_string()))
        }
        (
            "base64.b64decode"
            | "base64.urlsafe_b64decode"
            | "base64.standard_b64decode"
            | "base64.decodebytes"
            | "binascii.a2b_base64",
            [Value::Known(text), ..],
        ) => decoded(folding::base64(text)),
        (
            "bytes.fromhex" | "bytearray.fromhex" | "binascii.unhexlify" | "base64.b16decode",
            [Value::Known(text)],
        ) => decoded(folding::hex(text)),
        ("codecs.decode" | "codecs.encode", [Value::Known(text), ..]) => of_codec(text, known(1)?),
        ("os.path.join", [first, rest @ ..]) => {
            Some(rest.iter().fold(first.clone(), |path, part| {
                joined(joined(path, Value::Known("/".into())), part.clone())
            }))
        }
        ("shlex.split", [Value::Known(line), ..]) => {
            // Quotes are the shell reader's: without any it is plain.
            let is_plain = !line.contains(['"', '\'', '\\', '#']);
            is_plain.then(|| {
                folding::list(line.split_whitespace().map(|word| Value::Known(word.into())).collect())
            })
        }
        ("shlex.split", [Value::Begins(line, source), ..]) => {
            let mut words: Vec<Value> =
                line.split_whitespace().map(|word| Value::Known(word.into())).collect();
            words.push(Value::Unknown(*source));
            Some(folding::list(words))
        }
        ("shlex.join" | "subprocess.list2cmdline", [Value::List(words)]) => Some(join_list(" ", words)),
        // One word, whatever is in it.
        ("shlex.quote" | "pipes.quote", [value]) => Some(match value {
            Value::Known(_) => value.clone(),
            _ => Value::Unknown(Source::Variable),
        }),
        _ => None,
    }
}

fn of_codec(text: &str, codec: &str) -> Option<Value> {
    match codec {
        "rot13" | "rot_13" | "rot-13" => Some(Value::Known(folding::rot13(text).into())),
        "hex" | "hex_codec" => folding::hex(text).map(folding::text),
        "base64" | "base64_codec" => folding::base64(text).map(folding::text),
        _ => None,
    }
}

fn of_method(owner: &Value, method: &str, arguments: &[Value]) -> Option<Value> {
    match (owner, method, arguments) {
        (Value::Known(text), "decode" | "encode", [Value::Known(codec), ..]) => {
            Some(of_codec(text, codec).unwrap_or_else(|| owner.clone()))
        }
        (
            _,
            "decode" | "encode" | "strip" | "rstrip" | "lstrip" | "as_posix" | "resolve" | "expanduser",
            [],
        ) => Some(match (owner, method) {
            (Value::Known(text), "strip") => Value::Known(text.trim().into()),
            (Value::Known(text), "rstrip") => Value::Known(text.trim_end().into()),
            (Value::Known(text), "lstrip") => Value::Known(text.trim_start().into()),
            _ => owner.clone(),
        }),
        (Value::Known(text), "lower", []) => Some(Value::Known(text.to_lowercase())),
        (Value::Known(text), "upper", []) => Some(Value::Known(text.to_uppercase())),
        (Value::Known(text), "replace", [Value::Known(from), Value::Known(to), ..]) if !from.is_empty() => {
            (text.len().saturating_mul(to.len() + 1) <= folding::MAX_TEXT * 16)
                .then(|| folding::text(text.replace(from.as_str(), to)))
        }
        (Value::Known(text), "split", []) => {
            Some(folding::list(text.split_whitespace().map(|word| Value::Known(word.into())).collect()))
        }
        (Value::Known(text), "split", [Value::Known(by)]) if !by.is_empty() => Some(folding::list(
            text.split(by.as_str()).take(MAX_ITEMS).map(|word| Value::Known(word.into())).collect(),
        )),
        (Value::Known(between), "join", [Value::List(words)]) => Some(join_list(between, words)),
        (Value::Known(text), "join", [Value::Known(letters)]) if text.is_empty() => {
            Some(Value::Known(letters.clone()))
        }
        (Value::Known(text), "format", values) => Some(braces(text, values)),
        _ => None,
    }
}

fn join_list(between: &str, words: &[Value]) -> Value {
    let mut whole = Value::EMPTY;
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            whole = joined(whole, Value::Known(between.into()));
        }
        whole = joined(whole, word.clone());
        if !matches!(whole, Value::Known(_)) {
            return joined(whole, made_of(words));
        }
    }
    whole
}

/// `"…{}…{0}…".format(values)`; other fields are not known.
fn braces(text: &str, values: &[Value]) -> Value {
    let (mut whole, mut rest, mut next) = (Value::EMPTY, text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        whole = joined(whole, Value::Known(rest[..at].into()));
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            whole = joined(whole, Value::Known(brace.into()));
            rest = after;
            continue;
        }
        let Some((field, after)) = rest.split_once('}') else { break };
        rest = after;
        let index = if field.is_empty() { Some(next) } else { field.parse().ok() };
        next += 1;
        let value = index.and_then(|index: usize| values.get(index)).cloned();
        whole = joined(whole, value.unwrap_or_else(|| made_of(values)));
    }
    joined(whole, Value::Known(rest.into()))
}

/// `"…%s…" % values`.
fn percent(text: &Value, values: Value) -> Value {
    let values = match values {
        Value::List(values) => values,
        value => vec![value],
    };
    let Some(text) = text.known() else { return made_of(&values) };
    let (mut whole, mut rest, mut given) = (Value::EMPTY, text, values.iter());
    while let Some((before, after)) = rest.split_once('%') {
        whole = joined(whole, Value::Known(before.into()));
        let mut characters = after.chars();
        whole = match characters.next() {
            Some('%') => joined(whole, Value::Known("%".into())),
            Some('s' | 'd' | 'r' | 'i') => {
                joined(whole, given.next().cloned().unwrap_or(Value::Unknown(Source::Variable)))
            }
            _ => return joined(whole, made_of(&values)),
        };
        rest = characters.as_str();
    }
    joined(whole, Value::Known(rest.into()))
}

fn repeated(left: &Value, right: &Value) -> Value {
    let (text, times) = match (left, right) {
        (Value::Known(text), Value::Known(_)) if folding::integer(right).is_some() => (text, right),
        (Value::Known(_), Value::Known(text)) => (text, left),
        _ => return made_of([left, right]),
    };
    let times = folding::integer(times).and_then(|times| usize::try_from(times).ok());
    match times {
        Some(times) if text.len().saturating_mul(times) <= folding::MAX_TEXT => {
            Value::Known(text.repeat(times))
        }
        _ => Value::Unknown(Source::Variable),
    }
}
