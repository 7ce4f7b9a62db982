//! Errors of the API: a status, and one JSON object that says what failed and what to do.

use std::any::Any;

use axum::{
    Json,
    body::Body,
    extract::rejection::JsonRejection,
    http::{Response, StatusCode},
    response::IntoResponse,
};

use crate::{
    market::NodeGone,
    view::{ErrorBody, ErrorView},
};

/// An answer that is no success.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    view: ErrorView,
}

impl ApiError {
    fn new(status: StatusCode, code: &str, exit: u8, message: impl ToString) -> Self {
        let view =
            ErrorView { code: code.to_owned(), exit, message: message.to_string(), hint: None, nearest: Vec::new() };
        Self { status, view }
    }

    /// 400: the request makes no sense; exit code 2.
    pub(crate) fn bad(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", 2, message)
    }

    /// 404: there is no such thing; exit code 3.
    pub(crate) fn missing(message: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", 3, message)
    }

    /// 409: it contradicts what is there; exit code 2.
    pub(crate) fn conflict(message: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", 2, message)
    }

    /// 401: who are you; exit code 6.
    pub(crate) fn unauthorized(message: impl ToString) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", 6, message)
    }

    /// 403: not from there; exit code 6.
    pub(crate) fn forbidden(message: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", 6, message)
    }

    /// 416: no such part; exit code 2.
    pub(crate) fn range(message: impl ToString) -> Self {
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", 2, message)
    }

    /// 422: a well-formed job that cannot be run; exit code 2.
    pub(crate) fn unprocessable(message: impl ToString) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", 2, message)
    }

    /// 504: another node does not answer; exit code 6.
    pub(crate) fn unreachable(message: impl ToString) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "unreachable", 6, message)
    }

    /// 500: our fault; exit code 1.
    pub(crate) fn internal(message: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", 1, message)
    }

    /// Says what to do about it.
    pub(crate) fn hint(mut self, hint: impl ToString) -> Self {
        self.view.hint = Some(hint.to_string());
        self
    }

    /// Says what comes closest.
    pub(crate) fn nearest(mut self, nearest: Vec<String>) -> Self {
        self.view.nearest = nearest;
        self
    }
}

impl From<JsonRejection> for ApiError {
    /// 413 for a body that is too large; 400 for all else that is no request.
    fn from(rejection: JsonRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", 2, rejection.body_text())
            }
            _ => Self::bad(rejection.body_text()),
        }
    }
}

impl From<NodeGone> for ApiError {
    fn from(gone: NodeGone) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", 6, gone)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        (self.status, Json(ErrorBody { error: self.view })).into_response()
    }
}

pub(super) async fn unknown_route(uri: axum::http::Uri) -> ApiError {
    let message = format!("{} is no route of this API", uri.path());
    std::future::ready(ApiError::missing(message)).await
}

pub(super) async fn wrong_method(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let message = format!("{method} is not possible on {}", uri.path());
    std::future::ready(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method", 2, message)).await
}

/// A panic is a bug: logged with its text, told without it.
pub(super) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response<Body> {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    tracing::error!(text, "a request handler panicked");
    ApiError::internal("the node failed to answer; its log says why").into_response()
}
