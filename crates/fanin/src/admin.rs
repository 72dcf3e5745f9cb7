//! The admin pages of a running server, for commands.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

use crate::client::{self, ClientError, Outgoing};

/// Why an admin page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Not an address.
    #[error("the address {0} needs a host; write http://HOST:PORT")]
    Address(Uri),
    /// Another protocol.
    #[error("only http is possible here, not {0}: the admin pages have no TLS")]
    Scheme(Uri),
    /// No token in the file.
    #[error("the token cannot be read from {0}")]
    TokenFile(PathBuf, #[source] std::io::Error),
    /// A token that no header can carry.
    #[error("the token is no text that a header can carry")]
    NoToken,
    /// No answer.
    #[error("the admin pages at {0} cannot be read")]
    Client(String, #[source] ClientError),
    /// The page needs the token.
    #[error("the admin pages need their token: give --token-file")]
    Token,
    /// There is no such page.
    #[error("{0}: the server has no such record or page; is this the admin address of Fanin?")]
    NotFound(String),
    /// Another status.
    #[error("{0}: status {1}; is this the admin address of Fanin? {2}")]
    Status(String, StatusCode, String),
    /// Not what is expected.
    #[error("{0}: not the expected data; the versions of this program and of the server may differ")]
    Data(String, #[source] serde_json::Error),
}

/// The admin pages of one server.
#[derive(Debug)]
pub struct Admin {
    address: String,
    headers: HeaderMap,
}

impl Admin {
    /// The pages at this address.
    ///
    /// # Errors
    /// The address or the token cannot be used.
    pub fn new(uri: &Uri, token: Option<&str>, token_file: Option<&Path>) -> Result<Admin, AdminError> {
        let (address, authority) = address(uri)?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::try_from(authority).map_err(|_| AdminError::Address(uri.clone()))?);
        let read =
            |file: &Path| std::fs::read_to_string(file).map_err(|error| AdminError::TokenFile(file.to_owned(), error));
        let token = match token_file {
            Some(file) => Some(read(file)?),
            None => token.map(str::to_owned),
        };
        if let Some(token) = token {
            let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            headers.insert(AUTHORIZATION, bearer.map_err(|_| AdminError::NoToken)?);
        }
        Ok(Admin { address, headers })
    }

    /// The body of a page.
    ///
    /// # Errors
    /// There is none.
    pub async fn page(&self, method: &str, page: &str) -> Result<Bytes, AdminError> {
        let request = Outgoing { method, target: page, headers: self.headers.clone(), body: Bytes::new() };
        let answer = client::send(&self.address, request).await;
        let answer = answer.map_err(|error| AdminError::Client(self.address.clone(), error))?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            StatusCode::UNAUTHORIZED => Err(AdminError::Token),
            StatusCode::NOT_FOUND => Err(AdminError::NotFound(page.to_owned())),
            status => {
                let text = fanin_trace::shorten(&String::from_utf8_lossy(&answer.body), 200);
                Err(AdminError::Status(page.to_owned(), status, text))
            }
        }
    }

    /// A page as JSON.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub async fn json<T: serde::de::DeserializeOwned>(&self, method: &str, page: &str) -> Result<T, AdminError> {
        let body = self.page(method, page).await?;
        serde_json::from_slice(&body).map_err(|error| AdminError::Data(page.to_owned(), error))
    }
}

/// Host and port to connect to, and what `Host` is.
///
/// # Errors
/// It is no address, or not of HTTP.
pub fn address(uri: &Uri) -> Result<(String, String), AdminError> {
    let Some(authority) = uri.authority() else { return Err(AdminError::Address(uri.clone())) };
    if uri.scheme_str().is_some_and(|scheme| scheme != "http") {
        return Err(AdminError::Scheme(uri.clone()));
    }
    Ok((format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)), authority.to_string()))
}
