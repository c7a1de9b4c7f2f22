//! Who may come in. For admins.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use redoma_engine::interpreter::NewKey;
use redoma_model::{BadName, KeyId, Owner, Role};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::wire::{KeyView, RoleView};
use super::{blocking, id};
use crate::App;
use crate::auth::{Caller, valid_user};
use crate::body::{JsonBody, Weigh};
use crate::failure::{Failure, Problem};

#[derive(Debug, Serialize, ToSchema)]
pub struct KeyList {
    keys: Vec<KeyView>,
}

/// All keys.
///
/// Without their secrets.
#[utoipa::path(get, path = "/api/v1/keys", operation_id = "list_keys", tag = "keys",
    responses((status = 200, body = KeyList), (status = 403, body = Problem)))]
pub async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<KeyList>, Failure> {
    caller.require_admin(&app)?;
    let keys = blocking(move || app.interpreter.keys().map_err(|error| Failure::internal(&error))).await?;
    Ok(Json(KeyList { keys: keys.into_iter().map(KeyView::from).collect() }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyBody {
    role: RoleView,
    /// Whose things it opens; two keys of one client open the same.
    #[schema(example = "librechat")]
    client: String,
    /// For a user's key: which user.
    user: Option<String>,
    label: Option<String>,
    /// The profile of those who come with it, instead of the default one.
    profile: Option<String>,
}

impl Weigh for KeyBody {
    fn weight(&self) -> usize {
        self.client.weight() + self.user.weight() + self.label.weight() + self.profile.weight()
    }
}

/// Make a key.
///
/// Its secret is shown in this answer and never again.
#[utoipa::path(post, path = "/api/v1/keys", operation_id = "create_key", tag = "keys", request_body = KeyBody,
    responses((status = 201, body = KeyView), (status = 400, body = Problem), (status = 403, body = Problem)))]
pub async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    JsonBody(body, _room): JsonBody<KeyBody>,
) -> Result<(StatusCode, Json<KeyView>), Failure> {
    caller.require_admin(&app)?;
    let role = match body.role {
        RoleView::Admin => Role::Admin,
        RoleView::Client => Role::Client,
        RoleView::User => Role::User,
    };
    let client = valid_user(&body.client).ok_or_else(|| Failure::bad_request("`client` is not a name"))?;
    let user = body.user.as_deref().and_then(valid_user);
    if (role == Role::User) != user.is_some() {
        return Err(Failure::bad_request("`user` is for keys of the role `user`, and needed there"));
    }
    // All admins are one client.
    let client = if role == Role::Admin { "admin".to_owned() } else { client };
    let bad = |bad: BadName| Failure::bad_request(format!("`label`: {bad}"));
    let label = body.label.as_deref().map(str::parse).transpose().map_err(bad)?;
    if let Some(name) = &body.profile
        && app.interpreter.profiles().by_name(name).is_none()
    {
        return Err(Failure::bad_request(format!("there is no profile `{name}`")));
    }
    let new = NewKey { role, owner: Owner { client, user }, label, profile: body.profile };
    let made = move || app.interpreter.add_key(&caller.0, new);
    let (record, secret) = blocking(made).await?;
    let view = KeyView { secret: Some(secret.reveal().to_owned()), ..record.into() };
    Ok((StatusCode::CREATED, Json(view)))
}

/// Revoke a key.
///
/// It stops working at once.
#[utoipa::path(delete, path = "/api/v1/keys/{key}", operation_id = "revoke_key", tag = "keys", params(("key" = String, Path)),
    responses((status = 204), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(key): Path<String>,
) -> Result<StatusCode, Failure> {
    caller.require_admin(&app)?;
    let key: KeyId = id(&key, "key")?;
    let was_there = blocking(move || {
        app.interpreter.revoke_key(&caller.0, &key).map_err(|error| Failure::internal(&error))
    });
    if was_there.await? { Ok(StatusCode::NO_CONTENT) } else { Err(Failure::not_found("key")) }
}
