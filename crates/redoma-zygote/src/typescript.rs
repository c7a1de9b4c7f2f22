//! TypeScript to JavaScript: one source file in, one file that Node 18 or newer can run out.
//!
//! Models write TypeScript as if it ran, so this module makes it run. Nothing is type-checked:
//! types are removed, and what TypeScript adds to the language (enums, namespaces, parameter
//! properties, decorators, JSX, `using`) is rewritten to what Node knows. Modern JavaScript is
//! left as it is.
//!
//! The way of a source:
//!
//! 1. `reading` parses it and finds out whether it is an ES module or `CommonJS`;
//! 2. oxc's transformer rewrites the syntax tree;
//! 3. `prelude` supplies the names that the rewritten program needs but nobody defines;
//! 4. oxc's printer writes the result together with a source map, so that
//!    `node --enable-source-maps` speaks of the lines that the user wrote.
//!
//! What is wrong with the source comes back as [`SyntaxErrors`], in the form compilers use.
//!
//! # Hostile input
//!
//! The source comes from a stranger. It can make this module slow, hungry, or (by nesting
//! expressions a few hundred thousand deep) overflow its stack, which ends the process with a
//! signal. Therefore [`compile`] must be called inside the jail, where time and memory are limited
//! and where a crash ends nothing but the sandbox. It reads no file, opens no socket and runs
//! nothing.

#![forbid(unsafe_code)]

mod prelude;
mod reading;
mod syntax_errors;

use std::{fmt::Write as _, io, path::Path, thread};

use oxc_allocator::Allocator;
use oxc_ast::ast::{Program, Statement};
use oxc_codegen::{Codegen, CodegenOptions, CommentOptions};
use oxc_diagnostics::OxcDiagnostic;
use oxc_sourcemap::{SourceMap, Token};
use oxc_span::Span;
use oxc_transformer::{HelperLoaderMode, JsxRuntime, TransformOptions, Transformer};

use prelude::Prelude;
use reading::Reading;

pub use syntax_errors::{Position, SyntaxError, SyntaxErrors};

/// The stack that a compilation gets, in bytes.
///
/// The parser, the transformer and the printer all recurse as deep as the source is nested: this
/// is enough for 100,000 open parentheses, far more than Node itself accepts. The kernel hands out
/// these pages only when they are touched, so an ordinary file pays for a few of them.
const STACK_SIZE: usize = 256 << 20;

/// A program that Node can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaScript {
    /// The program, ending in its source map as a comment. To be stored in the folder of the
    /// original: the map names the original relative to where the program is.
    pub code: String,
    /// How Node has to load it.
    pub kind: ModuleKind,
}

/// The module system that a program is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    /// An ES module: it imports, exports, awaits at its top level or asks for `import.meta`.
    Module,
    /// Anything else: `require`, `module`, `__dirname` and the like are at hand.
    CommonJs,
}

impl ModuleKind {
    /// The file extension by which Node recognises this kind, without the dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Module => "mjs",
            Self::CommonJs => "cjs",
        }
    }
}

/// Why there is no JavaScript.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The source is at fault; the message is for the person or the model who wrote it.
    #[error(transparent)]
    Syntax(#[from] SyntaxErrors),
    /// The process may not start a thread, or may not map [its stack](compile).
    #[error("the TypeScript compiler's thread did not start")]
    Thread(#[source] io::Error),
    /// The compiler is at fault: the source ran into one of its bugs. Seen only where panics
    /// unwind; with `panic = "abort"` the process ends instead.
    #[error("the TypeScript compiler failed on this source")]
    Panic,
}

/// Turns the TypeScript (or TSX, or plain JavaScript) in `source` into JavaScript for Node.
///
/// `file_name` is the original's name, `main.ts` or `/mnt/data/main.ts`: errors and stack traces
/// speak of it, and an ending in `x` says that JSX is likely. It need not exist.
///
/// The work is done on a thread of its own with 256 MiB of stack. Deeper nesting than fits there
/// overflows it, and the process dies of `SIGABRT`; see the [module](self) for why that is fine.
///
/// # Errors
///
/// [`CompileError::Syntax`] with everything that is wrong with the source, including the few
/// constructs that cannot be brought to Node; the other two when it is not the source's fault.
pub fn compile(source: &str, file_name: &str) -> Result<JavaScript, CompileError> {
    compile_part(source, file_name, Imports::OnlyUsed)
}

/// The same for a cell of a live session, which may import what only later ones use.
///
/// # Errors
///
/// As for [`compile`].
pub fn compile_cell(source: &str, file_name: &str) -> Result<JavaScript, CompileError> {
    compile_part(source, file_name, Imports::All)
}

/// Which imports stay. Those of types never do, where they say that they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Imports {
    OnlyUsed,
    All,
}

fn compile_part(source: &str, file_name: &str, imports: Imports) -> Result<JavaScript, CompileError> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("typescript".to_owned())
            .stack_size(STACK_SIZE)
            .spawn_scoped(scope, || translate(source, file_name, imports))
            .map_err(CompileError::Thread)?
            .join()
            .map_err(|_| CompileError::Panic)?
            .map_err(CompileError::Syntax)
    })
}

fn translate(source: &str, file_name: &str, imports: Imports) -> Result<JavaScript, SyntaxErrors> {
    // Neither Node nor an editor counts the byte order mark as a column.
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let in_source = |diagnostics| SyntaxErrors::new(diagnostics, source, file_name);

    let allocator = Allocator::default();
    let reading = Reading::of(&allocator, source, file_name).map_err(in_source)?;
    let mut options = transform_options(&reading);
    options.typescript.only_remove_type_imports = imports == Imports::All;
    let Reading { mut program, scoping, kind, .. } = reading;

    let transformed = Transformer::new(&allocator, Path::new(file_name), &options)
        .build_with_scoping(scoping, &mut program);
    // The transformer calls what it had to leave undone a warning.
    let mut unsupported = transformed.diagnostics.into_vec();
    unsupported.extend(reading::syntax_unknown_to_node(&program));
    if !unsupported.is_empty() {
        return Err(in_source(unsupported));
    }

    // Nobody executes the file by its first line, and the prelude comes before it.
    program.hashbang = None;
    if kind == ModuleKind::CommonJs {
        remove_module_marker(&mut program);
    }
    #[expect(deprecated, reason = "internal to oxc, but the only list of the helpers in use")]
    let helpers = transformed.helpers_used.into_keys();
    let prelude = Prelude::new(kind, &program, &transformed.scoping, helpers).map_err(in_source)?;
    Ok(JavaScript { code: print(&program, &prelude, file_name), kind })
}

fn transform_options(reading: &Reading<'_>) -> TransformOptions {
    let mut options = TransformOptions::default();
    options.helper_loader.mode = HelperLoaderMode::External;
    // The one piece of ECMAScript that TypeScript users write and Node 18 to 22 cannot parse.
    options.env.es2026.explicit_resource_management = true;

    options.decorator.legacy = true;
    if reading.uses_decorators {
        // Fields are assigned, not defined, and left out if they have no value: TypeScript's
        // `useDefineForClassFields: false`. Property decorators put accessors on the prototype,
        // which a defined field would hide.
        options.assumptions.set_public_class_fields = true;
        options.typescript.remove_class_fields_without_initializer = true;
    }

    // A program that has its own React, or names its own factory, needs no other runtime.
    options.jsx.runtime =
        if reading.brings_jsx_factory() { JsxRuntime::Classic } else { JsxRuntime::Automatic };
    options
}

/// Removes the `export {}` by which the transformer keeps a file a module whose only imports and
/// exports were types. This one is not a module.
fn remove_module_marker(program: &mut Program<'_>) {
    program.body.retain(|statement| {
        !matches!(statement, Statement::ExportNamedDeclaration(export) if export.specifiers.is_empty())
    });
}

fn print(program: &Program<'_>, prelude: &Prelude, file_name: &str) -> String {
    let options = CodegenOptions {
        source_map_path: Some(source_map_url(file_name).into()),
        // Some comments are magic: a `sourceURL` may rename the file in stack traces.
        comments: CommentOptions::disabled(),
        ..CodegenOptions::default()
    };
    let printed = Codegen::new().with_options(options).build(program);

    let mut code = prelude.as_str().to_owned();
    code.push_str(&printed.code);
    if let Some(map) = printed.map {
        if !code.is_empty() && !code.ends_with('\n') {
            code.push('\n');
        }
        code.push_str("//# sourceMappingURL=");
        code.push_str(&moved_down(map, prelude.line_count()).to_data_url());
        code.push('\n');
    }
    code
}

/// The map of the same code with `lines` more lines above it.
fn moved_down(map: SourceMap<'_>, lines: u32) -> SourceMap<'_> {
    let mut parts = map.into_parts();
    for token in &mut parts.tokens {
        *token = Token::new(
            token.get_dst_line() + lines,
            token.get_dst_col(),
            token.get_src_line(),
            token.get_src_col(),
            token.get_source_id(),
            token.get_name_id(),
        );
    }
    SourceMap::from_parts(parts)
}

/// The original's name as a URL, which is how Node reads the names in a source map: relative to
/// the program's own URL if the name is relative, and shown as a path.
fn source_map_url(file_name: &str) -> String {
    // Without `./`, what stands before a colon would be taken for a scheme.
    let mut url = if file_name.starts_with('/') { "file://" } else { "./" }.to_owned();
    for byte in file_name.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

/// What is wrong with a place in the source that oxc itself has nothing against.
fn unsupported(message: &'static str, help: &'static str, span: Span) -> OxcDiagnostic {
    OxcDiagnostic::error(message).with_help(help).with_label(span)
}

#[cfg(test)]
mod tests {
    use super::source_map_url;

    #[test]
    fn a_relative_name_stays_relative() {
        assert_eq!(source_map_url("main.ts"), "./main.ts");
        assert_eq!(source_map_url("http:x.ts"), "./http%3Ax.ts");
    }

    #[test]
    fn an_absolute_name_becomes_a_file_url() {
        assert_eq!(source_map_url("/mnt/data/a b#?%é.ts"), "file:///mnt/data/a%20b%23%3F%25%C3%A9.ts");
    }
}
