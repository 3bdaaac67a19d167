//! Lists what a policy is drafted from; nothing is written.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stoker_core::policy::rules::supplier::AWS_CLASSES;

use super::Source;
use super::cluster::{Cluster, NodeSeen, asks_for_gpus};
use crate::kube::client::in_words;
use crate::kube::pages::{ListError, PAGE, Pages};
use crate::kube::pending::PendingRow;

/// How long one page may take. A thousand pages are a quarter of a million pods.
const DEADLINE: Duration = Duration::from_secs(30);
/// Most pages that are read of a kind: a server that never comes to an end is not followed for ever.
const MOST_PAGES: usize = 1000;

/// Pods that have not ended.
const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Why a kind could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server refused or could not be asked.
    #[error("{what} cannot be listed: {}", said(.what, .error))]
    Api {
        /// Of which kind.
        what: &'static str,
        /// What the server or the transport says.
        error: Box<kube::Error>,
    },
    /// No answer came in time.
    #[error("{what} cannot be listed: no answer within {}s; try again", DEADLINE.as_secs())]
    TimedOut {
        /// Of which kind.
        what: &'static str,
    },
    /// The list has no end.
    #[error("{what} cannot be listed: there are more than {}", MOST_PAGES * PAGE as usize)]
    TooMany {
        /// Of which kind.
        what: &'static str,
    },
}

impl ReadError {
    fn of(what: &'static str, error: ListError) -> Self {
        match error {
            ListError::Api(error) => Self::Api { what, error },
            ListError::TimedOut(_) => Self::TimedOut { what },
        }
    }
}

/// What went wrong, and what to do where that is known.
fn said(what: &str, error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else { return in_words(error) };
    match StatusCode::from_u16(status.code) {
        Ok(StatusCode::FORBIDDEN) => {
            format!("this needs the right to list {what} in the whole cluster, which `kubectl auth can-i list {what} -A` tells")
        }
        Ok(StatusCode::UNAUTHORIZED) => "the credentials of the kubeconfig are not accepted: log in again".to_owned(),
        Ok(StatusCode::NOT_FOUND) if what == "nodepools" => {
            "this cluster has no NodePools of karpenter.sh/v1: use --from-nodes or --from-pods".to_owned()
        }
        _ => status.message.trim().to_owned(),
    }
}

/// Reads a cluster.
///
/// # Errors
/// See [`ReadError`].
pub async fn read(client: &Client, source: Source) -> Result<Cluster, ReadError> {
    let node_pools = match source {
        Source::Karpenter => all(&custom(client, "karpenter.sh", "NodePool"), "nodepools", None, Some).await?,
        Source::Nodes | Source::Pods => Vec::new(),
    };
    let group = |pool: &DynamicObject| {
        pool.data.pointer("/spec/template/spec/nodeClassRef/group").and_then(Value::as_str).map(str::to_owned)
    };
    let groups: BTreeSet<String> = node_pools.iter().filter_map(group).collect();
    // Its subnets tell the zones' ids.
    let classes = if groups.contains(AWS_CLASSES) {
        all(&custom(client, AWS_CLASSES, "EC2NodeClass"), "ec2nodeclasses", None, Some).await?
    } else {
        Vec::new()
    };
    let nodes = all(&Api::<Node>::all(client.clone()), "nodes", None, |node| Some(NodeSeen::of(node))).await?;
    let gpu_pods = |pod: PendingRow| asks_for_gpus(&pod).then_some(pod);
    let pods = all(&Api::<PendingRow>::all(client.clone()), "pods", Some(ALIVE), gpu_pods).await?;
    Ok(Cluster::of(nodes, pods, node_pools, &classes))
}

fn custom(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

/// Every object of a kind, page by page, cut down to what is kept of it.
async fn all<K, T>(
    api: &Api<K>,
    what: &'static str,
    fields: Option<&str>,
    keep: impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, ReadError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = ListParams { field_selector: fields.map(str::to_owned), ..ListParams::default() };
    let mut pages = Pages::of(api, params, DEADLINE);
    let mut found = Vec::new();
    // Once more than there are pages: it takes one call to hear that there are no more.
    for _ in 0..=MOST_PAGES {
        let Some(page) = pages.next().await.map_err(|error| ReadError::of(what, error))? else { return Ok(found) };
        found.extend(page.into_iter().filter_map(&keep));
    }
    Err(ReadError::TooMany { what })
}
