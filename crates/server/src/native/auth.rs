//! Who a client is. The authenticator of a node is one object behind this trait.

/// Decides who may connect.
pub trait Authenticator {
    /// The class name sent in AUTHENTICATE, or `None` where clients need not say who they are.
    fn challenge(&self) -> Option<&'static str>;

    /// Judges the token of an AUTH_RESPONSE.
    ///
    /// # Errors
    /// The text for the client where the credentials are wrong.
    fn evaluate(&self, token: Option<&[u8]>) -> Result<Verdict, String>;

    /// Name of a client that was not asked.
    fn anonymous(&self) -> &'static str;
}

/// What an authenticator says to a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The client is this user.
    User(String),
    /// The client has to answer this first.
    Challenge(Vec<u8>),
}

/// Lets everybody in (`AllowAllAuthenticator`).
#[derive(Debug, Clone, Copy)]
pub struct AllowAll;

impl Authenticator for AllowAll {
    fn challenge(&self) -> Option<&'static str> {
        None
    }

    fn evaluate(&self, _token: Option<&[u8]>) -> Result<Verdict, String> {
        Ok(Verdict::User(self.anonymous().to_owned()))
    }

    fn anonymous(&self) -> &'static str {
        "anonymous"
    }
}
