//! What expressions come to, as far as that can be worked out without running them.

use compact_str::ToCompactString as _;
use oxc_ast::ast::{
    Argument, ArrayExpressionElement, BinaryOperator, CallExpression, ChainElement, Expression,
    TemplateLiteral,
};

use super::Reader;
use super::known_calls::{decodes, is_input, is_input_value};
use super::names::part_of;
use crate::facts::{Source, Value};
use crate::folding::{self, MAX_ITEMS, either, joined, made_of};
use crate::scope::{Bound, Meaning};

/// How deep an expression is looked into. What is below that is not known.
const MAX_LOOK: u8 = 48;

impl<'a> Reader<'_> {
    pub(super) fn value(&mut self, expression: &Expression<'a>) -> Value {
        self.value_within(expression, MAX_LOOK)
    }

    fn value_within(&mut self, expression: &Expression<'a>, look: u8) -> Value {
        let unknown = Value::Unknown(Source::Variable);
        let Some(look) = look.checked_sub(1) else { return unknown };
        match expression.get_inner_expression() {
            Expression::StringLiteral(literal) => folding::text(literal.value.as_str()),
            Expression::NumericLiteral(literal) => Value::Known(literal.value.to_string().into()),
            Expression::BooleanLiteral(literal) => Value::Known(literal.value.to_compact_string()),
            Expression::NullLiteral(_) => Value::Known("null".into()),
            Expression::TemplateLiteral(template) => self.template(template, look),
            Expression::BinaryExpression(_) => self.operation(expression.get_inner_expression(), look),
            Expression::LogicalExpression(operation) => {
                let (left, right) =
                    (self.value_within(&operation.left, look), self.value_within(&operation.right, look));
                made_of([&left, &right])
            }
            Expression::ConditionalExpression(choice) => {
                let (left, right) =
                    (self.value_within(&choice.consequent, look), self.value_within(&choice.alternate, look));
                either(left, &right)
            }
            Expression::ArrayExpression(array) => {
                let mut values = Vec::new();
                for element in array.elements.iter().take(MAX_ITEMS) {
                    match element {
                        ArrayExpressionElement::SpreadElement(spread) => {
                            match self.value_within(&spread.argument, look) {
                                Value::List(more) => values.extend(more),
                                value => values.push(value),
                            }
                        }
                        ArrayExpressionElement::Elision(_) => values.push(unknown.clone()),
                        element => {
                            values
                                .extend(element.as_expression().map(|value| self.value_within(value, look)));
                        }
                    }
                }
                folding::list(values)
            }
            Expression::AwaitExpression(waited) => self.value_within(&waited.argument, look),
            Expression::AssignmentExpression(assignment) => self.value_within(&assignment.right, look),
            Expression::SequenceExpression(sequence) => {
                sequence.expressions.last().map_or(unknown, |last| self.value_within(last, look))
            }
            Expression::CallExpression(call) => self.result(call, look),
            Expression::NewExpression(new) => {
                let values: Vec<Value> = new
                    .arguments
                    .iter()
                    .filter_map(Argument::as_expression)
                    .take(8)
                    .map(|argument| self.value_within(argument, look))
                    .collect();
                made_of(&values)
            }
            Expression::ChainExpression(chain) => match &chain.expression {
                ChainElement::CallExpression(call) => self.result(call, look),
                _ => self.named_value(expression, look),
            },
            Expression::Identifier(_)
            | Expression::StaticMemberExpression(_)
            | Expression::ComputedMemberExpression(_) => self.named_value(expression, look),
            _ => unknown,
        }
    }

    fn named_value(&mut self, expression: &Expression<'a>, look: u8) -> Value {
        let expression = expression.get_inner_expression();
        if let Expression::Identifier(name) = expression
            && let Some(Bound { meaning: Meaning::Value(value), .. }) = self.bound(&name.name)
        {
            let (weight, value) = (folding::weight(value), value.clone());
            return if self.afford(weight) { value } else { Value::Unknown(Source::Variable) };
        }
        if let Some(path) = self.path(expression) {
            return match path.as_str() {
                "process.execPath" | "process.argv0" => Value::Known("node".into()),
                "__filename" => Value::Known("__filename".into()),
                path if is_input_value(path) => Value::Unknown(Source::Input),
                _ => Value::Unknown(Source::Variable),
            };
        }
        match expression {
            Expression::StaticMemberExpression(member) => {
                let owner = self.value_within(&member.object, look);
                part_of(&owner, &member.property.name)
            }
            Expression::ComputedMemberExpression(member) => {
                let owner = self.value_within(&member.object, look);
                let at = folding::integer(&self.value_within(&member.expression, look));
                match (&owner, at.and_then(|at| usize::try_from(at).ok())) {
                    (Value::List(values), Some(at)) => {
                        values.get(at).cloned().unwrap_or_else(|| made_of([&owner]))
                    }
                    _ => made_of([&owner]),
                }
            }
            Expression::ChainExpression(chain) => match chain.expression.as_member_expression() {
                Some(member) => {
                    let owner = self.value_within(member.object(), look);
                    part_of(&owner, member.static_property_name().unwrap_or(""))
                }
                None => Value::Unknown(Source::Variable),
            },
            _ => Value::Unknown(Source::Variable),
        }
    }

    /// Whether so many bytes more may be copied in this reading.
    fn afford(&mut self, bytes: usize) -> bool {
        let left = self.copies_left.checked_sub(bytes);
        self.copies_left = left.unwrap_or(0);
        left.is_some()
    }

    fn template(&mut self, template: &TemplateLiteral<'a>, look: u8) -> Value {
        let mut whole = Value::EMPTY;
        for (at, text) in template.quasis.iter().enumerate() {
            let text = text.value.cooked.map_or_else(String::new, |text| text.to_string());
            whole = joined(whole, Value::Known(text.into()));
            if let Some(expression) = template.expressions.get(at) {
                let value = self.value_within(expression, look);
                whole = joined(whole, value);
            }
        }
        whole
    }

    /// The text of a tagged template: ``$`rm ${file}` ``.
    pub(super) fn template_value(&mut self, template: &TemplateLiteral<'a>) -> Value {
        self.template(template, MAX_LOOK)
    }

    /// A chain of `+` has its operands taken apart without recursion: people join long texts that way.
    fn operation(&mut self, expression: &Expression<'a>, look: u8) -> Value {
        let mut operands = Vec::new();
        let mut rest = expression;
        while let Expression::BinaryExpression(operation) = rest
            && operation.operator == BinaryOperator::Addition
        {
            operands.push(&operation.right);
            rest = operation.left.get_inner_expression();
        }
        if operands.is_empty() {
            let Expression::BinaryExpression(operation) = expression else {
                return Value::Unknown(Source::Variable);
            };
            let (left, right) =
                (self.value_within(&operation.left, look), self.value_within(&operation.right, look));
            let numbers = folding::integer(&left).zip(folding::integer(&right));
            return match (operation.operator, numbers) {
                (BinaryOperator::BitwiseXOR, Some((left, right))) => {
                    Value::Known((left ^ right).to_compact_string())
                }
                (BinaryOperator::Subtraction, Some((left, right))) => {
                    Value::Known(left.wrapping_sub(right).to_compact_string())
                }
                _ => made_of([&left, &right]),
            };
        }
        let is_number = matches!(rest, Expression::NumericLiteral(_));
        let mut sum = self.value_within(rest, look);
        for operand in operands.into_iter().rev() {
            let is_number =
                is_number && matches!(operand.get_inner_expression(), Expression::NumericLiteral(_));
            let value = self.value_within(operand, look);
            sum = match folding::integer(&sum).zip(folding::integer(&value)) {
                Some((left, right)) if is_number => {
                    Value::Known(left.wrapping_add(right).to_compact_string())
                }
                _ => joined(sum, value),
            };
        }
        sum
    }

    /// What a call gives back.
    fn result(&mut self, call: &CallExpression<'a>, look: u8) -> Value {
        let arguments: Vec<Value> = call
            .arguments
            .iter()
            .take(MAX_ITEMS)
            .map(|argument| match argument {
                Argument::SpreadElement(spread) => self.value_within(&spread.argument, look),
                argument => argument
                    .as_expression()
                    .map_or(Value::Unknown(Source::Variable), |argument| self.value_within(argument, look)),
            })
            .collect();
        let path = self.path(&call.callee);
        let name = path.as_deref().unwrap_or("");
        if let Some(value) = of_function(name, &arguments) {
            return value;
        }
        if is_input(name) {
            return Value::Unknown(Source::Input);
        }
        let mut worst = made_of(&arguments);
        let callee = call.callee.get_inner_expression();
        if let Some((owner, method)) = owner_and_method(callee) {
            if is_input(&format!(".{method}")) {
                return Value::Unknown(Source::Input);
            }
            let owner = self.value_within(owner, look);
            if let Some(value) = of_method(&owner, method, &arguments) {
                return value;
            }
            worst = made_of([&owner, &worst]);
        }
        worst
    }

    /// Whether an expression takes something out of base64, gzip or the like.
    pub(super) fn is_decoded(&self, expression: &Expression<'a>) -> bool {
        self.is_decoded_within(expression, 12)
    }

    fn is_decoded_within(&self, expression: &Expression<'a>, look: u8) -> bool {
        let Some(look) = look.checked_sub(1) else { return false };
        let inside = |expression: &Expression<'a>| self.is_decoded_within(expression, look);
        match expression.get_inner_expression() {
            Expression::CallExpression(call) => {
                self.path(&call.callee).is_some_and(|name| decodes(&name))
                    || inside(&call.callee)
                    || call.arguments.iter().take(8).filter_map(Argument::as_expression).any(inside)
            }
            Expression::StaticMemberExpression(member) => inside(&member.object),
            Expression::BinaryExpression(operation) => inside(&operation.left) || inside(&operation.right),
            Expression::Identifier(name) => self.bound(&name.name).is_some_and(|bound| bound.is_decoded),
            _ => false,
        }
    }
}

/// Of `owner.method(…)`.
pub(super) fn owner_and_method<'e, 'a>(callee: &'e Expression<'a>) -> Option<(&'e Expression<'a>, &'e str)> {
    match callee {
        Expression::ChainExpression(chain) => {
            let member = chain.expression.as_member_expression()?;
            Some((member.object(), member.static_property_name()?))
        }
        callee => {
            let member = callee.as_member_expression()?;
            Some((member.object(), member.static_property_name()?))
        }
    }
}

fn of_function(name: &str, arguments: &[Value]) -> Option<Value> {
    match (name, arguments) {
        ("String" | "Buffer.from" | "path.resolve" | "path.normalize", [value]) => Some(value.clone()),
        ("String.fromCharCode" | "String.fromCodePoint", codes) => {
            let codes = match codes {
                [Value::List(codes)] => codes,
                codes => codes,
            };
            codes.iter().map(folding::character).collect::<Option<String>>().map(folding::text)
        }
        ("atob", [Value::Known(text)]) => folding::base64(text).map(folding::text),
        ("Buffer.from", [Value::Known(text), Value::Known(coding)]) => match coding.as_str() {
            "base64" | "base64url" => folding::base64(text).map(folding::text),
            "hex" => folding::hex(text).map(folding::text),
            _ => Some(Value::Known(text.clone())),
        },
        ("unescape" | "decodeURIComponent" | "decodeURI", [Value::Known(text)]) => percent_decoded(text),
        ("path.join", [first, rest @ ..]) => {
            Some(rest.iter().fold(first.clone(), |path, part| {
                joined(joined(path, Value::Known("/".into())), part.clone())
            }))
        }
        _ => None,
    }
}

fn percent_decoded(text: &str) -> Option<Value> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok().map(folding::text)
}

fn of_method(owner: &Value, method: &str, arguments: &[Value]) -> Option<Value> {
    let words =
        |text: Vec<String>| folding::list(text.into_iter().map(|text| Value::Known(text.into())).collect());
    match (owner, method, arguments) {
        (_, "toString" | "valueOf", _) => Some(owner.clone()),
        (Value::Known(text), "trim", []) => Some(Value::Known(text.trim().into())),
        (Value::Known(text), "toLowerCase", []) => Some(Value::Known(text.to_lowercase())),
        (Value::Known(text), "toUpperCase", []) => Some(Value::Known(text.to_uppercase())),
        (Value::Known(text), "split", [Value::Known(by)]) if by.is_empty() && text.len() <= MAX_ITEMS => {
            Some(words(text.chars().map(String::from).collect()))
        }
        (Value::Known(text), "split", [Value::Known(by)]) if !by.is_empty() => {
            Some(words(text.split(by.as_str()).take(MAX_ITEMS).map(str::to_owned).collect()))
        }
        (Value::Known(text), "replace" | "replaceAll", [Value::Known(from), Value::Known(to)])
            if !from.is_empty() && text.len().saturating_mul(to.len() + 1) <= folding::MAX_TEXT * 16 =>
        {
            let times = if method == "replace" { 1 } else { usize::MAX };
            Some(folding::text(text.replacen(from.as_str(), to, times)))
        }
        (Value::Known(_) | Value::Begins(..), "concat", values) => {
            Some(values.iter().fold(owner.clone(), |whole, value| joined(whole, value.clone())))
        }
        (Value::List(values), "concat", [Value::List(more)]) => {
            Some(folding::list(values.iter().chain(more).cloned().collect()))
        }
        (Value::List(values), "reverse", []) => Some(Value::List(values.iter().rev().cloned().collect())),
        (Value::List(values), "join", [Value::Known(between)]) => {
            let mut whole = Value::EMPTY;
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    whole = joined(whole, Value::Known(between.clone()));
                }
                whole = joined(whole, value.clone());
            }
            Some(whole)
        }
        _ => None,
    }
}
