//! How a call gets to AWS: over HTTPS, bounded in time and in what is read of an answer.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::redirect::Policy;
use stoker_core::base::text::with_causes;
use stoker_service::listener::install_crypto;

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);

/// The longest answer that is read, in bytes: a page of a thousand instances has 5 MB.
const LONGEST: usize = 16 << 20;

/// What carries a signed call, and its answer back, within that time. A test may have the other side in its own process.
pub type Transport = Arc<dyn Fn(http::Request<Vec<u8>>, Duration) -> Answer + Send + Sync>;

/// An answer to come.
pub type Answer = BoxFuture<'static, Result<http::Response<Vec<u8>>, NoAnswer>>;

/// There is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// Whether the other side may have the call.
    pub sent: bool,
    /// What went wrong.
    pub why: String,
}

/// HTTPS.
///
/// # Errors
/// When the system has no certificates to trust.
pub fn https() -> Result<Transport, String> {
    install_crypto();
    // AWS redirects no call. Who follows one gives its token and the call to whoever is named.
    let client = reqwest::Client::builder().connect_timeout(CONNECTED_WITHIN).redirect(Policy::none());
    let client = client.build().map_err(in_words)?;
    Ok(Arc::new(move |request, within| {
        let client = client.clone();
        async move {
            let request =
                reqwest::Request::try_from(request).map_err(|error| NoAnswer { sent: false, why: in_words(error) })?;
            let read = tokio::time::timeout(within, read(client, request)).await;
            read.unwrap_or_else(|_| Err(NoAnswer { sent: true, why: format!("no answer within {} s", within.as_secs()) }))
        }
        .boxed()
    }))
}

async fn read(client: reqwest::Client, request: reqwest::Request) -> Result<http::Response<Vec<u8>>, NoAnswer> {
    let failed = |error: reqwest::Error| NoAnswer { sent: !(error.is_connect() || error.is_builder()), why: in_words(error) };
    let mut answer = client.execute(request).await.map_err(failed)?;
    let mut whole = http::Response::new(Vec::new());
    *whole.status_mut() = answer.status();
    *whole.headers_mut() = answer.headers().clone();
    while let Some(part) = answer.chunk().await.map_err(failed)? {
        if whole.body().len() + part.len() > LONGEST {
            return Err(NoAnswer { sent: true, why: format!("the answer has more than {} MiB", LONGEST >> 20) });
        }
        whole.body_mut().extend_from_slice(&part);
    }
    Ok(whole)
}

/// The error with its causes, without the address, which every message would repeat.
fn in_words(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}
