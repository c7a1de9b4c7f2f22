//! Uploads, listings, downloads and deletions.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use redoma_model::{FileId, ResourceKind, SessionId, StoredFile};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Claim, Claimed, Error};
use crate::App;
use crate::auth::Caller;
use crate::download;
use crate::executing::blocking;
use crate::failure::Failure;
use crate::multipart::Multipart;
use crate::native::time;
use crate::upload::{self, Destination, Received, Strictness, receive};

async fn take(
    app: &Arc<App>,
    caller: Caller,
    multipart: Multipart,
    strictness: Strictness,
) -> Result<Received, Failure> {
    receive(app, multipart, strictness, move |fields: &HashMap<String, String>| {
        let field = |name: &str| fields.get(name).cloned();
        let claim = Claim {
            kind: field("kind"),
            id: field("id"),
            version: field("version"),
            entity_id: field("entity_id"),
        };
        let resource = claim.resource();
        // Whose a user's file is, the field says too.
        let user = resource.as_ref().filter(|resource| resource.kind == ResourceKind::User);
        let principal = caller.or_named(user.map(|user| user.id.as_str()))?;
        let permit = upload::permit(app, &principal)?;
        let read_only = field("read_only").as_deref() == Some("true");
        Ok((Destination::New { principal, resource, read_only }, permit))
    })
    .await
}

pub(super) async fn upload(
    State(app): State<Arc<App>>,
    caller: Caller,
    multipart: Multipart,
) -> Result<Json<Value>, Error> {
    let (session, files) = take(&app, caller, multipart, Strictness::AllOrNothing).await?.all()?;
    let files: Vec<_> =
        files.iter().map(|file| json!({ "fileId": file.id, "filename": file.name })).collect();
    Ok(Json(json!({
        "message": "success",
        "session_id": session,
        "storage_session_id": session,
        "files": files,
    })))
}

pub(super) async fn upload_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    multipart: Multipart,
) -> Result<Json<Value>, Error> {
    let received = take(&app, caller, multipart, Strictness::EachByItself).await?;
    let succeeded = received.files.iter().filter(|file| file.result.is_ok()).count();
    let failed = received.files.len() - succeeded;
    let message = match (succeeded, failed) {
        (_, 0) => "success",
        (0, _) => "error",
        _ => "partial_success",
    };
    let files = received.files.iter().map(|file| match &file.result {
        Ok(stored) => json!({ "status": "success", "fileId": stored.id, "filename": file.name }),
        Err(failure) => json!({ "status": "error", "filename": file.name, "error": failure.detail }),
    });
    Ok(Json(json!({
        "message": message,
        "session_id": received.session,
        "storage_session_id": received.session,
        "files": files.collect::<Vec<_>>(),
        "succeeded": succeeded,
        "failed": failed,
    })))
}

/// Both ids of a path. What is no id names nothing.
fn ids(session: &str, file: &str) -> Result<(SessionId, FileId), Error> {
    match (session.parse(), without_extension(file).parse()) {
        (Ok(session), Ok(file)) => Ok((session, file)),
        _ => Err(Failure::not_found("file").into()),
    }
}

/// Listings of the first generation show `fid.ext`, and clients may send that back.
fn without_extension(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

pub(super) async fn object(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((session, file)): Path<(String, String)>,
    Claimed(claimed): Claimed,
) -> Result<Json<Value>, Error> {
    let (session, file) = ids(&session, &file)?;
    let file = app.interpreter.file(&caller.0, &session, &file, claimed.as_ref())?;
    Ok(Json(details(&file)))
}

/// Everything that any of the clients reads about a file.
fn details(file: &StoredFile) -> Value {
    let extension = file.name.extension().map(|extension| format!(".{extension}")).unwrap_or_default();
    json!({
        "id": file.id,
        "name": format!("{}/{}{extension}", file.session, file.id),
        "filename": file.name,
        "originalFilename": file.name,
        "size": file.size,
        "etag": file.sha256,
        "lastModified": time(file.created_at),
        "contentType": file.content_type,
        "readOnly": file.read_only,
        "session_id": file.session,
        "storage_session_id": file.session,
        "metadata": { "original-filename": file.name, "content-type": file.content_type },
    })
}

#[derive(Debug, Deserialize)]
pub(super) struct Detail {
    detail: Option<String>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(session): Path<String>,
    Query(query): Query<Detail>,
    Claimed(claimed): Claimed,
) -> Result<Json<Vec<Value>>, Error> {
    let session = session.parse().map_err(|_| Failure::not_found("session"))?;
    let files = blocking(move || app.interpreter.files(&caller.0, &session, claimed.as_ref())).await?;
    let is_summary = query.detail.as_deref() == Some("summary");
    let shown = files.iter().map(|file| {
        let mut shown = details(file);
        if is_summary && let Some(fields) = shown.as_object_mut() {
            fields
                .retain(|name, _| matches!(name.as_str(), "id" | "name" | "lastModified" | "size" | "etag"));
        }
        shown
    });
    Ok(Json(shown.collect()))
}

pub(super) async fn download(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Path((session, file)): Path<(String, String)>,
    Claimed(claimed): Claimed,
) -> Result<Response, Error> {
    let (session, file) = ids(&session, &file)?;
    let (owner, interpreter) = (caller.0.owner.clone(), Arc::clone(&app.interpreter));
    let opened = blocking(move || interpreter.open_file(&caller.0, &session, &file, claimed.as_ref()));
    let (stored, content) = opened.await?;
    Ok(download::file(&app, &owner, &headers, (&stored, content))?)
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((session, file)): Path<(String, String)>,
    Claimed(claimed): Claimed,
) -> Result<Json<Value>, Error> {
    let (session, file) = ids(&session, &file)?;
    blocking(move || app.interpreter.remove_file(&caller.0, &session, &file, claimed.as_ref())).await?;
    Ok(Json(json!({ "message": "success" })))
}
