//! Two replicas on PostgreSQL, of which one leads by a Lease: whatever happens to the leader, the other goes on with all that was ordered.
//! And one replica on SQLite, which goes on by itself.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use stoker_sim::model::{CaClient as _, GroupInfo};
use stoker_simulated::ca_client::GrpcCaClient;
use tokio::time::{Instant, sleep};

use super::ec2::{of_environment, the_same};
use super::{ONE, SCALED};
use crate::e2e::bench::Bench;
use crate::e2e::cluster::eventually;
use crate::e2e::files::{CALM, Files, NodesFrom};
use crate::proxy::Fault;

pub(super) const FILES: Files = Files { nodes: NodesFrom::Ec2, replicas: true, ..CALM };
pub(super) const ALONE: Files = Files { nodes: NodesFrom::Ec2, cut: true, ..CALM };

/// How many fail-overs, unless the environment says otherwise.
const FAILOVERS: &str = "STOKER_E2E_FAILOVERS";

/// How long nobody may be ready: after a crash, and after a clean stop.
const AFTER_CRASH: Duration = Duration::from_secs(20);
const AFTER_STOP: Duration = Duration::from_secs(3);

/// What happens to a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// It is killed.
    Killed,
    /// It stands still until another leads, and goes on then.
    Paused,
    /// Neither PostgreSQL nor the API server answers it until another leads.
    Cut,
    /// PostgreSQL alone does not answer it.
    Blinded,
    /// It is asked to stop.
    Stopped,
}

const BLOWS: [Blow; 5] = [Blow::Killed, Blow::Paused, Blow::Cut, Blow::Blinded, Blow::Stopped];

/// How long one replica stands still, or is cut off: a leader would have lost its lead.
const AWAY: Duration = Duration::from_secs(15);

/// Pods that come and go, so that something is in flight whenever something happens.
#[derive(Default)]
struct Load {
    pods: Vec<String>,
}

impl Load {
    /// A pod comes or goes.
    async fn change(&mut self, bench: &Bench, round: usize) -> anyhow::Result<()> {
        if self.pods.len() < 3 {
            self.add(bench, format!("pod-{round}")).await?;
        } else {
            bench.cluster.remove(&self.pods.remove(0)).await?;
        }
        // Into the order, the launch, the boot: another moment in each round.
        sleep(Duration::from_millis(u64::try_from(round)? * 370 % 4_000)).await;
        Ok(())
    }

    async fn add(&mut self, bench: &Bench, pod: String) -> anyhow::Result<()> {
        bench.cluster.gpu_pod(&pod, ONE).await?;
        self.pods.push(pod);
        Ok(())
    }

    /// Each pod has a node of its own, and there is nothing else.
    async fn settled(&self, bench: &Bench) -> anyhow::Result<()> {
        let names: Vec<&str> = self.pods.iter().map(String::as_str).collect();
        bench.cluster.bound(&names, SCALED * 2).await?;
        the_same(bench, self.pods.len()).await
    }

    async fn end(self, bench: &Bench) -> anyhow::Result<()> {
        for pod in &self.pods {
            bench.cluster.remove(pod).await?;
        }
        the_same(bench, 0).await?;
        bench.ec2()?.ensure_one_a_token()
    }
}

/// One replica with its journal on SQLite is killed, stands still, and is cut off.
pub(super) async fn alone(bench: &mut Bench) -> anyhow::Result<()> {
    const BLOWS: [Blow; 3] = [Blow::Killed, Blow::Paused, Blow::Cut];
    let mut load = Load::default();
    for round in 0..of_environment(FAILOVERS, BLOWS.len())? {
        load.change(bench, round).await?;
        let blow = BLOWS[round % BLOWS.len()];
        match blow {
            Blow::Paused => {
                bench.pause_stoker(true).await?;
                sleep(AWAY).await;
                bench.pause_stoker(false).await?;
            }
            Blow::Cut => {
                bench.cut_stoker(true)?;
                sleep(AWAY).await;
                bench.cut_stoker(false)?;
            }
            _ => {
                bench.kill_stoker().await?;
                bench.start_stoker().await?;
            }
        }
        if (round + 1) % BLOWS.len() == 0 {
            load.settled(bench).await.with_context(|| format!("after round {round}, {blow:?}"))?;
        }
    }
    load.end(bench).await
}

/// A pod comes or goes before each blow, so that something is in flight.
pub(super) async fn fail_over(bench: &mut Bench) -> anyhow::Result<()> {
    let rounds: usize = of_environment(FAILOVERS, BLOWS.len())?;
    let mut took: Vec<(Blow, Duration)> = Vec::new();
    let mut load = Load::default();
    bench.replicas()?.audit_writes(leader(bench).await?).await?;
    for round in 0..rounds {
        let blow = BLOWS[round % BLOWS.len()];
        load.change(bench, round).await?;
        let after = one(bench, blow).await.with_context(|| format!("round {round}, the leader is {blow:?}"))?;
        took.push((blow, after));
        if (round + 1) % BLOWS.len() == 0 {
            load.settled(bench).await.with_context(|| format!("after round {round}"))?;
        }
    }
    database_away(bench, &mut load).await.context("PostgreSQL crashes")?;
    load.settled(bench).await?;
    load.end(bench).await?;
    for blow in BLOWS {
        let mut of_blow: Vec<Duration> = took.iter().filter(|(of, _)| *of == blow).map(|(_, after)| *after).collect();
        of_blow.sort();
        let Some(worst) = of_blow.last() else { continue };
        let median = of_blow[of_blow.len() / 2].as_secs_f64();
        let bar = bar(blow).as_secs();
        println!(
            "       {} leaders {blow:?}: median {median:.1} s, worst {:.1} s, bar {bar} s",
            of_blow.len(),
            worst.as_secs_f64()
        );
    }
    let (leaders, writes) = bench.replicas()?.ensure_only_leaders_wrote().await?;
    println!("       {writes} writes by {leaders} leaders, none by a replica that did not lead");
    ensure!(leaders > u64::try_from(rounds)? && writes > leaders, "{leaders} leaders and {writes} writes in {rounds} rounds");
    Ok(())
}

/// The groups, as an autoscaler asks for them.
async fn groups(door: &mut GrpcCaClient) -> anyhow::Result<Vec<GroupInfo>> {
    let asked = async {
        door.refresh().await?;
        door.node_groups().await
    };
    asked.await.map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// PostgreSQL crashes: reads answer on, nothing is bought that cannot be written, and it goes on by itself.
async fn database_away(bench: &Bench, load: &mut Load) -> anyhow::Result<()> {
    let leads = leader(bench).await?;
    let mut door = bench.door_of(leads)?;
    groups(&mut door).await?;
    let before = bench.ec2()?.alive();
    bench.replicas()?.postgres.crash().await?;
    load.add(bench, "pod-away".to_owned()).await?;
    for _ in 0..15 {
        let groups = door.node_groups().await.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        ensure!(!groups.is_empty(), "no group is answered");
        sleep(Duration::from_secs(1)).await;
    }
    let now = bench.ec2()?.alive();
    ensure!(now.is_subset(&before), "bought without a journal: {:?}", now.difference(&before).collect::<Vec<_>>());
    bench.replicas()?.postgres.start_again().await
}

const fn bar(blow: Blow) -> Duration {
    if matches!(blow, Blow::Stopped) { AFTER_STOP } else { AFTER_CRASH }
}

/// One fail-over; how long nobody was ready.
async fn one(bench: &mut Bench, blow: Blow) -> anyhow::Result<Duration> {
    let old = leader(bench).await?;
    let new = 1 - old;
    let asked = match blow {
        Blow::Paused => {
            // Who is connected to it stays so, and asks it once it goes on.
            let mut door = bench.door_of(old)?;
            let group = groups(&mut door).await?.first().context("no group")?.id.clone();
            let replica = &bench.replicas()?.each[old];
            replica.signal("STOP").await?;
            Some((door, group))
        }
        Blow::Killed => {
            let process = bench.replicas_mut()?.each[old].process.take().context("it does not run")?;
            process.kill().await?;
            None
        }
        Blow::Cut => {
            bench.replicas()?.each[old].cut(true);
            None
        }
        Blow::Blinded => {
            let mut door = bench.door_of(old)?;
            let group = groups(&mut door).await?.first().context("no group")?.id.clone();
            bench.replicas()?.each[old].ways[0].fault.send_replace(Fault::Hangs);
            // It notices by what it has to write.
            ensure!(door.increase_size(&group, 1).await.is_err(), "a leader without a journal took an order");
            None
        }
        Blow::Stopped => {
            bench.replicas()?.each[old].signal("TERM").await?;
            None
        }
    };
    let begun = Instant::now();
    eventually("other replica ready", bar(blow) + Duration::from_secs(10), async || {
        Ok(if bench.replicas()?.leader().await == Some(new) { Ok(()) } else { Err("nobody, or the old one".to_owned()) })
    })
    .await?;
    let after = begun.elapsed();
    ensure!(after <= bar(blow), "the other replica was ready after {:.1} s", after.as_secs_f64());
    bench.replicas()?.each[old].cut(false);
    if let Some((mut door, group)) = asked {
        bench.replicas()?.each[old].signal("CONT").await?;
        ensure!(door.increase_size(&group, 1).await.is_err(), "a leader of before took an order");
    }
    // It ends by itself, and a pod's container is started again.
    eventually("end of the old leader", Duration::from_secs(30), async || {
        let runs = bench.replicas_mut()?.each[old].process.as_mut().is_some_and(crate::e2e::process::Process::runs);
        Ok(if runs { Err("it runs".to_owned()) } else { Ok(()) })
    })
    .await?;
    bench.start_replica(old)?;
    Ok(after)
}

async fn leader(bench: &Bench) -> anyhow::Result<usize> {
    let mut found = None;
    eventually("one leader", AFTER_CRASH, async || {
        found = bench.replicas()?.leader().await;
        Ok(if found.is_some() { Ok(()) } else { Err("none, or two".to_owned()) })
    })
    .await?;
    found.context("no leader")
}
