//! Errors of administration as HTTP responses: a status and `{"message": ..., "code": ...}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use storage::StorageError;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
}

impl ApiError {
    /// The request is wrong (400).
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into() }
    }

    /// The requested thing does not exist (404).
    pub(crate) fn absent(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into() }
    }

    /// This build does not support the request (501).
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_IMPLEMENTED, message: message.into() }
    }

    /// The node cannot serve the request now (503).
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message: message.into() }
    }

    /// The client may not make this request (403).
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, message: message.into() }
    }

    /// The path is known, but not with this method (405); axum adds `Allow`.
    pub(crate) fn wrong_method(message: impl Into<String>) -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, message: message.into() }
    }

    /// The body has an unsupported type (415).
    pub(crate) fn unsupported_type(message: impl Into<String>) -> Self {
        Self { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, message: message.into() }
    }

    /// The body exceeds its limit (413).
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, message: message.into() }
    }

    /// The client took too long (408).
    pub(crate) fn timed_out(message: impl Into<String>) -> Self {
        Self { status: StatusCode::REQUEST_TIMEOUT, message: message.into() }
    }

    #[cfg(test)]
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The node could not complete the request (500).
    pub(crate) fn failed(message: impl std::fmt::Display) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message: message.to_string() }
    }
}

impl From<StorageError> for ApiError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::UnknownTable { .. } => Self::absent(error.to_string()),
            StorageError::Draining | StorageError::Overloaded { .. } | StorageError::CommitlogTimedOut => {
                Self::unavailable(error.to_string())
            }
            StorageError::Io { .. }
            | StorageError::DiskFull { .. }
            | StorageError::DiskNearlyFull { .. }
            | StorageError::NoRoomToCompact { .. }
            | StorageError::CommitlogDead { .. }
            | StorageError::CommitlogCorrupt { .. }
            | StorageError::SchemaLogCorrupt { .. }
            | StorageError::ControlPlane(_)
            | StorageError::TwoSchemas { .. }
            | StorageError::ManifestCorrupt { .. }
            | StorageError::Missing { .. }
            | StorageError::TableFileCorrupt { .. }
            | StorageError::Import { .. }
            | StorageError::Snapshot { .. }
            | StorageError::Schema(_)
            | StorageError::Mutation(_)
            | StorageError::MutationMisfit { .. }
            | StorageError::MutationTooLarge { .. }
            | StorageError::WrongShard { .. }
            | StorageError::OtherTenancy { .. }
            | StorageError::TooManyReads { .. }
            | StorageError::TabletBusy { .. }
            | StorageError::ClusterName { .. }
            | StorageError::IdentityCorrupt { .. }
            | StorageError::Shard { .. } => Self::failed(error),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "message": self.message, "code": self.status.as_u16() });
        (self.status, Json(body)).into_response()
    }
}
