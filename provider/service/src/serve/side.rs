//! What the side port shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::registry::Registry;
use serde_json::json;
use stoker_core::plan::JournalFault;
use stoker_core::policy::rules::demand::Demand;
use stoker_core::state::budget::Stage;
use stoker_core::state::cordon::CordonReason;
use stoker_core::state::node_verdict::Verdict;
use stoker_core::state::record::{Record, State};
use stoker_journal::Reader;
use tokio::sync::watch;

use crate::api::console::{Access, Console, ConsoleText, Sources};
use crate::api::side::{Condition, Health, SideState};
use crate::clock::Clock;
use crate::controllers::rollup::SharedRollup;
use crate::engine::EngineHandle;
use crate::feeds::prometheus::People;
use crate::kube::feed::Guests;
use crate::kube::feed::KubeFeed;
use crate::publish::observer::Observer;
use crate::publish::picture::Picture;
use crate::publish::telemetry::{Feed, Metrics};
use crate::suppliers::Standings;

/// A loop that has made no pass for so long is stuck: it makes one every 10 s whether or not anything happens.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// A feed whose facts are older is told of. Suppliers are asked each 2 s and Prometheus each half minute; after
/// [`stoker_core::decide::STALE_INVENTORY`] nothing is decided by an inventory any more.
const FEED_OLD: SignedDuration = SignedDuration::from_mins(1);

/// How busy a GPU was so long ago is not shown as if it were now. Probes report every few seconds, Prometheus each half minute.
const ACTIVITY_OLD: SignedDuration = SignedDuration::from_mins(2);

/// What the console needs beside the other answers.
pub(super) struct OfConsole {
    pub(super) access: Arc<Access>,
    pub(super) text: Arc<dyn ConsoleText>,
    pub(super) journal: Reader,
    /// How many streams of updates there may be.
    pub(super) streams: usize,
}

/// The side port's answers.
#[expect(clippy::too_many_arguments, reason = "each is a part of the service that it shows")]
pub(super) fn state(
    registry: Registry,
    handle: EngineHandle,
    observer: Arc<Observer>,
    policy_fault: Option<watch::Receiver<Option<String>>>,
    kube: Option<KubeFeed>,
    certificates: BTreeMap<&'static str, watch::Receiver<Option<String>>>,
    (demand, people): (watch::Receiver<Arc<Demand>>, People),
    standings: Standings,
    metrics: Metrics,
    rollup: SharedRollup,
    clock: Clock,
    debug: bool,
    console: Option<OfConsole>,
) -> SideState {
    let (for_health, for_ready, for_view, for_picture) =
        (Arc::clone(&observer), handle.clone(), handle.clone(), handle.clone());
    let of_file = policy_fault.clone();
    let console_clock = clock.clone();
    let picture_clock = clock.clone();
    let cluster = kube.as_ref().map(KubeFeed::facts);
    let health_handle = for_ready.clone();
    let guests = kube.as_ref().map(KubeFeed::guests);
    let for_listed = standings.clone();
    let of_token = console.as_ref().map(|console| Arc::clone(&console.access)).filter(|access| access.has_token());
    let mut state = SideState {
        registry: Arc::new(registry),
        debug,
        healthy: Box::new(move || {
            let at = health_handle.view().at;
            let silent = clock.now().duration_since(for_health.last_pass().map_or(at, |last| last.max(at)));
            if silent > STUCK_AFTER {
                Health::Stuck(format!("no decision has been made for {} s", silent.as_secs()))
            } else {
                Health::Alive
            }
        }),
        ready: Arc::new(move || {
            let mut conditions = Vec::new();
            conditions.push(match &for_ready.view().ready {
                Ok(()) => Condition::good("view"),
                Err(why) => Condition::not_ready("view", why.to_string()),
            });
            if let Some(fault) = &policy_fault {
                conditions.push(match fault.borrow().as_ref() {
                    None => Condition::good("policy"),
                    Some(fault) => Condition::degraded("policy", format!("{fault} (the last good policy is in use)")),
                });
            }
            if let Some(kube) = &kube {
                conditions.push(match kube.standing() {
                    Ok(()) => Condition::good("kubernetes"),
                    // The view is shown until the feed counts as broken.
                    Err(shaky) if kube.healthy() => Condition::degraded("kubernetes", shaky.to_string()),
                    Err(shaky) => Condition::not_ready("kubernetes", shaky.to_string()),
                });
            }
            // Of the watches the condition above tells more.
            conditions.extend(metrics.feed_ages().into_iter().filter(|(feed, _)| *feed != Feed::Kubernetes).map(
                |(feed, age)| {
                    let name = format!("feed {feed}");
                    if age <= FEED_OLD {
                        Condition::good(name)
                    } else {
                        Condition::degraded(name, format!("no answer for {} s", age.as_secs()))
                    }
                },
            ));
            for (listener, status) in &certificates {
                let name = format!("{listener} certificate");
                conditions.push(match status.borrow().as_ref() {
                    None => Condition::good(name),
                    Some(fault) => Condition::degraded(name, fault.clone()),
                });
            }
            conditions.extend(of_token.as_ref().map(|access| match access.fault() {
                None => Condition::good("console token"),
                Some(why) => Condition::degraded("console token", why),
            }));
            conditions.extend(for_ready.view().accounts.budgets.iter().map(|budget| {
                let name = format!("budget of {}", budget.of);
                match budget.stage {
                    Stage::Ample => Condition::good(name),
                    Stage::Near | Stage::SpotOnly | Stage::Spent => Condition::degraded(name, budget.in_words()),
                }
            }));
            conditions.extend(
                for_ready
                    .view()
                    .memory
                    .faults
                    .iter()
                    .map(|fault| Condition::degraded(format!("consistency check of {}", fault.concern), fault.to_string())),
            );
            let view = for_ready.view();
            let unlisted = for_listed.unlisted(&view.catalogue, &view.memory);
            conditions.extend(
                unlisted.into_iter().map(|(supplier, why)| Condition::degraded(format!("machines of {supplier}"), why)),
            );
            conditions.extend(observer.journal_faults().into_iter().map(|(fault, why)| match fault {
                JournalFault::Unwritable => Condition::not_ready("journal", why),
                JournalFault::ReserveUsed | JournalFault::Lost | JournalFault::Damaged => Condition::degraded("journal", why),
            }));
            conditions
        }),
        view: Box::new(move || {
            let guests = guests.as_ref().map(|guests| guests.borrow().clone());
            let demand = Arc::clone(&demand.borrow());
            view(&for_view, guests.as_deref(), &demand, &standings)
        }),
        picture: Arc::new(move || {
            let (now, facts) = (picture_clock.now(), cluster.as_ref().and_then(|cluster| cluster.borrow().clone()));
            let fresh = now.saturating_sub(ACTIVITY_OLD).unwrap_or(Timestamp::MIN);
            Picture::of(&for_picture.view(), facts.as_deref(), rollup.activity(fresh), now)
        }),
        signals: Box::new(move || {
            let people = people.clone();
            Box::pin(async move { people.signals().await })
        }),
        console: None,
    };
    state.console = console.map(|OfConsole { access, text, journal, streams }| {
        let sources = Sources {
            picture: Arc::clone(&state.picture),
            conditions: Arc::clone(&state.ready),
            policy: Box::new(move || Arc::clone(&handle.view().catalogue.policy)),
            policy_fault: of_file,
            journal,
            text,
            clock: console_clock,
        };
        Arc::new(Console::new(access, sources, streams))
    });
    state
}

/// What people call a node: its name in the cluster, else its machine.
fn called(record: &Record) -> &str {
    match &record.state {
        State::Registered { node: Some(node), .. } => node.as_str(),
        _ => record.shown_id().as_str(),
    }
}

/// The view as JSON: what `stoker groups` reads.
fn view(handle: &EngineHandle, guests: Option<&Guests>, demand: &Demand, standings: &Standings) -> serde_json::Value {
    let view = handle.view();
    let guests: Vec<_> = guests
        .into_iter()
        .flatten()
        .map(|(pod, guest)| json!({ "pod": pod, "node": guest.node, "group": view.owner("", guest.node.as_str()) }))
        .collect();
    let groups: Vec<_> = view
        .groups
        .values()
        .map(|shown| {
            json!({
                "group": shown.group.id,
                "pool": shown.group.pool,
                "instanceType": shown.group.place.instance_type,
                "zone": shown.group.zone_name,
                "gpuModel": shown.group.spec.gpu_model,
                "gpus": shown.group.spec.advertised_gpus(),
                "slices": shown.group.slices,
                "target": shown.limits.target,
                "min": shown.limits.min,
                "max": shown.limits.max,
                "busy": shown.limits.busy,
                "paid": shown.limits.paid,
                "free": shown.limits.free,
                "listed": shown.limits.listed,
                "nextPriceMicroUsdPerHour": shown.limits.next_price,
                "nextPaidMicroUsdPerHour": shown.limits.next_paid,
                "closed": shown.limits.closed.as_ref().map(ToString::to_string),
                "instances": shown.instances.iter().map(|i| json!({ "id": i.id, "state": format!("{:?}", i.state) })).collect::<Vec<_>>(),
            })
        })
        .collect();
    let going = view.memory.disruptions.iter().filter(|(_, disruption)| disruption.is_open()).filter_map(|(id, disruption)| {
        let node = called(view.memory.records.get(id)?);
        Some(json!({ "node": node, "why": disruption.why.to_string(), "stands": disruption.stage.to_string() }))
    });
    let cordoned = view.memory.cordons.iter().filter(|(_, cordoned)| cordoned.is_closed()).filter_map(|(id, cordoned)| {
        let record = view.memory.records.get(id)?;
        let judged = record.judged.as_ref().filter(|judged| judged.verdict == Verdict::Unhealthy);
        let of_hardware = judged.filter(|_| cordoned.why == CordonReason::Unhealthy).map(|judged| format!(": {}", judged.why));
        let why = format!("{}{}", cordoned.why, of_hardware.unwrap_or_default());
        Some(json!({ "node": called(record), "why": why }))
    });
    let kept = view.accounts.kept.iter().filter_map(|(id, why)| {
        let node = called(view.memory.records.get(id)?);
        Some(json!({ "node": node, "why": why.to_string(), "until": why.until() }))
    });
    let areas = view.memory.refused_areas.iter().filter(|(_, backoff)| backoff.until > view.at);
    let areas = areas.map(|(area, backoff)| {
        let why = format!("{}: {}", backoff.kind, backoff.message);
        json!({ "area": area.to_string(), "until": backoff.until, "why": why })
    });
    json!({
        "at": view.at,
        "suppliers": standings.now(&view.catalogue, &view.memory),
        "refusedAreas": areas.collect::<Vec<_>>(),
        "ready": view.ready.as_ref().err().map(ToString::to_string),
        "faults": view.memory.faults,
        "session": view.memory.session,
        "groups": groups,
        "leaving": going.collect::<Vec<_>>(),
        "aside": cordoned.collect::<Vec<_>>(),
        "kept": kept.collect::<Vec<_>>(),
        "budgets": view.accounts.budgets,
        "commitments": view.accounts.commitments,
        "floors": view.accounts.floors,
        "podsWithoutGpu": guests,
        "demand": demand,
        "records": view.memory.records.values().collect::<Vec<_>>(),
        "refusedMarkets": view.memory.refused.iter().map(|(market, backoff)| json!({ "market": market, "backoff": backoff })).collect::<Vec<_>>(),
    })
}
