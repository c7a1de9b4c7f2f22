//! Reading a source: what language is it exactly, and what does it say?
//!
//! A file called `main.ts` may be an ES module or `CommonJS`, which are two grammars: `await` is a
//! keyword in one and a name in the other, `return` may stand at the top level of one only. It
//! may also contain JSX although its name does not say so, and that is a third and a fourth. The
//! text decides: the grammars are tried in turn until one fits. If none does, the errors worth
//! showing are those of the one that got furthest.

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    ArrowFunctionExpression, AwaitExpression, Declaration, Decorator, ExportAllDeclaration,
    ExportDeclaration, ExportDefaultDeclaration, ExportDefaultDeclarationKind, ExportFromDeclaration,
    ExportNamedDeclaration, ForOfStatement, Function, IdentifierReference, ImportDeclaration,
    ImportDeclarationSpecifier, ImportMeta, Program, TSExternalModuleDeclaration, TSGlobalDeclaration,
    TSNamespaceDeclaration, VariableDeclaration,
};
use oxc_ast_visit::{Visit, walk};
use oxc_diagnostics::{LabeledSpan, OxcDiagnostic, Severity};
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::{ScopeFlags, Scoping, SemanticBuilder, SymbolFlags};
use oxc_span::{GetSpan, SourceType, Span};

use super::{ModuleKind, prelude::COMMONJS_NAMES, unsupported};

/// A source understood without errors.
pub(super) struct Reading<'a> {
    pub(super) program: Program<'a>,
    /// Which name means what.
    pub(super) scoping: Scoping,
    pub(super) kind: ModuleKind,
    /// Whether some class, member or parameter has a decorator.
    pub(super) uses_decorators: bool,
}

impl<'a> Reading<'a> {
    /// Reads `source`, taking from `file_name` whether JSX is more likely than not.
    pub(super) fn of(
        allocator: &'a Allocator,
        source: &'a str,
        file_name: &str,
    ) -> Result<Self, Vec<OxcDiagnostic>> {
        let jsx_likely = [".tsx", ".jsx"].iter().any(|ending| file_name.ends_with(ending));
        let parse = |jsx| Parsed::as_module_or_commonjs(allocator, source, SourceType::ts().with_jsx(jsx));
        let mut parsed = parse(jsx_likely);
        if !parsed.errors.is_empty() {
            let other = parse(!jsx_likely);
            if other.reach() > parsed.reach() {
                parsed = other;
            }
        }

        let reading = parsed.check()?;
        if reading.kind == ModuleKind::CommonJs && reading.declares_a_commonjs_name() {
            return Parsed::new(allocator, source, reading.program.source_type, ModuleKind::Module).check();
        }
        Ok(reading)
    }

    /// Whether a top-level `const module = …` or the like would clash with what Node declares in
    /// every `CommonJS` file.
    fn declares_a_commonjs_name(&self) -> bool {
        COMMONJS_NAMES.iter().any(|&name| {
            self.scoping.get_root_binding(name.into()).is_some_and(|symbol| {
                self.scoping
                    .symbol_flags(symbol)
                    .intersects(SymbolFlags::BlockScopedVariable | SymbolFlags::Class)
            })
        })
    }

    /// Whether JSX can be translated to calls of a function that the program itself has: its
    /// `React`, or what a `@jsx` comment names.
    pub(super) fn brings_jsx_factory(&self) -> bool {
        self.scoping.get_root_binding("React".into()).is_some()
            || self.program.comments.iter().any(|comment| {
                let text = comment.content_span().source_text(self.program.source_text);
                text.contains("@jsx ")
            })
    }
}

/// What Node would still fail to parse in a transformed program.
pub(super) fn syntax_unknown_to_node(program: &Program<'_>) -> Vec<OxcDiagnostic> {
    let mut decorators = LeftDecorators::default();
    decorators.visit_program(program);
    decorators.errors
}

/// A source parsed as one of its possible languages.
struct Parsed<'a> {
    program: Program<'a>,
    kind: ModuleKind,
    errors: Vec<OxcDiagnostic>,
    uses: Uses,
}

impl<'a> Parsed<'a> {
    fn new(allocator: &'a Allocator, source: &'a str, source_type: SourceType, kind: ModuleKind) -> Self {
        let source_type = match kind {
            ModuleKind::Module => source_type.with_module(true),
            ModuleKind::CommonJs => source_type.with_commonjs(true),
        };
        let options = ParseOptions { parse_regular_expression: true, ..ParseOptions::default() };
        let parsed = Parser::new(allocator, source, source_type).with_options(options).parse();
        let mut errors = parsed.diagnostics.into_vec();
        errors.retain(is_error);
        let mut uses = Uses::default();
        uses.visit_program(&parsed.program);
        Self { program: parsed.program, kind, errors, uses }
    }

    /// `CommonJS` unless something in the source can only be meant for a module.
    fn as_module_or_commonjs(allocator: &'a Allocator, source: &'a str, source_type: SourceType) -> Self {
        let module = Self::new(allocator, source, source_type, ModuleKind::Module);
        if module.uses.module_syntax {
            return module;
        }
        let commonjs = Self::new(allocator, source, source_type, ModuleKind::CommonJs);
        // The parser drops all that it has read when it gives up. If it gave up on the module but
        // not on the CommonJS, it is now that the imports become visible.
        if commonjs.uses.module_syntax || module.reach() > commonjs.reach() { module } else { commonjs }
    }

    /// How much of the source comes before the first error.
    fn reach(&self) -> u32 {
        let places = self.errors.iter().flat_map(|error| &error.labels).map(LabeledSpan::offset);
        places.min().unwrap_or(if self.errors.is_empty() { u32::MAX } else { 0 })
    }

    /// The rules that a grammar does not express: a name is declared once, `super` stands in a
    /// method, and so on.
    fn check(self) -> Result<Reading<'a>, Vec<OxcDiagnostic>> {
        let Self { program, kind, mut errors, uses } = self;
        let analysis = SemanticBuilder::new_compiler()
            .with_enum_eval(true)
            // The transformer adds names of its own.
            .with_excess_capacity(2.0)
            .build(&program);
        errors.extend(analysis.diagnostics.into_iter().filter(is_error));
        if uses.decorators {
            errors.extend(uses.standard_decorators);
        }
        errors.extend(uses.errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let scoping = analysis.semantic.into_scoping();
        Ok(Reading { program, scoping, kind, uses_decorators: uses.decorators })
    }
}

fn is_error(diagnostic: &OxcDiagnostic) -> bool {
    diagnostic.severity == Severity::Error
}

/// What a source uses that decides how it is to be read and rewritten.
#[derive(Default)]
struct Uses {
    /// A statement or expression that only an ES module may contain. Imports and exports of
    /// nothing but types do not count: they vanish.
    module_syntax: bool,
    decorators: bool,
    /// What names a type by which a decorator of the ECMAScript proposal can be told from one of
    /// the older TypeScript kind, the only kind that can be translated.
    standard_decorators: Vec<OxcDiagnostic>,
    /// What the parser and the transformer let pass although it cannot work.
    errors: Vec<OxcDiagnostic>,
    /// The statement of the program that is being visited.
    top_level_statement: Span,
    /// How many functions are around the node being visited.
    function_depth: usize,
    /// How many namespaces are around the node being visited.
    namespace_depth: usize,
}

impl Uses {
    /// Notes an `import` or `export` statement.
    fn module_statement(&mut self, span: Span, only_types: bool) {
        if self.namespace_depth > 0 {
            return;
        }
        self.module_syntax |= !only_types;
        if span != self.top_level_statement {
            self.errors.push(unsupported(
                "`import` and `export` statements can only stand at the top level",
                "Move it out of the block; inside of one, `await import(…)` may be what is wanted",
                span,
            ));
        }
    }

    fn awaits(&mut self) {
        self.module_syntax |= self.function_depth == 0;
    }
}

impl<'a> Visit<'a> for Uses {
    fn visit_program(&mut self, program: &Program<'a>) {
        for statement in &program.body {
            self.top_level_statement = statement.span();
            self.visit_statement(statement);
        }
    }

    fn visit_import_declaration(&mut self, import: &ImportDeclaration<'a>) {
        let names_a_type = |specifier: &ImportDeclarationSpecifier<'a>| {
            matches!(specifier, ImportDeclarationSpecifier::ImportSpecifier(named)
                if named.import_kind.is_type())
        };
        let only_types = import.import_kind.is_type()
            || import
                .specifiers
                .as_ref()
                .is_some_and(|specifiers| !specifiers.is_empty() && specifiers.iter().all(names_a_type));
        self.module_statement(import.span, only_types);
    }

    fn visit_export_declaration(&mut self, export: &ExportDeclaration<'a>) {
        let only_types = export.declaration.declare()
            || match &export.declaration {
                Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => true,
                Declaration::FunctionDeclaration(function) => function.body.is_none(),
                _ => false,
            };
        if self.namespace_depth > 0
            && !only_types
            && let Declaration::VariableDeclaration(variables) = &export.declaration
            && !variables.kind.is_const()
        {
            // Every use of the variable would have to become a property access.
            self.errors.push(unsupported(
                "A namespace that exports a variable cannot be run",
                "Export a `const`, or functions that read and write the variable",
                export.span,
            ));
        }
        self.module_statement(export.span, only_types);
        walk::walk_export_declaration(self, export);
    }

    fn visit_export_named_declaration(&mut self, export: &ExportNamedDeclaration<'a>) {
        let only_types = export.export_kind.is_type()
            || (!export.specifiers.is_empty()
                && export.specifiers.iter().all(|specifier| specifier.export_kind.is_type()));
        self.module_statement(export.span, only_types);
    }

    fn visit_export_from_declaration(&mut self, export: &ExportFromDeclaration<'a>) {
        self.module_statement(export.span, export.export_kind.is_type());
    }

    fn visit_export_all_declaration(&mut self, export: &ExportAllDeclaration<'a>) {
        self.module_statement(export.span, export.export_kind.is_type());
    }

    fn visit_export_default_declaration(&mut self, export: &ExportDefaultDeclaration<'a>) {
        let only_types =
            matches!(export.declaration, ExportDefaultDeclarationKind::TSInterfaceDeclaration(_));
        self.module_statement(export.span, only_types);
        walk::walk_export_default_declaration(self, export);
    }

    fn visit_import_meta(&mut self, _: &ImportMeta) {
        self.module_syntax = true;
    }

    fn visit_await_expression(&mut self, expression: &AwaitExpression<'a>) {
        self.awaits();
        walk::walk_await_expression(self, expression);
    }

    fn visit_for_of_statement(&mut self, statement: &ForOfStatement<'a>) {
        if statement.r#await {
            self.awaits();
        }
        walk::walk_for_of_statement(self, statement);
    }

    fn visit_variable_declaration(&mut self, declaration: &VariableDeclaration<'a>) {
        if declaration.kind.is_await() {
            self.awaits();
        }
        walk::walk_variable_declaration(self, declaration);
    }

    fn visit_function(&mut self, function: &Function<'a>, flags: ScopeFlags) {
        self.function_depth += 1;
        walk::walk_function(self, function, flags);
        self.function_depth -= 1;
    }

    fn visit_arrow_function_expression(&mut self, function: &ArrowFunctionExpression<'a>) {
        self.function_depth += 1;
        walk::walk_arrow_function_expression(self, function);
        self.function_depth -= 1;
    }

    fn visit_decorator(&mut self, decorator: &Decorator<'a>) {
        self.decorators = true;
        walk::walk_decorator(self, decorator);
    }

    fn visit_identifier_reference(&mut self, identifier: &IdentifierReference<'a>) {
        let name = identifier.name.as_str();
        if name.starts_with("Class") && name.ends_with("DecoratorContext") || name == "DecoratorContext" {
            self.standard_decorators.push(unsupported(
                "A standard decorator, which takes a context object, cannot be run",
                "Write it in the older form, `(target, propertyKey, descriptor)`, or call a function",
                identifier.span,
            ));
        }
    }

    fn visit_ts_namespace_declaration(&mut self, namespace: &TSNamespaceDeclaration<'a>) {
        if !namespace.declare {
            self.namespace_depth += 1;
            walk::walk_ts_namespace_declaration(self, namespace);
            self.namespace_depth -= 1;
        }
    }

    // `declare module "x" { … }` and `declare global { … }` describe what is elsewhere.

    fn visit_ts_external_module_declaration(&mut self, _: &TSExternalModuleDeclaration<'a>) {}

    fn visit_ts_global_declaration(&mut self, _: &TSGlobalDeclaration<'a>) {}
}

/// The decorators that are left after the transformation. No released Node parses any.
#[derive(Default)]
struct LeftDecorators {
    errors: Vec<OxcDiagnostic>,
}

impl<'a> Visit<'a> for LeftDecorators {
    fn visit_decorator(&mut self, decorator: &Decorator<'a>) {
        self.errors.push(unsupported(
            "A decorator cannot be run here",
            "Decorate a class declaration (`class Name { … }`) rather than a class expression",
            decorator.span,
        ));
    }
}
