//! Marks: what Stoker has written on Karpenter's objects, and what was there before.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stoker_core::policy::rules::karpenter::{BUDGETS_MARK, LIMITS_MARK, STEERED_LABEL, WEIGHT_MARK, WINDOW_MARK};
use tokio::time::Instant;

use crate::objects::{Amounts, Node, NodePool, amount, annotation, label};

/// The field manager of all that is written.
pub const FIELD_MANAGER: &str = "stoker-karpenter";

/// The label of an object that is Stoker's whole, with [`FIELD_MANAGER`] as its value.
pub const OWNER: &str = "stoker.dev/owner";

/// The annotation that says why such an object is there.
pub(crate) const REASON: &str = "stoker.dev/reason";

/// So often a field is set again that somebody else rewrites; then it is left alone.
const MOST_REWRITES: u32 = 3;

/// How long a field has to stand until earlier rewrites count no more.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// The annotation of a Node whose `do-not-disrupt` is Stoker's.
pub(crate) const PROTECTED: &str = "stoker.dev/protected";

/// The annotation that keeps Karpenter from emptying a Node of its own accord.
pub(crate) const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// A mark of a `NodePool`, as JSON in an annotation.
fn read<M: DeserializeOwned>(pool: &NodePool, key: &str) -> Result<Option<M>, String> {
    let Some(text) = annotation(&pool.meta, key) else { return Ok(None) };
    let read = serde_json::from_str(text);
    read.map(Some).map_err(|error| format!("annotation {key} cannot be read: {error}: take it away"))
}

/// The limits of a `NodePool` as Stoker has set them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitsMark {
    /// What was set, by resource.
    pub(crate) set: BTreeMap<String, u64>,
    /// What was there of these resources before; `None` where there were no limits at all.
    #[serde(default)]
    pub(crate) was: Option<Amounts>,
    /// Why, in words.
    #[serde(default)]
    pub(crate) why: String,
}

impl LimitsMark {
    /// That of a `NodePool`; `None` where it bears none.
    ///
    /// # Errors
    /// The annotation cannot be read.
    pub(crate) fn of(pool: &NodePool) -> Result<Option<Self>, String> {
        read(pool, LIMITS_MARK)
    }

    /// Whether every limit is still as it was set.
    pub(crate) fn stands(&self, limits: Option<&Amounts>) -> bool {
        let now = |resource: &String| limits?.get(resource).and_then(amount);
        self.set.iter().all(|(resource, set)| now(resource) == Some(*set))
    }

    /// A merge patch of `spec.limits` that gives back what was there, of the limits that nobody has changed since; `None` where all were
    /// changed.
    pub(crate) fn given_back(&self, limits: Option<&Amounts>) -> Option<Value> {
        let limits = limits?;
        let untouched = |(resource, set): &(&String, &u64)| limits.get(*resource).and_then(amount) == Some(**set);
        let before = |resource: &String| self.was.as_ref().and_then(|was| was.get(resource)).cloned().unwrap_or_default();
        let back: BTreeMap<&String, Value> =
            self.set.iter().filter(untouched).map(|(resource, _)| (resource, before(resource))).collect();
        if back.is_empty() {
            return None;
        }
        // Limits that were not there at all go whole, unless somebody has added others since.
        let others = limits.keys().any(|resource| !back.contains_key(resource));
        if self.was.is_none() && !others { Some(Value::Null) } else { serde_json::to_value(back).ok() }
    }
}

/// A field of a `NodePool` that Stoker replaces whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    /// How long a free node stays.
    ConsolidateAfter,
    /// How many nodes go at once.
    Budgets,
    /// Which `NodePool` comes first, the greatest.
    Weight,
}

impl Field {
    pub(crate) const ALL: [Self; 3] = [Self::ConsolidateAfter, Self::Budgets, Self::Weight];

    /// The annotation of its mark.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::ConsolidateAfter => WINDOW_MARK,
            Self::Budgets => BUDGETS_MARK,
            Self::Weight => WEIGHT_MARK,
        }
    }

    /// Its field manager: one apply says all that a manager owns, so each field has one of its own.
    pub(crate) const fn manager(self) -> &'static str {
        match self {
            Self::ConsolidateAfter => "stoker-karpenter-windows",
            Self::Budgets => "stoker-karpenter-budgets",
            Self::Weight => "stoker-karpenter-weight",
        }
    }

    /// Its value; `None` where it has none.
    pub(crate) fn of(self, pool: &NodePool) -> Option<&Value> {
        match self {
            Self::ConsolidateAfter => pool.spec.disruption.consolidate_after.as_ref(),
            Self::Budgets => pool.spec.disruption.budgets.as_ref(),
            Self::Weight => pool.spec.weight.as_ref(),
        }
    }

    /// A `spec` with that value and nothing else.
    pub(crate) fn spec(self, value: Option<&Value>) -> Value {
        match self {
            Self::ConsolidateAfter => json!({ "disruption": { "consolidateAfter": value } }),
            Self::Budgets => json!({ "disruption": { "budgets": value } }),
            Self::Weight => json!({ "weight": value }),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConsolidateAfter => "spec.disruption.consolidateAfter",
            Self::Budgets => "spec.disruption.budgets",
            Self::Weight => "spec.weight",
        })
    }
}

/// A field of a `NodePool` as Stoker has set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldMark {
    /// What was set.
    pub(crate) set: Value,
    /// What was there before.
    #[serde(default)]
    pub(crate) was: Option<Value>,
    /// Why, in words.
    #[serde(default)]
    pub(crate) why: String,
}

impl FieldMark {
    /// That of a field; `None` where the `NodePool` bears none.
    ///
    /// # Errors
    /// The annotation cannot be read.
    pub(crate) fn of(field: Field, pool: &NodePool) -> Result<Option<Self>, String> {
        read(pool, field.mark())
    }

    /// Whether the field is still as it was set.
    pub(crate) fn stands(&self, field: Field, pool: &NodePool) -> bool {
        field.of(pool) == Some(&self.set)
    }

    /// What there would be without Stoker: what was there before, or what somebody else has written since, without what Stoker added to it.
    pub(crate) fn original(&self, field: Field, pool: &NodePool) -> Option<Value> {
        if self.stands(field, pool) {
            return self.was.clone();
        }
        let mut now = field.of(pool)?.clone();
        if let (Field::Budgets, Value::Array(list), Some(own)) =
            (field, &mut now, self.set.as_array().and_then(|set| set.last()))
            && let Some(at) = list.iter().position(|one| one == own)
        {
            list.remove(at);
        }
        Some(now)
    }
}

/// A value of a field, for people.
pub(crate) fn value_in_words(value: Option<&Value>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// How often somebody else has rewritten a field that Stoker sets.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// Of which object: one that is made anew is another.
    uid: Option<String>,
    times: u32,
    /// Since when it stands as set; `None` where it did not at the last look.
    stood: Option<Instant>,
}

impl Rewrites {
    /// Whether it is of the object with that uid; one of which none was noted yet becomes its.
    pub(crate) fn is_of(&mut self, uid: Option<&str>) -> bool {
        if self.uid.is_none() {
            self.uid = uid.map(str::to_owned);
        }
        self.uid.as_deref() == uid
    }

    /// Takes note of whether the field stands.
    ///
    /// # Errors
    /// It was rewritten too often, and is to be left alone.
    pub(crate) fn note(&mut self, stands: bool, field: impl fmt::Display, now: Instant) -> Result<(), String> {
        match self.stood {
            Some(since) if stands && now.duration_since(since) >= FORGOTTEN_AFTER => self.times = 0,
            Some(_) if !stands => self.times += 1,
            Some(_) | None => {}
        }
        self.stood = stands.then(|| self.stood.unwrap_or(now));
        if self.is_over() {
            return Err(format!(
                "{field} was rewritten {MOST_REWRITES} times by somebody else, so it is left alone: take {field} out of what applies \
                 it, then take the label {STEERED_LABEL} off and put it on again"
            ));
        }
        Ok(())
    }

    /// Takes note of a write: whoever reverts it before the next look has rewritten it, too.
    pub(crate) fn wrote(&mut self) {
        self.stood = Some(Instant::now());
    }

    /// Takes note that it was given back: that it no longer stands is nobody else's doing.
    pub(crate) const fn gave_back(&mut self) {
        self.stood = None;
    }

    /// Whether the field is left alone.
    pub(crate) const fn is_over(&self) -> bool {
        self.times >= MOST_REWRITES
    }
}

/// Whether an object is Stoker's whole.
pub(crate) fn is_ours(meta: &ObjectMeta) -> bool {
    label(meta, OWNER) == Some(FIELD_MANAGER)
}

/// Whether a `NodePool` is opened to steering.
pub(crate) fn is_steered(pool: &NodePool) -> bool {
    label(&pool.meta, STEERED_LABEL) == Some("true")
}

/// Whose `do-not-disrupt` of a Node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// There is none.
    None,
    /// Stoker's.
    Ours,
    /// Somebody else's.
    Theirs,
    /// Somebody took Stoker's away, or changed it, and its mark is left.
    Overruled,
}

impl Guard {
    /// That of a Node.
    pub(crate) fn of(node: &Node) -> Self {
        match (annotation(&node.meta, DO_NOT_DISRUPT), annotation(&node.meta, PROTECTED)) {
            (None, None) => Self::None,
            (Some("true"), Some(_)) => Self::Ours,
            (Some(_), None) => Self::Theirs,
            (_, Some(_)) => Self::Overruled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(value: Value) -> Amounts {
        serde_json::from_value(value).unwrap()
    }

    fn mark(set: &Value, was: &Value) -> LimitsMark {
        serde_json::from_value(json!({ "set": set, "was": was, "why": "" })).unwrap()
    }

    #[test]
    fn limits_stand_as_long_as_they_mean_the_same() {
        let mark = mark(&json!({ "cpu": 1000 }), &Value::Null);
        assert!(mark.stands(Some(&amounts(json!({ "cpu": "1k", "memory": "5Gi" })))));
        assert!(mark.stands(Some(&amounts(json!({ "cpu": 1000 })))));
        assert!(!mark.stands(Some(&amounts(json!({ "cpu": "999" })))));
        assert!(!mark.stands(Some(&amounts(json!({})))));
        assert!(!mark.stands(None));
    }

    #[test]
    fn what_was_there_is_given_back_as_it_was_written() {
        let now = |value| Some(amounts(value));
        let back = |mark: &LimitsMark, limits: Option<Amounts>| mark.given_back(limits.as_ref());
        let both = mark(&json!({ "cpu": 8, "nvidia.com/gpu": 2 }), &json!({ "cpu": "1k" }));
        assert_eq!(
            back(&both, now(json!({ "cpu": "8", "nvidia.com/gpu": "2", "memory": "1Ti" }))),
            Some(json!({ "cpu": "1k", "nvidia.com/gpu": null }))
        );
        // What somebody has changed since is theirs.
        assert_eq!(back(&both, now(json!({ "cpu": "9", "nvidia.com/gpu": "2" }))), Some(json!({ "nvidia.com/gpu": null })));
        assert_eq!(back(&both, now(json!({ "cpu": "9", "nvidia.com/gpu": "3" }))), None);
        assert_eq!(back(&both, None), None);
        // Where there were none at all, none are left; but what was added meanwhile stays.
        let none = mark(&json!({ "cpu": 8 }), &Value::Null);
        assert_eq!(back(&none, now(json!({ "cpu": "8" }))), Some(Value::Null));
        assert_eq!(back(&none, now(json!({ "cpu": "8", "memory": "1Ti" }))), Some(json!({ "cpu": null })));
        let empty = mark(&json!({ "cpu": 8 }), &json!({}));
        assert_eq!(back(&empty, now(json!({ "cpu": "8" }))), Some(json!({ "cpu": null })));
    }

    #[test]
    fn a_guard_is_stokers_by_its_mark_alone() {
        let guard = |annotations: Value| {
            let node: Node =
                serde_json::from_value(json!({ "metadata": { "name": "n", "annotations": annotations } })).unwrap();
            Guard::of(&node)
        };
        assert_eq!(guard(json!({})), Guard::None);
        assert_eq!(guard(json!({ DO_NOT_DISRUPT: "true", PROTECTED: "busy" })), Guard::Ours);
        assert_eq!(guard(json!({ DO_NOT_DISRUPT: "true" })), Guard::Theirs);
        assert_eq!(guard(json!({ DO_NOT_DISRUPT: "false" })), Guard::Theirs);
        assert_eq!(guard(json!({ PROTECTED: "busy" })), Guard::Overruled);
        assert_eq!(guard(json!({ DO_NOT_DISRUPT: "false", PROTECTED: "busy" })), Guard::Overruled);
    }
}
