//! The rights that Stoker needs of AWS, and the rules that fill its queues, as text for whoever gives them.

mod cloudformation;
mod events;
mod statements;
mod terraform;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};
use stoker_core::base::ids::{ClusterName, Region};

use crate::config::Config;

/// Longest managed policy that IAM takes, in characters other than white space. An inline policy of a role may have 10,240.
pub const LONGEST_MANAGED_POLICY: usize = 6_144;

/// How a file of rights is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The policy alone, as JSON.
    Iam,
    /// The policy and the queue of a region, as a template in YAML.
    CloudFormation,
    /// The policy and the queues of all regions, as HCL.
    Terraform,
}

/// What `aws.yaml` does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// `clusterName` of the policy, which machines are tagged with.
    pub cluster: ClusterName,
    /// The account that machines are made in. `None` matches any: IAM gives no rights in an account that has not given them itself.
    pub account: Option<String>,
    /// The roles in the instance profiles of the node classes.
    pub node_roles: Vec<String>,
}

/// The rights, and the queues that go with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    statements: Vec<Statement>,
    queues: BTreeMap<Region, String>,
}

/// Regions that no credentials are good for together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file has regions of several partitions of AWS ({0}), which have no credentials in common: write a file for each")]
pub struct ManyPartitions(String);

impl Rights {
    /// The least that the supplier needs with this configuration.
    ///
    /// # Errors
    /// When its regions have no credentials in common.
    pub fn of(config: &Config, asked: &Asked) -> Result<Self, ManyPartitions> {
        let partitions: BTreeSet<&str> = config.regions.keys().map(|region| statements::partition(region)).collect();
        if partitions.len() > 1 {
            return Err(ManyPartitions(partitions.into_iter().collect::<Vec<_>>().join(", ")));
        }
        let queues = config.regions.iter().filter_map(|(name, region)| Some((name.clone(), region.queue.clone()?)));
        Ok(Self { statements: statements::of(config, asked), queues: queues.collect() })
    }

    /// The file.
    pub fn text(&self, format: Format) -> String {
        match format {
            Format::Iam => json(&self.policy(), true) + "\n",
            Format::CloudFormation => cloudformation::text(self),
            Format::Terraform => terraform::text(self),
        }
    }

    /// How much of IAM's limit the policy takes.
    pub fn policy_length(&self) -> usize {
        json(&self.policy(), false).chars().filter(|c| !c.is_whitespace()).count()
    }

    /// The statements that allow these actions, such as `RunInstances` of any service, to be pasted into a policy.
    pub fn statements_for(&self, actions: &BTreeSet<&str>) -> Vec<String> {
        let names = |action: &str| action.split_once(':').is_some_and(|(_, name)| actions.contains(name));
        let allow = self.statements.iter().filter(|one| one.action.0.iter().any(|action| names(action)));
        allow.map(|statement| json(statement, true)).collect()
    }

    fn policy(&self) -> Policy<'_> {
        Policy { version: VERSION, statement: &self.statements }
    }
}

/// The language of policies.
const VERSION: &str = "2012-10-17";

/// An IAM policy.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Policy<'a> {
    version: &'static str,
    statement: &'a [Statement],
}

/// A statement of an IAM policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statement {
    sid: &'static str,
    /// What it is for, as a comment.
    #[serde(skip)]
    why: &'static str,
    effect: &'static str,
    action: Texts,
    resource: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "conditions")]
    condition: Vec<Condition>,
}

/// A condition of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    test: &'static str,
    variable: String,
    values: Texts,
}

/// One text or several.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Texts(Vec<String>);

impl Serialize for Texts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

/// Conditions as IAM writes them: by test, then by variable.
fn conditions<S: Serializer>(conditions: &[Condition], serializer: S) -> Result<S::Ok, S::Error> {
    let mut by_test: BTreeMap<&str, BTreeMap<&str, &Texts>> = BTreeMap::new();
    for Condition { test, variable, values } in conditions {
        by_test.entry(test).or_default().insert(variable, values);
    }
    by_test.serialize(serializer)
}

/// A value as JSON, on one line or indented.
fn json<T: Serialize>(value: &T, indented: bool) -> String {
    let text = if indented { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    // Texts and lists of them can always be written.
    text.unwrap_or_default()
}

/// A text in double quotes, as JSON and YAML take it.
fn quoted(text: &str) -> String {
    json(&text, false)
}
