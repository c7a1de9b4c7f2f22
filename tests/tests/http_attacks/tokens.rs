//! Tokens that are forged, stale, or about nobody.

use serde_json::{Value, json};

use crate::World;
use crate::identity::send_all;
use crate::signer::{Signer, claims, header, now};

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_forged_or_stale_token_is_nobody() {
    let Some(signer) = Signer::new() else { return };
    let world = World::with("", |command| command.arg("--librechat-jwt-key").arg(signer.public_key()));
    let server = &world.server;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = claims("ana");
        change(&mut claims);
        claims
    };
    let now = now();
    let algorithm = |name: &str| json!({ "alg": name, "typ": "JWT" });
    let tokens = [
        ("no algorithm", json!({ "header": algorithm("none"), "claims": claims("ana"), "by": null })),
        ("None", json!({ "header": algorithm("None"), "claims": claims("ana"), "by": null })),
        ("no signature", json!({ "header": header(), "claims": claims("ana"), "by": null })),
        (
            "the public key as a secret",
            json!({ "header": algorithm("HS256"), "claims": claims("ana"), "by": "hmac" }),
        ),
        (
            "the public key as a secret, said to be EdDSA",
            json!({ "header": header(), "claims": claims("ana"), "by": "hmac" }),
        ),
        ("another key", json!({ "header": header(), "claims": claims("ana"), "by": "other" })),
        (
            "another key's id and key",
            json!({ "header": { "alg": "EdDSA", "kid": "../../dev/null" }, "claims": claims("ana"), "by": "other" }),
        ),
        (
            "a key of its own",
            json!({ "header": { "alg": "EdDSA", "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/",
            "jwk": { "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" } }, "claims": claims("ana"), "by": "other" }),
        ),
        ("RS256", json!({ "header": algorithm("RS256"), "claims": claims("ana"), "by": "real" })),
        (
            "expired",
            json!({ "header": header(), "claims": with(&|claims| { claims["iat"] = (now - 900).into(); claims["exp"] = (now - 600).into(); }), "by": "real" }),
        ),
        (
            "not yet",
            json!({ "header": header(), "claims": with(&|claims| claims["nbf"] = (now + 250).into()), "by": "real" }),
        ),
        (
            "for ever",
            json!({ "header": header(), "claims": with(&|claims| claims["exp"] = (now + 400_000_000).into()), "by": "real" }),
        ),
        (
            "without an end",
            json!({ "header": header(), "claims": with(&|claims| { claims.as_object_mut().unwrap().remove("exp"); }), "by": "real" }),
        ),
        (
            "an end that is text",
            json!({ "header": header(), "claims": with(&|claims| claims["exp"] = "never".into()), "by": "real" }),
        ),
        (
            "for somebody else",
            json!({ "header": header(), "claims": with(&|claims| claims["aud"] = "other".into()), "by": "real" }),
        ),
        (
            "for nobody",
            json!({ "header": header(), "claims": with(&|claims| { claims.as_object_mut().unwrap().remove("aud"); }), "by": "real" }),
        ),
        (
            "by somebody else",
            json!({ "header": header(), "claims": with(&|claims| claims["iss"] = "other".into()), "by": "real" }),
        ),
        (
            "by nobody",
            json!({ "header": header(), "claims": with(&|claims| { claims.as_object_mut().unwrap().remove("iss"); }), "by": "real" }),
        ),
        (
            "about nobody",
            json!({ "header": header(), "claims": with(&|claims| claims["sub"] = "".into()), "by": "real" }),
        ),
        (
            "about spaces",
            json!({ "header": header(), "claims": with(&|claims| claims["sub"] = "  ".into()), "by": "real" }),
        ),
        (
            "about control characters",
            json!({ "header": header(), "claims": with(&|claims| claims["sub"] = "a\r\nb".into()), "by": "real" }),
        ),
        (
            "about a very long name",
            json!({ "header": header(), "claims": with(&|claims| claims["sub"] = "a".repeat(5000).into()), "by": "real" }),
        ),
        (
            "about a list",
            json!({ "header": header(), "claims": with(&|claims| claims["sub"] = json!(["ana"])), "by": "real" }),
        ),
        (
            "with an impossible tenant",
            json!({ "header": header(), "claims": with(&|claims| claims["tenant_id"] = "a\nb".into()), "by": "real" }),
        ),
        (
            "with a very long tenant",
            json!({ "header": header(), "claims": with(&|claims| claims["tenant_id"] = "t".repeat(300).into()), "by": "real" }),
        ),
    ];
    let forged = signer.sign(&tokens.clone().map(|(_, token)| token));
    let good = signer.token("ana", None);
    let mut bad: Vec<(String, String)> =
        tokens.iter().map(|(what, _)| (*what).to_owned()).zip(forged).collect();
    bad.push(("cut off".into(), good[..good.len() - 4].to_owned()));
    bad.push(("no third part".into(), good.rsplit_once('.').unwrap().0.to_owned()));
    bad.push(("dots".into(), "ey..".into()));
    let parts: Vec<_> = good.split('.').collect();
    bad.push(("another user's claims".into(), {
        let ben = signer.token("ben", None);
        [parts[0], ben.split('.').nth(1).unwrap(), parts[2]].join(".")
    }));
    let requests = bad.into_iter().map(|(what, token)| {
        (what, server.get("/api/v1/sessions").header("Authorization", &format!("Bearer {token}")))
    });
    for (what, answer) in send_all(requests.collect()) {
        assert_eq!(answer.status, 401, "{what}: {}", answer.text());
    }
    let authorized = server.get("/api/v1/sessions").header("Authorization", &format!("Bearer {good}")).send();
    assert_eq!(authorized.status, 200);
    assert!(!server.log().contains(parts[2]), "a token is in the log");
    // Names that are strange, but names.
    for user in [
        "../../x",
        "/etc/passwd",
        "_nobody",
        ".incoming",
        "ana/../ben",
        "名前",
        "a b",
        "%2e%2e",
        "'; DROP TABLE files;--",
    ] {
        let token = signer.token(user, None);
        let form = server.post("/v1/upload").header("Authorization", &format!("Bearer {token}"));
        let answer = form.form(&[], &[("a.txt", b"theirs")]).send();
        assert_eq!(answer.status, 200, "{user}: {}", answer.text());
    }
    world.assert_sound();
}
