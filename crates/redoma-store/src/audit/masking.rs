//! Secrets that people paste into programs, masked before a program or its output is written down for good.
//!
//! Known shapes only (tokens with a prefix of their own, private keys, passwords in addresses, quoted strings that are called
//! a password): a guess at what looks random would also hide hashes, ids and pictures, which an audit is for. Enough of each
//! is kept to tell what it was. One pass, in time that grows with the text and with nothing else.

use std::borrow::Cow;

const MASKED: &str = "[masked]";
/// The longest string that is masked as a password; what is longer and has no end is masked so far.
const LONGEST_VALUE: usize = 4096;

/// Letters that tokens are made of.
#[derive(Debug, Clone, Copy)]
enum Letters {
    Upper,
    Hex,
    Alphanumeric,
    /// And `_`, `-`.
    Url,
}

impl Letters {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Alphanumeric => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-',
        }
    }
}

/// A token that is known by how it begins.
struct Shape {
    prefix: &'static str,
    letters: Letters,
    least: usize,
    most: usize,
}

const fn shape(prefix: &'static str, letters: Letters, least: usize, most: usize) -> Shape {
    Shape { prefix, letters, least, most }
}

const SHAPES: &[Shape] = &[
    // AWS: long-lived and temporary access keys.
    shape("AKIA", Letters::Upper, 16, 16),
    shape("ASIA", Letters::Upper, 16, 16),
    // GitHub.
    shape("ghp_", Letters::Alphanumeric, 30, 255),
    shape("gho_", Letters::Alphanumeric, 30, 255),
    shape("ghu_", Letters::Alphanumeric, 30, 255),
    shape("ghs_", Letters::Alphanumeric, 30, 255),
    shape("ghr_", Letters::Alphanumeric, 30, 255),
    shape("github_pat_", Letters::Url, 22, 255),
    shape("glpat-", Letters::Url, 18, 255),
    // Anthropic and OpenAI. The last is short: what follows must look random, see `is_random`.
    shape("sk-ant-", Letters::Url, 20, 255),
    shape("sk-proj-", Letters::Url, 20, 255),
    shape("sk-", Letters::Url, 20, 255),
    // Slack.
    shape("xoxa-", Letters::Url, 10, 255),
    shape("xoxb-", Letters::Url, 10, 255),
    shape("xoxp-", Letters::Url, 10, 255),
    shape("xoxr-", Letters::Url, 10, 255),
    shape("xoxs-", Letters::Url, 10, 255),
    shape("xapp-", Letters::Url, 10, 255),
    // Google.
    shape("AIza", Letters::Url, 35, 35),
    // Stripe.
    shape("sk_live_", Letters::Alphanumeric, 16, 255),
    shape("sk_test_", Letters::Alphanumeric, 16, 255),
    shape("rk_live_", Letters::Alphanumeric, 16, 255),
    shape("whsec_", Letters::Alphanumeric, 24, 255),
    shape("npm_", Letters::Alphanumeric, 36, 36),
    shape("pypi-AgE", Letters::Url, 40, 512),
    shape("hf_", Letters::Alphanumeric, 30, 64),
    // Our own.
    shape("rdm_", Letters::Hex, 32, 64),
];

/// A quoted string is a secret if it is given to a name that ends so, whatever separates its words.
const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authkey",
    "credential",
    "credentials",
    "connectionstring",
];

/// The text without its secrets.
pub fn mask(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut at, mut copied) = (0, 0);
    let mut out = String::new();
    while at < bytes.len() {
        let Some(found) = secret_at(text, bytes, at) else {
            at += 1;
            continue;
        };
        let start = up_to_letter(text, found.start);
        let end = up_to_letter(text, found.end);
        out.push_str(&text[copied..start]);
        out.push_str(MASKED);
        (at, copied) = (end.max(at + 1), end);
    }
    if copied == 0 && out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The beginning of the text, masked: at most so many bytes, never a part of a letter.
pub(super) fn mask_and_cut(text: &str, most: usize, is_masked: bool) -> (String, bool) {
    // What is masked may begin before the cut and end behind it.
    let looked_at = &text[..text.floor_char_boundary(most.saturating_add(2 * LONGEST_VALUE))];
    let shown = if is_masked { mask(looked_at) } else { Cow::Borrowed(looked_at) };
    let kept = shown.floor_char_boundary(most);
    (shown[..kept].to_owned(), kept < shown.len() || looked_at.len() < text.len())
}

fn up_to_letter(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    text.ceil_char_boundary(at)
}

/// What is to be masked of something that begins here, or of what is said to be a secret here.
fn secret_at(text: &str, bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    match bytes[at] {
        b'=' | b':' => address(bytes, at).or_else(|| assigned(bytes, at)),
        b'-' => private_key(text, at).or_else(|| option(bytes, at)),
        b' ' => authorization(bytes, at),
        b'A' | b'g' | b's' | b'x' | b'r' | b'w' | b'n' | b'p' | b'h' => token(bytes, at),
        b'e' => web_token(bytes, at),
        _ => None,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn before(bytes: &[u8], at: usize) -> Option<u8> {
    at.checked_sub(1).map(|before| bytes[before])
}

fn run(bytes: &[u8], from: usize, most: usize, is_in: impl Fn(u8) -> bool) -> usize {
    bytes[from.min(bytes.len())..].iter().take(most).take_while(|byte| is_in(**byte)).count()
}

fn token(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    if before(bytes, at).is_some_and(is_word) {
        return None;
    }
    let shape = SHAPES.iter().find(|shape| bytes[at..].starts_with(shape.prefix.as_bytes()))?;
    let start = at + shape.prefix.len();
    let length = run(bytes, start, shape.most + 1, |byte| shape.letters.has(byte));
    let (end, is_in_base64) = (start + length, matches!(before(bytes, at), Some(b'/' | b'+')));
    let is_one = match shape.prefix {
        "sk-" => is_random(&bytes[start..end]),
        // Base64 has these letters too.
        "AKIA" | "ASIA" | "AIza" => !is_in_base64 && !bytes.get(end).copied().is_some_and(is_word),
        _ => true,
    };
    ((shape.least..=shape.most).contains(&length) && is_one).then_some(start..end)
}

/// Whether it is no name that people have chosen: those have no capitals and digits in between.
fn is_random(token: &[u8]) -> bool {
    token.iter().any(u8::is_ascii_digit) && token.iter().any(u8::is_ascii_uppercase) || token.len() >= 40
}

/// `eyJ….eyJ….signature`
fn web_token(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    if before(bytes, at).is_some_and(is_word) || !bytes[at..].starts_with(b"eyJ") {
        return None;
    }
    let part = |from| run(bytes, from, usize::MAX, |byte| Letters::Url.has(byte));
    let header = at + part(at);
    if header - at < 10 || bytes.get(header) != Some(&b'.') {
        return None;
    }
    let claims = header + 1 + part(header + 1);
    if !bytes[header + 1..].starts_with(b"eyJ") || bytes.get(claims) != Some(&b'.') {
        return None;
    }
    let signature = claims + 1 + part(claims + 1);
    Some(at + 3..signature)
}

fn private_key(text: &str, at: usize) -> Option<std::ops::Range<usize>> {
    const BEGIN: &str = "-----BEGIN ";
    const KEY: &str = "PRIVATE KEY-----";
    let rest = text.as_bytes()[at..].strip_prefix(BEGIN.as_bytes())?;
    let start = rest
        .iter()
        .take(40)
        .collect::<Vec<_>>()
        .windows(KEY.len())
        .position(|window| window.iter().copied().copied().eq(KEY.bytes()))?;
    let start = at + BEGIN.len() + start + KEY.len();
    let end = text[start..].find("-----END ").map_or(text.len(), |end| start + end);
    Some(start..end)
}

/// `scheme://user:password@host`, seen from its first colon.
fn address(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    const LONGEST: usize = 512;
    let user = at + 3;
    if !bytes[at..].starts_with(b"://") {
        return None;
    }
    let is_in = |byte: u8| !byte.is_ascii_whitespace() && !b"/@\"'`<>".contains(&byte);
    let end = user + run(bytes, user, LONGEST, is_in);
    let password = user + bytes.get(user..end)?.iter().position(|byte| *byte == b':')? + 1;
    let is_template = bytes.get(password).is_some_and(|byte| b"{$<%".contains(byte));
    (bytes.get(end) == Some(&b'@') && password < end && !is_template).then_some(password..end)
}

/// Whether the name that ends here is that of a secret.
fn is_secret_name(bytes: &[u8], end: usize) -> bool {
    const LONGEST: usize = 20;
    let mut name = [0_u8; LONGEST];
    let mut length = 0;
    for byte in bytes[..end].iter().rev().take(2 * LONGEST).take_while(|byte| is_word(**byte)) {
        if byte.is_ascii_alphanumeric() && length < LONGEST {
            name[length] = byte.to_ascii_lowercase();
            length += 1;
        }
    }
    let name = &mut name[..length];
    name.reverse();
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret.as_bytes()))
}

/// `password = "…"`, `"token": "…"`, `secrets['api_key'] = '…'`, `PASSWORD=…`; seen from the sign.
fn assigned(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let skipped = bytes[..at].iter().rev().take(4).take_while(|byte| b" \"'])".contains(byte)).count();
    let name_end = at - skipped;
    if !is_secret_name(bytes, name_end) {
        return None;
    }
    let mut start = at + 1;
    // Also `:=`, `=>`, and a type between.
    start += run(bytes, start, 2, |byte| byte == b'=' || byte == b'>');
    if bytes[at] == b'=' && bytes.get(at + 1) == Some(&b'=') {
        return None;
    }
    let sign_end = start;
    start += run(bytes, start, 16, |byte| byte == b' ');
    start += run(bytes, start, 2, |byte| b"bBrRfFuU".contains(&byte)) * usize::from(is_prefix(bytes, start));
    match bytes.get(start) {
        Some(quote @ (b'"' | b'\'' | b'`')) => {
            start += run(bytes, start, 3, |byte| byte == *quote);
            let end = start + run(bytes, start, LONGEST_VALUE, |byte| byte != *quote && byte != b'\n');
            let is_template = bytes.get(start).is_some_and(|byte| b"{$<%".contains(byte));
            (end - start >= 4 && !is_template).then_some(start..end)
        }
        // As shells and .env files have it: capitals, and nothing between.
        Some(_) if skipped == 0 && sign_end == start && bytes[at] == b'=' => {
            let length = bytes[..name_end].iter().rev().take(64).take_while(|byte| is_word(**byte)).count();
            let name = &bytes[name_end - length..name_end];
            let is_shouted = !name.iter().any(u8::is_ascii_lowercase);
            let is_option = name.starts_with(b"--");
            (is_shouted || is_option).then(|| bare_value(bytes, start)).flatten()
        }
        _ => None,
    }
}

fn is_prefix(bytes: &[u8], at: usize) -> bool {
    let letters = run(bytes, at, 3, |byte| byte.is_ascii_alphabetic());
    letters <= 2 && matches!(bytes.get(at + letters), Some(b'"' | b'\''))
}

fn bare_value(bytes: &[u8], start: usize) -> Option<std::ops::Range<usize>> {
    let is_in = |byte: u8| !byte.is_ascii_whitespace() && !b"\"'`;|&<>(){}[]$,\\".contains(&byte);
    let end = start + run(bytes, start, LONGEST_VALUE, is_in);
    let is_call = matches!(bytes.get(end), Some(b'(' | b'[' | b'{'));
    (end - start >= 4 && !is_call).then_some(start..end)
}

/// `--password hunter2`, seen from the first dash.
fn option(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    if before(bytes, at).is_some_and(|byte| !byte.is_ascii_whitespace()) || !bytes[at..].starts_with(b"--") {
        return None;
    }
    let end = at + run(bytes, at, 64, is_word);
    if bytes.get(end) != Some(&b' ') || !is_secret_name(bytes, end) {
        return None;
    }
    bare_value(bytes, end + 1).filter(|value| bytes[value.start] != b'-')
}

/// `Bearer …` and `Authorization: Basic …`, seen from the blank.
fn authorization(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let ends_with = |word: &[u8], end: usize| {
        end.checked_sub(word.len()).is_some_and(|start| bytes[start..end].eq_ignore_ascii_case(word))
    };
    let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"._~+/=-".contains(&byte);
    let (start, least) = if ends_with(b"bearer", at) {
        (at + 1, 16)
    } else if ends_with(b"basic", at) && before_is_authorization(bytes, at - 5) {
        (at + 1, 6)
    } else {
        return None;
    };
    let length = run(bytes, start, LONGEST_VALUE, is_in);
    let is_token = bytes[start..start + length].iter().any(u8::is_ascii_digit) || least < 16;
    (length >= least && is_token).then_some(start..start + length)
}

fn before_is_authorization(bytes: &[u8], end: usize) -> bool {
    let name = bytes[..end].trim_ascii_end();
    let name = name.len() - name.iter().rev().take(4).take_while(|byte| b" :\"'=,".contains(byte)).count();
    let word = b"authorization";
    name.checked_sub(word.len()).is_some_and(|start| bytes[start..name].eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taken apart, so that nobody who looks for leaked secrets finds one here.
    fn join(parts: &[&str]) -> String {
        parts.concat()
    }

    #[test]
    fn known_shapes_are_masked_and_can_still_be_told() {
        let z = |count| "aB3".repeat(count).chars().take(count).collect::<String>();
        for (prefix, tail) in [
            ("AKIA", "IOSFODNN7EXAMPLE".to_owned()),
            ("ghp_", z(36)),
            ("github_pat_", z(40)),
            ("glpat-", z(20)),
            ("sk-ant-", format!("api03-{}", z(40))),
            ("sk-proj-", z(48)),
            ("sk-", z(48)),
            ("xoxb-", format!("123456789012-{}", z(24))),
            ("AIza", z(35)),
            ("sk_live_", z(24)),
            ("npm_", z(36)),
            ("pypi-AgE", z(60)),
            ("hf_", z(34)),
            ("rdm_", "0a".repeat(32)),
        ] {
            for (before, after) in
                [("key = '", "'"), ("", ""), ("x=", "\n"), ("é ", " é"), ("https://x/?k=", "&b=1")]
            {
                let text = format!("{before}{prefix}{tail}{after}");
                assert_eq!(mask(&text), format!("{before}{prefix}[masked]{after}"), "{text}");
            }
        }
    }

    #[test]
    fn tokens_keys_and_passwords_are_masked_where_they_are_said_to_be_some() {
        let jwt = join(&[
            "eyJhbGciOiJIUzI1NiJ9",
            ".",
            "eyJzdWIiOiIxMjM0NTY3ODkwIn0",
            ".",
            "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        ]);
        for (text, masked) in [
            (format!("t = '{jwt}'"), "t = 'eyJ[masked]'"),
            (format!("Authorization: Bearer {jwt}"), "Authorization: Bearer [masked]"),
            (
                "headers={'Authorization': 'Bearer abcdef0123456789abcdef'}".into(),
                "headers={'Authorization': 'Bearer [masked]'}",
            ),
            ("-H 'authorization: basic dXNlcjpwYXNz'".into(), "-H 'authorization: basic [masked]'"),
            ("password = \"hunter22\"".into(), "password = \"[masked]\""),
            ("db_password='héllo wörld'".into(), "db_password='[masked]'"),
            (
                "{\"client_secret\": \"abcd1234\", \"x\": 1}".into(),
                "{\"client_secret\": \"[masked]\", \"x\": 1}",
            ),
            ("config['api-key'] = b'abcd1234'".into(), "config['api-key'] = b'[masked]'"),
            (
                "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY".into(),
                "export AWS_SECRET_ACCESS_KEY=[masked]",
            ),
            ("mysql --password=hunter22 -u root".into(), "mysql --password=[masked] -u root"),
            ("tool --token hunter22 x".into(), "tool --token [masked] x"),
            ("postgres://ana:s3cr3t@db:5432/x".into(), "postgres://ana:[masked]@db:5432/x"),
            ("passwd = \"\"\"abc\"def\"\"\"".into(), "passwd = \"\"\"abc\"def\"\"\""),
            ("const apiKey: string = 'abcd1234'".into(), "const apiKey: string = 'abcd1234'"),
            ("apiKey: 'abcd1234',".into(), "apiKey: '[masked]',"),
        ] {
            assert_eq!(mask(&text), masked);
        }
        let key = join(&[
            "-----BEGIN RSA PRIV",
            "ATE KEY-----\nMIIE\nabc=\n-----END RSA PRIV",
            "ATE KEY-----\nnext",
        ]);
        let masked = mask(&key);
        assert!(
            masked.contains("BEGIN RSA")
                && masked.contains("[masked]-----END RSA")
                && masked.ends_with("next")
        );
        assert!(!masked.contains("MIIE"));
        let cut = &key[..45];
        assert!(!mask(cut).contains("MIIE"), "a key without an end");
    }

    #[test]
    fn ordinary_code_stays_as_it_is() {
        for text in [
            "sha256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'",
            "id = '123e4567-e89b-12d3-a456-426614174000'",
            "img = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='",
            "import sklearn; from sk-learn-contrib-something-long import x",
            "class='sk-toggleable__control sk-estimator-doc-link-with-a-long-name'",
            "token = next(tokens)\nif token == 'identifier': pass",
            "password = getpass.getpass()\npassword = os.environ['PASSWORD']\ncheck(password=password)",
            "tokenizer = 'bert-base-uncased'; max_tokens = 1000; token_type: 'bearer'",
            "print('the bearer of good news'); basic = 'Basic English'",
            "url = 'https://example.org:8080/path?x=1'; 'http://user@host/'",
            "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----",
            "a == b; x = y if password == '' else z",
            "f'postgres://{user}:{password}@{host}/db'",
            "git commit 3f786850e387550fdab836ed7e6dc881de23001b",
            "npm_config_cache=/tmp; hf_hub_download('x'); rdm_x",
            "x",
            "",
        ] {
            assert_eq!(mask(text), text);
            assert!(matches!(mask(text), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn a_cut_never_splits_a_letter_or_shows_half_a_secret() {
        let secret = join(&["gh", "p_", &"aB3x".repeat(9)]);
        let text = format!("ééé {secret} after");
        for most in 0..text.len() {
            let (shown, is_cut) = mask_and_cut(&text, most, true);
            assert!(shown.len() <= most, "{most}: {shown}");
            assert_eq!(is_cut, most < "ééé ghp_[masked] after".len());
            assert!(!shown.contains("aB3x"), "{most}: {shown}");
        }
        assert_eq!(mask_and_cut("abc", 3, true), ("abc".to_owned(), false));
    }

    /// Each would take hours if every letter were looked at again from every letter before it.
    #[test]
    fn hostile_text_takes_no_longer_than_other() {
        let start = std::time::Instant::now();
        for piece in [
            "eyJ",
            "eyJaaaaaaa.",
            "sk-",
            "password=",
            "password=\"",
            "://a:",
            "-----BEGIN PRIVATE KEY-----",
            "bearer ",
            "é",
            "--token ",
            "AKIA",
            "basic ",
            "secret:'",
        ] {
            let text = piece.repeat((2 << 20) / piece.len());
            let masked = mask(&text);
            assert!(masked.len() <= text.len() * 4);
        }
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }

    #[test]
    fn any_text_can_be_masked() {
        let pieces = [
            "password",
            "=",
            ":",
            "\"",
            "'",
            "é",
            "\u{202e}",
            " ",
            "\n",
            "sk-",
            "eyJ",
            ".",
            "-----BEGIN ",
            "PRIVATE KEY-----",
            "://",
            "@",
            "--",
            "AKIA",
            "aB3",
            "Bearer ",
            "𝒳",
            "token",
        ];
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[usize::try_from(state >> 33).unwrap() % pieces.len()]);
            }
            let masked = mask(&text);
            let again = mask(&masked);
            assert!(again.len() <= masked.len() + 64);
        }
    }
}
