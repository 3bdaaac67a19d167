//! What the side port of the running service answers.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use clap::Args;
use http::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
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
    url: String,
}

impl UrlArg {
    /// What `/debug/view` says, as far as `T` reads it.
    pub(super) async fn debug_view<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        self.side_port()?.debug("/debug/view").await
    }

    /// The side port, to be asked.
    pub(super) fn side_port(&self) -> Result<SidePort, CliError> {
        let shown = without_password(&self.url);
        let uri: Uri = self
            .url
            .parse()
            .map_err(|_| CliError::Usage(format!("{shown:?} is not a URL: write it like http://127.0.0.1:8088")))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            let why = format!("{shown:?}: the side port speaks plain HTTP: write it like http://127.0.0.1:8088");
            return Err(CliError::Usage(why));
        }
        let base = self.url.trim_end_matches('/').to_owned();
        Ok(SidePort { client: Client::builder(TokioExecutor::new()).build_http(), base })
    }
}

/// A side port. The address with its password is asked, and not shown.
#[derive(Debug, Clone)]
pub(super) struct SidePort {
    client: Client<HttpConnector, Body>,
    base: String,
}

impl SidePort {
    /// Its address, as it may be shown.
    pub(super) fn shown(&self) -> String {
        without_password(&self.base)
    }

    /// The status and body of an answer.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), CliError> {
        let failed = |why: Box<dyn std::error::Error + Send + Sync>| CliError::Failed {
            doing: format!("{}{path}: no answer; is `stoker serve` running with this --http-listen?", self.shown()),
            source: why,
        };
        let uri: Uri = format!("{}{path}", self.base).parse().map_err(|error: http::uri::InvalidUri| failed(error.into()))?;
        let answer = tokio::time::timeout(PATIENCE, async {
            let response = self.client.get(uri).await?;
            let status = response.status();
            let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((status, body))
        });
        answer.await.map_err(|elapsed| failed(elapsed.into()))?.map_err(failed)
    }

    /// What a path says that is served with `--debug` alone, as far as `T` reads it.
    pub(super) async fn debug<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let (status, body) = self.get(path).await?;
        let text = format!("{}{path}", self.shown());
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
}
