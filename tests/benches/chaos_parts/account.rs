//! What the autoscaler was told, call by call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use stoker_sim::model::{CaClient, CaError, ExpanderOption, GroupInfo, GroupOptions, InstanceInfo, NodeRef, Template};
use stoker_simulated::ca_client::GrpcCaClient;

/// The sizes of groups that the answers allow.
#[derive(Debug, Default)]
pub(crate) struct Account(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// The least and the greatest size of each group.
    targets: BTreeMap<String, (i64, i64)>,
    tally: Tally,
}

/// What happened so far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Nodes whose order was acknowledged.
    pub(crate) ordered: i64,
    /// Nodes whose deletion was acknowledged.
    pub(crate) deleted: i64,
    /// Calls that the service refused.
    pub(crate) refused: i64,
    /// Calls over which it died, or that nobody answered.
    pub(crate) cut_off: i64,
}

impl Account {
    /// The least and the greatest size that a group may have.
    pub(crate) fn target(&self, group: &str) -> (i64, i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).targets.get(group).copied().unwrap_or_default()
    }

    /// What happened so far.
    pub(crate) fn tally(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tally
    }

    fn note(&self, group: &str, change: i64, answer: &Result<(), CaError>) {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (least, greatest) = books.targets.entry(group.to_owned()).or_default();
        match answer {
            Ok(()) => {
                *least += change;
                *greatest += change;
                books.tally.ordered += change.max(0);
                books.tally.deleted -= change.min(0);
            }
            // The service's own words: it refused.
            Err(error) if error.message.starts_with("NodeGroup") => books.tally.refused += 1,
            Err(_) => {
                *least += change.min(0);
                *greatest += change.max(0);
                books.tally.cut_off += 1;
            }
        }
    }
}

/// The doors of a service, with an account of what they answer.
pub(crate) struct Counted {
    pub(crate) doors: GrpcCaClient,
    pub(crate) account: Arc<Account>,
}

impl CaClient for Counted {
    async fn refresh(&mut self) -> Result<(), CaError> {
        self.doors.refresh().await
    }
    async fn node_groups(&mut self) -> Result<Vec<GroupInfo>, CaError> {
        self.doors.node_groups().await
    }
    async fn node_group_for_node(&mut self, node: &NodeRef) -> Result<Option<String>, CaError> {
        self.doors.node_group_for_node(node).await
    }
    async fn target_size(&mut self, group: &str) -> Result<i32, CaError> {
        self.doors.target_size(group).await
    }
    async fn increase_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let answer = self.doors.increase_size(group, delta).await;
        self.account.note(group, i64::from(delta), &answer);
        answer
    }
    async fn decrease_target_size(&mut self, group: &str, delta: i32) -> Result<(), CaError> {
        let answer = self.doors.decrease_target_size(group, delta).await;
        // The delta of this call is negative.
        self.account.note(group, i64::from(delta), &answer);
        answer
    }
    async fn delete_nodes(&mut self, group: &str, nodes: &[NodeRef]) -> Result<(), CaError> {
        let answer = self.doors.delete_nodes(group, nodes).await;
        self.account.note(group, -i64::try_from(nodes.len()).unwrap_or(i64::MAX), &answer);
        answer
    }
    async fn nodes(&mut self, group: &str) -> Result<Vec<InstanceInfo>, CaError> {
        self.doors.nodes(group).await
    }
    async fn template(&mut self, group: &str) -> Result<Template, CaError> {
        self.doors.template(group).await
    }
    async fn get_options(&mut self, group: &str, defaults: &GroupOptions) -> Result<Option<GroupOptions>, CaError> {
        self.doors.get_options(group, defaults).await
    }
    async fn gpu_label(&mut self) -> Result<String, CaError> {
        self.doors.gpu_label().await
    }
    async fn best_options(
        &mut self,
        options: &[ExpanderOption],
        templates: &BTreeMap<String, Arc<Template>>,
    ) -> Result<Vec<String>, CaError> {
        self.doors.best_options(options, templates).await
    }
}
