//! Two replicas on one PostgreSQL, and what a Kubernetes Service does for them: it leads to whichever is ready.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::postgres::Postgres;
use super::process::Process;
use crate::http;
use crate::proxy::{Fault, Proxy};
use crate::relay::Relay;

/// The Lease.
pub const LEASE: &str = "stoker/stoker";

/// Roles by which PostgreSQL tells the replicas apart. Both act as the owner.
const ROLES: &str = "
    CREATE ROLE stoker_0 LOGIN IN ROLE stoker;
    CREATE ROLE stoker_1 LOGIN IN ROLE stoker;
    ALTER ROLE stoker_0 SET role = stoker;
    ALTER ROLE stoker_1 SET role = stoker;";

/// Has PostgreSQL write down by which replica each write was made, and who led then.
const AUDIT: &str = "
    CREATE SCHEMA audit;
    CREATE TABLE audit.lead (epoch BIGINT PRIMARY KEY, replica TEXT NOT NULL);
    CREATE TABLE audit.write (epoch BIGINT NOT NULL, replica TEXT NOT NULL, what TEXT NOT NULL);
    CREATE FUNCTION audit.note_lead() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO audit.lead VALUES (NEW.epoch, session_user);
        RETURN NULL;
    END $$;
    CREATE FUNCTION audit.note_write() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO audit.write SELECT epoch, session_user, TG_TABLE_NAME FROM public.leader;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER UPDATE ON leader FOR EACH ROW WHEN (NEW.epoch <> OLD.epoch)
        EXECUTE FUNCTION audit.note_lead();
    DO $$ DECLARE one RECORD; BEGIN
        FOR one IN SELECT tablename FROM pg_tables
            WHERE schemaname = 'public' AND tablename <> 'leader' AND tablename NOT LIKE '\\_sqlx%'
        LOOP
            EXECUTE format('CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON %I
                            FOR EACH STATEMENT EXECUTE FUNCTION audit.note_write()', one.tablename);
        END LOOP;
    END $$;";

/// How often the Service looks who is ready.
const EVERY: Duration = Duration::from_millis(100);

/// Both replicas, and what is between them and everybody else.
pub struct Replicas {
    /// Each by its number.
    pub each: [Replica; 2],
    /// Provider, expander and side port, as the Service has them.
    front: [Arc<Relay>; 3],
    _service: AbortOnDropHandle<()>,
    /// Where both keep their journal.
    pub postgres: Postgres,
}

/// One replica.
pub struct Replica {
    number: usize,
    /// Its process, where it runs.
    pub process: Option<Process>,
    /// Provider, expander, side port, probes.
    pub ports: [u16; 4],
    /// Its own state directory and log.
    pub dir: PathBuf,
    /// Its way to PostgreSQL and to the API server.
    pub ways: [Proxy; 2],
    /// Its access to the cluster, by the second of these.
    pub kubeconfig: PathBuf,
}

impl Replicas {
    /// Starts PostgreSQL and the ways, and no replica yet.
    pub async fn prepare(dir: &Path, ports: [[u16; 4]; 2], kubeconfig: &Path) -> anyhow::Result<Self> {
        let postgres = Postgres::start(&dir.join("postgres")).await?;
        postgres.sql(ROLES).await?;
        let mut each = Vec::new();
        for (number, ports) in ports.into_iter().enumerate() {
            let own = dir.join(format!("replica-{number}"));
            std::fs::create_dir_all(&own)?;
            let database = Proxy::before(SocketAddr::from(([127, 0, 0, 1], postgres.port))).await?;
            let (api, kubeconfig) = way_to_api(kubeconfig, &own).await?;
            each.push(Replica { number, process: None, ports, dir: own, ways: [database, api], kubeconfig });
        }
        let front = [Relay::start().await?, Relay::start().await?, Relay::start().await?].map(Arc::new);
        let service = AbortOnDropHandle::new(tokio::spawn(lead_to_ready(front.clone(), ports)));
        let each = <[Replica; 2]>::try_from(each).ok().context("there are two")?;
        Ok(Self { each, front, _service: service, postgres })
    }

    /// The ports of the Service: provider, expander and side port.
    pub fn front(&self) -> [u16; 3] {
        self.front.each_ref().map(|relay| relay.addr.port())
    }

    /// The number of the replica that is ready; `None` where none is, or more than one.
    pub async fn leader(&self) -> Option<usize> {
        let [first, second] = self.each.each_ref().map(|replica| replica.ports[2]);
        match (is_ready(first).await, is_ready(second).await) {
            (true, false) => Some(0),
            (false, true) => Some(1),
            _ => None,
        }
    }

    /// From here on PostgreSQL writes down who writes. That replica leads now.
    pub async fn audit_writes(&self, leader: usize) -> anyhow::Result<()> {
        let first = format!("INSERT INTO audit.lead SELECT epoch, 'stoker_{leader}' FROM leader;");
        self.postgres.sql(&format!("BEGIN; LOCK TABLE leader; {AUDIT} {first} COMMIT;")).await.map(drop)
    }

    /// Fails if a write was made by a replica that did not lead then. Counts the leaders and the writes.
    pub async fn ensure_only_leaders_wrote(&self) -> anyhow::Result<(u64, u64)> {
        let others = "SELECT w.replica || ' wrote ' || w.what || ' while ' || l.replica || ' led' \
                      FROM audit.write w LEFT JOIN audit.lead l USING (epoch) WHERE l.replica IS DISTINCT FROM w.replica LIMIT 5";
        let others = self.postgres.sql(others).await?;
        ensure!(others.is_empty(), "{others}");
        let counted = self.postgres.sql("SELECT COUNT(*) FROM audit.lead; SELECT COUNT(*) FROM audit.write").await?;
        let (leaders, writes) = counted.split_once('\n').context("two counts")?;
        Ok((leaders.parse()?, writes.parse()?))
    }
}

impl Replica {
    /// The address of the journal by its own way.
    pub fn journal(&self) -> String {
        format!("postgres://stoker_{}@{}/stoker", self.number, self.ways[0].addr)
    }

    /// Lets nothing through to it, or all again.
    pub fn cut(&self, is_cut: bool) {
        for way in &self.ways {
            way.fault.send_replace(if is_cut { Fault::Hangs } else { Fault::None });
        }
    }

    /// Sends its process a signal.
    pub async fn signal(&self, name: &str) -> anyhow::Result<()> {
        self.process.as_ref().context("the replica does not run")?.signal(name).await
    }
}

/// A way to the API server that can be cut, and access by it, in `dir`.
pub async fn way_to_api(kubeconfig: &Path, dir: &Path) -> anyhow::Result<(Proxy, PathBuf)> {
    let access = std::fs::read_to_string(kubeconfig)?;
    let server = access.split_once("https://").and_then(|(_, rest)| rest.split(['"', '\n', ' ']).next());
    let server = server.context("the kubeconfig names no server")?;
    let way = Proxy::before(server.parse().with_context(|| format!("{server} is no address"))?).await?;
    let own = dir.join("kubeconfig");
    std::fs::write(&own, access.replace(server, &way.addr.to_string()))?;
    Ok((way, own))
}

/// New connections go to whichever replica is ready. Those that there are stay where they are as long as it runs, as with a Service.
async fn lead_to_ready(front: [Arc<Relay>; 3], ports: [[u16; 4]; 2]) {
    loop {
        let mut ready = None;
        for replica in ports {
            if is_ready(replica[2]).await {
                ready = Some(replica);
            }
        }
        for (number, relay) in front.iter().enumerate() {
            relay.lead(ready.map(|replica| SocketAddr::from(([127, 0, 0, 1], replica[number]))));
        }
        sleep(EVERY).await;
    }
}

async fn is_ready(port: u16) -> bool {
    let answer = timeout(Duration::from_millis(500), http::get(("127.0.0.1", port), "/readyz")).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| http::is_ok(&answer)))
}
