//! The first step: what a restart finds again, and what is read before anything runs.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::SignedDuration;
use kube::Client;
use stoker_core::base::engine_clock::Resumed;
use stoker_core::base::ids::ClusterName;
use stoker_core::facts::foreign::Promises;
use stoker_core::facts::supply::KeyParts;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::supplier::SupplierRule;
use stoker_core::state::memory::Memory;
use tokio::sync::watch;

use super::standby::{self, Lead};
use super::{KubeOptions, Options, ServeError};
use crate::act::Permit;
use crate::clock::Clock;
use crate::controllers::rollup::SharedRollup;
use crate::kube::client::connect;
use stoker_journal::state_lock::StateLock;
use stoker_journal::{Journal, Restored};

/// The locked state directory, the policy and the journal of a service that has not started yet.
pub struct State {
    pub(super) setup: Setup,
    pub(super) permit: Permit,
    pub(super) journal: Journal,
    pub(super) restored: Restored,
    /// How long nobody watched, or the wall ran ahead.
    pub(super) away: SignedDuration,
    /// The lead among several replicas.
    pub(super) lead: Option<Lead>,
}

/// What every later step reads.
pub(super) struct Setup {
    pub(super) options: Options,
    pub(super) policy: Arc<Policy>,
    pub(super) policy_path: Option<PathBuf>,
    pub(super) client: Option<Client>,
    pub(super) rollup: SharedRollup,
    /// What Karpenter was promised; `None` where nobody steers it.
    pub(super) promised: Option<watch::Receiver<Option<Promises>>>,
}

impl State {
    /// Locks the state directory, reads the policy and opens the journal. Of several replicas one goes on at a time: the others wait here.
    ///
    /// # Errors
    /// Says what is missing or wrong; then nothing changed.
    pub async fn open(options: Options) -> Result<Self, ServeError> {
        crate::listener::install_crypto();
        let lock = StateLock::take(&options.state_dir)?;
        let (mut policy, policy_path) = options.policy.read(&options.book)?;
        let client = match &options.kube {
            KubeOptions::None => None,
            KubeOptions::Kubeconfig(path) => Some(connect(Some(path)).await?),
            KubeOptions::InCluster => Some(connect(None).await?),
        };
        let lead = match (&options.lease, &client) {
            (None, _) => None,
            (Some(lease), None) => return Err(ServeError::NoLease(lease.to_string())),
            (Some(lease), Some(client)) => {
                let lead = standby::wait(client.clone(), lease.clone(), &options).await?;
                // It may have changed meanwhile. One that does not hold is told by whoever follows it.
                if let Ok((changed, _)) = options.policy.read(&options.book) {
                    policy = changed;
                }
                Some(lead)
            }
        };
        let permit = Permit::new(lock, lead.as_ref().map(Lead::leader));
        let (journal, mut restored) = Journal::open(options.place()).await?;
        let away = resume(&options.clock, &journal, &mut restored).await?;
        let rollup = SharedRollup::default();
        // Readings inform people: they keep no node from being supplied.
        if let Err(error) = rollup.restore(&journal.reader(), options.clock.now()).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the readings of the hours under way cannot be read");
        }
        if let Some(other) = other_cluster(&restored.memory, &policy.cluster) {
            return Err(ServeError::OtherCluster { state_dir: options.state_dir, other, cluster: policy.cluster });
        }
        let setup = Setup { options, policy: Arc::new(policy), policy_path, client, rollup, promised: None };
        Ok(Self { setup, permit, journal, restored, away, lead })
    }

    /// With whoever tells what Karpenter was promised of the quotas, `None` until it is known: for policies that steer its limits.
    #[must_use]
    pub fn with_promises(mut self, promised: watch::Receiver<Option<Promises>>) -> Self {
        self.setup.promised = Some(promised);
        self
    }

    /// The cluster that the policy names.
    pub fn cluster(&self) -> &ClusterName {
        &self.setup.policy.cluster
    }

    /// The suppliers that the policy names; whoever there is, where none.
    pub fn suppliers(&self) -> &[SupplierRule] {
        &self.setup.policy.suppliers
    }

    /// The access to the cluster; `None` where none is watched.
    pub const fn client(&self) -> Option<&Client> {
        self.setup.client.as_ref()
    }

    /// What the service was asked to do.
    pub const fn options(&self) -> &Options {
        &self.setup.options
    }
}

/// Goes on from where decision time stood. Where the wall stands elsewhere than it should, all that is remembered moves with it: nothing
/// is waited for until a clock that ran ahead is there again, and nothing is over that is not. Tells how long nobody watched.
async fn resume(clock: &Clock, journal: &Journal, restored: &mut Restored) -> Result<SignedDuration, ServeError> {
    let Some(Resumed { rebase, away, .. }) = restored.mark.as_ref().and_then(|mark| clock.resume(mark)) else {
        return Ok(SignedDuration::ZERO);
    };
    if let Some(by) = rebase {
        tracing::warn!(
            by = %format_args!("{by:#}"),
            "the wall clock was set since Stoker last wrote the time down: what is remembered moves with it"
        );
        restored.memory = restored.memory.rebased(by).map_err(ServeError::Rebase)?;
        let mark = clock.mark();
        journal.rebase(&restored.memory, &mark).await?;
        if let Err(error) = journal.readings().forget_after(mark.now).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "readings from after this moment stay until it has come");
        }
    }
    Ok(away)
}

/// The cluster that remembered nodes belong to, where it is not this one.
fn other_cluster(memory: &Memory, cluster: &ClusterName) -> Option<String> {
    memory.records.values().find_map(|record| {
        let key: KeyParts = record.purchase()?.key.as_str().parse().ok()?;
        (key.cluster != *cluster).then(|| key.cluster.to_string())
    })
}
