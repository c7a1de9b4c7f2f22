//! Reads Python: what is imported, what is called with which arguments, which programs and which further code that runs.
//!
//! The parser is ruff's, which recovers from errors: what can be read of a broken text is read, and the rest is said to be
//! opaque. Cells of notebooks are Python too: `!command`, `%magic` and `%%bash` are understood.
//!
//! | room | subject |
//! |---|---|
//! | `nesting.rs` | is it safe to parse? |
//! | `names.rs` | which function is this? |
//! | `values.rs` | what does this come to? |
//! | `known_calls.rs` | the functions that matter |
//! | `running.rs` | programs and code that a call runs |
//! | `magics.rs` | what notebooks add to the language |

mod known_calls;
mod magics;
mod names;
mod nesting;
mod running;
mod values;

use std::panic::{AssertUnwindSafe, catch_unwind};

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{
    ElifElseClause, ExceptHandler, Expr, ExprCall, ExprLambda, MatchCase, Operator, Parameters, Stmt,
    StmtAssign, StmtAugAssign, StmtFor, StmtFunctionDef, StmtImport, StmtImportFrom, StmtWhile, WithItem,
};
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::Ranged;

use crate::facts::{Argument, Call, Fact, Import, Language, Opaque, Source, Value, What, Why};
use crate::folding;
use crate::nested::{self, MAX_NESTING, Places};
use crate::scope::{Bound, Scope};

/// What the visitor and the end of a syntax tree take of the stack, per level. The parser sees to its own.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) { 8 << 10 } else { 3 << 10 };

/// How much is copied of known values while reading one text.
const MAX_COPIES: usize = 4 << 20;

/// Everything that a Python program, module or cell does as far as its text tells, in the order of the text.
///
/// Never fails: what can't be read is [`What::Opaque`]. Takes time in proportion to the text, and little stack.
pub fn read(code: &str) -> Vec<Fact> {
    nested::reading(code, Language::Python, || {
        let code = code.strip_prefix('\u{feff}').unwrap_or(code);
        if let Some(facts) = magics::whole_cell(code) {
            return facts;
        }
        let mode = mode(code);
        if mode == Mode::Ipython
            && let Ok(facts) = catch_unwind(AssertUnwindSafe(|| read_within(code, mode)))
        {
            return facts;
        }
        // Also where the parser has panicked: the rarer commands are what it does that over.
        read_within(code, Mode::Module)
    })
}

fn read_within(code: &str, mode: Mode) -> Vec<Fact> {
    let nesting = nesting::depth(code, mode);
    if nesting > MAX_NESTING {
        return nested::too_deep(Language::Python);
    }
    nested::with_stack_for(nesting, STACK_PER_LEVEL, || read_module(code, mode))
}

fn read_module(code: &str, mode: Mode) -> Vec<Fact> {
    let parsed = parse_unchecked(code, ParseOptions::from(mode));
    let mut reader = Reader {
        facts: Vec::new(),
        places: Places::new(code),
        scopes: vec![Scope::default()],
        copies_left: MAX_COPIES,
        tolerated: 0,
    };
    if let Some(module) = parsed.syntax().as_module() {
        reader.visit_body(&module.body);
    }
    if mode == Mode::Module && !parsed.errors().is_empty() {
        reader.escapes_by_line(code);
    }
    if let Some(error) = parsed.errors().first() {
        let opaque = Opaque { by: "python".to_owned(), why: Why::NotParsed };
        reader.note(What::Opaque(opaque), error.location.start().to_usize());
    }
    reader.facts
}

/// A notebook's cell, unless a line begins like one of the notebook's rarer commands (`?help`, `/call`, `,quote`, `;quote`):
/// the parser panics where such a line stands in an expression that is not complete.
fn mode(code: &str) -> Mode {
    let is_rare = |line: &str| line.trim_start_matches(is_blank).starts_with(['?', '/', ',', ';']);
    if code.split(['\n', '\r']).any(is_rare) { Mode::Module } else { Mode::Ipython }
}

/// What the parser may take for nothing at the start of a line.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\\' | '\u{feff}' | '\u{200b}') || letter.is_control()
}

/// Goes through a text and writes down what it does.
struct Reader<'a> {
    facts: Vec<Fact>,
    places: Places<'a>,
    /// The module's, then those of the functions around what is being read.
    scopes: Vec<Scope>,
    copies_left: usize,
    /// Around what is read, so many say what to do if a module is not there: importing one is then no mistake.
    tolerated: usize,
}

/// `except ImportError:` and what is wider.
fn catches_missing_modules(handler: &ExceptHandler) -> bool {
    let ExceptHandler::ExceptHandler(handler) = handler;
    let is_it = |name: &Expr| {
        name.as_name_expr().is_some_and(|name| {
            matches!(name.id.as_str(), "ImportError" | "ModuleNotFoundError" | "Exception" | "BaseException")
        })
    };
    match handler.type_.as_deref() {
        None => true,
        Some(Expr::Tuple(names)) => names.elts.iter().any(is_it),
        Some(name) => is_it(name),
    }
}

impl Reader<'_> {
    fn note(&mut self, what: What, offset: usize) {
        let at = self.places.of(offset);
        self.facts.push(Fact { what, at, language: Language::Python, depth: 0 });
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

    fn import(&mut self, import: &StmtImport) {
        for alias in &import.names {
            let module = alias.name.id.as_str();
            let known = Value::Known(module.into());
            if self.tolerated == 0 {
                self.note(What::Import(Import { module: known }), alias.start().to_usize());
            }
            if let Some(name) = &alias.asname {
                self.bind(&name.id, Bound::path(module));
            } else {
                let top = module.split('.').next().unwrap_or(module);
                self.bind(top, Bound::path(top));
            }
        }
    }

    fn import_from(&mut self, import: &StmtImportFrom) {
        let module = import.module.as_ref().map_or("", |module| module.id.as_str());
        let is_relative = import.level > 0;
        let dots = ".".repeat(usize::try_from(import.level).unwrap_or(0).min(16));
        let known = Value::Known(format!("{dots}{module}").into());
        if self.tolerated == 0 {
            self.note(What::Import(Import { module: known }), import.start().to_usize());
        }
        for alias in &import.names {
            let name = alias.name.id.as_str();
            let here = alias.asname.as_ref().map_or(name, |name| name.id.as_str());
            if name == "*" {
                for name in known_calls::star(module) {
                    self.bind(name, Bound::path(format!("{module}.{name}")));
                }
            } else if is_relative {
                self.bind(here, Bound::own());
            } else {
                self.bind(here, Bound::path(format!("{module}.{name}")));
            }
        }
    }

    fn function(&mut self, function: &StmtFunctionDef) {
        for decorator in &function.decorator_list {
            self.visit_expr(&decorator.expression);
        }
        self.defaults(&function.parameters);
        self.bind(&function.name.id, Bound::own());
        self.open_scope(Some(&function.name.id));
        self.parameters(&function.parameters);
        self.visit_body(&function.body);
        self.close_scope();
    }

    fn lambda(&mut self, lambda: &ExprLambda) {
        let parameters = lambda.parameters.as_deref();
        if let Some(parameters) = parameters {
            self.defaults(parameters);
        }
        self.open_scope(None);
        if let Some(parameters) = parameters {
            self.parameters(parameters);
        }
        self.visit_expr(&lambda.body);
        self.close_scope();
    }

    fn defaults(&mut self, parameters: &Parameters) {
        for parameter in parameters.iter_non_variadic_params() {
            if let Some(default) = parameter.default() {
                self.visit_expr(default);
            }
        }
    }

    fn parameters(&mut self, parameters: &Parameters) {
        for parameter in parameters {
            let name = parameter.name().id.as_str();
            let source = if matches!(name, "self" | "cls") { Source::Variable } else { Source::Parameter };
            self.bind(name, Bound::unknown(source));
        }
    }

    fn assign(&mut self, assign: &StmtAssign) {
        self.visit_expr(&assign.value);
        for target in &assign.targets {
            self.visit_target(target);
            self.assign_to(target, &assign.value);
        }
    }

    /// What stands inside of a target runs too: `names[eval("…")] = 1`.
    fn visit_target(&mut self, target: &Expr) {
        if !matches!(target, Expr::Name(_)) {
            self.visit_expr(target);
        }
    }

    fn assign_to(&mut self, target: &Expr, value: &Expr) {
        match target {
            Expr::Name(name) => {
                let bound = self.bound_to(value);
                self.bind(&name.id, bound);
            }
            Expr::Tuple(_) | Expr::List(_) => {
                let names = elements(target);
                let values = elements(value);
                if !values.is_empty() && names.len() == values.len() {
                    for (name, value) in names.iter().zip(values) {
                        if let Expr::Name(name) = name {
                            let bound = self.bound_to(value);
                            self.bind(&name.id, bound);
                        }
                    }
                } else {
                    let whole = self.value(value);
                    self.assign_unknown(target, &whole);
                }
            }
            _ => {}
        }
    }

    fn bound_to(&mut self, value: &Expr) -> Bound {
        let is_decoded = self.is_decoded(value);
        // A name for something in a module; but what a call gives back is a value.
        if let Some(path) = self.path(value)
            && !known_calls::is_input_value(&path)
            && !matches!(value, Expr::Name(name) if self.bound(&name.id).is_none() && !is_builtin_that_matters(&name.id))
            && path != "sys.executable"
        {
            return Bound { is_decoded, ..Bound::path(path) };
        }
        Bound { is_decoded, ..Bound::value(self.value(value)) }
    }

    /// Names that get something out of `whole`.
    fn assign_unknown(&mut self, target: &Expr, whole: &Value) {
        match target {
            Expr::Name(name) => self.bind(&name.id, Bound::value(folding::made_of([whole]))),
            Expr::Starred(starred) => self.assign_unknown(&starred.value, whole),
            _ => {
                for element in elements(target) {
                    self.assign_unknown(element, whole);
                }
            }
        }
    }

    fn augment(&mut self, assign: &StmtAugAssign) {
        self.visit_expr(&assign.value);
        self.visit_target(&assign.target);
        let Expr::Name(name) = &*assign.target else { return };
        let before = self.value(&assign.target);
        let added = self.value(&assign.value);
        let is_decoded = self.is_decoded(&assign.value) || self.is_decoded(&assign.target);
        let is_repeated = self.scope().loops > 0;
        let value = match assign.op {
            Operator::Add if is_repeated => folding::joined(before, folding::made_of([&added])),
            Operator::Add => folding::joined(before, added),
            _ => folding::made_of([&before, &added]),
        };
        self.scope().forget(&name.id);
        self.bind(&name.id, Bound { is_decoded, ..Bound::value(value) });
    }

    fn each(&mut self, each: &StmtFor) {
        self.visit_expr(&each.iter);
        let over = self.value(&each.iter);
        self.in_block(true, |reader| {
            reader.assign_unknown(&each.target, &over);
            reader.visit_body(&each.body);
        });
        self.in_block(false, |reader| reader.visit_body(&each.orelse));
    }

    fn while_loop(&mut self, statement: &StmtWhile) {
        self.in_block(true, |reader| {
            reader.visit_expr(&statement.test);
            reader.visit_body(&statement.body);
        });
        self.in_block(false, |reader| reader.visit_body(&statement.orelse));
    }

    /// Writes down a call and what it runs.
    fn call(&mut self, call: &ExprCall) {
        let name = match (self.path(&call.func), &*call.func) {
            (Some(path), _) => path,
            (None, Expr::Attribute(attribute)) => format!(".{}", attribute.attr.id),
            (None, function) => {
                if self.scope().has_forked && self.is_around(function) {
                    self.note(What::Multiplies, call.range_start.to_usize());
                }
                return;
            }
        };
        let mut arguments: Vec<Argument> = Vec::new();
        for argument in call.arguments.args.iter().take(folding::MAX_ITEMS) {
            let value = self.value(argument);
            match (argument, value) {
                (Expr::Starred(_), Value::List(values)) => {
                    arguments.extend(values.into_iter().map(|value| Argument { name: None, value }));
                }
                (_, value) => arguments.push(Argument { name: None, value }),
            }
        }
        for keyword in &call.arguments.keywords {
            let name = keyword.arg.as_ref().map_or_else(|| "**".to_owned(), |name| name.id.to_string());
            let value = self.value(&keyword.value);
            arguments.push(Argument { name: Some(name), value });
        }
        self.changes_list(call, &arguments);
        let is_decoded = call.arguments.args.first().is_some_and(|first| self.is_decoded(first));
        let call_fact = Call { name, arguments };
        let offset = call.range().start().to_usize();
        self.note(What::Call(call_fact.clone()), offset);
        self.runs(&call_fact, offset, is_decoded);
        self.functions_as_arguments(call, offset);
    }

    /// `words.append(x)`: what is in the list is not what was assigned any more.
    fn changes_list(&mut self, call: &ExprCall, arguments: &[Argument]) {
        let Expr::Attribute(attribute) = &*call.func else { return };
        let Expr::Name(name) = &*attribute.value else { return };
        let given = arguments.iter().map(|argument| argument.value.clone());
        let more: Vec<Value> = match attribute.attr.id.as_str() {
            "append" => given.collect(),
            "extend" => match arguments {
                [Argument { value: Value::List(values), .. }] => values.clone(),
                _ => given.map(|value| folding::made_of([&value])).collect(),
            },
            "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => Vec::new(),
            _ => return,
        };
        let _ = self.scopes.iter_mut().rev().any(|scope| scope.add_to_list(&name.id, &more));
    }

    /// Whether an expression names the function that is being read.
    fn is_around(&self, expression: &Expr) -> bool {
        let Expr::Name(name) = expression else { return false };
        self.scopes.iter().any(|scope| scope.function.as_deref() == Some(name.id.as_str()))
    }

    /// `map(os.system, commands)`: who gets such a function will call it.
    fn functions_as_arguments(&mut self, call: &ExprCall, offset: usize) {
        let given =
            call.arguments.args.iter().chain(call.arguments.keywords.iter().map(|keyword| &keyword.value));
        let starts_process = self.path(&call.func).is_some_and(|name| {
            matches!(name.as_str(), "multiprocessing.Process" | "threading.Thread" | "multiprocessing.Pool")
        });
        for argument in given.take(64) {
            if starts_process && self.is_around(argument) {
                self.note(What::Multiplies, offset);
            }
            if !matches!(argument, Expr::Name(_) | Expr::Attribute(_)) {
                continue;
            }
            let Some(name) = self.path(argument) else { continue };
            if matches!(
                name.as_str(),
                "eval" | "exec" | "os.system" | "os.popen" | "pickle.loads" | "__import__"
            ) {
                self.note(What::Call(Call { name: name.clone(), arguments: Vec::new() }), offset);
                if name != "pickle.loads" {
                    self.note(What::Opaque(Opaque { by: name, why: Why::Computed }), offset);
                }
            }
        }
    }
}

/// Of a tuple or list that is written down.
fn elements(expression: &Expr) -> &[Expr] {
    match expression {
        Expr::Tuple(tuple) => &tuple.elts,
        Expr::List(list) => &list.elts,
        _ => &[],
    }
}

/// A name that nothing was assigned to is its own path, which would make any unknown variable a function.
fn is_builtin_that_matters(name: &str) -> bool {
    matches!(
        name,
        "eval" | "exec" | "compile" | "__import__" | "open" | "getattr" | "input" | "__builtins__" | "chr"
    )
}

impl<'a> Visitor<'a> for Reader<'_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(import) => self.import(import),
            Stmt::ImportFrom(import) => self.import_from(import),
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => {
                self.bind(&class.name.id, Bound::own());
                self.open_scope(None);
                visitor::walk_stmt(self, statement);
                self.close_scope();
            }
            Stmt::Assign(assign) => self.assign(assign),
            Stmt::AugAssign(assign) => self.augment(assign),
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.visit_expr(value);
                    self.assign_to(&assign.target, value);
                }
            }
            Stmt::For(each) => self.each(each),
            Stmt::While(statement) => self.while_loop(statement),
            Stmt::If(choice) => {
                self.visit_expr(&choice.test);
                self.in_block(false, |reader| reader.visit_body(&choice.body));
                for clause in &choice.elif_else_clauses {
                    self.visit_elif_else_clause(clause);
                }
            }
            Stmt::Try(attempt) => {
                // Mostly it happens: `try: import x` binds for what follows.
                let is_expected = attempt.handlers.iter().any(catches_missing_modules);
                self.tolerated += usize::from(is_expected);
                self.visit_body(&attempt.body);
                self.tolerated -= usize::from(is_expected);
                self.in_block(false, |reader| {
                    for handler in &attempt.handlers {
                        reader.visit_except_handler(handler);
                    }
                    reader.visit_body(&attempt.orelse);
                });
                self.visit_body(&attempt.finalbody);
            }
            Stmt::IpyEscapeCommand(escape) => {
                self.escape(escape.kind, &escape.value, escape.range.start().to_usize());
            }
            _ => visitor::walk_stmt(self, statement),
        }
    }

    fn visit_elif_else_clause(&mut self, clause: &'a ElifElseClause) {
        if let Some(test) = &clause.test {
            self.visit_expr(test);
        }
        self.in_block(false, |reader| reader.visit_body(&clause.body));
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        visitor::walk_except_handler(self, handler);
    }

    fn visit_match_case(&mut self, case: &'a MatchCase) {
        self.in_block(false, |reader| visitor::walk_match_case(reader, case));
    }

    fn visit_with_item(&mut self, item: &'a WithItem) {
        visitor::walk_with_item(self, item);
        if let Some(target) = &item.optional_vars {
            let value = self.value(&item.context_expr);
            self.assign_unknown(target, &value);
        }
    }

    fn visit_annotation(&mut self, _: &'a Expr) {}

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Lambda(lambda) => self.lambda(lambda),
            Expr::Call(call) => {
                // What is inside happens first, but the outer call is written first: the text's order.
                self.call(call);
                visitor::walk_expr(self, expression);
            }
            Expr::Named(named) => {
                self.visit_expr(&named.value);
                self.assign_to(&named.target, &named.value);
            }
            Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => {
                self.open_scope(None);
                let generators = match expression {
                    Expr::ListComp(each) => &each.generators,
                    Expr::SetComp(each) => &each.generators,
                    Expr::DictComp(each) => &each.generators,
                    Expr::Generator(each) => &each.generators,
                    _ => unreachable!("only comprehensions come here"),
                };
                for each in generators {
                    let over = self.value(&each.iter);
                    self.assign_unknown(&each.target, &over);
                }
                self.scope().loops += 1;
                visitor::walk_expr(self, expression);
                self.close_scope();
            }
            Expr::IpyEscapeCommand(escape) => {
                self.escape(escape.kind, &escape.value, escape.range.start().to_usize());
            }
            _ => visitor::walk_expr(self, expression),
        }
    }
}

#[cfg(test)]
mod tests;
