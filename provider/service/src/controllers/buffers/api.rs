//! How buffers and pod templates are read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use stoker_core::base::ids::{ClusterName, PoolName};
use stoker_core::catalogue::template::{CLUSTER_LABEL, POOL_LABEL};
use tokio::time::timeout;
use tracing::warn;

use super::object::{API, MANAGED_BY, Wanted, covers, kinds, name};
use crate::kube::FIELD_MANAGER;

/// How long one request may take before it counts as failed. Every one can be repeated.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why buffers could not be kept as they should be. All of it may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum BuffersError {
    /// The API server refused or could not be asked.
    #[error("cannot {verb} {what}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// Of which kind.
        what: &'static str,
        /// What the server or the transport says.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer came in time; whether the server did it is unknown.
    #[error("cannot {verb} {what}: no answer within {}s", DEADLINE.as_secs())]
    TimedOut {
        /// What was tried.
        verb: &'static str,
        /// Of which kind.
        what: &'static str,
    },
}

impl BuffersError {
    fn status(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::TimedOut { .. } => None,
        }
    }

    /// Whether the cluster does not serve the API.
    pub fn is_absent(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND.as_u16())
    }

    /// Whether we may not use it.
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(StatusCode::FORBIDDEN.as_u16())
    }

    /// What comes of it, and the cure.
    pub(super) fn told(&self) -> String {
        let (group, version) = API;
        if self.is_absent() {
            format!(
                "the cluster does not serve capacitybuffers.{group} {version}, so floors use minSize: install the CRD of \
                 your autoscaler (1.35 or later) and start it with --capacity-buffer-controller-enabled and \
                 --capacity-buffer-pod-injection-enabled"
            )
        } else if self.is_forbidden() {
            "Stoker has no permission to manage CapacityBuffers, so floors use minSize: apply manifests/buffers/rbac.yaml"
                .to_owned()
        } else {
            "CapacityBuffers cannot be updated now; existing ones stay".to_owned()
        }
    }
}

/// One of the two kinds of objects.
pub(super) struct Kind {
    what: &'static str,
    resource: ApiResource,
}

impl Kind {
    pub(super) fn buffers() -> Self {
        let [resource, _] = kinds();
        Self { what: "CapacityBuffers", resource }
    }

    pub(super) fn templates() -> Self {
        let [_, resource] = kinds();
        Self { what: "PodTemplates", resource }
    }

    fn within(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource)
    }

    /// Deletes objects that bear Stoker's marks, in a namespace or in all, of a cluster or of any; those that are kept stay. Where it is only
    /// shown, none is. Tells how many.
    pub(super) async fn delete(
        &self,
        client: &Client,
        namespace: Option<&str>,
        cluster: Option<&ClusterName>,
        kept: impl Fn(&str) -> bool,
        shown: bool,
    ) -> Result<usize, BuffersError> {
        let all = match namespace {
            Some(namespace) => self.within(client, namespace),
            None => Api::all_with(client.clone(), &self.resource),
        };
        let cluster = cluster.map_or_else(|| CLUSTER_LABEL.to_owned(), |name| format!("{CLUSTER_LABEL}={name}"));
        let marks = ListParams::default().labels(&format!("{MANAGED_BY}=stoker,{POOL_LABEL},{cluster}"));
        let mut deleted = 0;
        for object in asked("list", self.what, all.list(&marks)).await?.items {
            if object.labels().get(POOL_LABEL).is_none_or(|pool| kept(pool)) {
                continue;
            }
            let within = self.within(client, &object.namespace().unwrap_or_default());
            let as_read = Preconditions { uid: object.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::default() };
            if shown {
                deleted += 1;
                continue;
            }
            match asked("delete", self.what, within.delete(&object.name_any(), &params)).await {
                Ok(_) => deleted += 1,
                // Somebody was faster, or another one of its name is there now.
                Err(error) if error.is_absent() || error.status() == Some(StatusCode::CONFLICT.as_u16()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

/// The buffers and pod templates of a cluster's pools, in the client's own namespace: the pod's, or that of the kubeconfig's context.
pub(super) struct Objects {
    client: Client,
    cluster: ClusterName,
    buffers: Kind,
    templates: Kind,
}

impl Objects {
    pub(super) fn new(client: &Client, cluster: &ClusterName) -> Self {
        Self { client: client.clone(), cluster: cluster.clone(), buffers: Kind::buffers(), templates: Kind::templates() }
    }

    /// Whether buffers can be listed here.
    pub(super) async fn probe(&self) -> Result<(), BuffersError> {
        let one = ListParams::default().limit(1);
        let buffers = self.buffers.within(&self.client, self.client.default_namespace());
        asked("list", self.buffers.what, buffers.list(&one)).await.map(|_| ())
    }

    /// Makes what is wanted, or changes it to be so: the pod template first, for the buffer names it.
    pub(super) async fn apply(&self, wanted: &BTreeMap<PoolName, Wanted>) -> Result<(), BuffersError> {
        for (pool, wanted) in wanted {
            self.put(&self.templates, pool, &wanted.template(&self.cluster, pool)).await?;
            self.put(&self.buffers, pool, &wanted.buffer(&self.cluster, pool)).await?;
        }
        Ok(())
    }

    async fn put(&self, kind: &Kind, pool: &PoolName, wanted: &Value) -> Result<(), BuffersError> {
        let (what, api) = (kind.what, kind.within(&self.client, self.client.default_namespace()));
        let name = name(pool);
        if let Some(there) = asked("read", what, api.get_opt(&name)).await? {
            if !self.is_ours(&there) {
                warn!(%what, name, "an object of that name belongs to somebody else and is not touched: rename it, or the pool");
                return Ok(());
            }
            if serde_json::to_value(&there).is_ok_and(|there| covers(&there, wanted)) {
                return Ok(());
            }
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        asked("apply", what, api.patch(&name, &params, &Patch::Apply(wanted))).await.map(|_| ())
    }

    /// Deletes ours of all other pools: a buffer before the pod template that it names.
    pub(super) async fn keep_only(&self, kept: &BTreeSet<PoolName>) -> Result<(), BuffersError> {
        let own = Some(self.client.default_namespace());
        for kind in [&self.buffers, &self.templates] {
            kind.delete(&self.client, own, Some(&self.cluster), |pool| kept.iter().any(|kept| kept.as_str() == pool), false)
                .await?;
        }
        Ok(())
    }

    fn is_ours(&self, object: &DynamicObject) -> bool {
        let is = |key: &str, value: &str| object.labels().get(key).is_some_and(|is| is == value);
        is(MANAGED_BY, "stoker") && is(CLUSTER_LABEL, self.cluster.as_str())
    }
}

async fn asked<T>(
    verb: &'static str,
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, BuffersError> {
    match timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|source| BuffersError::Api { verb, what, source: Box::new(source) }),
        Err(_) => Err(BuffersError::TimedOut { verb, what }),
    }
}
