//! The API as it is promised. A change of it is seen in review: run with `REDOMA_UPDATE_GOLDEN=1` to write it down.

use std::path::Path;

#[test]
fn the_api_is_the_one_that_is_written_down() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let current = redoma_server::openapi_json() + "\n";
    if std::env::var_os("REDOMA_UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &current).unwrap();
    }
    let written = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(
        written == current,
        "the API has changed: if that is meant, run `REDOMA_UPDATE_GOLDEN=1 cargo nextest run -p redoma-server` and \
         commit {}",
        golden.display()
    );
}
