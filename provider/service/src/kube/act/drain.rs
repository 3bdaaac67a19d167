//! Emptying a node: closed to new pods under our mark, and its pods told to go by the Eviction API, so that disruption budgets hold.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use serde::de::IgnoredAny;
use serde_json::json;
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::facts::snapshot::{Cordon, Stuck};
use stoker_core::plan::Evict;
use stoker_core::state::disruption::TRY_AGAIN_AFTER;
use tokio::time::timeout;

use super::super::bound::BoundPod;
use super::super::{DRAINING, FIELD_MANAGER};
use super::{ActError, Change, DEADLINE, KubeAct, Outcome};

/// Pods of one node that are told at once where the cloud takes it: one slow answer must not cost the others their time.
const HASTY: usize = 8;

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

    /// Tells the pods of a closed node to go, and counts what is left. What a budget forbids now is asked again the next time.
    ///
    /// `time` is what is left until they must be gone, where the cloud takes the machine. No pod is then given longer than that, and one
    /// whose budget forbids to evict it is deleted as soon as waiting would cost it some of its own time: it goes in any case, and
    /// that way it can save its work.
    ///
    /// # Errors
    /// See [`ActError`]. A pod that could not be told to go is none: it is counted, and the reason told.
    pub async fn evict_pods(&self, node: &NodeName, evict: Evict, time: Option<SignedDuration>) -> Result<Emptied, ActError> {
        let pods: Vec<BoundPod> = self.pods_of(node).await?.into_iter().filter(|pod| !pod.of_node).collect();
        let left = u32::try_from(pods.len()).unwrap_or(u32::MAX);
        let staying: Vec<BoundPod> = pods.into_iter().filter(|pod| !pod.leaves).collect();
        let keeps = |stuck| Emptied { evicted: 0, left, stuck: Some(stuck) };
        if evict == Evict::Nobody {
            return Ok(Emptied { evicted: 0, left, stuck: None });
        }
        if evict == Evict::WithoutGpu
            && let Some(pod) = staying.iter().find(|pod| pod.wants_gpu)
        {
            return Ok(keeps(Stuck::NotNow(format!("{} was scheduled meanwhile", pod.key()))));
        }
        if evict != Evict::All
            && let Some((pod, why)) = staying.iter().find_map(|pod| Some((pod, pod.fixed.as_ref()?)))
        {
            return Ok(keeps(Stuck::Never(format!("{} {why}", pod.key()))));
        }
        let mut emptied = Emptied { evicted: 0, left, stuck: None };
        let at_once = if time.is_some() { HASTY } else { 1 };
        let began = Instant::now();
        // Pods of the system end with the machine, where it ends in any case.
        let told = staying.into_iter().filter(|pod| !pod.is_of_system()).map(|pod| async move {
            let passed = began.elapsed().try_into().unwrap_or(SignedDuration::MAX);
            let told = self.tell_to_go(&pod, time.map(|time| time.saturating_sub(passed))).await;
            (pod, told)
        });
        let mut told = stream::iter(told).buffered(at_once);
        while let Some((pod, told)) = told.next().await {
            match told {
                Ok(true) => emptied.evicted += 1,
                Ok(false) => emptied.left -= 1,
                Err(why) => emptied.stuck = emptied.stuck.or_else(|| Some(Stuck::NotNow(format!("{}: {why}", pod.key())))),
            }
        }
        Ok(emptied)
    }

    /// Tells one pod to go, if it is still the same; whether it was there.
    async fn tell_to_go(&self, pod: &BoundPod, time: Option<SignedDuration>) -> Result<bool, String> {
        // Nought would end it without a word. What is left of a second says it, and no more.
        let time = time.map(|time| u32::try_from(time.as_secs()).unwrap_or(0).max(1));
        let grace = time.filter(|time| *time < pod.grace);
        let told = self.evict(pod, grace).await;
        let last = time.is_some_and(|time| i64::from(time) < i64::from(pod.grace).saturating_add(TRY_AGAIN_AFTER.as_secs()));
        if told.is_err() && last { self.delete(pod, grace).await } else { told }
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

    /// Evicts one pod, if it is still the same, with so many seconds or its own; whether it was there.
    async fn evict(&self, pod: &BoundPod, grace: Option<u32>) -> Result<bool, String> {
        let (name, namespace) = pod.place();
        // Not the client's own `evict`: it writes the options under a name that the server does not know.
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": namespace },
            "deleteOptions": { "preconditions": { "uid": pod.meta.uid }, "gracePeriodSeconds": grace },
        });
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let asked = pods.create_subresource::<_, IgnoredAny>("eviction", name, &params, &eviction);
        match timeout(DEADLINE, asked).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(false),
            Ok(Err(kube::Error::Api(status))) => Err(status.message),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(no_answer()),
        }
    }

    /// Deletes one pod, if it is still the same, with so many seconds or its own; whether it was there.
    async fn delete(&self, pod: &BoundPod, grace: Option<u32>) -> Result<bool, String> {
        let (name, namespace) = pod.place();
        let preconditions = Some(Preconditions { uid: pod.meta.uid.clone(), resource_version: None });
        let params = DeleteParams { grace_period_seconds: grace, preconditions, ..DeleteParams::default() };
        let pods = Api::<BoundPod>::namespaced(self.client.clone(), namespace);
        match timeout(DEADLINE, pods.delete(name, &params)).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Ok(false),
            Ok(Err(kube::Error::Api(status))) => Err(status.message),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(no_answer()),
        }
    }
}

fn no_answer() -> String {
    format!("no answer within {}s", DEADLINE.as_secs())
}

/// Closed under our mark, or open without it.
fn cordon(closed: bool) -> Change {
    let (mark, unschedulable) = if closed { (Some("true"), Some(true)) } else { (None, None) };
    Change { annotations: json!({ DRAINING: mark }), spec: Some(json!({ "unschedulable": unschedulable })) }
}

#[cfg(test)]
mod tests;
