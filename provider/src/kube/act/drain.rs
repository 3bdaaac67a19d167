//! Emptying a node: closed to new pods under our mark, and its pods told to go by the Eviction API, so that disruption budgets hold.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde::de::IgnoredAny;
use serde_json::json;
use stoker_core::ids::{NodeName, ProviderId};
use stoker_core::plan::Evict;
use stoker_core::snapshot::{Cordon, Stuck};
use tokio::time::timeout;

use super::super::bound::BoundPod;
use super::super::{DRAINING, FIELD_MANAGER};
use super::{ActError, Change, DEADLINE, KubeAct, Outcome};

/// How a node stands after one try at emptying it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emptied {
    /// Pods that were told to go.
    pub evicted: u32,
    /// Pods still on it, those on their way out among them.
    pub left: u32,
    /// Why it could not be emptied further.
    pub stuck: Option<Stuck>,
}

impl KubeAct {
    /// Closes a node to new pods, under our mark, if it is still of this machine. One that somebody else closed is closed, and stays
    /// theirs. One that somebody opened again after us stays open, unless its machine ends in any case.
    ///
    /// # Errors
    /// See [`ActError`].
    pub async fn close(&self, node: &NodeName, machine: &ProviderId, evict: Evict) -> Result<Outcome, ActError> {
        self.change("close", node, |row| match row.cordon {
            _ if row.provider_id.as_deref() != Some(machine.as_str()) => Err(Outcome::NotOurs),
            Cordon::MarkLeft if evict != Evict::All => Err(Outcome::Reopened),
            Cordon::None | Cordon::MarkLeft => Ok(cordon(true)),
            Cordon::Ours | Cordon::Theirs => Err(Outcome::Already),
        })
        .await
    }

    /// Opens a node again that we closed. Where somebody else has opened it, only our mark goes.
    ///
    /// # Errors
    /// See [`ActError`].
    pub async fn uncordon(&self, node: &NodeName, machine: &ProviderId) -> Result<Outcome, ActError> {
        self.change("open", node, |row| match row.cordon {
            _ if row.provider_id.as_deref() != Some(machine.as_str()) => Err(Outcome::NotOurs),
            Cordon::Ours => Ok(cordon(false)),
            Cordon::MarkLeft => Ok(Change { annotations: json!({ DRAINING: null }), spec: None }),
            Cordon::Theirs => Err(Outcome::NotOurs),
            Cordon::None => Err(Outcome::Already),
        })
        .await
    }

    /// Tells the pods of a closed node to go, one after the other, and counts what is left. What a budget forbids now is asked again the
    /// next time.
    ///
    /// # Errors
    /// See [`ActError`]. A pod that could not be told to go is none: it is counted, and the reason told.
    pub async fn evict_pods(&self, node: &NodeName, evict: Evict) -> Result<Emptied, ActError> {
        let pods: Vec<BoundPod> = self.pods_of(node).await?.into_iter().filter(|pod| !pod.of_node).collect();
        let left = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        let staying: Vec<&BoundPod> = pods.iter().filter(|pod| !pod.leaves).collect();
        let keeps = |stuck| Emptied { evicted: 0, left, stuck: Some(stuck) };
        if evict == Evict::WithoutGpu
            && let Some(pod) = staying.iter().find(|pod| pod.wants_gpu)
        {
            return Ok(keeps(Stuck::NotNow(format!("{} has come meanwhile", pod.key()))));
        }
        if evict != Evict::All
            && let Some((pod, why)) = staying.iter().find_map(|pod| Some((pod, pod.fixed.as_ref()?)))
        {
            return Ok(keeps(Stuck::Never(format!("{} {why}", pod.key()))));
        }
        let mut emptied = Emptied { evicted: 0, left, stuck: None };
        for pod in staying {
            match self.evict(pod).await {
                Ok(true) => emptied.evicted += 1,
                Ok(false) => emptied.left -= 1,
                Err(why) => emptied.stuck = emptied.stuck.or_else(|| Some(Stuck::NotNow(format!("{}: {why}", pod.key())))),
            }
        }
        Ok(emptied)
    }

    /// The pods of a node that have not ended, by the API server's own word of now.
    async fn pods_of(&self, node: &NodeName) -> Result<Vec<BoundPod>, ActError> {
        let verb = "list the pods of";
        let alive = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
        let pods = Api::<BoundPod>::all(self.client.clone());
        match timeout(DEADLINE, pods.list(&ListParams::default().fields(&alive))).await {
            Ok(Ok(list)) => Ok(list.items),
            Ok(Err(source)) => Err(ActError::Api { verb, node: node.clone(), source: Box::new(source) }),
            Err(_) => Err(ActError::TimedOut { verb, node: node.clone() }),
        }
    }

    /// Tells one pod to go, if it is still the same; whether it was there.
    async fn evict(&self, pod: &BoundPod) -> Result<bool, String> {
        let (name, namespace) = (pod.meta.name.as_deref().unwrap_or_default(), pod.meta.namespace.as_deref());
        // Not the client's own `evict`: it writes the options under a name that the server does not know.
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": { "preconditions": { "uid": pod.meta.uid } },
        });
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace.unwrap_or_default());
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let asked = pods.create_subresource::<_, IgnoredAny>("eviction", name, &params, &eviction);
        match timeout(DEADLINE, asked).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(false),
            Ok(Err(kube::Error::Api(status))) => Err(status.message),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {}s", DEADLINE.as_secs())),
        }
    }
}

/// Closed under our mark, or open without it.
fn cordon(closed: bool) -> Change {
    let (mark, unschedulable) = if closed { (Some("true"), Some(true)) } else { (None, None) };
    Change { annotations: json!({ DRAINING: mark }), spec: Some(json!({ "unschedulable": unschedulable })) }
}

#[cfg(test)]
mod tests;
