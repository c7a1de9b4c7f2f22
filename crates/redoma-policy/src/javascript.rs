//! Reads JavaScript and TypeScript: what is imported, what is called with which arguments, which programs and which further
//! code that runs.
//!
//! The parser is oxc's. A text may be an ES module or a script, may hold types although nobody said so, or JSX: grammars
//! are tried until one fits. A text that fits none is opaque as a whole.
//!
//! | room | subject |
//! |---|---|
//! | `nesting.rs` | is it safe to parse? |
//! | `names.rs` | which function is this? |
//! | `values.rs` | what does this come to? |
//! | `known_calls.rs` | the functions that matter |
//! | `running.rs` | programs and code that a call runs |

mod known_calls;
mod names;
mod nesting;
mod running;
mod values;

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    Argument as Given, ArrowFunctionExpression, AssignmentExpression, AssignmentOperator, AssignmentTarget,
    BindingPattern, CallExpression, Class, DoWhileStatement, Expression, ForInStatement, ForOfStatement,
    ForStatement, ForStatementLeft, FormalParameters, Function, IfStatement, ImportDeclaration,
    ImportExpression, NewExpression, ObjectPropertyKind, SwitchStatement, TSImportEqualsDeclaration,
    TSModuleReference, TSType, TaggedTemplateExpression, TryStatement, VariableDeclarator, WhileStatement,
};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::{ParseOptions, Parser};
use oxc_span::SourceType;
use oxc_syntax::scope::ScopeFlags;

use crate::facts::{Argument, Call, Fact, Import, Language, Opaque, Source, Value, What, Why};
use crate::folding;
use crate::nested::{self, Places};
use crate::scope::{Bound, Meaning, Scope};

/// What the parser and the visitor take of the stack, per level. Memory that is not touched costs nothing.
const STACK_PER_LEVEL: usize = 48 << 10;

/// How much is copied of known values while reading one text.
const MAX_COPIES: usize = 4 << 20;

/// Everything that a program, module or cell does as far as its text tells, in the order of the text.
///
/// Never fails: what can't be read is [`What::Opaque`]. Takes time in proportion to the text, and little stack.
pub fn read(code: &str, language: Language) -> Vec<Fact> {
    nested::reading(code, language, || {
        let code = code.strip_prefix('\u{feff}').unwrap_or(code);
        let nesting = nesting::depth(code);
        if nesting > nesting::MAX_DEPTH {
            return nested::too_deep(language);
        }
        let facts = nested::with_stack_for(nesting, STACK_PER_LEVEL, || read_plain(code, language));
        if let Some(facts) = facts {
            return facts;
        }
        // JSX holds text that the bound above took for code.
        let nesting = nesting::total(code);
        let facts = (nesting <= nesting::MAX_DEPTH)
            .then(|| nested::with_stack_for(nesting, STACK_PER_LEVEL, || read_jsx(code, language)))
            .flatten();
        facts.unwrap_or_else(|| {
            let what = What::Opaque(Opaque { by: nested::name_of(language).to_owned(), why: Why::NotParsed });
            vec![Fact { what, at: crate::facts::Position { line: 1, column: 1 }, language, depth: 0 }]
        })
    })
}

/// As a module, then as a script, then with types.
fn read_plain(code: &str, language: Language) -> Option<Vec<Fact>> {
    let typed = SourceType::ts().with_module(true);
    let grammars: &[SourceType] = match language {
        Language::TypeScript => &[typed, SourceType::ts().with_commonjs(true)],
        _ => &[SourceType::mjs().with_jsx(false), SourceType::cjs().with_jsx(false), typed],
    };
    grammars.iter().find_map(|&grammar| read_as(code, language, grammar))
}

fn read_jsx(code: &str, language: Language) -> Option<Vec<Fact>> {
    read_as(code, language, SourceType::tsx().with_module(true))
}

fn read_as(code: &str, language: Language, grammar: SourceType) -> Option<Vec<Fact>> {
    let allocator = Allocator::default();
    // Cells and the bodies of functions may return.
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let parsed = Parser::new(&allocator, code, grammar).with_options(options).parse();
    if parsed.panicked || !parsed.diagnostics.is_empty() {
        return None;
    }
    let mut reader = Reader {
        facts: Vec::new(),
        places: Places::new(code),
        language,
        scopes: vec![Scope::default()],
        copies_left: MAX_COPIES,
    };
    reader.visit_program(&parsed.program);
    Some(reader.facts)
}

/// Goes through a text and writes down what it does.
struct Reader<'t> {
    facts: Vec<Fact>,
    places: Places<'t>,
    language: Language,
    /// The module's, then those of the functions around what is being read.
    scopes: Vec<Scope>,
    copies_left: usize,
}

impl<'a> Reader<'_> {
    fn note(&mut self, what: What, offset: u32) {
        let at = self.places.of(usize::try_from(offset).unwrap_or(usize::MAX));
        self.facts.push(Fact { what, at, language: self.language, depth: 0 });
    }

    fn bound(&self, name: &str) -> Option<&Bound> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    fn bind(&mut self, name: &str, bound: Bound) {
        self.scope().bind(name, bound);
    }

    fn scope(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        self.scopes.last_mut().expect("there is the module's scope at least")
    }

    /// Reads what may not happen, or more than once.
    fn in_block(&mut self, is_loop: bool, read: impl FnOnce(&mut Self)) {
        self.scope().conditions += 1;
        self.scope().loops += usize::from(is_loop);
        read(self);
        self.scope().conditions -= 1;
        self.scope().loops -= usize::from(is_loop);
    }

    fn in_function(
        &mut self,
        name: Option<&str>,
        parameters: &FormalParameters<'a>,
        read: impl FnOnce(&mut Self),
    ) {
        self.scopes.push(Scope::of(name));
        for parameter in &parameters.items {
            self.bind_pattern(&parameter.pattern, Bound::unknown(Source::Parameter));
        }
        if let Some(rest) = &parameters.rest {
            self.bind_pattern(&rest.rest.argument, Bound::unknown(Source::Parameter));
        }
        read(self);
        self.scopes.pop();
    }

    fn bound_to(&mut self, value: &Expression<'a>) -> Bound {
        let is_decoded = self.is_decoded(value);
        let is_unbound_name = matches!(value.get_inner_expression(),
            Expression::Identifier(name) if self.bound(&name.name).is_none()
                && !matches!(name.name.as_str(), "eval" | "Function" | "require" | "globalThis" | "process" | "Deno" | "Bun"));
        let is_literal = matches!(
            value.get_inner_expression(),
            Expression::ArrayExpression(_) | Expression::StringLiteral(_) | Expression::ThisExpression(_)
        );
        if matches!(
            value.get_inner_expression(),
            Expression::FunctionExpression(_)
                | Expression::ArrowFunctionExpression(_)
                | Expression::ClassExpression(_)
        ) {
            return Bound::own();
        }
        if !is_unbound_name
            && !is_literal
            && let Some(path) = self.path(value)
            && !known_calls::is_input_value(&path)
            && path != "process.execPath"
        {
            let bound = if path.starts_with(['.', '/']) { Bound::own() } else { Bound::path(path) };
            return Bound { is_decoded, ..bound };
        }
        Bound { is_decoded, ..Bound::value(self.value(value)) }
    }

    fn assign(&mut self, assignment: &AssignmentExpression<'a>) {
        let AssignmentTarget::AssignmentTargetIdentifier(name) = &assignment.left else { return };
        let bound = match assignment.operator {
            AssignmentOperator::Assign => self.bound_to(&assignment.right),
            AssignmentOperator::Addition => {
                let before = match self.bound(&name.name).map(|bound| &bound.meaning) {
                    Some(Meaning::Value(value)) => value.clone(),
                    _ => Value::Unknown(Source::Variable),
                };
                let added = self.value(&assignment.right);
                let added = if self.scope().loops > 0 { folding::made_of([&added]) } else { added };
                self.scope().forget(&name.name);
                Bound::value(folding::joined(before, added))
            }
            _ => {
                let value = self.value(&assignment.right);
                Bound::value(folding::made_of([&value]))
            }
        };
        self.bind(&name.name, bound);
    }

    /// The name under which a call is written down.
    fn name_of(&self, callee: &Expression<'a>) -> Option<String> {
        if let Some(path) = self.path(callee) {
            return (!path.starts_with("{}")).then_some(path);
        }
        let (_, method) = values::owner_and_method(callee.get_inner_expression())?;
        Some(format!(".{method}"))
    }

    /// Writes down a call and what it runs.
    fn called(&mut self, callee: &Expression<'a>, given: &[Given<'a>], offset: u32) {
        let Some(mut name) = self.name_of(callee) else { return };
        let mut given = given;
        // `exec.call(null, "…")`
        if let Some(function) = name.strip_suffix(".call").filter(|function| !function.is_empty()) {
            name = String::from(function);
            given = given.get(1..).unwrap_or_default();
        }
        let mut arguments = Vec::new();
        for argument in given.iter().take(folding::MAX_ITEMS) {
            self.argument(argument, &mut arguments);
        }
        if let Some(function) = name.strip_suffix(".apply").filter(|function| !function.is_empty()) {
            name = String::from(function);
            arguments = match arguments.get(1).map(|argument| argument.value.clone()) {
                Some(Value::List(values)) => {
                    values.into_iter().map(|value| Argument { name: None, value }).collect()
                }
                _ => arguments,
            };
        }
        if let Some((owner, "push" | "unshift" | "splice" | "pop" | "shift")) =
            values::owner_and_method(callee.get_inner_expression())
            && let Expression::Identifier(list) = owner.get_inner_expression()
        {
            let more: Vec<Value> = arguments.iter().map(|argument| argument.value.clone()).collect();
            let _ = self.scopes.iter_mut().rev().any(|scope| scope.add_to_list(&list.name, &more));
        }
        let code = given.iter().filter_map(Given::as_expression);
        let is_decoded = code.clone().any(|code| self.is_decoded(code));
        let is_text = given.first().and_then(Given::as_expression).is_some_and(|first| {
            matches!(
                first.get_inner_expression(),
                Expression::BinaryExpression(_) | Expression::TemplateLiteral(_)
            )
        });
        let call = Call { name, arguments };
        self.note(What::Call(call.clone()), offset);
        self.runs(&call, offset, is_decoded, is_text);
    }

    fn argument(&mut self, argument: &Given<'a>, arguments: &mut Vec<Argument>) {
        match argument {
            Given::SpreadElement(spread) => match self.value(&spread.argument) {
                Value::List(values) => {
                    arguments.extend(values.into_iter().map(|value| Argument { name: None, value }));
                }
                value => arguments.push(Argument { name: None, value: folding::made_of([&value]) }),
            },
            Given::ObjectExpression(object) => {
                for property in &object.properties {
                    let ObjectPropertyKind::ObjectProperty(property) = property else { continue };
                    if let Some(name) = property.key.static_name() {
                        let value = self.value(&property.value);
                        arguments.push(Argument { name: Some(name.into_owned()), value });
                    }
                }
            }
            argument => {
                if let Some(argument) = argument.as_expression() {
                    let value = self.value(argument);
                    arguments.push(Argument { name: None, value });
                }
            }
        }
    }

    fn each(&mut self, left: &ForStatementLeft<'a>, over: &Expression<'a>) {
        let over = folding::made_of([&self.value(over)]);
        if let ForStatementLeft::VariableDeclaration(declaration) = left {
            for declarator in &declaration.declarations {
                self.bind_pattern(&declarator.id, Bound::value(over.clone()));
            }
        }
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_import_declaration(&mut self, import: &ImportDeclaration<'a>) {
        self.import(import);
    }

    fn visit_ts_import_equals_declaration(&mut self, import: &TSImportEqualsDeclaration<'a>) {
        if let TSModuleReference::ExternalModuleReference(module) = &import.module_reference {
            let name = module.expression.value.to_string();
            self.note(What::Import(Import { module: Value::Known(name.as_str().into()) }), import.span.start);
            self.bind(&import.id.name, Bound::path(known_calls::usual_name(&name)));
        }
    }

    fn visit_import_expression(&mut self, import: &ImportExpression<'a>) {
        let module = self.value(&import.source);
        self.note(What::Import(Import { module }), import.span.start);
        walk::walk_import_expression(self, import);
    }

    fn visit_variable_declarator(&mut self, declarator: &VariableDeclarator<'a>) {
        walk::walk_variable_declarator(self, declarator);
        match &declarator.init {
            Some(value) => {
                let bound = self.bound_to(value);
                // `const [a, b] = …` of a list, `const { exec } = require("child_process")`.
                self.bind_pattern(&declarator.id, bound);
            }
            None => {
                if let BindingPattern::BindingIdentifier(name) = &declarator.id {
                    self.scope().forget(&name.name);
                }
            }
        }
    }

    fn visit_assignment_expression(&mut self, assignment: &AssignmentExpression<'a>) {
        walk::walk_assignment_expression(self, assignment);
        self.assign(assignment);
    }

    fn visit_call_expression(&mut self, call: &CallExpression<'a>) {
        self.called(&call.callee, &call.arguments, call.span.start);
        walk::walk_call_expression(self, call);
    }

    fn visit_new_expression(&mut self, new: &NewExpression<'a>) {
        self.called(&new.callee, &new.arguments, new.span.start);
        walk::walk_new_expression(self, new);
    }

    fn visit_tagged_template_expression(&mut self, tagged: &TaggedTemplateExpression<'a>) {
        if let Some(name) = self.path(&tagged.tag) {
            let value = self.template_value(&tagged.quasi);
            let call = Call { name, arguments: vec![Argument { name: None, value }] };
            self.note(What::Call(call.clone()), tagged.span.start);
            self.runs(&call, tagged.span.start, false, true);
        }
        walk::walk_tagged_template_expression(self, tagged);
    }

    fn visit_function(&mut self, function: &Function<'a>, flags: ScopeFlags) {
        if let Some(name) = &function.id {
            self.bind(&name.name, Bound::own());
        }
        let name = function.id.as_ref().map(|name| name.name.as_str());
        self.in_function(name, &function.params, |reader| walk::walk_function(reader, function, flags));
    }

    fn visit_arrow_function_expression(&mut self, function: &ArrowFunctionExpression<'a>) {
        self.in_function(None, &function.params, |reader| {
            walk::walk_arrow_function_expression(reader, function);
        });
    }

    fn visit_class(&mut self, class: &Class<'a>) {
        if let Some(name) = &class.id {
            self.bind(&name.name, Bound::own());
        }
        walk::walk_class(self, class);
    }

    fn visit_if_statement(&mut self, choice: &IfStatement<'a>) {
        self.visit_expression(&choice.test);
        self.in_block(false, |reader| reader.visit_statement(&choice.consequent));
        if let Some(alternate) = &choice.alternate {
            self.in_block(false, |reader| reader.visit_statement(alternate));
        }
    }

    fn visit_for_statement(&mut self, statement: &ForStatement<'a>) {
        self.in_block(true, |reader| walk::walk_for_statement(reader, statement));
    }

    fn visit_for_in_statement(&mut self, statement: &ForInStatement<'a>) {
        self.in_block(true, |reader| {
            reader.each(&statement.left, &statement.right);
            reader.visit_expression(&statement.right);
            reader.visit_statement(&statement.body);
        });
    }

    fn visit_for_of_statement(&mut self, statement: &ForOfStatement<'a>) {
        self.in_block(true, |reader| {
            reader.each(&statement.left, &statement.right);
            reader.visit_expression(&statement.right);
            reader.visit_statement(&statement.body);
        });
    }

    fn visit_while_statement(&mut self, statement: &WhileStatement<'a>) {
        self.in_block(true, |reader| walk::walk_while_statement(reader, statement));
    }

    fn visit_do_while_statement(&mut self, statement: &DoWhileStatement<'a>) {
        self.in_block(true, |reader| walk::walk_do_while_statement(reader, statement));
    }

    fn visit_switch_statement(&mut self, statement: &SwitchStatement<'a>) {
        self.in_block(false, |reader| walk::walk_switch_statement(reader, statement));
    }

    fn visit_try_statement(&mut self, attempt: &TryStatement<'a>) {
        self.visit_block_statement(&attempt.block);
        self.in_block(false, |reader| {
            if let Some(handler) = &attempt.handler {
                reader.visit_catch_clause(handler);
            }
        });
        if let Some(finalizer) = &attempt.finalizer {
            self.visit_block_statement(finalizer);
        }
    }

    // Types do nothing.
    fn visit_ts_type(&mut self, _: &TSType<'a>) {}
}

#[cfg(test)]
mod tests;
