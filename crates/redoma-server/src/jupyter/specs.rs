//! The kinds of kernels that there are.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Map, Value, json};

use super::Error;
use super::access::Visitor;
use crate::failure::Failure;
use crate::{App, Versions};

#[derive(Debug)]
pub struct Spec {
    pub name: &'static str,
    /// What the interpreter calls it.
    pub language: &'static str,
    display_name: &'static str,
    /// What Jupyter's clients call the language.
    known_as: &'static str,
    mimetype: &'static str,
    extension: &'static str,
    lexer: &'static str,
}

/// The first is what clients get that don't choose.
pub static SPECS: [Spec; 4] = [
    Spec {
        name: "python3",
        language: "py",
        display_name: "Python 3 (Redoma)",
        known_as: "python",
        mimetype: "text/x-python",
        extension: ".py",
        lexer: "ipython3",
    },
    Spec {
        name: "javascript",
        language: "js",
        display_name: "JavaScript (Redoma)",
        known_as: "javascript",
        mimetype: "text/javascript",
        extension: ".js",
        lexer: "javascript",
    },
    Spec {
        name: "typescript",
        language: "ts",
        display_name: "TypeScript (Redoma)",
        known_as: "typescript",
        mimetype: "text/typescript",
        extension: ".ts",
        lexer: "typescript",
    },
    Spec {
        name: "bash",
        language: "bash",
        display_name: "Bash (Redoma)",
        known_as: "bash",
        mimetype: "text/x-sh",
        extension: ".sh",
        lexer: "bash",
    },
];

impl Spec {
    pub fn named(name: Option<&str>) -> Option<&'static Self> {
        // Some clients say `python`, and mean whatever Python there is.
        let name = match name {
            None | Some("" | "python") => "python3",
            Some(name) => name,
        };
        SPECS.iter().find(|spec| spec.name == name)
    }

    fn model(&self) -> Value {
        json!({
            "name": self.name,
            "spec": {
                "argv": [],
                "env": {},
                "display_name": self.display_name,
                "language": self.known_as,
                "interrupt_mode": "message",
                "metadata": {},
            },
            "resources": {},
        })
    }

    /// What a kernel says of its language.
    pub fn language_info(&self, versions: &Versions) -> Value {
        let is_python = self.language == "py";
        let version = match self.language {
            "py" => versions.python.as_deref(),
            "js" => versions.node.as_deref().map(|version| version.trim_start_matches('v')),
            _ => None,
        };
        let mode = if is_python { json!({ "name": "ipython", "version": 3 }) } else { self.known_as.into() };
        json!({
            "name": self.known_as,
            "version": version.unwrap_or(if is_python { "3.0" } else { "" }),
            "mimetype": self.mimetype,
            "file_extension": self.extension,
            "pygments_lexer": self.lexer,
            "codemirror_mode": mode,
            "nbconvert_exporter": if is_python { "python" } else { "script" },
        })
    }
}

pub async fn list(_visitor: Visitor) -> Json<Value> {
    let specs: Map<_, _> = SPECS.iter().map(|spec| (spec.name.to_owned(), spec.model())).collect();
    Json(json!({ "default": SPECS[0].name, "kernelspecs": specs }))
}

pub async fn get(
    _visitor: Visitor,
    State(_): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Error> {
    let spec = SPECS.iter().find(|spec| spec.name == name);
    Ok(Json(spec.ok_or_else(|| Failure::not_found("kind of kernel"))?.model()))
}
