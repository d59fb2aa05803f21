//! Authentication of clients. A node's authenticator is one object behind this trait.

/// Decides which clients may connect.
pub trait Authenticator {
    /// The class name sent in AUTHENTICATE; `None` if clients need not authenticate.
    fn challenge(&self) -> Option<&'static str>;

    /// Evaluates the token of an AUTH_RESPONSE.
    ///
    /// # Errors
    /// The error text for the client if the credentials are wrong.
    fn evaluate(&self, token: Option<&[u8]>) -> Result<Verdict, String>;

    /// The user name of clients that do not authenticate.
    fn anonymous(&self) -> &'static str;
}

/// The result of evaluating a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The client is this user.
    User(String),
    /// The client has to answer this challenge first.
    Challenge(Vec<u8>),
}

/// Accepts every client (`AllowAllAuthenticator`).
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
