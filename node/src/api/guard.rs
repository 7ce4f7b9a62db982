//! Who may talk to the API.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::Response,
};

use super::error::ApiError;

/// The token and the names under which the API answers.
#[derive(Debug)]
pub(super) struct Guard {
    token: blake3::Hash,
    hosts: Vec<String>,
}

impl Guard {
    pub(super) fn new(token: String, address: SocketAddr) -> Self {
        let port = address.port();
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned(), "[::1]".to_owned(), host_of(address)];
        let hosts = names.into_iter().map(|name| format!("{name}:{port}")).collect();
        Self { token: blake3::hash(token.as_bytes()), hosts }
    }

    fn judge(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // A page whose name was made to resolve to this machine carries its own name.
        let host = text(header::HOST).unwrap_or_default();
        if !self.hosts.iter().any(|known| known == host) {
            return Err(ApiError::forbidden(format_args!("host {host:?} is not this API's address")));
        }
        if let Some(origin) = text(header::ORIGIN)
            && !self.hosts.iter().any(|known| origin.strip_prefix("http://") == Some(known))
        {
            return Err(ApiError::forbidden(format_args!("origin {origin:?} may not use this API")));
        }
        let token = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        match token {
            // Hashes compare in constant time.
            Some(token) if blake3::hash(token.trim().as_bytes()) == self.token => Ok(()),
            Some(_) => {
                Err(ApiError::unauthorized("wrong token").hint("the token is in the home's data folder: data/token"))
            }
            None => Err(ApiError::unauthorized("no token").hint("send it as: Authorization: Bearer TOKEN")),
        }
    }
}

fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

pub(super) async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Result<Response, ApiError> {
    guard.judge(request.headers())?;
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use axum::{http::StatusCode, response::IntoResponse as _};

    use super::*;

    fn judge(host: &str, origin: Option<&str>, token: Option<&str>) -> StatusCode {
        let guard = Guard::new("secret".to_owned(), SocketAddr::from(([127, 0, 0, 1], 4_478)));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        guard.judge(&headers).map_or_else(|error| error.into_response().status(), |()| StatusCode::OK)
    }

    #[test]
    fn only_the_token_from_a_loopback_name_gets_in() {
        assert_eq!(judge("127.0.0.1:4478", None, Some("secret")), StatusCode::OK);
        assert_eq!(judge("localhost:4478", Some("http://localhost:4478"), Some("secret")), StatusCode::OK);
        assert_eq!(judge("127.0.0.1:4478", None, Some("guess")), StatusCode::UNAUTHORIZED);
        assert_eq!(judge("127.0.0.1:4478", None, None), StatusCode::UNAUTHORIZED);
        assert_eq!(judge("evil.example:4478", None, Some("secret")), StatusCode::FORBIDDEN);
        assert_eq!(judge("127.0.0.1:80", None, Some("secret")), StatusCode::FORBIDDEN);
        assert_eq!(judge("localhost:4478", Some("http://evil.example"), Some("secret")), StatusCode::FORBIDDEN);
    }
}
