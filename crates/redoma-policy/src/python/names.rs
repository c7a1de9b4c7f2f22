//! Which function an expression names, through imports, assignments and the ways around them (`getattr`, `__import__`,
//! `globals()`, `sys.modules`).

use ruff_python_ast::{Expr, ExprCall};

use super::Reader;
use super::known_calls::usual_name;
use crate::scope::{Bound, Meaning, Scope};

/// How long a chain of names is followed.
const MAX_LOOK: u8 = 24;

impl Reader<'_> {
    pub(super) fn bound(&self, name: &str) -> Option<&Bound> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    pub(super) fn bind(&mut self, name: &str, bound: Bound) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.bind(name, bound);
        }
    }

    pub(super) fn open_scope(&mut self, function: Option<&str>) {
        self.scopes.push(Scope::of(function));
    }

    pub(super) fn close_scope(&mut self) {
        self.scopes.pop();
    }

    /// The qualified name of what an expression stands for: `os.system`. A name that nothing was assigned to stands for
    /// itself: it may be a builtin, or come from an earlier cell.
    pub(super) fn path(&self, expression: &Expr) -> Option<String> {
        self.path_within(expression, MAX_LOOK).map(|path| usual_name(&path))
    }

    fn path_within(&self, expression: &Expr, look: u8) -> Option<String> {
        let look = look.checked_sub(1)?;
        match expression {
            Expr::Name(name) => match self.bound(&name.id).map(|bound| &bound.meaning) {
                None => Some(name.id.to_string()),
                Some(Meaning::Path(path)) => Some(path.clone()),
                Some(Meaning::Value(_) | Meaning::Own) => None,
            },
            Expr::Attribute(attribute) => {
                let owner = self.path_within(&attribute.value, look)?;
                let name = attribute.attr.id.as_str();
                // `os.__dict__["system"]`, `eval.__call__("…")`.
                Some(if matches!(name, "__dict__" | "__call__") { owner } else { format!("{owner}.{name}") })
            }
            Expr::Call(call) => self.path_of_result(call, look),
            Expr::Subscript(subscript) => {
                let key = self.constant(&subscript.slice)?;
                match self.path_within(&subscript.value, look)?.as_str() {
                    "sys.modules" | "globals()" | "locals()" | "__builtins__" | "builtins" => Some(key),
                    "os.environ" | "sys.argv" => None,
                    owner if owner.ends_with("()") => None,
                    owner if is_namespace(&subscript.value) => Some(format!("{owner}.{key}")),
                    _ => None,
                }
            }
            Expr::Named(named) => self.path_within(&named.value, look),
            _ => None,
        }
    }

    fn path_of_result(&self, call: &ExprCall, look: u8) -> Option<String> {
        let function = usual_name(&self.path_within(&call.func, look)?);
        let argument = |at: usize| call.arguments.args.get(at);
        match function.as_str() {
            "__import__"
            | "importlib.import_module"
            | "importlib.__import__"
            | "globals().get"
            | "sys.modules.get" => self.constant(argument(0)?),
            "getattr" => {
                let owner = self.path_within(argument(0)?, look)?;
                Some(format!("{owner}.{}", self.constant(argument(1)?)?))
            }
            "vars" | "functools.partial" => self.path_within(argument(0)?, look),
            "globals" | "locals" => Some(format!("{function}()")),
            _ => None,
        }
    }

    /// A text that is written down, put together of such, or held by a name.
    pub(super) fn constant(&self, expression: &Expr) -> Option<String> {
        let mut pieces = Vec::new();
        let mut rest = expression;
        while let Expr::BinOp(operation) = rest {
            pieces.push(self.simple_constant(&operation.right)?);
            rest = &operation.left;
        }
        pieces.push(self.simple_constant(rest)?);
        pieces.reverse();
        Some(pieces.concat())
    }

    fn simple_constant(&self, expression: &Expr) -> Option<String> {
        match expression {
            Expr::StringLiteral(literal) => Some(literal.value.to_str().to_owned()),
            Expr::Name(name) => match &self.bound(&name.id)?.meaning {
                Meaning::Value(value) => value.known().map(str::to_owned),
                _ => None,
            },
            Expr::Subscript(subscript) if matches!(&*subscript.slice, Expr::Slice(_)) => {
                // `"metsys"[::-1]`
                let Expr::Slice(slice) = &*subscript.slice else { return None };
                let is_backwards = slice.lower.is_none()
                    && slice.upper.is_none()
                    && slice.step.as_ref().is_some_and(|step| matches!(&**step, Expr::UnaryOp(_)));
                let text = self.simple_constant(&subscript.value)?;
                is_backwards.then(|| text.chars().rev().collect())
            }
            _ => None,
        }
    }
}

/// Whether an expression is a module's names as a dictionary.
fn is_namespace(expression: &Expr) -> bool {
    match expression {
        Expr::Attribute(attribute) => attribute.attr.id.as_str() == "__dict__",
        Expr::Call(call) => matches!(&*call.func, Expr::Name(name) if name.id.as_str() == "vars"),
        _ => false,
    }
}
