//! Orders and deletions of one group, one after the other, with an account of what was answered.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_tests::client::{Client, registered, status};
use stoker_tests::process::Process;

use super::answered;

/// Nodes of a group above which it is not grown.
const MOST: usize = 20;

/// The account of one group.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) group: &'static str,
    /// Nodes that the group must have.
    nodes: usize,
    /// The call over which the service died.
    open: Option<Open>,
    /// Nodes that were ever asked for, answered or not.
    asked: usize,
    /// Machines whose deletion was accepted.
    pub(crate) deleted: BTreeSet<String>,
    /// Calls over which the service died.
    pub(crate) cut_off: usize,
}

#[derive(Debug)]
enum Open {
    Increase(usize),
    Delete(String),
}

impl Load {
    pub(crate) const fn new(group: &'static str) -> Self {
        Self { group, nodes: 0, open: None, asked: 0, deleted: BTreeSet::new(), cut_off: 0 }
    }

    /// Nodes that were ever asked for.
    pub(crate) const fn asked(&self) -> usize {
        self.asked
    }

    /// The numbers of nodes that the group may have.
    pub(crate) fn possible(&self) -> Vec<usize> {
        match &self.open {
            None => vec![self.nodes],
            Some(Open::Increase(more)) => vec![self.nodes, self.nodes + more],
            Some(Open::Delete(_)) => vec![self.nodes, self.nodes - 1],
        }
    }

    /// Finds out what became of the call over which the last service died: it was done wholly or not at all.
    pub(crate) async fn resolve(&mut self, process: &Process, case: &str) {
        let target = usize::try_from(process.client.target(self.group).await.unwrap()).unwrap();
        let possible = self.possible();
        self.cut_off += usize::from(self.open.is_some());
        assert!(possible.contains(&target), "{case}: {} has a target of {target}, expected one of {possible:?}", self.group);
        if let Some(Open::Delete(id)) = self.open.take()
            && target < self.nodes
        {
            self.deleted.insert(id);
        }
        self.nodes = target;
    }

    /// Orders and deletes until the service is gone.
    pub(crate) async fn run(&mut self, client: &Client, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        loop {
            let Ok(instances) = client.nodes(self.group).await else { return };
            let running = instances.iter().filter(|i| status(i).0 == InstanceState::InstanceRunning);
            let running: Vec<&str> = running.map(|i| i.id.as_str()).collect();
            let shrink = !running.is_empty() && (self.nodes >= MOST || rng.random_bool(0.5));
            if shrink {
                let id = running[rng.random_range(0..running.len())];
                self.open = Some(Open::Delete(id.to_owned()));
                match answered(&client.delete(self.group, vec![registered(id, id)]).await) {
                    Some(accepted) => {
                        assert!(accepted, "a deletion was refused");
                        self.nodes -= 1;
                        self.deleted.insert(id.to_owned());
                    }
                    None => return,
                }
            } else if self.nodes < MOST {
                let more = rng.random_range(1..=3);
                self.open = Some(Open::Increase(more));
                self.asked += more;
                match answered(&client.increase(self.group, i32::try_from(more).unwrap()).await) {
                    Some(accepted) => {
                        if accepted {
                            self.nodes += more;
                        } else {
                            self.asked -= more;
                        }
                    }
                    None => return,
                }
            }
            self.open = None;
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..25))).await;
        }
    }
}
