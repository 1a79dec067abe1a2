//! What can go wrong between here and the API server.

use std::error::Error;
use std::time::Duration;

use kube::core::Status;

/// Why a request did not bring what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No answer, or one that broke off.
    #[error("{0}")]
    Away(String),
    /// The changes since the version that is known are not held any more (410 Gone): everything has to be listed again.
    #[error("the resource version has expired")]
    Expired,
    /// The API server answered that it will not.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// Its words.
        message: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The answer cannot be understood.
    #[error("the answer cannot be understood: {0}")]
    Garbled(String),
    /// A list or a watch ended before it had brought anything.
    #[error("the answer ended before its end")]
    Unfinished,
}

impl Failure {
    /// Whether it is about the request as it was put, so that another way to ask may do.
    pub fn is_about_the_request(&self) -> bool {
        match self {
            Failure::Refused { code, .. } => matches!(code, 400 | 404 | 405 | 406 | 415 | 422 | 501),
            Failure::Unfinished | Failure::Garbled(_) | Failure::Expired => true,
            Failure::Away(_) => false,
        }
    }

    /// The HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Failure::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        if status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone") {
            return Failure::Expired;
        }
        // what kube makes of an answer that is JSON, but neither what was asked for nor a Status
        if status.code == 0 && status.reason.is_empty() && status.message.is_empty() {
            return Failure::Garbled("it is neither what was asked for nor a Status".into());
        }
        let seconds = status.details.map_or(0, |details| details.retry_after_seconds);
        let message = if status.message.is_empty() { status.reason } else { status.message };
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Failure::Refused { code: status.code, message, retry_after }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(error) => Failure::Garbled(error.to_string()),
            kube::Error::FromUtf8(error) => Failure::Garbled(error.to_string()),
            kube::Error::Service(error) => Failure::Away(chain(&*error)),
            other => Failure::Away(chain(&other)),
        }
    }
}

/// An error with its reasons: the text of each that the one before does not tell already.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(reason) = next {
        let more = reason.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = reason.source();
    }
    text
}
