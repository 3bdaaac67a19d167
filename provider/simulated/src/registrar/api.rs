//! Requests of the registrar, each with a deadline and a place in its error.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use kube::core::Status;
use serde::de::DeserializeOwned;
use stoker_core::base::ids::NodeName;
use tokio::time::timeout;

use stoker_service::kube::act::ActError;

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// Objects of one page of a list.
const PAGE: u32 = 500;

/// Why a pass could not do all that it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    #[error("cannot {verb} {object}")]
    Api {
        verb: &'static str,
        object: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot {verb} {object}: no answer within {}s", DEADLINE.as_secs())]
    TimedOut { verb: &'static str, object: String },
    #[error(transparent)]
    Act(#[from] ActError),
    #[error("Node {0} is deleted but not gone yet")]
    Lingers(NodeName),
}

impl StepError {
    /// Whether the server answered so.
    pub(super) fn says(&self, what: fn(&Status) -> bool) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if what(status)))
    }
}

/// The answer to `request`.
pub(super) async fn ask<T>(
    verb: &'static str,
    object: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, StepError> {
    match timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|source| StepError::Api { verb, object: object.to_owned(), source: Box::new(source) }),
        Err(_) => Err(StepError::TimedOut { verb, object: object.to_owned() }),
    }
}

/// Everything that `params` selects, page by page.
pub(super) async fn list<K>(what: &'static str, api: &Api<K>, params: ListParams) -> Result<Vec<K>, StepError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = params.limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = ask("list", what, api.list(&params)).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}
