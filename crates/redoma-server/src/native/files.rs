//! Uploads, downloads, artifacts, archives.

#![expect(unused_qualifications, reason = "utoipa's macros write types out in full")]

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use redoma_model::{FileId, Origin, SessionId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asked::{Asked, Question};
use super::wire::FileView;
use super::{blocking, id};
use crate::auth::Caller;
use crate::download;
use crate::failure::{Failure, Problem};
use crate::multipart::Multipart;
use crate::upload::{self, Destination, Strictness, receive};
use crate::{App, archive};

#[derive(Debug, Serialize, ToSchema)]
pub struct FileList {
    files: Vec<FileView>,
}

/// What an upload looks like.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
struct UploadForm {
    /// May be repeated. Its filename is the name in the session, folders included.
    #[schema(format = Binary, content_media_type = "application/octet-stream")]
    file: String,
}

/// Upload files.
///
/// Into a session: all of them or none.
#[utoipa::path(post, path = "/api/v1/sessions/{session}/files", operation_id = "upload_files", tag = "files", params(("session" = String, Path)),
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses((status = 201, body = FileList), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 413, body = Problem), (status = 415, body = Problem), (status = 429, body = Problem),
        (status = 507, body = Problem)))]
pub async fn upload(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    multipart: Multipart,
) -> Result<(StatusCode, Json<FileList>), Failure> {
    let session: SessionId = id(&session, "session")?;
    // Before anything is taken of it.
    app.interpreter.session(&principal, &session, None)?;
    let permit = upload::permit(&app, &principal)?;
    let received = receive(&app, multipart, Strictness::AllOrNothing, move |_| {
        Ok((Destination::Session { principal, id: session }, permit))
    });
    let (_, files) = received.await?.all()?;
    Ok((StatusCode::CREATED, Json(FileList { files: files.into_iter().map(FileView::from).collect() })))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// Also earlier versions, and what programs have deleted.
    #[serde(default)]
    all: bool,
}

impl Question for Which {
    const NAMES: &'static [&'static str] = &["all"];
}

/// A session's files.
///
/// Those that its programs see; with `all` also earlier versions, and what programs have deleted.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/files", operation_id = "list_files", tag = "files",
    params(("session" = String, Path), Which),
    responses((status = 200, body = FileList), (status = 404, body = Problem)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
    Asked(which, _): Asked<Which>,
) -> Result<Json<FileList>, Failure> {
    let session = id(&session, "session")?;
    let files = blocking(move || {
        if which.all {
            app.interpreter.all_files(&principal, &session)
        } else {
            app.interpreter.files(&principal, &session, None)
        }
    });
    Ok(Json(FileList { files: files.await?.into_iter().map(FileView::from).collect() }))
}

fn ids(session: &str, file: &str) -> Result<(SessionId, FileId), Failure> {
    Ok((id(session, "file")?, id(file, "file")?))
}

/// What is known of a file.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/files/{file}", operation_id = "get_file", tag = "files",
    params(("session" = String, Path), ("file" = String, Path)),
    responses((status = 200, body = FileView), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path((session, file)): Path<(String, String)>,
) -> Result<Json<FileView>, Failure> {
    let (session, file) = ids(&session, &file)?;
    Ok(Json(app.interpreter.file(&principal, &session, &file, None)?.into()))
}

/// A file's bytes.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/files/{file}/content", operation_id = "download_file", tag = "files",
    params(("session" = String, Path), ("file" = String, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>), (status = 304),
        (status = 404, body = Problem)))]
pub async fn content(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    headers: HeaderMap,
    Path((session, file)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let (session, file) = ids(&session, &file)?;
    let (owner, interpreter) = (principal.owner.clone(), Arc::clone(&app.interpreter));
    let opened = blocking(move || interpreter.open_file(&principal, &session, &file, None));
    let (stored, content) = opened.await?;
    download::file(&app, &owner, &headers, (&stored, content))
}

/// Delete one version of a file.
///
/// Earlier versions don't come back under its name.
#[utoipa::path(delete, path = "/api/v1/sessions/{session}/files/{file}", operation_id = "remove_file", tag = "files",
    params(("session" = String, Path), ("file" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn remove(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path((session, file)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let (session, file) = ids(&session, &file)?;
    blocking(move || app.interpreter.remove_file(&principal, &session, &file, None)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What programs have made.
///
/// Each version, oldest first.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/artifacts", operation_id = "list_artifacts", tag = "files",
    params(("session" = String, Path)),
    responses((status = 200, body = FileList), (status = 404, body = Problem)))]
pub async fn artifacts(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<Json<FileList>, Failure> {
    let session = id(&session, "session")?;
    let mut files = blocking(move || app.interpreter.all_files(&principal, &session)).await?;
    files.retain(|file| file.origin == Origin::Artifact);
    files.sort_by_key(|file| file.created_at);
    Ok(Json(FileList { files: files.into_iter().map(FileView::from).collect() }))
}

/// All files as a ZIP archive.
///
/// Those that programs in this session see.
#[utoipa::path(get, path = "/api/v1/sessions/{session}/archive", operation_id = "download_archive", tag = "files",
    params(("session" = String, Path)),
    responses((status = 200, content_type = "application/zip", body = Vec<u8>), (status = 404, body = Problem)))]
pub async fn download_archive(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
    Path(session): Path<String>,
) -> Result<Response, Failure> {
    let session: SessionId = id(&session, "session")?;
    let name = format!("{session}.zip");
    let (reader, owner) = (Arc::clone(&app), principal.clone());
    let files = blocking(move || reader.interpreter.files(&owner, &session, None)).await?;
    archive::archive(app, principal, &name, files)
}
