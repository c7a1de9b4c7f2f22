//! Notebooks: their cells in one text, so that an import in one is known in the next.

use crate::facts::Language;

/// Cells of one language together, and where each begins.
pub(super) struct Part {
    pub(super) text: String,
    pub(super) language: Language,
    /// The cell's number and its first line in the text, both from 1.
    starts: Vec<(u32, u32)>,
}

impl Part {
    /// The cell that a line of the text belongs to, and the line in it.
    pub(super) fn cell_of(&self, line: u32) -> (Option<u32>, u32) {
        let after = self.starts.partition_point(|&(_, start)| start <= line);
        match after.checked_sub(1).and_then(|at| self.starts.get(at)) {
            Some(&(cell, start)) => (Some(cell), line - start + 1),
            None => (None, line),
        }
    }
}

/// The parts of a notebook; nothing if it is not one.
pub(super) fn parse(text: &str) -> Option<Vec<Part>> {
    let notebook: serde_json::Value = serde_json::from_str(text).ok()?;
    let named = |pointer: &str| notebook.pointer(pointer).and_then(serde_json::Value::as_str);
    let language = named("/metadata/language_info/name").or_else(|| named("/metadata/kernelspec/language"));
    let language = match language.unwrap_or("python") {
        "javascript" => Language::JavaScript,
        "typescript" => Language::TypeScript,
        "bash" => Language::Bash,
        _ => Language::Python,
    };
    let mut whole = Part { text: String::new(), language, starts: Vec::new() };
    let mut parts = Vec::new();
    let mut next_line = 1;
    for (at, cell) in notebook.get("cells")?.as_array()?.iter().enumerate() {
        if cell.get("cell_type").and_then(serde_json::Value::as_str) != Some("code") {
            continue;
        }
        let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let source = source_of(cell);
        // A cell in another language stands alone.
        if source.trim_start().starts_with("%%") {
            parts.push(Part { text: source, language, starts: vec![(number, 1)] });
            continue;
        }
        whole.starts.push((number, next_line));
        whole.text.push_str(&source);
        whole.text.push('\n');
        next_line += u32::try_from(source.matches('\n').count() + 1).unwrap_or(1);
    }
    parts.push(whole);
    Some(parts)
}

/// A text, or a list of lines.
fn source_of(cell: &serde_json::Value) -> String {
    match cell.get("source") {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Array(lines)) => {
            lines.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().concat()
        }
        _ => String::new(),
    }
}
