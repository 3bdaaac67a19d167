//! How buffers and pod templates are read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use stoker_core::ids::{ClusterName, PoolName};
use stoker_core::template::{CLUSTER_LABEL, POOL_LABEL};
use tokio::time::timeout;
use tracing::warn;

use super::super::FIELD_MANAGER;
use super::TakenBack;
use super::object::{API, MANAGED_BY, Wanted, covers, name};

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
                "the cluster does not serve capacitybuffers.{group} {version}, so floors go through minSize: install the CRD of your autoscaler \
                 (1.34 or later) and start it with --capacity-buffer-controller-enabled and --capacity-buffer-pod-injection-enabled"
            )
        } else if self.is_forbidden() {
            "Stoker may not keep CapacityBuffers, so floors go through minSize: apply manifests/buffers/rbac.yaml".to_owned()
        } else {
            "CapacityBuffers cannot be kept up to date now; those that are there stay".to_owned()
        }
    }
}

/// The buffers and pod templates of one namespace.
pub(super) struct Objects {
    cluster: ClusterName,
    buffers: Api<DynamicObject>,
    templates: Api<DynamicObject>,
}

const BUFFERS: &str = "CapacityBuffers";
const TEMPLATES: &str = "PodTemplates";

impl Objects {
    /// Those of the client's own namespace: the pod's, or that of the kubeconfig's context.
    pub(super) fn new(client: &Client, cluster: &ClusterName) -> Self {
        let namespace = client.default_namespace().to_owned();
        let of = |group: &str, version: &str, kind: &str, plural: &str| {
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
            Api::namespaced_with(client.clone(), &namespace, &resource)
        };
        Self {
            cluster: cluster.clone(),
            buffers: of(API.0, API.1, "CapacityBuffer", "capacitybuffers"),
            templates: of("", "v1", "PodTemplate", "podtemplates"),
        }
    }

    /// Whether buffers can be listed here.
    pub(super) async fn probe(&self) -> Result<(), BuffersError> {
        let one = ListParams::default().limit(1);
        asked("list", BUFFERS, self.buffers.list(&one)).await.map(|_| ())
    }

    /// Makes what is wanted, or changes it to be so: the pod template first, for the buffer names it.
    pub(super) async fn apply(&self, wanted: &BTreeMap<PoolName, Wanted>) -> Result<(), BuffersError> {
        for (pool, wanted) in wanted {
            self.put(&self.templates, TEMPLATES, pool, &wanted.template(&self.cluster, pool)).await?;
            self.put(&self.buffers, BUFFERS, pool, &wanted.buffer(&self.cluster, pool)).await?;
        }
        Ok(())
    }

    async fn put(
        &self,
        api: &Api<DynamicObject>,
        what: &'static str,
        pool: &PoolName,
        wanted: &Value,
    ) -> Result<(), BuffersError> {
        let name = name(pool);
        if let Some(there) = asked("read", what, api.get_opt(&name)).await? {
            if !self.is_ours(&there) {
                warn!(%what, name, "an object of that name is somebody else's and left alone: rename it, or the pool");
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
    pub(super) async fn keep_only(&self, kept: &BTreeSet<PoolName>) -> Result<TakenBack, BuffersError> {
        let buffers = match self.delete_others(&self.buffers, BUFFERS, kept).await {
            // Nothing of it can be there.
            Err(error) if error.is_absent() => 0,
            deleted => deleted?,
        };
        Ok(TakenBack { buffers, templates: self.delete_others(&self.templates, TEMPLATES, kept).await? })
    }

    async fn delete_others(
        &self,
        api: &Api<DynamicObject>,
        what: &'static str,
        kept: &BTreeSet<PoolName>,
    ) -> Result<usize, BuffersError> {
        let marks = ListParams::default().labels(&format!("{MANAGED_BY}=stoker,{CLUSTER_LABEL}={}", self.cluster));
        let ours = asked("list", what, api.list(&marks)).await?.items;
        let mut deleted = 0;
        for object in ours.iter().filter(|object| self.is_ours(object)) {
            let pool = object.labels().get(POOL_LABEL);
            if pool.is_some_and(|pool| kept.contains(pool.as_str())) {
                continue;
            }
            let as_read = Preconditions { uid: object.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::default() };
            match asked("delete", what, api.delete(&object.name_any(), &params)).await {
                Ok(_) => deleted += 1,
                // Somebody was faster, or another one of its name is there now.
                Err(error) if error.is_absent() || error.status() == Some(StatusCode::CONFLICT.as_u16()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
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
