//! The scripts of a `package.json`: lines for the shell that `npm run` and `npm install` hand over as they are.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::facts::Position;
use crate::nested::Places;

/// What is looked at; the rest of the file may be anything.
#[derive(Deserialize)]
struct Package<'t> {
    #[serde(borrow, default)]
    scripts: HashMap<String, &'t RawValue>,
}

/// Each script and where it stands, in the order of the text; nothing if this is no description of a package.
pub(super) fn scripts(text: &str) -> Option<Vec<(Position, String)>> {
    let package: Package<'_> = serde_json::from_str(text).ok()?;
    let mut scripts: Vec<_> = package
        .scripts
        .values()
        .filter_map(|raw| {
            // A value that is borrowed stands in the text itself.
            let offset = raw.get().as_ptr().addr().checked_sub(text.as_ptr().addr())?;
            Some((offset, serde_json::from_str::<String>(raw.get()).ok()?))
        })
        .collect();
    scripts.sort();
    let mut places = Places::new(text);
    Some(scripts.into_iter().map(|(offset, script)| (places.of(offset), script)).collect())
}
