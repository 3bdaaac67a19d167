//! Lists that are read page by page, each page in time.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// Objects of one page: it is in memory whole while it is read.
pub(crate) const PAGE: u32 = 250;

/// A list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The API server refused or could not be asked.
    #[error(transparent)]
    Api(Box<kube::Error>),
    /// No answer came in time.
    #[error("no answer within {}s", .0.as_secs())]
    TimedOut(Duration),
}

/// The pages of a list, one after the other.
pub(crate) struct Pages<'a, K> {
    api: &'a Api<K>,
    /// How the next page is asked for; `None` after the last.
    next: Option<ListParams>,
    /// How long one page may take.
    within: Duration,
}

impl<'a, K: Clone + Debug + DeserializeOwned> Pages<'a, K> {
    /// Those of a list that is narrowed by `params`.
    pub(crate) fn of(api: &'a Api<K>, params: ListParams, within: Duration) -> Self {
        Self { api, next: Some(params.limit(PAGE)), within }
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// See [`ListError`].
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<K>>, ListError> {
        let Some(params) = self.next.take() else { return Ok(None) };
        let page = timeout(self.within, self.api.list(&params)).await.map_err(|_| ListError::TimedOut(self.within))?;
        let page = page.map_err(|error| ListError::Api(Box::new(error)))?;
        let token = page.metadata.continue_.filter(|next| !next.is_empty());
        self.next = token.map(|token| ListParams { continue_token: Some(token), ..params });
        Ok(Some(page.items))
    }
}
