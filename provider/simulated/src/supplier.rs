//! The simulated supplier: the embedded default. A thin host around the pure world of `stoker-sim` that keeps its machines across a
//! `kill -9`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::base::engine_clock::{JUMP, Wall};
use stoker_core::base::ids::{ClusterName, IdError, LaunchKey, ProviderId, SupplierName};
use stoker_core::facts::supply::{Instance, InstanceState, LaunchOutcome, LaunchRequest, MarketFacts, Observation};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Fault;
use stoker_journal::private;
use stoker_sim::world::{StoredInstance, World, WorldConfig};

use stoker_service::clock::Clock;
use stoker_service::suppliers::{Launch, SIMULATED, Supplier, SupplierError};
use tokio::sync::watch;

/// Why the simulated world could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// Its file cannot be read or written.
    #[error("{}: {doing}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A line of its file is no machine.
    #[error("{}:{line}: not a machine of the simulated world; remove the file to start a new world", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Its configuration does not hold.
    #[error("the world file is invalid:\n{}", .0.iter().map(|f| format!("  {f}")).collect::<Vec<_>>().join("\n"))]
    Config(Vec<Fault>),
    /// Its name is no id.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// The first line of the world's file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    /// When the world began.
    start: Timestamp,
}

/// The simulated supplier.
pub struct Simulated {
    name: SupplierName,
    cluster: ClusterName,
    clock: Clock,
    world: Mutex<Hosted>,
    /// Whether calls are left without an answer.
    hangs: watch::Sender<bool>,
}

struct Hosted {
    world: World,
    log: Option<Log>,
    /// Rows that could not be written yet, the newest of a machine last.
    unwritten: Vec<StoredInstance>,
}

struct Log {
    file: File,
    /// Bytes of it that are whole lines.
    whole: u64,
}

impl Simulated {
    /// A world that lives as long as this process.
    ///
    /// # Errors
    /// When the configuration does not hold.
    pub fn in_memory(cluster: ClusterName, config: WorldConfig, book: &PriceBook, clock: Clock) -> Result<Self, WorldError> {
        let world = World::new(config, book, clock.now()).map_err(WorldError::Config)?;
        Self::host(cluster, clock, world, None)
    }

    /// A world that is kept in a file: one line for each machine made or told to end, flushed to disk before the supplier answers.
    ///
    /// # Errors
    /// When the file cannot be read or written, holds anything else, or the configuration does not hold.
    pub fn durable(
        cluster: ClusterName,
        config: WorldConfig,
        book: &PriceBook,
        clock: Clock,
        path: &Path,
    ) -> Result<Self, WorldError> {
        let (start, mut rows, mut whole) = read(path)?;
        let fresh = start.is_none();
        let mut start = start.unwrap_or_else(|| clock.now());
        let latest = rows.iter().map(StoredInstance::written_at).fold(start, Ord::max);
        let ahead = latest.duration_since(clock.now());
        if ahead > JUMP {
            // The clock ran ahead when this was written: its machines would stand still until it is there again.
            start = start.saturating_sub(ahead).unwrap_or(start);
            rows = rows.into_iter().map(|row| row.moved(-ahead)).collect();
            whole = rewrite(path, start, &rows)?;
        }
        let world = World::restore(config, book, start, rows).map_err(WorldError::Config)?;
        let failed = |doing| move |source| WorldError::File { path: path.to_owned(), doing, source };
        let mut file = private::options().append(true).open(path).map_err(failed("opening it"))?;
        private::restrict(path).map_err(failed("opening it"))?;
        // A line torn by a crash was never answered for: it goes.
        file.set_len(whole).map_err(failed("cutting a torn line"))?;
        let mut log = Log { file: file.try_clone().map_err(failed("opening it"))?, whole };
        if fresh {
            let header = serde_json::to_string(&Header { start }).unwrap_or_default() + "\n";
            file.write_all(header.as_bytes()).and_then(|()| file.sync_data()).map_err(failed("writing to it"))?;
            log.whole += header.len() as u64;
        }
        Self::host(cluster, clock, world, Some(log))
    }

    fn host(cluster: ClusterName, clock: Clock, world: World, log: Option<Log>) -> Result<Self, WorldError> {
        let name = SupplierName::new(SIMULATED)?;
        let world = Mutex::new(Hosted { world, log, unwritten: Vec::new() });
        Ok(Self { name, cluster, clock, world, hangs: watch::Sender::new(false) })
    }

    /// Leaves calls without an answer, or answers again, those too that wait.
    pub fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// Every machine that runs for this cluster now, and whether it has booted. What the cloud itself would know: never partial.
    pub fn machines(&self, now: Timestamp) -> Vec<(std::sync::Arc<Instance>, bool)> {
        let mut hosted = self.lock();
        hosted.world.advance(now);
        hosted
            .world
            .machines_of(&self.cluster)
            .map(|made| {
                let up = made.state != InstanceState::Stopping && hosted.world.has_booted(&made.provider_id, now);
                (std::sync::Arc::clone(made), up)
            })
            .collect()
    }

    /// The next moment at which a machine changes by itself.
    pub fn next_event(&self, now: Timestamp) -> Option<Timestamp> {
        self.lock().world.next_event(now)
    }

    fn lock(&self) -> MutexGuard<'_, Hosted> {
        // The world is whole after each call; a panic inside one is a defect that its own tests would have shown.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Real clouds take their time; a virtual clock does not wait for them.
    async fn answer_time(&self, now: Timestamp, call: &str) {
        // The sender lives as long as this supplier.
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
        if !self.clock.is_moved_by_hand() {
            let latency = self.lock().world.answer_latency(now, call);
            tokio::time::sleep(latency).await;
        }
    }

    fn error(&self, message: String) -> SupplierError {
        SupplierError { supplier: self.name.clone(), message }
    }
}

impl Hosted {
    /// Writes down what changed. What cannot be written must not be answered for: the caller then says that it does not know, and it is
    /// written with what changes next.
    fn flush(&mut self) -> std::io::Result<()> {
        self.unwritten.extend(self.world.take_dirty().into_iter().map(|(_, row)| row));
        let Some(Log { file, whole }) = &mut self.log else {
            self.unwritten.clear();
            return Ok(());
        };
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for row in &self.unwritten {
            text.push_str(&serde_json::to_string(row)?);
            text.push('\n');
        }
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // Nothing may be added to half a line.
            file.set_len(*whole)?;
            return Err(error);
        }
        *whole += text.len() as u64;
        self.unwritten.clear();
        Ok(())
    }
}

/// Writes a world's file anew; how many bytes it has.
fn rewrite(path: &Path, start: Timestamp, rows: &[StoredInstance]) -> Result<u64, WorldError> {
    let failed = |source| WorldError::File { path: path.to_owned(), doing: "writing it anew", source };
    let text = |value: serde_json::Result<String>| value.map_err(|error| failed(error.into()));
    let mut lines = vec![text(serde_json::to_string(&Header { start }))?];
    for row in rows {
        lines.push(text(serde_json::to_string(row))?);
    }
    let whole = lines.join("\n") + "\n";
    let fresh = path.with_extension("new");
    let mut file = private::options().write(true).truncate(true).open(&fresh).map_err(failed)?;
    file.write_all(whole.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)?;
    Ok(whole.len() as u64)
}

/// Reads a world's file: when it began, its machines, and how many bytes of it are whole lines.
fn read(path: &Path) -> Result<(Option<Timestamp>, Vec<StoredInstance>, u64), WorldError> {
    let failed = |doing| move |source| WorldError::File { path: path.to_owned(), doing, source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((None, Vec::new(), 0)),
        Err(error) => return Err(failed("opening it")(error)),
    };
    let mut reader = BufReader::new(file);
    let (mut start, mut rows, mut whole) = (None, Vec::new(), 0);
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        let bytes = reader.read_line(&mut text).map_err(failed("reading it"))?;
        if bytes == 0 || !text.ends_with('\n') {
            break;
        }
        let bad = |source| WorldError::Line { path: path.to_owned(), line, source };
        if line == 1 {
            start = Some(serde_json::from_str::<Header>(&text).map_err(bad)?.start);
        } else {
            rows.push(serde_json::from_str(&text).map_err(bad)?);
        }
        whole += bytes as u64;
    }
    Ok((start, rows, whole))
}

impl Supplier for Simulated {
    fn name(&self) -> &SupplierName {
        &self.name
    }

    fn max_in_flight(&self) -> usize {
        self.lock().world.max_in_flight().try_into().unwrap_or(usize::MAX)
    }

    fn launch(&self, now: Timestamp, batch: Vec<Launch>) -> BoxFuture<'_, Vec<(LaunchKey, LaunchOutcome)>> {
        async move {
            let batch: Vec<LaunchRequest> = batch.into_iter().map(|launch| launch.request).collect();
            self.answer_time(now, "launch").await;
            let mut hosted = self.lock();
            let outcomes = hosted.world.launch(now, &self.cluster, &batch);
            match hosted.flush() {
                Ok(()) => outcomes,
                Err(error) => {
                    let message = format!("the simulated world could not be saved: {error}");
                    let unclear = |(key, _)| (key, LaunchOutcome::unclear(message.clone()));
                    outcomes.into_iter().map(unclear).collect()
                }
            }
        }
        .boxed()
    }

    fn observe(&self, now: Timestamp) -> BoxFuture<'_, Result<Observation, SupplierError>> {
        async move {
            self.answer_time(now, "observe").await;
            self.lock().world.observe(now, &self.cluster).map_err(|message| self.error(message))
        }
        .boxed()
    }

    fn terminate(&self, now: Timestamp, ids: Vec<ProviderId>) -> BoxFuture<'_, Vec<(ProviderId, Result<(), SupplierError>)>> {
        async move {
            self.answer_time(now, "terminate").await;
            let mut hosted = self.lock();
            let results = hosted.world.terminate(now, &ids);
            let flushed = hosted.flush().map_err(|error| format!("the simulated world could not be saved: {error}"));
            results
                .into_iter()
                .map(|(id, result)| (id, result.and_then(|()| flushed.clone()).map_err(|message| self.error(message))))
                .collect()
        }
        .boxed()
    }

    fn market_facts(&self, wall: Wall) -> BoxFuture<'_, Result<MarketFacts, SupplierError>> {
        async move { Ok(self.lock().world.market_facts(wall.0)) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn cluster() -> ClusterName {
        ClusterName::new("test").unwrap()
    }

    fn request(key: &str, simulated: &Simulated, book: &PriceBook) -> LaunchRequest {
        let hosted = simulated.lock();
        let (market, _) = book
            .entries()
            .find(|(m, _)| {
                m.capacity_type == stoker_core::market::offer::CapacityType::OnDemand && hosted.world.stock_left(m) > 3
            })
            .unwrap();
        LaunchRequest {
            key: LaunchKey::new(key).unwrap(),
            group: stoker_core::base::ids::NodeGroupId::new("g").unwrap(),
            market: market.clone(),
            zone_name: stoker_core::base::ids::ZoneName::from(&market.place.zone),
            reservation: None,
        }
    }

    fn calm() -> WorldConfig {
        let mut config = WorldConfig::default();
        config.api.error_rate = 0.0;
        config.api.partial_listing_rate = 0.0;
        config
    }

    #[tokio::test]
    async fn machines_outlive_the_process_and_a_torn_line_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("world.jsonl");
        let book = stoker_pricing::embedded().unwrap();
        let now = Timestamp::now();
        let clock = Clock::Virtual(stoker_service::clock::VirtualClock::new(now));
        let open = || Simulated::durable(cluster(), calm(), &book, clock.clone(), &path).unwrap();
        let first = open();
        let asked = request("test/g/1/1", &first, &book);
        let made = first.launch(now, vec![asked.clone().into()]).await;
        assert!(matches!(made[0].1, LaunchOutcome::Launched(_)), "{made:?}");
        drop(first);
        File::options().append(true).open(&path).unwrap().write_all(b"{\"key\": \"te").unwrap();
        let second = open();
        let rights = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(rights & 0o777, 0o600, "it tells what is bought");
        assert_eq!(second.observe(now).await.unwrap().instances.len(), 1);
        // The same key makes nothing new.
        assert_eq!(second.launch(now, vec![asked.into()]).await, made);
        assert_eq!(second.observe(now).await.unwrap().instances.len(), 1);
    }

    /// A wall that ran a day ahead is right again after a restart: the machine boots as if it had just been made, and so it is next time.
    #[tokio::test]
    async fn a_world_that_was_written_ahead_goes_on_from_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("world.jsonl");
        let book = stoker_pricing::embedded().unwrap();
        let now = Timestamp::now();
        let at = |time| {
            let clock = Clock::Virtual(stoker_service::clock::VirtualClock::new(time));
            Simulated::durable(cluster(), calm(), &book, clock, &path).unwrap()
        };
        let tomorrow = now + SignedDuration::from_hours(24);
        let ahead = at(tomorrow);
        ahead.launch(tomorrow, vec![request("test/g/1/1", &ahead, &book).into()]).await;
        drop(ahead);
        for _ in 0..2 {
            let again = at(now);
            let instances = again.observe(now).await.unwrap().instances;
            assert_eq!(instances.values().map(|made| made.launched_at).collect::<Vec<_>>(), [now]);
            let later = now + SignedDuration::from_hours(1);
            assert!(again.machines(later).iter().all(|(_, up)| *up), "it boots within the hour");
        }
    }

    #[test]
    fn a_file_that_is_no_world_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("world.jsonl");
        std::fs::write(&path, "hello\n").unwrap();
        let book = stoker_pricing::embedded().unwrap();
        let error = Simulated::durable(cluster(), calm(), &book, Clock::system(), &path).err().unwrap();
        assert!(error.to_string().contains("world.jsonl:1"), "{error}");
    }
}
