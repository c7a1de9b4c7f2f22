//! What runs are held to: the profiles, whose is which, and a new configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use redoma_engine::interpreter::{Because, GovernedProfile};
use redoma_model::{KeyId, Principal, Role};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::asked::{Asked, Question};
use super::{blocking, id};
use crate::auth::Caller;
use crate::failure::{Failure, Problem};
use crate::reload::Reloaded;
use crate::{App, Versions};

#[derive(Debug, Serialize, ToSchema)]
pub struct ProfileList {
    profiles: Vec<ProfileView>,
}

/// A profile, as far as it concerns those who use it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProfileView {
    name: String,
    description: String,
    /// The languages that programs may be in.
    languages: Vec<String>,
    /// Python modules that may be imported beside the standard library; absent if all that there are may.
    #[serde(skip_serializing_if = "Option::is_none")]
    libraries: Option<Vec<LibraryView>>,
    /// `none`: programs reach nothing but their files.
    network: &'static str,
    /// What a model is to know about working here.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    /// By name, as in the configuration: `wall`, `memory`, …
    #[schema(value_type = Object)]
    limits: serde_json::Value,
}

/// A module that may be imported.
#[derive(Debug, Serialize, ToSchema)]
pub struct LibraryView {
    name: String,
    /// As it is installed; absent if it is not.
    version: Option<String>,
}

impl ProfileView {
    fn new(governed: &GovernedProfile, versions: &Versions) -> Self {
        let profile = &governed.profile;
        let library = |name: &String| LibraryView {
            name: name.clone(),
            version: versions.libraries.get(name).cloned(),
        };
        Self {
            name: profile.name.clone(),
            description: profile.description.clone(),
            languages: profile.languages.clone(),
            libraries: profile.libraries.listed().map(|names| names.iter().map(library).collect()),
            network: "none",
            prompt: profile.prompt.clone(),
            limits: serde_json::to_value(&profile.limits).unwrap_or_default(),
        }
    }
}

/// The profiles that you may choose.
#[utoipa::path(get, path = "/api/v1/profiles", operation_id = "list_profiles", tag = "profiles",
    responses((status = 200, body = ProfileList)))]
pub async fn list(State(app): State<Arc<App>>, Caller(principal): Caller) -> Json<ProfileList> {
    let book = app.interpreter.profiles();
    let may_choose =
        |governed: &&Arc<GovernedProfile>| book.choose(&principal, Some(&governed.profile.name)).is_ok();
    Json(ProfileList {
        profiles: book
            .all()
            .filter(may_choose)
            .map(|governed| ProfileView::new(governed, &app.config.versions))
            .collect(),
    })
}

/// A profile with everything that it says.
#[derive(Debug, Serialize, ToSchema)]
pub struct EffectiveProfile {
    profile: String,
    /// Why it is this one: `assignment`, `key` or `default`.
    because: &'static str,
    /// All values by name, as in the configuration.
    values: BTreeMap<String, EffectiveValue>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct EffectiveValue {
    #[schema(value_type = Object)]
    value: serde_json::Value,
    /// Where it was said. For admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

impl EffectiveProfile {
    fn new(governed: &GovernedProfile, because: Because, is_admin: bool) -> Self {
        let mut values = BTreeMap::new();
        flatten(serde_json::to_value(&governed.profile).unwrap_or_default(), "", &mut values);
        let value = |(key, value): (String, serde_json::Value)| {
            let from = governed.origins.get(&key).filter(|_| is_admin).cloned();
            (key, EffectiveValue { value, from })
        };
        let because = match because {
            Because::OfAssignment => "assignment",
            Because::OfKey => "key",
            Because::ItIsTheDefault => "default",
        };
        let profile = governed.profile.name.clone();
        Self { profile, because, values: values.into_iter().map(value).collect() }
    }
}

/// All values of an object by their names with dots. A list is one value; what is not set is left out.
fn flatten(value: serde_json::Value, path: &str, into: &mut BTreeMap<String, serde_json::Value>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(value, &path, into);
            }
        }
        serde_json::Value::Null => {}
        value => {
            into.insert(path.to_owned(), value);
        }
    }
}

/// The profile that you have where you name none.
#[utoipa::path(get, path = "/api/v1/profile", operation_id = "get_profile", tag = "profiles",
    responses((status = 200, body = EffectiveProfile), (status = 403, body = Problem)))]
pub async fn own(
    State(app): State<Arc<App>>,
    Caller(principal): Caller,
) -> Result<Json<EffectiveProfile>, Failure> {
    let book = app.interpreter.profiles();
    let (governed, because) = book.of(&principal)?;
    Ok(Json(EffectiveProfile::new(governed, because, principal.role == Role::Admin)))
}

#[derive(Debug, Deserialize)]
pub struct ForUser {
    user: Option<String>,
}

impl Question for ForUser {
    const NAMES: &'static [&'static str] = &["user"];
}

/// The profile that a key's holder has.
///
/// With where each value was said. Takes an admin key.
#[utoipa::path(get, path = "/api/v1/keys/{key}/profile", operation_id = "get_key_profile", tag = "profiles",
    params(("key" = String, Path),
        ("user" = Option<String>, Query, description = "The user that a client's key is used for.")),
    responses((status = 200, body = EffectiveProfile), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn of_key(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(key): Path<String>,
    Asked(named, _): Asked<ForUser>,
) -> Result<Json<EffectiveProfile>, Failure> {
    caller.require_admin(&app)?;
    let key: KeyId = id(&key, "key")?;
    let interpreter = Arc::clone(&app.interpreter);
    let keys = blocking(move || interpreter.keys().map_err(|error| Failure::internal(&error))).await?;
    let record = keys.into_iter().find(|record| record.id == key && record.revoked_at.is_none());
    let record = record.ok_or_else(|| Failure::not_found("key"))?;
    let mut owner = record.owner;
    if record.role != Role::User {
        owner.user = named.user;
    }
    let holder = Principal {
        profile: record.profile,
        key: Some(key),
        ..Principal::without_key(record.role, owner, record.role == Role::User)
    };
    let book = app.interpreter.profiles();
    let (governed, because) = book.of(&holder)?;
    Ok(Json(EffectiveProfile::new(governed, because, true)))
}

/// Read the configuration again.
///
/// Profiles and who has which count at once, for runs that begin from now on. A file with a mistake in it changes nothing.
/// Takes an admin key.
#[utoipa::path(post, path = "/api/v1/admin/reload", operation_id = "reload_configuration", tag = "profiles",
    responses((status = 200, body = Reloaded), (status = 403, body = Problem), (status = 422, body = Problem)))]
pub async fn reload(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<Reloaded>, Failure> {
    caller.require_admin(&app)?;
    let reloaded = blocking(move || {
        let result = app.reload(Some(&caller.0));
        result.map_err(|error| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_configuration", error))
    });
    Ok(Json(reloaded.await?))
}
