//! The query parameters of a request, by name; malformed ones are answered with a plain 400.

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;

use super::error::ApiError;

/// Parameters by name; if one is given twice, the last value counts.
pub(super) struct Params(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map(|Query(pairs)| Self(pairs.into_iter().collect()))
            .map_err(|error| ApiError::bad(error.to_string()))
    }
}

impl Params {
    /// The value of a parameter, if there is one and it is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value of a mandatory parameter.
    ///
    /// # Errors
    /// A 400 that names the parameter.
    pub(super) fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| ApiError::bad(format!("Missing mandatory parameter '{name}'")))
    }

    /// The values of a parameter, separated by commas.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let values = self.get(name).unwrap_or_default().split(',').map(str::trim);
        values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    /// A parameter with the value `true` or `false`; false if it is missing.
    ///
    /// # Errors
    /// A 400 for anything else.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        self.flag_or(name, false)
    }

    /// As [`Params::flag`], with the default given.
    ///
    /// # Errors
    /// As [`Params::flag`].
    pub(super) fn flag_or(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None => Ok(default),
            Some("false" | "0" | "no") => Ok(false),
            Some("true" | "1" | "yes") => Ok(true),
            Some(other) => {
                Err(ApiError::bad(format!("Parameter '{name}' has to be true or false, not '{other}'")))
            }
        }
    }
}
