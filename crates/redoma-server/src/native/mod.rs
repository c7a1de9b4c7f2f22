//! The native API, `/api/v1`: sessions, executions, files, keys. The OpenAPI document is made from these handlers.
//!
//! | file | subject |
//! |---|---|
//! | `sessions.rs` | conversations |
//! | `executions.rs` | running programs: one answer at the end |
//! | `stream.rs` | running programs: events as they come (SSE, WebSocket) |
//! | `files.rs` | uploads, downloads, artifacts, archives |
//! | `kernels.rs` | live sessions: interrupt, restart, undo, branch |
//! | `keys.rs`, `audit.rs` | for admins |
//! | `asked.rs` | what stands behind a path's question mark |
//! | `wire.rs` | what all of it looks like as JSON |

mod asked;
mod audit;
mod executions;
mod files;
mod kernels;
mod keys;
mod profiles;
mod sessions;
mod stream;
mod wire;

use std::sync::Arc;

use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
use crate::executing::blocking;
use crate::failure::Failure;

pub(crate) use wire::time;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Redoma",
        description = "Runs the Python, JavaScript, TypeScript and shell that a model wrote, each run in a sandbox of its \
                       own, and keeps each conversation's files. What is not yours answers 404, as what does not exist.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    modifiers(&Security),
    security(("key" = []), ("bearer" = []), ("basic" = [])),
    tags(
        (name = "sessions", description = "Conversations: each has files of its own, which its programs see in `/mnt/data`."),
        (name = "executions", description = "Programs, and what came of them."),
        (name = "files", description = "Uploads and artifacts. A file is never changed: one of the same name is a new version."),
        (name = "profiles", description = "What runs are held to: languages, libraries, limits, rules."),
        (name = "keys", description = "Who may come in. Takes an admin key."),
        (name = "audit", description = "Who did what, in an order that can't be changed unnoticed. Takes an admin key.")
    )
)]
struct Document;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let key = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        let http = |scheme| SecurityScheme::Http(HttpBuilder::new().scheme(scheme).build());
        components.add_security_scheme("key", key);
        components.add_security_scheme("bearer", http(HttpAuthScheme::Bearer));
        components.add_security_scheme("basic", http(HttpAuthScheme::Basic));
    }
}

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get, sessions::change, sessions::remove))
        .routes(routes!(executions::run, executions::list))
        .routes(routes!(executions::run_once))
        .routes(routes!(executions::get))
        .routes(routes!(executions::download_archive))
        .routes(routes!(executions::cancel))
        .routes(routes!(stream::websocket))
        .routes(routes!(files::upload, files::list))
        .routes(routes!(files::get, files::remove))
        .routes(routes!(files::content))
        .routes(routes!(files::artifacts))
        .routes(routes!(files::download_archive))
        .routes(routes!(kernels::get))
        .routes(routes!(kernels::interrupt))
        .routes(routes!(kernels::restart))
        .routes(routes!(kernels::undo))
        .routes(routes!(kernels::branch))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::revoke))
        .routes(routes!(profiles::list))
        .routes(routes!(profiles::own))
        .routes(routes!(profiles::of_key))
        .routes(routes!(profiles::reload))
        .routes(routes!(audit::list))
        .routes(routes!(audit::export))
        .routes(routes!(audit::stream))
        .routes(routes!(audit::verify))
}

/// An id in a path. What is no id names nothing.
fn id<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::not_found(what))
}
