//! Telling a Node its verdict: the annotation and the condition in one write, and an Event where the verdict is another than before.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use stoker_core::base::ids::{NodeName, ProviderId};
use stoker_core::facts::node_status::{Condition, ShownStatus};
use stoker_core::state::node_status::{CONDITION, StatusMatch, StatusUpdate, is_alarm, reason};
use stoker_core::state::node_verdict::Judged;

use super::super::thin::NodeRow;
use super::super::{FIELD_MANAGER, VERDICT};
use super::{ATTEMPTS, About, ActError, KubeAct, Outcome, Severity, Write};

impl KubeAct {
    /// Tells a Node what is concluded of it, or takes that back, if it is still of the same machine; people hear of a verdict that is
    /// another than the one that it bore.
    ///
    /// # Errors
    /// See [`ActError`].
    pub async fn tell(&self, tell: &StatusUpdate, now: Timestamp) -> Result<Outcome, ActError> {
        let StatusUpdate { node, provider_id, verdict } = tell;
        let same_machine = |row: &NodeRow| row.provider_id.as_deref() == provider_id.as_ref().map(ProviderId::as_str);
        let (outcome, before) = self.put("publish the verdict of", node, same_machine, verdict.as_ref(), now).await?;
        if outcome == Outcome::Done {
            self.tell_people(tell, &before).await;
        }
        Ok(outcome)
    }

    /// Makes a Node bear a verdict, or none, if it is still the one that is meant; and what it bore before.
    pub(super) async fn put(
        &self,
        verb: &'static str,
        node: &NodeName,
        is_meant: impl Fn(&NodeRow) -> bool,
        judged: Option<&Judged>,
        now: Timestamp,
    ) -> Result<(Outcome, ShownStatus), ActError> {
        for _ in 0..ATTEMPTS {
            let Some(row) = self.read(verb, node).await? else { return Ok((Outcome::Gone, ShownStatus::default())) };
            let before = row.shown.clone().unwrap_or_default();
            if !is_meant(&row) {
                return Ok((Outcome::NotOurs, before));
            }
            if before.compare(judged) == StatusMatch::Same {
                return Ok((Outcome::Already, before));
            }
            let patch = Patch::Strategic(patch(&row, ShownStatus::of(judged, now)));
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            // The status alone: what else is written there stays, and so does the spec.
            match self.write(verb, node, self.nodes.patch_status(node.as_str(), &params, &patch)).await? {
                Write::Written => return Ok((Outcome::Done, before)),
                Write::Gone => return Ok((Outcome::Gone, before)),
                Write::Conflict => {}
            }
        }
        Err(ActError::Contended { verb, node: node.clone() })
    }

    /// An Event where the verdict is another. Whoever wrote it on the Node sends it, and so it is sent once; a crash in between loses it.
    async fn tell_people(&self, tell: &StatusUpdate, before: &ShownStatus) {
        let Some(judged) = tell.verdict.as_ref().filter(|judged| before.verdict() != Some(judged.verdict)) else { return };
        let was = before.verdict().map(|verdict| format!(", was {verdict}")).unwrap_or_default();
        let severity = if is_alarm(judged.verdict) { Severity::Warning } else { Severity::Normal };
        let note = format!("{}{was}: {}", judged.verdict, judged.why);
        self.verdicts.record(About::Node(&tell.node), severity, reason(judged.verdict), &note).await;
    }
}

/// What makes a Node as it was read bear that. A strategic merge: conditions are a list by type, and those of others stay as they are.
fn patch(row: &NodeRow, shown: Option<ShownStatus>) -> Value {
    let ShownStatus { word, condition } = shown.unwrap_or_default();
    let condition = match condition {
        Some(Condition { status, reason, message, since, told_at }) => json!({
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
            "lastHeartbeatTime": told_at,
        }),
        None => json!({ "$patch": "delete", "type": CONDITION }),
    };
    // The resource version makes the server refuse the patch if the Node is not as we read it; the uid, if it is another.
    json!({
        "metadata": {
            "uid": row.meta.uid,
            "resourceVersion": row.meta.resource_version,
            "annotations": { VERDICT: word },
        },
        "status": { "conditions": [condition] },
    })
}

#[cfg(test)]
mod tests;
