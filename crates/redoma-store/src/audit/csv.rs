//! Records as a table for spreadsheets.
//!
//! Names come from those who are audited: a cell that a spreadsheet would take for a formula gets a `'` before it.

use redoma_model::{AuditEvent, AuditRecord};

use super::moment;

pub const HEADER: &str = "seq,time,kind,client,user,role,key,address,session,execution,profile,language,code_sha256,\
                          decision,rules,ending,exit_code,limits_hit,file,size,sha256,note,hash\r\n";

/// One line.
pub fn row(record: &AuditRecord) -> String {
    let json = serde_json::to_value(record).unwrap_or_default();
    let text = |pointer: &str| match json.pointer(pointer) {
        None | Some(serde_json::Value::Null) => String::new(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Array(all)) => {
            let words: Vec<_> = all.iter().filter_map(|word| word.as_str()).collect();
            words.join(" ")
        }
        Some(other) => other.to_string(),
    };
    let note = match &record.event {
        AuditEvent::Admin(action) | AuditEvent::LoginFailed(action) | AuditEvent::RateLimited(action) => {
            [Some(action.what.as_str()), action.note.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(": ")
        }
        _ => text("/note"),
    };
    let cells = [
        record.seq.to_string(),
        moment::written(record.at),
        text("/kind"),
        text("/who/client"),
        text("/who/user"),
        text("/who/role"),
        text("/who/key"),
        text("/who/address"),
        text("/session"),
        text("/execution"),
        text("/profile"),
        text("/language"),
        text("/code/sha256"),
        text("/verdict/decision"),
        text("/verdict/rules"),
        text("/ending"),
        text("/exit_code"),
        text("/limits_hit"),
        text("/name"),
        text("/size"),
        text("/sha256"),
        note,
        record.hash.clone(),
    ];
    cells.map(|text| cell(&text)).join(",") + "\r\n"
}

fn cell(text: &str) -> String {
    let is_number = text.parse::<i64>().is_ok();
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && !is_number;
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redoma_model::{AuditedAction, Who};

    #[test]
    fn nothing_in_a_cell_is_a_formula_or_ends_it() {
        for (text, written) in [
            ("ana", "ana"),
            ("=cmd|'/c calc'!A1", "'=cmd|'/c calc'!A1"),
            ("+1+1", "'+1+1"),
            ("@x", "'@x"),
            ("-x", "'-x"),
            ("-1", "-1"),
            ("a,\"b\"\nc", "\"a,\"\"b\"\"\nc\""),
            ("\t=x", "'\t=x"),
        ] {
            assert_eq!(cell(text), written);
        }
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let who = Who { user: Some("=ana".to_owned()), ..Who::default() };
        let action = AuditedAction { who, what: "reload".to_owned(), note: Some("it worked".to_owned()) };
        let text = String::new;
        let event = AuditEvent::Admin(action);
        let record = AuditRecord { event, at: 0, seq: 7, prev: text(), mac: text(), hash: "ff".to_owned() };
        let row = row(&record);
        assert_eq!(row.matches(',').count(), HEADER.matches(',').count());
        assert_eq!(row, "7,1970-01-01T00:00:00.000Z,admin,,'=ana,,,,,,,,,,,,,,,,,reload: it worked,ff\r\n");
    }
}
