//! Bearer tokens. In: Kubernetes' token file, or a service account. Out: who a token stands for.
//!
//! Tokens of service accounts are signed JSON web tokens with the claims that Kubernetes writes; the key is the server's own. Pure but
//! for the key, which is drawn once.

use super::User;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Whom tokens are for unless they say otherwise.
pub const AUDIENCE: &str = "https://kubernetes.default.svc";

/// Users by their tokens.
#[derive(Clone, Default)]
pub struct Tokens(HashMap<String, Arc<User>>);

/// What is wrong with a token file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenFileError {
    /// A line has too few columns.
    #[error(
        "line {line}: a token, a user name and a uid are needed, found {found} columns; write token,user,uid,\"group1,group2\""
    )]
    Columns {
        /// Which line.
        line: usize,
        /// How many columns it has.
        found: usize,
    },
    /// A token is empty.
    #[error("line {line}: the token is empty")]
    EmptyToken {
        /// Which line.
        line: usize,
    },
    /// Two lines have the same token.
    #[error("line {line}: the token of another line")]
    Twice {
        /// The later line.
        line: usize,
    },
}

impl Tokens {
    /// Reads lines of `token,user,uid,"group1,group2"`; the groups may be left out.
    pub fn parse(text: &str) -> Result<Tokens, TokenFileError> {
        let mut tokens = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line);
            let number = i + 1;
            let [token, user, uid, rest @ ..] = &columns[..] else {
                return Err(TokenFileError::Columns { line: number, found: columns.len() });
            };
            if token.is_empty() {
                return Err(TokenFileError::EmptyToken { line: number });
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty()).map(str::to_string);
            let user = User { uid: uid.clone(), ..User::known(user.as_str(), groups) };
            if tokens.insert(token.clone(), Arc::new(user)).is_some() {
                return Err(TokenFileError::Twice { line: number });
            }
        }
        Ok(Tokens(tokens))
    }

    /// Whose token it is.
    pub fn find(&self, token: &str) -> Option<&Arc<User>> {
        // The map compares whole tokens only after their hashes, which are keyed at random, agree.
        self.0.get(token)
    }
}

/// Columns of one line of comma separated values; quotes keep commas together and are doubled inside.
fn columns(line: &str) -> Vec<String> {
    let mut columns = vec![String::new()];
    let mut in_quotes = false;
    let mut letters = line.chars().peekable();
    while let Some(c) = letters.next() {
        let column = columns.last_mut().expect("there is always a column");
        match c {
            '"' if in_quotes && letters.peek() == Some(&'"') => {
                letters.next();
                column.push('"');
            }
            '"' => in_quotes = !in_quotes,
            ',' if !in_quotes => columns.push(String::new()),
            c => column.push(c),
        }
    }
    columns.iter().map(|c| c.trim().to_string()).collect()
}

/// What a service account's token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Namespace of the account.
    pub namespace: String,
    /// Name of the account.
    pub account: String,
    /// Uid of the account: a token ends with it.
    pub uid: String,
    /// The object whose end is the token's too: kind in small letters, name, uid.
    pub bound: Option<(String, String, String)>,
    /// For whom it is.
    pub audiences: Vec<String>,
    /// From when, in seconds since 1970.
    pub issued: i64,
    /// Until when.
    pub expires: i64,
    /// The token's own name.
    pub id: String,
}

impl Claims {
    /// The user that it stands for.
    pub fn user(&self) -> User {
        let mut user =
            User { uid: self.uid.clone(), ..User::service_account(&self.namespace, &self.account) };
        let prefix = "authentication.kubernetes.io";
        user.extra.insert(format!("{prefix}/credential-id"), vec![format!("JTI={}", self.id)]);
        if let Some((kind, name, uid)) =
            self.bound.as_ref().filter(|(kind, ..)| kind == "pod" || kind == "node")
        {
            user.extra.insert(format!("{prefix}/{kind}-name"), vec![name.clone()]);
            user.extra.insert(format!("{prefix}/{kind}-uid"), vec![uid.clone()]);
        }
        user
    }

    fn to_json(&self) -> Value {
        let mut about = json!({
            "namespace": self.namespace, "serviceaccount": {"name": self.account, "uid": self.uid},
        });
        if let Some((kind, name, uid)) = &self.bound {
            about[kind] = json!({"name": name, "uid": uid});
        }
        json!({
            "aud": self.audiences, "exp": self.expires, "iat": self.issued, "iss": AUDIENCE, "jti": self.id,
            "kubernetes.io": about, "nbf": self.issued,
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.account),
        })
    }

    fn from_json(claims: &Value) -> Option<Claims> {
        let text = |v: &Value| v.as_str().map(str::to_string);
        let about = &claims["kubernetes.io"];
        let bound = ["pod", "secret", "node"].into_iter().find_map(|kind| {
            let object = about.get(kind)?;
            Some((kind.to_string(), text(&object["name"])?, text(&object["uid"])?))
        });
        Some(Claims {
            namespace: text(&about["namespace"])?,
            account: text(&about["serviceaccount"]["name"])?,
            uid: text(&about["serviceaccount"]["uid"])?,
            bound,
            audiences: crate::meta::strings(claims.get("aud")),
            issued: claims["iat"].as_i64()?,
            expires: claims["exp"].as_i64()?,
            id: text(&claims["jti"])?,
        })
    }
}

/// Signs tokens and knows its own again.
pub struct Signer(hmac::Key);

const HEAD: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

impl Signer {
    /// With a new key.
    pub fn new() -> Signer {
        let bytes = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        let bytes: Vec<u8> = bytes.iter().flat_map(|u| *u.as_bytes()).collect();
        Signer(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    /// With a key that is kept elsewhere.
    pub fn with(key: &str) -> Signer {
        Signer(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))
    }

    /// A token.
    pub fn sign(&self, claims: &Claims) -> String {
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(HEAD),
            URL_SAFE_NO_PAD.encode(claims.to_json().to_string())
        );
        let signature = hmac::sign(&self.0, text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// What a token says, if it is ours and its time has come and not gone.
    pub fn read(&self, token: &str, now: i64) -> Option<Claims> {
        let (text, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, text.as_bytes(), &signature).ok()?;
        let (_, body) = text.split_once('.')?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        Claims::from_json(&claims).filter(|c| c.issued <= now && now < c.expires)
    }
}

impl Default for Signer {
    fn default() -> Signer {
        Signer::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, token: &str, expected: &str) {
        let found = Tokens::parse(text)
            .map(|t| t.find(token).map(|u| format!("{} {} {}", u.name, u.uid, u.groups.join(" "))));
        let shown = match found {
            Ok(Some(user)) => user,
            Ok(None) => "nobody".into(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn token_files() {
        check("t,alice,7,\"a,b\"", "t", "alice 7 a b system:authenticated");
        check("t,alice,7", "t", "alice 7 system:authenticated");
        check("t,alice,7,one", "t", "alice 7 one system:authenticated");
        check("# people\n\nt , alice , 7 , \"a, b\"\nu,bob,8\n", "u", "bob 8 system:authenticated");
        check("t,root,1,system:masters", "t", "root 1 system:masters system:authenticated");
        check("t,alice,7", "x", "nobody");
        check("t,alice,7", "", "nobody");
        check(
            "t,alice",
            "t",
            "line 1: a token, a user name and a uid are needed, found 2 columns; write token,user,uid,\"group1,group2\"",
        );
        check("t,a,1\n,bob,8", "t", "line 2: the token is empty");
        check("t,a,1\nt,b,2", "t", "line 2: the token of another line");
        check("t,\"a\"\"b\",1", "t", "a\"b 1 system:authenticated");
    }

    fn claims() -> Claims {
        Claims {
            namespace: "a".into(),
            account: "robot".into(),
            uid: "u".into(),
            bound: Some(("pod".into(), "p".into(), "pu".into())),
            audiences: vec![AUDIENCE.into()],
            issued: 100,
            expires: 200,
            id: "j".into(),
        }
    }

    #[test]
    fn a_token_is_known_by_who_signed_it_and_only_for_its_time() {
        let (signer, other) = (Signer::new(), Signer::new());
        let token = signer.sign(&claims());
        assert_eq!(signer.read(&token, 150), Some(claims()));
        assert_eq!(signer.read(&token, 99), None);
        assert_eq!(signer.read(&token, 200), None);
        assert_eq!(other.read(&token, 150), None);
        // A key that was kept knows its tokens again.
        let kept = Signer::with("key").sign(&claims());
        assert_eq!(Signer::with("key").read(&kept, 150), Some(claims()));
        assert_eq!(Signer::with("other").read(&kept, 150), None);
        // Nobody else's algorithm is looked at, least of all none.
        let body = token.split('.').nth(1).unwrap();
        let unsigned = format!("{}.{body}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
        assert_eq!(signer.read(&unsigned, 150), None);
        let user = claims().user();
        assert_eq!(user.name, "system:serviceaccount:a:robot");
        assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
    }

    proptest! {
        #[test]
        fn no_text_is_a_token(text in "\\PC{0,80}") {
            prop_assert_eq!(Signer::new().read(&text, 150), None);
            let _ = Tokens::parse(&text);
        }

        #[test]
        fn a_changed_token_is_none(at in 0usize..200, with in "[A-Za-z0-9]") {
            let signer = Signer::new();
            let mut token = signer.sign(&claims()).into_bytes();
            let at = at % token.len();
            prop_assume!(token[at] != with.as_bytes()[0]);
            token[at] = with.as_bytes()[0];
            let changed = String::from_utf8(token).unwrap();
            // The last letter has bits that mean nothing.
            prop_assume!(at + 1 < changed.len());
            prop_assert_eq!(signer.read(&changed, 150), None);
        }
    }
}
