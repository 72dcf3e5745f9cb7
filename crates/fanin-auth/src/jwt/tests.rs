//! Known attacks on tokens, and what keys and caches do. Tokens are signed here with `ring`; `tests/pyjwt.rs` has those of others.

use fanin_config::{Algorithm, AuthKind};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use super::*;

const NOW: f64 = 1_000_000.0;
const CLAIMS: &str = r#"{"iss":"i","aud":"a","sub":"ann","exp":1000100}"#;

fn encoded(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        Signer(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).expect("a key"))
    }

    fn set(&self, id: &str) -> String {
        let point = self.0.public_key().as_ref();
        let (x, y) = (encoded(&point[1..33]), encoded(&point[33..]));
        format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"{id}","use":"sig","x":"{x}","y":"{y}"}}]}}"#)
    }

    fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", encoded(signature))
    }

    fn token(&self) -> String {
        self.sign(r#"{"alg":"ES256","kid":"k"}"#, CLAIMS)
    }
}

fn auth() -> Auth {
    Auth { issuers: vec!["i".into()], audiences: vec!["a".into()], ..Auth::new(AuthKind::Jwt) }
}

/// Tokens of this key, from a file.
fn jwt(signer: &Signer, auth: Auth) -> Jwt {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), signer.set("k")).expect("written");
    let auth = Auth { keys: vec![file.path().to_path_buf()], ..auth };
    Jwt::load(&auth, None, Default::default).unwrap_or_else(|why| panic!("{why}"))
}

fn outcome(jwt: &Jwt, token: &str) -> String {
    match jwt.check_at(token, Instant::now(), NOW, false) {
        Checked::Valid(identity) => format!("valid: {}", identity.principal.as_deref().unwrap_or("nobody")),
        Checked::Refused(refusal) => {
            assert!(token.len() < 8 || !refusal.detail.contains(&token[..8]), "{}", refusal.detail);
            format!("{}: {}", refusal.reason.name(), refusal.detail)
        }
        Checked::Wait(fetch) => format!("wait for {fetch}"),
    }
}

#[test]
fn known_attacks_are_refused() {
    let (signer, other) = (Signer::new(), Signer::new());
    let jwt = jwt(&signer, Auth { algorithms: vec![Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA], ..auth() });
    let good = signer.token();
    assert_eq!(outcome(&jwt, &good), "valid: ann");
    let parts: Vec<&str> = good.split('.').collect();
    let (claims, signature) = (parts[1], parts[2]);
    let header = |text: &str| format!("{}.{claims}.{signature}", encoded(text));
    let mac = |header: &str, secret: &[u8]| {
        let signed = format!("{}.{claims}", encoded(header));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        format!("{signed}.{}", encoded(tag))
    };
    let point = signer.0.public_key().as_ref();
    let jwk = other.set("k");
    let jwk = jwk.trim_start_matches("{\"keys\":[").trim_end_matches("]}");
    let high = |at: usize, text: &str| {
        let mut bytes = base64url(text.as_bytes()).expect("base64url");
        bytes[at] ^= 1;
        encoded(bytes)
    };
    let zeros = encoded([0; 64]);
    for (what, token, why) in [
        ("no algorithm", format!("{}.{claims}.", encoded(r#"{"alg":"none"}"#)), "algorithm is not accepted"),
        ("none in capitals", format!("{}.{claims}.", encoded(r#"{"alg":"NonE"}"#)), "algorithm is not accepted"),
        ("none with a signature", header(r#"{"alg":"none","kid":"k"}"#), "algorithm is not accepted"),
        ("the public key as a secret", mac(r#"{"alg":"HS256","kid":"k"}"#, point), "algorithm is not accepted"),
        ("the set as a secret", mac(r#"{"alg":"HS256"}"#, signer.set("k").as_bytes()), "algorithm is not accepted"),
        ("another kind of key", header(r#"{"alg":"RS256","kid":"k"}"#), "unknown key"),
        ("an algorithm that is not configured", header(r#"{"alg":"ES384","kid":"k"}"#), "algorithm is not accepted"),
        ("no alg", header(r#"{"kid":"k"}"#), "no algorithm"),
        ("two algs", header(r#"{"alg":"ES256","alg":"none","kid":"k"}"#), "algorithm is not accepted"),
        ("a list of algs", header(r#"{"alg":["ES256"],"kid":"k"}"#), "no algorithm"),
        ("its own key", other.sign(&format!(r#"{{"alg":"ES256","jwk":{jwk}}}"#), CLAIMS), "signature is wrong"),
        ("its own key set", other.sign(r#"{"alg":"ES256","jku":"http://x/"}"#, CLAIMS), "signature is wrong"),
        ("a path as key id", header(r#"{"alg":"ES256","kid":"../../dev/null"}"#), "unknown key"),
        ("a number as key id", header(r#"{"alg":"ES256","kid":1}"#), "key id is not a text"),
        ("unencoded payload", header(r#"{"alg":"ES256","b64":false,"crit":["b64"],"kid":"k"}"#), "critical"),
        ("another key", other.token(), "signature is wrong"),
        ("changed claims", format!("{}.{}.{signature}", parts[0], encoded(CLAIMS.replace("ann", "eve"))), "signature"),
        ("a changed signature", format!("{}.{claims}.{}", parts[0], high(3, signature)), "signature is wrong"),
        ("no signature", format!("{}.{claims}.", parts[0]), "signature is wrong"),
        ("a signature of zeros", format!("{}.{claims}.{zeros}", parts[0]), "signature is wrong"),
        ("padding", format!("{good}="), "not base64url"),
        ("standard base64", format!("{}.{claims}.+/+/", parts[0]), "not base64url"),
        ("a line break", format!("{good}\n"), "not base64url"),
        ("four parts", format!("{good}.a"), "form of a signed token"),
        ("five parts, encrypted", "a.b.c.d.e".to_owned(), "form of a signed token"),
        ("two parts", format!("{}.{claims}", parts[0]), "form of a signed token"),
        ("JSON", r#"{"payload":"","signatures":[]}"#.to_owned(), "form of a signed token"),
        ("nothing", String::new(), "form of a signed token"),
        ("dots", "..".to_owned(), "header is not JSON"),
        ("too much", "a".repeat(20_000), "too long"),
        ("claims that are a list", signer.sign(r#"{"alg":"ES256"}"#, "[]"), "not a JSON object"),
        (
            "nested claims",
            signer.sign(r#"{"alg":"ES256"}"#, &format!("{}1{}", "[".repeat(90), "]".repeat(90))),
            "object",
        ),
        ("expired", signer.sign(r#"{"alg":"ES256"}"#, &CLAIMS.replace("1000100", "999000")), "expired"),
    ] {
        let outcome = outcome(&jwt, &token);
        assert!(outcome.starts_with("invalid-token: ") && outcome.contains(why), "{what}: {outcome}");
    }
}

#[test]
fn secrets_sign_and_are_used_for_nothing_else() {
    let secret = "0123456789abcdef0123456789abcdef";
    let auth = Auth { secret: Some(secret.into()), algorithms: vec![Algorithm::HS256], ..auth() };
    let jwt = Jwt::load(&auth, None, Default::default).unwrap_or_else(|why| panic!("{why}"));
    let sign = |algorithm: &str, secret: &str| {
        let signed = format!("{}.{}", encoded(format!(r#"{{"alg":"{algorithm}"}}"#)), encoded(CLAIMS));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
        (format!("{signed}.{}", encoded(tag)), format!("{signed}.{}", encoded(&tag.as_ref()[..16])))
    };
    let (whole, cut) = sign("HS256", secret);
    assert_eq!(outcome(&jwt, &whole), "valid: ann");
    assert_eq!(outcome(&jwt, &cut), "invalid-token: its signature is wrong");
    assert_eq!(outcome(&jwt, &sign("HS256", "wrong").0), "invalid-token: its signature is wrong");
    assert_eq!(outcome(&jwt, &sign("HS512", secret).0), "invalid-token: its algorithm is not accepted");
}

#[test]
fn a_cached_token_ends_with_its_time_and_with_its_key() {
    let signer = Signer::new();
    let auth = Auth { upstream: Some("idp".into()), ..auth() };
    let jwt = Jwt::load(&auth, None, Default::default).unwrap_or_else(|why| panic!("{why}"));
    let token = signer.token();
    let keys = jwt.issuer_keys().expect("fetched").clone();
    assert_eq!(outcome(&jwt, &token), "wait for 1");
    let serve = |set: String| {
        keys.begin();
        keys.end(Ok(set.into())).expect("a set");
    };
    serve(signer.set("k"));
    assert_eq!(outcome(&jwt, &token), "valid: ann");
    assert_eq!(outcome(&jwt, &token), "valid: ann");
    let at = |seconds: f64| matches!(jwt.check_at(&token, Instant::now(), seconds, false), Checked::Valid(_));
    assert!(at(1_000_129.0) && !at(1_000_130.0), "with leeway");
    // The same key stays what it is after a reload.
    let reloaded = Jwt::load(&auth, Some(&jwt), Default::default).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(outcome(&reloaded, &token), "valid: ann");
    serve(Signer::new().set("k"));
    assert_eq!(outcome(&jwt, &token), "invalid-token: its signature is wrong");
    serve(Signer::new().set("next"));
    assert_eq!(outcome(&jwt, &token), "invalid-token: it is signed with an unknown key", "fetched a moment ago");
}
