//! Entries for the fuzz targets.

use crate::jwt::keys;
use crate::jwt::token::Token;

/// Reads bytes as a token, and as a JWK Set. Whether one of them was.
pub fn token_or_keys(bytes: &[u8]) -> bool {
    let token = std::str::from_utf8(bytes).ok().and_then(|text| {
        let token = Token::read(text).ok()?;
        assert!(text.starts_with(token.signed) && token.signed.ends_with(token.payload));
        Some(token)
    });
    token.is_some() | keys::read(bytes.to_vec().into()).is_ok_and(|found| !found.keys.is_empty())
}
