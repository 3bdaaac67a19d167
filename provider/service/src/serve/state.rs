//! The first step: what a restart finds again, and what is read before anything runs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use stoker_core::base::engine_clock::Resumed;
use stoker_core::base::ids::ClusterName;
use stoker_core::facts::foreign::Promises;
use stoker_core::facts::supply::KeyParts;
use stoker_core::policy::Policy;
use stoker_core::policy::rules::supplier::SupplierRule;
use stoker_core::state::memory::Memory;
use tokio::sync::{Notify, watch};

use super::standby::{self, Lead};
use super::{KubeOptions, Options, ServeError};
use crate::act::Permit;
use crate::clock::Clock;
use crate::controllers::rollup::SharedRollup;
use crate::kube::client::connect;
use crate::kube::feed::KubeFeed;
use stoker_journal::state_lock::StateLock;
use stoker_journal::{Journal, JournalError, Place, Restored};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// How long a replica that leads may take to open the journal, which it may have to bring to its schema.
const OPENED_WITHIN: Duration = Duration::from_mins(2);

/// The locked state directory, the policy and the journal of a service that has not started yet.
pub struct State {
    pub(super) setup: Setup,
    pub(super) permit: Arc<Permit>,
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
    /// Wakes the engine.
    pub(super) wake: Arc<Notify>,
    /// What a replica has followed of the cluster while it waited to lead. Of images it knows those that pods used meanwhile.
    pub(super) warm: Option<WarmFeed>,
}

/// A feed of the cluster that runs already.
pub(super) struct WarmFeed {
    pub(super) feed: KubeFeed,
    pub(super) following: AbortOnDropHandle<()>,
}

impl State {
    /// Locks the state directory, reads the policy and opens the journal. Of several replicas one goes on at a time: the others wait here.
    ///
    /// # Errors
    /// Says what is missing or wrong; then nothing changed.
    pub async fn open(options: Options) -> Result<Self, ServeError> {
        let mut lead = None;
        let opened = Self::open_as(options, &mut lead).await;
        if let (Err(_), Some(lead)) = (&opened, &lead) {
            lead.give_back().await;
        }
        opened
    }

    /// The same. `lead` is filled once this replica leads, so that whoever gives up here can give the Lease back.
    ///
    /// # Errors
    /// As above.
    pub async fn open_as(options: Options, won: &mut Option<Lead>) -> Result<Self, ServeError> {
        crate::listener::install_crypto();
        let lock = StateLock::take(&options.state_dir)?;
        let (mut policy, policy_path) = options.policy.read(&options.book)?;
        let mut client = match &options.kube {
            KubeOptions::None => None,
            KubeOptions::Kubeconfig(path) => Some(connect(Some(path)).await?),
            KubeOptions::InCluster => Some(connect(None).await?),
        };
        let (wake, mut warm) = (Arc::<Notify>::default(), None);
        let lead = match (&options.lease, client.clone()) {
            (None, _) => {
                Journal::ensure_alone(&options.place()).await?;
                None
            }
            (Some(lease), None) => return Err(ServeError::NoLease(lease.to_string())),
            (Some(lease), Some(client)) => {
                let (feed, follow) = KubeFeed::start_knowing(
                    &client,
                    &policy.cluster,
                    BTreeSet::new(),
                    options.clock.clone(),
                    Arc::clone(&wake),
                );
                warm = Some(WarmFeed { feed, following: AbortOnDropHandle::new(tokio::spawn(follow)) });
                let lead = standby::wait(client, lease.clone(), &options, won).await?;
                // It may have changed meanwhile.
                match options.policy.read(&options.book) {
                    Ok((changed, _)) => policy = changed,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "the policy file does not hold: this replica leads by what it said at its start");
                    }
                }
                Some(lead)
            }
        };
        let leader = lead.as_ref().map(Lead::leader);
        if let Some(leader) = &leader {
            client = client.map(|client| leader.guard(client));
        }
        let permit = Arc::new(Permit::new(lock, leader));
        let place = options.place();
        let rollup = SharedRollup::default();
        let opened = async {
            let (journal, mut restored) = open_journal(&place, &policy.cluster, &permit).await?;
            let away = resume(&options.clock, &journal, &mut restored).await?;
            // Readings inform people: they keep no node from being supplied.
            if let Err(error) = rollup.restore(&journal.reader(), options.clock.now()).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the readings of the hours under way cannot be read");
            }
            Ok::<_, ServeError>((journal, restored, away))
        };
        let (journal, restored, away) = match &lead {
            None => opened.await?,
            // PostgreSQL may be silent, and the other replica may reach it.
            Some(lead) => tokio::select! {
                opened = timeout(OPENED_WITHIN, opened) => opened.map_err(|_| ServeError::SilentJournal(place.to_string()))??,
                () = lead.lost() => return Err(ServeError::LostLead),
            },
        };
        let policy = Arc::new(policy);
        let setup = Setup { options, policy, policy_path, client, rollup, promised: None, wake, warm };
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

/// Opens the journal of that cluster. That of another is left as it is, with whoever leads there.
async fn open_journal(place: &Place, cluster: &ClusterName, permit: &Permit) -> Result<(Journal, Restored), ServeError> {
    let is_ours = |memory: &Memory| match other_cluster(memory, cluster) {
        Some(other) => Err(ServeError::OtherCluster { journal: place.to_string(), other, cluster: cluster.clone() }),
        None => Ok(()),
    };
    if let Place::Database(_) = place {
        match Journal::open_read_only(place.clone()).await {
            Ok(reader) => {
                let memory = reader.memory().await;
                reader.close().await;
                is_ours(&memory?)?;
            }
            Err(JournalError::Missing { .. } | JournalError::Older { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (journal, restored) = Journal::open_while(place, &|| permit.is_valid()).await?;
    is_ours(&restored.memory)?;
    Ok((journal, restored))
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
