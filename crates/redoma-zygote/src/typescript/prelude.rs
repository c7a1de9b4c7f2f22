//! Lines put before a program: definitions of the names that it uses and nobody else provides.
//!
//! There are two sorts. An ES module that calls `require` or asks for `__dirname` would fail in
//! Node, but the two are often mixed, because most TypeScript was compiled to `CommonJS` for years;
//! so a module gets those names. And where the transformer replaces syntax by a call (decorators,
//! `using`), it leaves the function to be called, a method of `babelHelpers`, to be supplied.

use oxc_ast::ast::{Directive, Program};
use oxc_diagnostics::OxcDiagnostic;
use oxc_semantic::Scoping;
use oxc_transformer::Helper;

use super::ModuleKind;

/// What Node declares in every `CommonJS` file and in no ES module.
pub(super) const COMMONJS_NAMES: [&str; 5] = ["require", "module", "exports", "__filename", "__dirname"];

/// The text, in whole lines.
pub(super) struct Prelude(String);

impl Prelude {
    /// The prelude of a transformed program with the names in `scoping`, which calls `helpers`.
    pub(super) fn new(
        kind: ModuleKind,
        program: &Program<'_>,
        scoping: &Scoping,
        helpers: impl Iterator<Item = Helper>,
    ) -> Result<Self, Vec<OxcDiagnostic>> {
        let mut helpers: Vec<Helper> = helpers.collect();
        helpers.sort_unstable();

        let mut text = String::new();
        if kind == ModuleKind::Module {
            define_commonjs_names(&mut text, scoping);
        }
        if !helpers.is_empty() {
            define_helpers(&mut text, &helpers)?;
        }
        // A directive counts only if nothing but directives stands before it.
        if !text.is_empty() && program.directives.iter().any(Directive::is_use_strict) {
            text.insert_str(0, "\"use strict\";\n");
        }
        Ok(Self(text))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn line_count(&self) -> u32 {
        let lines = self.0.bytes().filter(|&byte| byte == b'\n').count();
        u32::try_from(lines).expect("the prelude is a page of text at most")
    }
}

fn define_commonjs_names(text: &mut String, scoping: &Scoping) {
    let free = scoping.root_unresolved_references();
    let uses = |name: &str| free.contains_key(name);
    if !COMMONJS_NAMES.iter().any(|name| uses(name)) {
        return;
    }
    let module = uses("module") || uses("exports");
    if uses("require") || module {
        text.push_str(
            "import { createRequire as $redoma_createRequire } from \"node:module\";\n\
             const $redoma_require = $redoma_createRequire(import.meta.url);\n",
        );
    }
    if module {
        // `require.main === module` is how a CommonJS program asks whether it is the one that
        // was started, and this one always is.
        text.push_str("const $redoma_module = $redoma_require.main = { exports: {}, id: \".\" };\n");
    }
    if uses("__filename") || uses("__dirname") {
        text.push_str(
            "import { dirname as $redoma_dirname } from \"node:path\";\n\
             import { fileURLToPath as $redoma_toPath } from \"node:url\";\n\
             const $redoma_filename = $redoma_toPath(import.meta.url);\n",
        );
    }
    for (name, value) in [
        ("require", "$redoma_require"),
        ("module", "$redoma_module"),
        ("exports", "$redoma_module.exports"),
        ("__filename", "$redoma_filename"),
        ("__dirname", "$redoma_dirname($redoma_filename)"),
    ] {
        if uses(name) {
            text.extend(["const ", name, " = ", value, ";\n"]);
        }
    }
}

fn define_helpers(text: &mut String, helpers: &[Helper]) -> Result<(), Vec<OxcDiagnostic>> {
    text.push_str("const babelHelpers = {\n");
    for helper in helpers {
        let definition = match helper {
            Helper::Decorate => include_str!("helpers/decorate.js"),
            Helper::DecorateParam => include_str!("helpers/decorateParam.js"),
            Helper::UsingCtx => include_str!("helpers/usingCtx.js"),
            other => {
                let message = format!("This program needs `{}`, which is not there", other.name());
                return Err(vec![OxcDiagnostic::error(message)]);
            }
        };
        text.extend([helper.name(), ": ", definition.trim_end(), ",\n"]);
    }
    text.push_str("};\n");
    Ok(())
}
