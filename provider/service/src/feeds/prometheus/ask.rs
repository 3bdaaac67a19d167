//! One question to Prometheus: bounded in time and in size, and answered or refused for a reason.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use prometheus_http_query::{Client, Error as QueryError};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use stoker_core::base::text::without_password;
use stoker_core::facts::reading::Why;
use stoker_core::policy::rules::demand::NoLevel;

use super::Connection;
use crate::files;

/// How long one query may take, its answer included. A healthy Prometheus answers these in milliseconds; ten seconds leave one late
/// answer within the interval.
const WITHIN: Duration = Duration::from_secs(10);

/// How long a question about the past may take: what Prometheus itself gives a query by default.
const WITHIN_PAST: Duration = Duration::from_mins(2);

/// Longest answer read, in bytes: about ten times that of 40,000 GPUs, which is 5,000 nodes with eight each.
const MOST_BYTES: usize = 64 << 20;

/// Why Prometheus cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum NoAsker {
    /// The URL is none.
    #[error("the URL of Prometheus, {url:?}, is not a URL: write it like http://prometheus.monitoring:9090")]
    Url {
        /// What was given.
        url: String,
    },
    /// A file cannot be read.
    #[error("{}: cannot be read", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The authorities' file has none.
    #[error("{}: has no certificate in PEM: give the CA that signs Prometheus's certificate", .path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The HTTP client cannot be made.
    #[error("the client for Prometheus cannot be created")]
    Client(#[source] reqwest::Error),
}

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskFailed {
    #[error("the token file {} cannot be used: {why}", .path.display())]
    Token { path: PathBuf, why: String },
    #[error("Prometheus cannot be reached: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    TimedOut,
    #[error("Prometheus answered {0}")]
    Refused(String),
    #[error("the answer is too large")]
    TooLarge,
    #[error("the answer does not come from a Prometheus: {0}")]
    Malformed(String),
}

impl AskFailed {
    /// For metrics.
    pub(super) const fn label(&self) -> &'static str {
        self.no_level().as_str()
    }

    /// What a demand signal is then.
    pub(super) const fn no_level(&self) -> NoLevel {
        match self {
            Self::Token { .. } | Self::Refused(_) => NoLevel::Refused,
            Self::Unreachable(_) => NoLevel::Unreachable,
            Self::TimedOut => NoLevel::TimedOut,
            Self::TooLarge => NoLevel::TooLarge,
            Self::Malformed(_) => NoLevel::Malformed,
        }
    }

    /// What a level of a GPU is then.
    pub(super) const fn why(&self) -> Why {
        match self {
            Self::TimedOut => Why::TimedOut,
            _ => Why::Failed,
        }
    }

    /// Whether the next question will fare no better.
    pub(super) const fn is_away(&self) -> bool {
        matches!(self, Self::Token { .. } | Self::Unreachable(_) | Self::TimedOut)
    }
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Row {
    /// Its labels.
    pub(super) metric: BTreeMap<String, String>,
    /// When Prometheus worked it out, in Unix seconds, and its value as Prometheus writes it.
    pub(super) value: (f64, String),
}

impl Row {
    /// The value of a label; an empty one is as good as none.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.metric.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value, which need not be finite; not a number where it does not read as one.
    pub(super) fn number(&self) -> f64 {
        self.value.1.parse().unwrap_or(f64::NAN)
    }
}

/// One series of an answer about a time.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Series {
    /// Its labels.
    pub(super) metric: BTreeMap<String, String>,
    /// Moments in Unix seconds, each with the value then as Prometheus writes it.
    #[serde(default)]
    pub(super) values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Row>),
    Scalar((f64, String)),
    Matrix(Vec<Series>),
    String(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    status: String,
    data: Option<Data>,
    error_type: Option<String>,
    error: Option<String>,
}

/// Asks a Prometheus.
#[derive(Clone)]
pub struct Asker {
    client: Client,
    token_file: Option<PathBuf>,
    within: Duration,
    pub(super) most_bytes: usize,
}

impl Asker {
    /// Reads what the connection names; nothing is asked yet.
    ///
    /// # Errors
    /// Says what is wrong with the URL or a file.
    pub fn new(connection: &Connection) -> Result<Self, NoAsker> {
        Self::within(connection, WITHIN)
    }

    /// With another bound on time.
    pub(super) fn within(connection: &Connection, within: Duration) -> Result<Self, NoAsker> {
        let bad_url = || NoAsker::Url { url: without_password(&connection.url) };
        crate::listener::install_crypto();
        let builder = reqwest::Client::builder()
            .timeout(within)
            .connect_timeout(within)
            // A token must not follow to where a redirect points.
            .redirect(reqwest::redirect::Policy::none());
        let is_tls = connection.url.starts_with("https://");
        if !is_tls && !connection.url.starts_with("http://") {
            return Err(bad_url());
        }
        let builder = match &connection.ca {
            Some(path) => {
                let read = |source| NoAsker::Read { path: path.clone(), source };
                let pem = files::read(path).map_err(read)?;
                let certificates = reqwest::Certificate::from_pem_bundle(&pem).unwrap_or_default();
                if certificates.is_empty() {
                    return Err(NoAsker::NoCertificate { path: path.clone() });
                }
                builder.tls_certs_only(certificates)
            }
            // Plain HTTP needs no authorities, which a bare image does not have.
            None if !is_tls => builder.tls_certs_only([]),
            None => builder,
        };
        if let Some(path) = &connection.token_file {
            files::read(path).map_err(|source| NoAsker::Read { path: path.clone(), source })?;
        }
        let client = builder.build().map_err(NoAsker::Client)?;
        let client = Client::from(client, &connection.url).map_err(|_| bad_url())?;
        Ok(Self { client, token_file: connection.token_file.clone(), within, most_bytes: MOST_BYTES })
    }

    /// The same for questions about the past, which take their time.
    ///
    /// # Errors
    /// Says what is wrong with the URL or a file.
    pub fn of_the_past(connection: &Connection) -> Result<Self, NoAsker> {
        Self::within(connection, WITHIN_PAST)
    }

    /// The answer to an instant query: its series; a scalar is one without labels.
    pub(super) async fn ask(&self, query: &str) -> Result<Vec<Row>, AskFailed> {
        let mut asked = self.client.query(query).timeout(self.timeout());
        if let Some(token) = self.token()? {
            asked = asked.header(AUTHORIZATION, token);
        }
        // A form, not the URL: queries are longer than some proxies allow there.
        let (status, body) = self.body(asked.post_raw().await).await?;
        read(status, &body)
    }

    /// The series of a query at the times from `start` to `end`, both included, in Unix seconds.
    pub(super) async fn ask_range(&self, query: &str, (start, end): (i64, i64), step: i64) -> Result<Vec<Series>, AskFailed> {
        #[expect(clippy::cast_precision_loss, reason = "a step is far below 2^53 s")]
        let mut asked = self.client.query_range(query, start, end, step as f64).timeout(self.timeout());
        if let Some(token) = self.token()? {
            asked = asked.header(AUTHORIZATION, token);
        }
        let (status, body) = self.body(asked.post_raw().await).await?;
        match data(status, &body)? {
            Data::Matrix(series) => Ok(series),
            Data::Vector(_) | Data::Scalar(_) | Data::String(_) => {
                Err(AskFailed::Malformed("not a matrix, which a question about a time has".to_owned()))
            }
        }
    }

    /// What Prometheus itself may take, in milliseconds.
    fn timeout(&self) -> i64 {
        i64::try_from(self.within.as_millis()).unwrap_or(i64::MAX)
    }

    /// The token of the file, as it is now.
    fn token(&self) -> Result<Option<HeaderValue>, AskFailed> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let bad = |why: String| AskFailed::Token { path: path.clone(), why };
        let token = files::read_text(path).map_err(|error| bad(error.to_string()))?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|error| bad(error.to_string()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The status and the body of an answer.
    async fn body(&self, answer: Result<Response, QueryError>) -> Result<(StatusCode, Vec<u8>), AskFailed> {
        let mut response = answer.map_err(|error| match error {
            QueryError::Client(error) => error
                .source()
                .and_then(|source| source.downcast_ref())
                .map_or_else(|| AskFailed::Unreachable(error.to_string()), unanswered),
            error => AskFailed::Unreachable(error.to_string()),
        })?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| unanswered(&error))? {
            if body.len() + part.len() > self.most_bytes {
                return Err(AskFailed::TooLarge);
            }
            body.extend_from_slice(&part);
        }
        Ok((status, body))
    }
}

/// What a failed exchange was.
fn unanswered(error: &reqwest::Error) -> AskFailed {
    if error.is_timeout() {
        return AskFailed::TimedOut;
    }
    // The outermost text names the URL only; the innermost says what happened.
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    AskFailed::Unreachable(innermost.to_string())
}

/// What an answer of that status says.
pub(super) fn read(status: StatusCode, body: &[u8]) -> Result<Vec<Row>, AskFailed> {
    match data(status, body)? {
        Data::Vector(rows) => Ok(rows),
        Data::Scalar(value) => Ok(vec![Row { metric: BTreeMap::new(), value }]),
        Data::Matrix(_) => Err(AskFailed::Malformed("a matrix instead of a vector".to_owned())),
        Data::String(_) => Err(AskFailed::Malformed("a text instead of a vector".to_owned())),
    }
}

fn data(status: StatusCode, body: &[u8]) -> Result<Data, AskFailed> {
    let envelope: Envelope = match serde_json::from_slice(body) {
        Ok(envelope) => envelope,
        // A proxy's own refusal is no JSON of Prometheus's.
        Err(_) if !status.is_success() => return Err(AskFailed::Refused(status.to_string())),
        Err(error) => return Err(AskFailed::Malformed(error.to_string())),
    };
    match envelope {
        Envelope { status, data: Some(data), .. } if status == "success" => Ok(data),
        Envelope { error_type, error, .. } => {
            let kind = error_type.unwrap_or_else(|| status.to_string());
            // Prometheus gives a query up after the time that we allow it, and says so.
            if kind == "timeout" {
                return Err(AskFailed::TimedOut);
            }
            Err(AskFailed::Refused(format!("{kind}: {}", error.unwrap_or_default())))
        }
    }
}
