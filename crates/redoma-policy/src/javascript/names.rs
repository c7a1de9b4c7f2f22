//! Which function an expression names, through imports, `require`, assignments and the ways around them.

use oxc_ast::ast::{
    Argument, BindingPattern, CallExpression, ChainElement, Expression, ImportDeclaration,
    ImportDeclarationSpecifier, MemberExpression,
};

use super::Reader;
use super::known_calls::usual_name;
use crate::facts::{Import, Source, Value, What};
use crate::scope::{Bound, Meaning};

/// How long a chain of names is followed.
const MAX_LOOK: u8 = 24;

impl<'a> Reader<'_> {
    /// The qualified name of what an expression stands for: `child_process.exec`. A name that nothing was assigned to
    /// stands for itself: it may be a global, or come from an earlier cell.
    pub(super) fn path(&self, expression: &Expression<'a>) -> Option<String> {
        self.path_within(expression, MAX_LOOK).map(|path| usual_name(&path))
    }

    fn path_within(&self, expression: &Expression<'a>, look: u8) -> Option<String> {
        let look = look.checked_sub(1)?;
        match expression.get_inner_expression() {
            Expression::Identifier(name) => match self.bound(&name.name).map(|bound| &bound.meaning) {
                None => Some(name.name.to_string()),
                Some(Meaning::Path(path)) => Some(path.clone()),
                Some(Meaning::Value(_) | Meaning::Own) => None,
            },
            Expression::StaticMemberExpression(member) => {
                let property = member.property.name.as_str();
                self.member(&member.object, property, look)
            }
            Expression::ComputedMemberExpression(member) => {
                let property = self.constant(&member.expression)?;
                self.member(&member.object, &property, look)
            }
            Expression::ChainExpression(chain) => match &chain.expression {
                ChainElement::CallExpression(call) => self.path_of_result(call, look),
                element => match element.as_member_expression()? {
                    MemberExpression::StaticMemberExpression(member) => {
                        self.member(&member.object, &member.property.name, look)
                    }
                    MemberExpression::ComputedMemberExpression(member) => {
                        let property = self.constant(&member.expression)?;
                        self.member(&member.object, &property, look)
                    }
                    MemberExpression::PrivateFieldExpression(_) => None,
                },
            },
            Expression::CallExpression(call) => self.path_of_result(call, look),
            Expression::AwaitExpression(waited) => self.path_within(&waited.argument, look),
            Expression::ImportExpression(import) => self.constant(&import.source),
            // `(0, eval)("…")`
            Expression::SequenceExpression(sequence) => self.path_within(sequence.expressions.last()?, look),
            Expression::ThisExpression(_) => Some("globalThis".to_owned()),
            Expression::ArrayExpression(_)
            | Expression::StringLiteral(_)
            | Expression::FunctionExpression(_)
            | Expression::ArrowFunctionExpression(_) => Some("{}".to_owned()),
            _ => None,
        }
    }

    fn member(&self, object: &Expression<'a>, property: &str, look: u8) -> Option<String> {
        let owner = self.path_within(object, look);
        // `[].constructor.constructor("…")`, `(() => {}).constructor("…")`
        if property == "constructor"
            && owner.as_deref().is_none_or(|owner| owner == "{}" || owner.ends_with(".constructor"))
        {
            let is_function = matches!(
                object.get_inner_expression(),
                Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_)
            );
            let is_twice = owner.as_deref().is_some_and(|owner| owner.ends_with(".constructor"));
            return Some(if is_function || is_twice {
                "Function".to_owned()
            } else {
                "{}.constructor".to_owned()
            });
        }
        let owner = owner.filter(|owner| owner != "{}")?;
        if matches!(object.get_inner_expression(), Expression::ThisExpression(_)) && property != "eval" {
            return None;
        }
        Some(format!("{owner}.{property}"))
    }

    fn path_of_result(&self, call: &CallExpression<'a>, look: u8) -> Option<String> {
        let function = usual_name(&self.path_within(&call.callee, look)?);
        let argument = |at: usize| call.arguments.get(at).and_then(Argument::as_expression);
        match function.as_str() {
            "require"
            | "module.require"
            | "process.mainModule.require"
            | "require.main.require"
            | "process.getBuiltinModule" => Some(usual_name(&self.constant(argument(0)?)?)),
            "module.createRequire" => Some("require".to_owned()),
            "util.promisify" | "promisify" => self.path_within(argument(0)?, look),
            "Reflect.get" => {
                Some(format!("{}.{}", self.path_within(argument(0)?, look)?, self.constant(argument(1)?)?))
            }
            name => name.strip_suffix(".bind").map(str::to_owned),
        }
    }

    /// A text that is written down, put together of such, or held by a name.
    pub(super) fn constant(&self, expression: &Expression<'a>) -> Option<String> {
        let mut pieces = Vec::new();
        let mut rest = expression.get_inner_expression();
        while let Expression::BinaryExpression(operation) = rest {
            pieces.push(self.simple_constant(operation.right.get_inner_expression())?);
            rest = operation.left.get_inner_expression();
        }
        pieces.push(self.simple_constant(rest)?);
        pieces.reverse();
        Some(pieces.concat())
    }

    fn simple_constant(&self, expression: &Expression<'a>) -> Option<String> {
        match expression {
            Expression::StringLiteral(literal) => Some(literal.value.to_string()),
            Expression::TemplateLiteral(template) if template.expressions.is_empty() => {
                template.quasis.first()?.value.cooked.map(|text| text.to_string())
            }
            Expression::Identifier(name) => match &self.bound(&name.name)?.meaning {
                Meaning::Value(value) => value.known().map(str::to_owned),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn import(&mut self, import: &ImportDeclaration<'a>) {
        let module = usual_name(&import.source.value);
        if import.import_kind.is_type() {
            return;
        }
        let known = Value::Known(import.source.value.as_str().into());
        self.note(What::Import(Import { module: known }), import.span.start);
        let is_own = module.starts_with(['.', '/']);
        for specifier in import.specifiers.iter().flatten() {
            let (here, path) = match specifier {
                ImportDeclarationSpecifier::ImportSpecifier(named) => {
                    (&named.local, format!("{module}.{}", named.imported.name()))
                }
                ImportDeclarationSpecifier::ImportDefaultSpecifier(default) => {
                    (&default.local, module.clone())
                }
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(all) => (&all.local, module.clone()),
            };
            let bound = if is_own { Bound::own() } else { Bound::path(usual_name(&path)) };
            self.bind(&here.name, bound);
        }
    }

    /// Gives names what a value, or the path of something, holds.
    pub(super) fn bind_pattern(&mut self, pattern: &BindingPattern<'a>, bound: Bound) {
        match pattern {
            BindingPattern::BindingIdentifier(name) => self.bind(&name.name, bound),
            BindingPattern::ObjectPattern(object) => {
                for property in &object.properties {
                    let part = match (&bound.meaning, property.key.static_name()) {
                        (Meaning::Path(path), Some(name)) => {
                            Bound::path(usual_name(&format!("{path}.{name}")))
                        }
                        (Meaning::Value(value), Some(name)) => Bound::value(part_of(value, &name)),
                        _ => Bound::unknown(Source::Variable),
                    };
                    self.bind_pattern(&property.value, Bound { is_decoded: bound.is_decoded, ..part });
                }
                if let Some(rest) = &object.rest {
                    self.bind_pattern(&rest.argument, bound);
                }
            }
            BindingPattern::ArrayPattern(array) => {
                for (at, element) in array.elements.iter().enumerate() {
                    let Some(element) = element else { continue };
                    let part = match &bound.meaning {
                        Meaning::Value(Value::List(values)) => {
                            Bound::value(values.get(at).cloned().unwrap_or(Value::Unknown(Source::Variable)))
                        }
                        Meaning::Value(value) => Bound::value(crate::folding::made_of([value])),
                        Meaning::Path(path) if super::known_calls::is_input_value(path) => {
                            Bound::unknown(Source::Input)
                        }
                        _ => Bound::unknown(Source::Variable),
                    };
                    self.bind_pattern(element, part);
                }
                if let Some(rest) = &array.rest {
                    self.bind_pattern(&rest.argument, bound);
                }
            }
            BindingPattern::AssignmentPattern(assignment) => self.bind_pattern(&assignment.left, bound),
        }
    }
}

/// A property of a value that is not known: what a client sends is in certain ones.
pub(super) fn part_of(value: &Value, name: &str) -> Value {
    match crate::folding::source_of(value) {
        Some(Source::Parameter) if super::known_calls::is_of_request(name) => Value::Unknown(Source::Input),
        Some(source) => Value::Unknown(source),
        None => Value::Unknown(Source::Variable),
    }
}
