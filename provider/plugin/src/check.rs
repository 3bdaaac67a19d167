//! Whether a plugin keeps the rules of the protocol: it makes two machines in a market of the caller's choice, looks at all that is said
//! of them, and ends them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use stoker_core::market::offer::Market;
use stoker_proto::supplier as wire;
use stoker_proto::supplier::outcome::Is;
use stoker_proto::supplier::supplier_client::SupplierClient;
use stoker_service::suppliers::{Pace, Turns};
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::transport::Channel;

use crate::client::Described;
use crate::{PROTOCOL, convert};

/// A rule of the protocol, by the name that `supplier.proto` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Describe names a protocol that this release speaks.
    Versions,
    /// Describe names the same account each time.
    Account,
    /// Each key that was asked has an outcome, in time.
    AnswersAll,
    /// A key makes one machine, for ever.
    SameKey,
    /// What is refused was not made.
    Unclear,
    /// A complete listing has every machine.
    ListsAll,
    /// A machine has one id.
    SameId,
    /// What ends is what was named.
    EndsWhatIsNamed,
    /// A reclaim says when.
    Notice,
    /// A machine that it lists can be read.
    Unknown,
}

impl Rule {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::Versions,
        Self::Account,
        Self::AnswersAll,
        Self::SameKey,
        Self::Unclear,
        Self::ListsAll,
        Self::SameId,
        Self::EndsWhatIsNamed,
        Self::Notice,
        Self::Unknown,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Account => "account",
            Self::AnswersAll => "answers-all",
            Self::SameKey => "same-key",
            Self::Unclear => "unclear",
            Self::ListsAll => "lists-all",
            Self::SameId => "same-id",
            Self::EndsWhatIsNamed => "ends-what-is-named",
            Self::Notice => "notice",
            Self::Unknown => "unknown",
        }
    }
}

/// What became of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It held, as far as was seen.
    Kept,
    /// It did not: what was seen.
    Broken(String),
    /// It could not be tried: why.
    NotTried(String),
}

/// What is checked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cluster that the machines are made for: one that nobody has.
    pub cluster: String,
    /// Where two machines are made.
    pub market: Market,
    /// How long a machine may take to be gone from the listing once its end was asked for.
    pub gone_within: Duration,
}

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(10);

/// How often the same is asked at once.
const AT_ONCE: usize = 8;

/// How long ago a machine may have been launched that was asked for a moment ago, by a clock that is not ours.
const SANE: SignedDuration = SignedDuration::from_hours(1);

/// How old a listing may be.
const FRESH: SignedDuration = SignedDuration::from_mins(2);

/// What was found so far.
struct Check {
    client: SupplierClient<Channel>,
    plan: Plan,
    scope: String,
    /// What the machines are made with: the plugin's first way, or none by name.
    node_class: String,
    /// Calls a second that the plugin takes, and their turns.
    pace: Option<Pace>,
    turns: Turns,
    broken: BTreeMap<Rule, String>,
    tried: BTreeSet<Rule>,
    /// Every id that a key's machine was ever given.
    ids: BTreeMap<String, BTreeSet<String>>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What is known of each rule.
    pub rules: Vec<(Rule, Verdict)>,
    /// Ids of machines that may run on.
    pub left: Vec<String>,
}

/// How long machines are looked for that a launch may still make of which nobody knows how it ended.
const LATE: Duration = Duration::from_secs(20);

/// Checks the plugin behind `client`. What was made is asked to end before this returns.
pub async fn run(client: SupplierClient<Channel>, plan: Plan) -> Checked {
    let mut check = Check {
        client,
        plan,
        scope: String::new(),
        node_class: String::new(),
        pace: None,
        turns: Turns::default(),
        broken: BTreeMap::new(),
        tried: BTreeSet::new(),
        ids: BTreeMap::new(),
    };
    let (stopped, left) = check.all().await;
    let verdict = |rule: Rule| match check.broken.get(&rule) {
        Some(why) => Verdict::Broken(why.clone()),
        None if check.tried.contains(&rule) => Verdict::Kept,
        None => Verdict::NotTried(stopped.clone().unwrap_or_else(|| "nothing that it is about was seen".to_owned())),
    };
    Checked { rules: Rule::ALL.into_iter().map(|rule| (rule, verdict(rule))).collect(), left }
}

/// Why the check cannot go on.
type Stopped = String;

impl Check {
    fn broken(&mut self, rule: Rule, why: impl Into<String>) {
        self.tried.insert(rule);
        self.broken.entry(rule).or_insert_with(|| why.into());
    }

    /// Notes whether a rule held.
    fn holds(&mut self, rule: Rule, held: bool, why: impl FnOnce() -> String) {
        self.tried.insert(rule);
        if !held {
            self.broken(rule, why());
        }
    }

    /// Tries everything. Why it could not go on, and what may run on.
    async fn all(&mut self) -> (Option<Stopped>, Vec<String>) {
        if let Err(stopped) = self.describe().await {
            return (Some(stopped), Vec::new());
        }
        let run = format!("{:08x}", Timestamp::now().as_nanosecond() & 0xffff_ffff);
        let keys = [1, 2].map(|n| format!("{}/check/{run}/{n}/1", self.plan.cluster));
        let made = self.make(&keys).await;
        let ended = self.end(&keys).await;
        let left = self.clean_up(&keys, if made.is_ok() { Duration::ZERO } else { LATE }).await;
        (made.and(ended).err(), left)
    }

    /// Ends whatever was made under these keys, however it was named, also what a broken plugin made twice; what may run on. It is looked for
    /// until nothing was there for so long.
    async fn clean_up(&mut self, keys: &[String], late: Duration) -> Vec<String> {
        let until = Instant::now() + late;
        loop {
            let listed = self.list().await.unwrap_or_default();
            let runs = |made: &wire::Instance| keys.contains(&made.key) && made.state() != wire::State::Stopping;
            let left: Vec<String> = listed.into_iter().filter(runs).map(|made| made.provider_id).collect();
            let over = Instant::now() >= until;
            if !left.is_empty() && self.terminate(left.clone()).await.is_err() && over {
                return left;
            }
            if over {
                return Vec::new();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn describe(&mut self) -> Result<(), Stopped> {
        let asked = || wire::DescribeRequest { stoker_version: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL };
        let mut accounts = BTreeSet::new();
        let mut described = None;
        for _ in 0..2 {
            let answered = answer(self.client.describe(asked())).await.map_err(|why| format!("Describe: {why}"))?;
            accounts.insert(answered.account.clone());
            described = Some(answered);
        }
        let answered = described.unwrap_or_default();
        let protocol = answered.protocol;
        self.holds(Rule::Versions, protocol == PROTOCOL, || {
            format!("Describe was asked with protocol {PROTOCOL} and answers {protocol}")
        });
        let known = accounts.len() == 1 && !accounts.contains("");
        self.holds(Rule::Account, known, || format!("Describe names these accounts, one after the other: {accounts:?}"));
        let described = Described::read_any_protocol(answered).map_err(|why| format!("Describe: {why}"))?;
        let place = (self.plan.market.place.cloud.clone(), self.plan.market.place.region.clone());
        self.pace = described.pace;
        self.node_class = described.node_classes.first().map(ToString::to_string).unwrap_or_default();
        let scope = described.scopes.into_iter().find(|(_, regions)| regions.contains(&place));
        self.scope = scope.map(|(name, _)| name).ok_or_else(|| format!("no scope of it has {}/{}", place.0, place.1))?;
        Ok(())
    }

    fn request(&self, keys: &[String]) -> wire::LaunchRequest {
        let place = &self.plan.market.place;
        wire::LaunchRequest {
            cluster: self.plan.cluster.clone(),
            cloud: place.cloud.to_string(),
            region: place.region.to_string(),
            zone_id: place.zone.to_string(),
            instance_type: place.instance_type.to_string(),
            capacity_type: convert::to_capacity_type(self.plan.market.capacity_type).into(),
            node_class: self.node_class.clone(),
            machines: keys.iter().map(|key| convert::machine(key, Vec::new())).collect(),
            ..wire::LaunchRequest::default()
        }
    }

    /// The outcomes of a launch, by key, at the plugin's pace.
    async fn launch(&self, keys: &[String]) -> Result<BTreeMap<String, Is>, Stopped> {
        self.turns.wait(self.pace).await;
        let answered = answer(self.client.clone().launch(self.request(keys))).await.map_err(|why| format!("Launch: {why}"))?;
        Ok(answered.outcomes.into_iter().filter_map(|outcome| Some((outcome.key, outcome.is?))).collect())
    }

    /// Makes the machines, several times at once, and holds the answers against each other and the listing.
    async fn make(&mut self, keys: &[String]) -> Result<(), Stopped> {
        let begun = Instant::now();
        let first = self.launch(keys).await;
        let in_time = begun.elapsed() <= WITHIN;
        let first = first.inspect_err(|why| self.broken(Rule::AnswersAll, why.clone()))?;
        let missing: Vec<&String> = keys.iter().filter(|key| !first.contains_key(*key)).collect();
        self.holds(Rule::AnswersAll, in_time && missing.is_empty(), || {
            format!("Launch of two keys leaves out {missing:?}, or took longer than {} s", WITHIN.as_secs())
        });
        let outcomes = join_all((0..AT_ONCE).map(|_| self.launch(keys))).await;
        let outcomes: Vec<_> = std::iter::once(first).chain(outcomes.into_iter().flatten()).collect();
        let mut refused = BTreeSet::new();
        for (key, is) in outcomes.iter().flatten() {
            match is {
                Is::Launched(made) => self.seen(key, made),
                Is::Refused(_) => {
                    refused.insert(key.clone());
                }
                Is::Accepted(_) | Is::Unclear(_) => {}
            }
        }
        // What was accepted or unclear shows in the listing.
        let mut listed = self.list().await?;
        for _ in 0..20 {
            if keys.iter().all(|key| refused.contains(key) || listed.iter().any(|made| made.key == *key)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            let _ = self.launch(keys).await;
            listed = self.list().await?;
        }
        for made in &listed {
            self.seen(&made.key, made);
        }
        let there: BTreeSet<&str> = listed.iter().map(|made| made.key.as_str()).collect();
        let wrong: Vec<&String> =
            refused.iter().filter(|key| there.contains(key.as_str()) || self.ids.contains_key(*key)).collect();
        self.holds(Rule::Unclear, wrong.is_empty(), || format!("was refused, and is there all the same: {wrong:?}"));
        if refused.len() == keys.len() && wrong.is_empty() {
            return Err("both launches were refused: choose a market that sells (--market)".to_owned());
        }
        let lacking: Vec<&String> =
            keys.iter().filter(|key| !refused.contains(*key) && !there.contains(key.as_str())).collect();
        self.holds(Rule::ListsAll, lacking.is_empty(), || format!("a complete listing lacks what was launched: {lacking:?}"));
        for key in keys {
            let of_key: BTreeSet<&str> =
                listed.iter().filter(|made| made.key == *key).map(|made| made.provider_id.as_str()).collect();
            self.holds(Rule::SameKey, of_key.len() <= 1, || {
                format!("{key} made several machines: {}", of_key.into_iter().collect::<Vec<_>>().join(", "))
            });
        }
        // Again, as a machine boots.
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            for made in self.list().await? {
                self.seen(&made.key.clone(), &made);
            }
        }
        // Of a key with several machines that is known already.
        let ids = if self.broken.contains_key(&Rule::SameKey) { BTreeMap::new() } else { self.ids.clone() };
        for (key, ids) in ids {
            self.holds(Rule::SameId, ids.len() == 1, || {
                format!("{key} was told of under these ids: {}", ids.into_iter().collect::<Vec<_>>().join(", "))
            });
        }
        Ok(())
    }

    /// Takes note of what the plugin says of a machine.
    fn seen(&mut self, key: &str, made: &wire::Instance) {
        self.ids.entry(key.to_owned()).or_default().insert(made.provider_id.clone());
        let reclaimed = made.state() == wire::State::Reclaiming;
        self.holds(Rule::Notice, !reclaimed || made.gone_at.is_some(), || {
            format!("{} is RECLAIMING, and gone_at does not say when", made.provider_id)
        });
        let read = convert::instance(made.clone());
        if let Ok(read) = &read {
            let asked = self.plan.market.clone();
            self.holds(Rule::SameKey, read.market == asked, || format!("{key} asked for {asked} and made {}", read.market));
            let launched_at = read.launched_at;
            let is_now = Timestamp::now().duration_since(launched_at).abs() < SANE;
            self.holds(Rule::Unknown, is_now, || format!("{} is told to be launched at {launched_at}", made.provider_id));
        }
        let about_a_notice = reclaimed && made.gone_at.is_none();
        self.holds(Rule::Unknown, about_a_notice || read.is_ok(), || {
            let why = read.err().map(|why| why.to_string()).unwrap_or_default();
            format!("what is told of {:?} cannot be read: {why}", made.provider_id)
        });
    }

    /// A complete listing.
    async fn list(&mut self) -> Result<Vec<wire::Instance>, Stopped> {
        let asked = wire::ListRequest { cluster: self.plan.cluster.clone(), scope: self.scope.clone() };
        let mut incomplete = Vec::new();
        // Once it is known that it is never complete, that is not waited for again.
        let tries = if self.broken.contains_key(&Rule::ListsAll) { 1 } else { 10 };
        for _ in 0..tries {
            let mut pages = answer(self.client.list(asked.clone())).await.map_err(|why| format!("List: {why}"))?;
            let mut listed = Vec::new();
            let mut last = None;
            while let Some(page) = pages.next().await {
                let page = page.map_err(|status| format!("List: {}: {}", status.code(), status.message()))?;
                listed.extend(page.instances.iter().cloned());
                if page.last {
                    last = Some(page);
                    break;
                }
            }
            let mut of_others = listed.iter().filter(|made| !made.key.starts_with(&format!("{}/", self.plan.cluster)));
            if let Some(other) = of_others.next() {
                let why = format!("a listing of cluster {} has the machine of {:?}", self.plan.cluster, other.key);
                self.broken(Rule::ListsAll, why);
            }
            let Some(last) = last else {
                self.broken(Rule::ListsAll, "a listing ends without a last page, and without an error");
                return Ok(listed);
            };
            let as_of = last.as_of.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok());
            let fresh = as_of.is_some_and(|at| Timestamp::now().duration_since(at).abs() < FRESH);
            self.holds(Rule::ListsAll, fresh, || match as_of {
                Some(as_of) => format!("the last page is as of {as_of}, and that is not now"),
                None => "the last page says not as of when it is".to_owned(),
            });
            if last.complete {
                return Ok(listed);
            }
            incomplete = listed;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.broken(Rule::ListsAll, "a listing is never complete");
        Ok(incomplete)
    }

    async fn terminate(&mut self, ids: Vec<String>) -> Result<(), Stopped> {
        self.turns.wait(self.pace).await;
        let asked = wire::TerminateRequest { cluster: self.plan.cluster.clone(), provider_ids: ids };
        let answered = answer(self.client.terminate(asked)).await.map_err(|why| format!("Terminate: {why}"))?;
        match answered.ended.into_iter().find(|one| !one.error.is_empty()) {
            Some(one) => Err(format!("Terminate of {}: {}", one.provider_id, one.error)),
            None => Ok(()),
        }
    }

    /// Ends one machine, and looks whether the other stays.
    async fn end(&mut self, keys: &[String]) -> Result<(), Stopped> {
        let listed = self.list().await?;
        let ids: BTreeMap<String, String> = listed.into_iter().map(|made| (made.key, made.provider_id)).collect();
        let [Some(first), Some(second)] = [keys.first(), keys.last()] else { return Ok(()) };
        match (ids.get(first), ids.get(second)) {
            (Some(one), Some(other)) => self.end_one(first, (one.clone(), other.clone())).await,
            _ => Ok(()),
        }
    }

    async fn end_one(&mut self, key: &str, (one, other): (String, String)) -> Result<(), Stopped> {
        let named = self.terminate(vec![one.clone(), "check://no/such/machine".to_owned()]).await;
        self.holds(Rule::EndsWhatIsNamed, named.is_ok(), || {
            format!("ending a machine and one that never was is fine, and is not: {}", named.clone().err().unwrap_or_default())
        });
        let until = Instant::now() + self.plan.gone_within;
        loop {
            let listed = self.list().await?;
            let stays = listed.iter().any(|made| made.provider_id == other && made.state() != wire::State::Stopping);
            let other_named = other.clone();
            self.holds(Rule::EndsWhatIsNamed, stays, || format!("{other_named} was not named, and ends"));
            if listed.iter().all(|made| made.provider_id != one) {
                break;
            }
            if Instant::now() > until {
                let within = self.plan.gone_within.as_secs();
                self.broken(Rule::EndsWhatIsNamed, format!("{one} was told to end and is listed after {within} s"));
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // The key of a machine that ended makes no other.
        let again = self.launch(&[key.to_owned()]).await?;
        let refused = matches!(again.get(key), Some(Is::Refused(refused)) if refused.class() == wire::RefusalClass::Invalid);
        self.holds(Rule::SameKey, refused, || format!("the machine of {key} has ended, and its key is not refused as INVALID"));
        Ok(())
    }
}

/// What a call answers, in time.
async fn answer<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, String> {
    match tokio::time::timeout(WITHIN, call).await {
        Ok(Ok(answered)) => Ok(answered.into_inner()),
        Ok(Err(status)) => Err(format!("{}: {}", status.code(), status.message())),
        Err(_) => Err(format!("no answer within {} s", WITHIN.as_secs())),
    }
}
