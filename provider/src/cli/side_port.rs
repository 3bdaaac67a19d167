//! What the side port of the running service answers.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use clap::Args;
use http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use stoker_core::base::text::without_password;

use super::exit::CliError;

/// How long the service may take to answer: it answers from memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest answer read, in bytes: a hundred times that of 500 groups with 5,000 nodes.
const MAX_ANSWER: usize = 256 << 20;

/// Where the running service is.
#[derive(Debug, Args)]
pub(super) struct UrlArg {
    /// The side port of the service (`serve --http-listen`)
    #[arg(long, env = "STOKER_URL", value_name = "URL", default_value = "http://127.0.0.1:8088")]
    pub(super) url: String,
}

impl UrlArg {
    /// What `/debug/view` says, as far as `T` reads it.
    pub(super) async fn debug_view<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        fetch(&self.url).await
    }
}

async fn fetch<T: DeserializeOwned>(url: &str) -> Result<T, CliError> {
    let Answer { text, status, body } = get(url, "/debug/view").await?;
    if status == StatusCode::NOT_FOUND {
        return Err(CliError::Usage(format!("{text} is not served: start `stoker serve` with --debug")));
    }
    if !status.is_success() {
        return Err(CliError::Usage(format!("{text} answered {status}: this is not the side port of a Stoker")));
    }
    serde_json::from_slice(&body).map_err(|error| CliError::Failed {
        doing: format!("{text}: the answer does not come from a Stoker of this release"),
        source: error.into(),
    })
}

/// An answer of the side port.
pub(super) struct Answer {
    /// What was asked, without a password.
    pub(super) text: String,
    /// The HTTP status.
    pub(super) status: StatusCode,
    /// The body.
    pub(super) body: Bytes,
}

/// What the side port answers at that path.
pub(super) async fn get(url: &str, path: &str) -> Result<Answer, CliError> {
    let text = format!("{}{path}", url.trim_end_matches('/'));
    // The address with its password is asked, and not shown.
    let (asked, url) = (text, without_password(url));
    let text = without_password(&asked);
    let uri: Uri =
        asked.parse().map_err(|_| CliError::Usage(format!("{url:?} is not a URL: write it like http://127.0.0.1:8088")))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err(CliError::Usage(format!("{url:?}: the side port speaks plain HTTP: write it like http://127.0.0.1:8088")));
    }
    let failed = |why: Box<dyn std::error::Error + Send + Sync>| CliError::Failed {
        doing: format!("{text}: no answer; is `stoker serve` running with this --http-listen?"),
        source: why,
    };
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let answer = tokio::time::timeout(PATIENCE, async {
        let response = client.get(uri).await?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((status, body))
    });
    let (status, body) = answer.await.map_err(|elapsed| failed(elapsed.into()))?.map_err(failed)?;
    Ok(Answer { text, status, body })
}
