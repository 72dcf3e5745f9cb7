//! A token in its parts: the compact serialisation of RFC 7515.

use fanin_config::Algorithm;
use fanin_json::Doc;

use super::base64url;

/// Longest token. Heads of requests are not much longer.
const MAX_TOKEN: usize = 16 << 10;

/// A token whose signature is not verified yet.
#[derive(Debug)]
pub(crate) struct Token<'a> {
    pub algorithm: Algorithm,
    pub key_id: Option<Box<str>>,
    /// Header and payload as they are signed.
    pub signed: &'a str,
    pub signature: Vec<u8>,
    pub payload: &'a str,
}

impl<'a> Token<'a> {
    /// Splits a token and reads its header.
    ///
    /// # Errors
    /// What is wrong with it. The reason has nothing of the token but the names of header members.
    pub fn read(text: &'a str) -> Result<Token<'a>, &'static str> {
        const FORM: &str = "it does not have the form of a signed token";
        if text.len() > MAX_TOKEN {
            return Err("it is too long");
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(FORM)?;
        let (header, payload) = signed.split_once('.').ok_or(FORM)?;
        if payload.contains('.') {
            return Err(FORM);
        }
        let header = base64url(header.as_bytes()).ok_or("its header is not base64url")?;
        let header = Doc::parse(header.into(), 8).map_err(|_| "its header is not JSON")?;
        let root = header.root();
        // Whoever does not understand what is critical must refuse the token. Nothing critical is understood.
        if root.get("crit").is_some() {
            return Err("its header has critical members that are not supported");
        }
        let name = root.get("alg").and_then(|name| name.as_str()).ok_or("its header has no algorithm")?;
        let algorithm = Algorithm::named(&name).ok_or("its algorithm is not accepted")?;
        let key_id = match root.get("kid") {
            None => None,
            Some(id) => Some((*id.as_str().ok_or("its key id is not a text")?).into()),
        };
        let signature = base64url(signature.as_bytes()).ok_or("its signature is not base64url")?;
        Ok(Token { algorithm, key_id, signed, signature, payload })
    }
}
