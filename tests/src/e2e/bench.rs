//! A fresh Stoker and a fresh autoscaler, and what is needed to start them.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use stoker_core::state::record::Record;
use stoker_service::certs::Tryout;
use stoker_simulated::ca_client::GrpcCaClient;

use super::cluster::{Cluster, eventually};
use super::daemon::{Daemon, Template};
use super::door;
use super::ec2::Ec2;
use super::files::{Files, NodesFrom};
use super::karpenter::{self, Karpenter};
use super::process::Process;
use super::recorder::Recorder;
use super::replicas::{LEASE, Replicas, way_to_api};
use crate::http;
use crate::process::memory_kib;
use crate::proxy::{Fault, Proxy};
use crate::transcript::Seen;

/// How long Stoker may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// What all scenarios share.
#[derive(Debug)]
pub struct Setup {
    /// The service.
    pub stoker: PathBuf,
    /// The probe.
    pub probe: PathBuf,
    /// Karpenter with its KWOK provider, where it was built.
    pub karpenter: Option<PathBuf>,
    /// The administrator's access to the cluster.
    pub admin_kubeconfig: PathBuf,
    /// Its own access to the cluster.
    pub stoker_kubeconfig: PathBuf,
    /// The autoscaler's.
    pub autoscaler_kubeconfig: PathBuf,
    /// Whether the autoscaler's calls are recorded.
    pub record: bool,
}

/// An autoscaler that can be started.
#[derive(Debug)]
pub struct Release {
    /// What it is called in the output.
    pub name: String,
    /// The binary.
    pub program: PathBuf,
    /// Whether it is the real one.
    pub real: bool,
    /// The flags that it knows.
    pub known: BTreeSet<String>,
    /// Those that we ship and it knows, but for those that say where things are.
    pub flags: Vec<String>,
}

impl Release {
    /// Its command line with these flags in place of ours, or beside them.
    fn flags_with(&self, own: &[&str]) -> Vec<String> {
        let name = |flag: &str| flag.split_once('=').map_or(flag, |(name, _)| name).to_owned();
        let replaced = |flag: &String| own.iter().any(|own| name(own) == name(flag));
        let shipped = self.flags.iter().filter(|flag| !replaced(flag)).cloned();
        shipped.chain(own.iter().map(|flag| (*flag).to_owned())).collect()
    }
}

/// One scenario's Stoker and autoscaler.
pub struct Bench {
    /// The cluster.
    pub cluster: Cluster,
    /// The autoscaler's release.
    pub release: Arc<Release>,
    setup: Arc<Setup>,
    dir: PathBuf,
    ports: [u16; 5],
    /// Where the autoscaler finds the provider and the expander: Stoker's own ports, or the recorder's.
    front: [u16; 2],
    stoker: Option<Process>,
    autoscaler: Option<Process>,
    recorder: Option<Recorder>,
    daemon: Option<Daemon>,
    /// Whether a build with a mistake in its decisions has run.
    decided_wrong: bool,
    karpenter: Option<Karpenter>,
    ec2: Option<Ec2>,
    replicas: Option<Replicas>,
    /// Stoker's way to the API server, where it can be cut, and its access by it.
    api: Option<(Proxy, PathBuf)>,
    /// What the scenario starts its autoscaler with, over what we ship.
    flags: &'static [&'static str],
}

impl Bench {
    /// Writes policy, world and certificates into `dir`, and starts nothing yet.
    ///
    /// # Errors
    /// When they cannot be written.
    pub async fn prepare(
        setup: Arc<Setup>,
        release: Arc<Release>,
        cluster: Cluster,
        files: &Files,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        fs::write(dir.join("policy.yaml"), files.policy(dir))?;
        fs::write(dir.join("world.yaml"), files.world())?;
        let [provider, expander, http, metrics, probes, of_metrics, of_health, front @ ..] = free_ports::<9>()?;
        let replicas = if files.replicas {
            Some(Replicas::prepare(dir, [free_ports()?, free_ports()?], &setup.stoker_kubeconfig).await?)
        } else {
            None
        };
        let api = if files.cut { Some(way_to_api(&setup.stoker_kubeconfig, dir).await?) } else { None };
        let [provider, expander, http] = replicas.as_ref().map_or([provider, expander, http], Replicas::front);
        let front = if setup.record { front } else { [provider, expander] };
        let certs = dir.join("certs");
        let address = format!("localhost:{}", front[0]);
        Tryout { dir: &certs, server_names: &[], client_names: &["cluster-autoscaler"], address: &address, force: false }
            .write()?;
        let recorder = if setup.record { Some(Recorder::start(&certs, front, [provider, expander]).await?) } else { None };
        cluster.reset().await.context("clearing the cluster")?;
        let template = || Template {
            program: setup.probe.clone(),
            provider: format!("http://127.0.0.1:{probes}"),
            dir: dir.join("probes"),
        };
        let daemon = files.probes.then(|| Daemon::start(cluster.clone(), template()));
        let karpenter = if files.nodes == NodesFrom::Karpenter {
            let program = setup.karpenter.as_deref().context("this scenario needs --karpenter")?;
            let ports = [of_metrics, of_health];
            let how = karpenter::Start { program, kubeconfig: &setup.admin_kubeconfig, dir, ports };
            Some(Karpenter::start(&how, &cluster)?)
        } else {
            None
        };
        let ec2 = if files.nodes == NodesFrom::Ec2 { Some(Ec2::start(cluster.client(), dir).await?) } else { None };
        let ports = [provider, expander, http, metrics, probes];
        let (stoker, autoscaler) = (None, None);
        Ok(Self {
            cluster,
            release,
            setup,
            dir: dir.to_owned(),
            ports,
            front,
            stoker,
            autoscaler,
            recorder,
            daemon,
            decided_wrong: false,
            karpenter,
            ec2,
            replicas,
            api,
            flags: files.flags,
        })
    }

    /// Starts both.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        if self.replicas.is_some() {
            self.start_replica(0)?;
            self.start_replica(1)?;
            eventually("ready replica", READY_WITHIN, async || Ok(self.get("/readyz").await.map(drop))).await?;
        } else {
            self.start_stoker().await?;
        }
        if self.karpenter.is_some() || self.ec2.is_some() {
            // Karpenter looks at the carrier first.
            eventually("groups of the supplier's", READY_WITHIN, async || {
                let groups = self.groups().await?;
                Ok(if groups.contains("small.") { Ok(()) } else { Err(groups) })
            })
            .await?;
        }
        self.start_autoscaler()
    }

    /// The cloud that machines come from.
    pub fn ec2(&self) -> anyhow::Result<&Ec2> {
        self.ec2.as_ref().context("this scenario has no EC2")
    }

    /// The Karpenter that runs.
    pub fn karpenter(&mut self) -> anyhow::Result<&mut Karpenter> {
        self.karpenter.as_mut().context("this scenario has no Karpenter")
    }

    /// Starts Stoker and waits until it is ready.
    pub async fn start_stoker(&mut self) -> anyhow::Result<()> {
        let program = self.setup.stoker.clone();
        self.start_stoker_as(std::process::Command::new(program)).await
    }

    /// The same with a build that has failpoints, and this one armed.
    pub async fn start_stoker_with(&mut self, failpoint: &str) -> anyhow::Result<()> {
        let mut command = std::process::Command::new(self.setup.stoker.with_file_name("shipped-stoker"));
        command.env("STOKER_FAILPOINT", failpoint);
        self.decided_wrong |= failpoint.starts_with("plan.wrong");
        self.start_stoker_as(command).await
    }

    /// Both replicas.
    pub fn replicas(&self) -> anyhow::Result<&Replicas> {
        self.replicas.as_ref().context("this scenario has no replicas")
    }

    /// The same, to be changed.
    pub fn replicas_mut(&mut self) -> anyhow::Result<&mut Replicas> {
        self.replicas.as_mut().context("this scenario has no replicas")
    }

    /// Starts a replica, which waits until it leads.
    pub fn start_replica(&mut self, number: usize) -> anyhow::Result<()> {
        let replica = &self.replicas()?.each[number];
        let mut command = std::process::Command::new(&self.setup.stoker);
        command.env("HOSTNAME", format!("stoker-{number}"));
        self.serve(&mut command, replica.ports, (&replica.dir.join("state"), &replica.kubeconfig));
        command.env("STOKER_JOURNAL", replica.journal()).arg(format!("--lease={LEASE}"));
        let process = Process::spawn(command, &replica.dir.join("stoker.log"))?;
        self.replicas_mut()?.each[number].process = Some(process);
        Ok(())
    }

    async fn start_stoker_as(&mut self, mut command: std::process::Command) -> anyhow::Result<()> {
        let [provider, expander, http, _, probes] = self.ports;
        // One pod, also where it is started again: another would wait until the Lease of the first is over.
        command.env("HOSTNAME", "stoker-0");
        let kubeconfig = self.api.as_ref().map_or(&self.setup.stoker_kubeconfig, |(_, kubeconfig)| kubeconfig);
        let own = (&*self.dir.join("state"), &**kubeconfig);
        self.serve(&mut command, [provider, expander, http, probes], own);
        self.stoker = Some(Process::spawn(command, &self.dir.join("stoker.log"))?);
        eventually("ready Stoker", READY_WITHIN, async || {
            let runs = self.stoker.as_mut().is_some_and(Process::runs);
            ensure!(runs, "stoker ended before it was ready; see its log");
            Ok(self.get("/readyz").await.map(drop))
        })
        .await
    }

    /// Has a command serve on those ports: provider, expander, side port and probes.
    fn serve(&self, command: &mut std::process::Command, ports: [u16; 4], (state, kubeconfig): (&Path, &Path)) {
        let [provider, expander, http, probes] = ports;
        command.envs([crate::HEAP]);
        command.envs(self.ec2.iter().flat_map(Ec2::environment));
        let cert = |name: &str| self.dir.join("certs").join(name).display().to_string();
        let path = |name: &str| self.dir.join(name).display().to_string();
        let args = [
            "serve".to_owned(),
            format!("--policy={}", path("policy.yaml")),
            format!("--world={}", path("world.yaml")),
            format!("--state-dir={}", state.display()),
            format!("--provider-listen=127.0.0.1:{provider}"),
            format!("--expander-listen=127.0.0.1:{expander}"),
            format!("--http-listen=127.0.0.1:{http}"),
            "--debug".to_owned(),
            format!("--tls-cert={}", cert("server.crt")),
            format!("--tls-key={}", cert("server.key")),
            format!("--client-ca={}", cert("ca.crt")),
            format!("--expander-cert={}", cert("server.crt")),
            format!("--expander-key={}", cert("server.key")),
            "--provider-client=cluster-autoscaler".to_owned(),
            format!("--probe-listen=127.0.0.1:{probes}"),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let proven = [format!("--probe-cert={}", cert("server.crt")), format!("--probe-key={}", cert("server.key"))];
        // Probes that run as processes are believed on loopback; how one proves its node is a scenario of its own.
        let args = args.into_iter().chain(proven.into_iter().filter(|_| self.daemon.is_none()));
        command.args(args);
    }

    /// The API server as Stoker's account.
    ///
    /// # Errors
    /// When its kubeconfig cannot be used.
    pub async fn stoker_client(&self) -> anyhow::Result<kube::Client> {
        Ok(stoker_service::kube::client::connect(Some(&self.setup.stoker_kubeconfig)).await?)
    }

    /// A client that shows that token.
    ///
    /// # Errors
    /// When no kubeconfig can be made of Stoker's.
    pub async fn client_of(&self, token: &str) -> anyhow::Result<kube::Client> {
        let own = std::fs::read_to_string(&self.setup.stoker_kubeconfig)?;
        let mut config: serde_json::Value = serde_saphyr::from_str(&own)?;
        config["users"][0]["user"]["token"] = token.into();
        let path = self.dir.join("token.kubeconfig");
        std::fs::write(&path, config.to_string())?;
        Ok(stoker_service::kube::client::connect(Some(&path)).await?)
    }

    /// The probes of the nodes.
    pub fn daemon(&self) -> anyhow::Result<&Daemon> {
        self.daemon.as_ref().context("this scenario has no probes")
    }

    /// Starts the autoscaler.
    pub fn start_autoscaler(&mut self) -> anyhow::Result<()> {
        let [_, expander] = self.front;
        let metrics = self.ports[3];
        let mut args = self.release.flags_with(self.flags);
        args.extend([
            format!("--kubeconfig={}", self.setup.autoscaler_kubeconfig.display()),
            format!("--cloud-config={}", self.dir.join("certs/cloud-config.yaml").display()),
            format!("--grpc-expander-url=localhost:{expander}"),
            format!("--grpc-expander-cert={}", self.dir.join("certs/ca.crt").display()),
            format!("--address=127.0.0.1:{metrics}"),
        ]);
        self.autoscaler = Some(Process::start(&self.release.program, args, &self.dir.join("autoscaler.log"))?);
        Ok(())
    }

    /// The autoscaler's way to Stoker, for calls that it would not make itself.
    ///
    /// # Errors
    /// When its files cannot be read or used.
    pub fn door(&self) -> anyhow::Result<GrpcCaClient> {
        let certs = self.dir.join("certs");
        door::open(&certs.join("cloud-config.yaml"), &format!("localhost:{}", self.front[1]), &certs.join("ca.crt"))
    }

    /// The same to one replica, whoever leads.
    ///
    /// # Errors
    /// When its files cannot be read or used.
    pub fn door_of(&self, replica: usize) -> anyhow::Result<GrpcCaClient> {
        let (certs, [provider, expander, ..]) = (self.dir.join("certs"), self.replicas()?.each[replica].ports);
        let config = fs::read_to_string(certs.join("cloud-config.yaml"))?;
        let front = format!("localhost:{}", self.front[0]);
        let own = self.file("replica.cloud-config.yaml", &config.replace(&front, &format!("localhost:{provider}")))?;
        door::open(&own, &format!("localhost:{expander}"), &certs.join("ca.crt"))
    }

    /// Whether Stoker runs.
    pub fn stoker_runs(&mut self) -> bool {
        self.stoker.as_mut().is_some_and(Process::runs)
    }

    /// Lets Stoker stand still, or go on.
    pub async fn pause_stoker(&self, pause: bool) -> anyhow::Result<()> {
        self.stoker.as_ref().context("stoker does not run")?.signal(if pause { "STOP" } else { "CONT" }).await
    }

    /// Has the API server answer Stoker nothing, or again.
    pub fn cut_stoker(&self, cut: bool) -> anyhow::Result<()> {
        let (way, _) = self.api.as_ref().context("this scenario cuts nothing")?;
        way.fault.send_replace(if cut { Fault::Hangs } else { Fault::None });
        Ok(())
    }

    /// Ends Stoker with no warning.
    pub async fn kill_stoker(&mut self) -> anyhow::Result<()> {
        self.stoker.take().context("stoker does not run")?.kill().await
    }

    /// Ends the autoscaler with no warning.
    pub async fn kill_autoscaler(&mut self) -> anyhow::Result<()> {
        self.autoscaler.take().context("the autoscaler does not run")?.kill().await
    }

    /// Ends both, and says which of them had ended before. Answers the calls that were recorded.
    pub async fn stop(mut self) -> anyhow::Result<Vec<Seen>> {
        let mut dead = Vec::new();
        for (name, process) in [("the autoscaler", self.autoscaler.take()), ("stoker", self.stoker.take())] {
            let Some(mut process) = process else { continue };
            if process.runs() {
                process.stop().await?;
            } else {
                dead.push(name);
            }
        }
        for replica in self.replicas.iter_mut().flat_map(|replicas| &mut replicas.each) {
            match replica.process.take() {
                Some(process) => process.stop().await?,
                None => dead.push("a replica"),
            }
        }
        if let Some(karpenter) = self.karpenter.take() {
            karpenter.stop().await?;
        }
        ensure!(dead.is_empty(), "{} ended unasked; see the log", dead.join(" and "));
        // The shipped roles allow all that either does.
        for log in ["autoscaler.log", "stoker.log", "replica-0/stoker.log", "replica-1/stoker.log"] {
            let text = fs::read_to_string(self.dir.join(log)).unwrap_or_default();
            let refused = text.lines().find(|line| line.contains(" is forbidden: "));
            ensure!(refused.is_none(), "a request was refused: {}", refused.unwrap_or_default());
        }
        self.replay().await?;
        Ok(self.recorder.take().map(Recorder::finish).unwrap_or_default())
    }

    /// Makes every decision of the scenario again from Stoker's journal: by the same rules they are the same, byte for byte.
    async fn replay(&self) -> anyhow::Result<()> {
        let state = self.dir.join("state");
        if !state.join("journal.db").exists() {
            return Ok(());
        }
        let mut stoker = tokio::process::Command::new(&self.setup.stoker);
        let output = stoker.arg("replay").arg("--state-dir").arg(state).output().await?;
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        let as_it_was = match output.status.code() {
            Some(0) => !self.decided_wrong,
            // What a build with a mistake decided, this one does not.
            Some(6) => self.decided_wrong,
            // Where Karpenter buys by itself, there may be none.
            _ => out.starts_with("no decision"),
        };
        ensure!(as_it_was, "stoker replay: {out}{err}");
        Ok(())
    }

    /// Where probes connect, and the file of who signed the certificate there.
    pub fn probe_door(&self) -> (String, PathBuf) {
        (format!("https://localhost:{}", self.ports[4]), self.dir.join("certs/ca.crt"))
    }

    /// Where the scenario's files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file beside the scenario's others.
    pub fn file(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Changes the policy under a running Stoker, as an operator does: the new file takes the old one's place whole.
    pub fn change_policy(&self, files: &Files) -> anyhow::Result<()> {
        let new = self.dir.join("policy.new");
        fs::write(&new, files.policy(&self.dir))?;
        Ok(fs::rename(new, self.dir.join("policy.yaml"))?)
    }

    /// Writes down machines as if they had been bought before; Stoker must not run yet.
    pub fn give_machines(&self, rows: &str) -> anyhow::Result<()> {
        fs::create_dir_all(self.dir.join("state"))?;
        Ok(fs::write(self.dir.join("state/world.jsonl"), rows)?)
    }

    /// Every machine that was ever bought, by its launch key: the simulated cloud's own books.
    pub fn bought(&self) -> anyhow::Result<BTreeSet<String>> {
        let text = match fs::read_to_string(self.dir.join("state/world.jsonl")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // A last line without its end is still being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line)?;
            Ok(row["providerId"].as_str().context("a machine without an id")?.to_owned())
        };
        whole.lines().skip(1).map(row).collect()
    }

    /// Waits until so many machines have been bought.
    pub async fn until_bought(&self, count: usize, within: Duration) -> anyhow::Result<()> {
        eventually(&format!("{count} machines bought"), within, async || {
            let bought = self.bought()?.len();
            Ok(if bought >= count { Ok(()) } else { Err(format!("{bought} bought")) })
        })
        .await
    }

    /// Fails unless exactly so many machines have been bought.
    pub fn ensure_bought(&self, count: usize) -> anyhow::Result<()> {
        let bought = self.bought()?;
        ensure!(bought.len() == count, "{} machines bought for the {count} needed: {bought:?}", bought.len());
        Ok(())
    }

    /// The memory that Stoker holds, in KiB.
    pub fn stoker_memory(&self) -> anyhow::Result<u64> {
        let id = self.stoker.as_ref().and_then(Process::id).context("stoker does not run")?;
        memory_kib(id, "VmRSS").map(u64::from)
    }

    /// Removes the journal of a Stoker that does not run.
    pub fn lose_journal(&self) -> anyhow::Result<()> {
        for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
            match fs::remove_file(self.dir.join("state").join(file)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Carries out `stoker backup` or `stoker restore` with the scenario's one backup.
    pub async fn stoker_with_journal(&self, command: &str) -> anyhow::Result<()> {
        let (file, state) = (self.dir.join("journal.backup"), self.dir.join("state"));
        let mut stoker = tokio::process::Command::new(&self.setup.stoker);
        let output = stoker.arg(command).arg(file).arg("--state-dir").arg(state).output().await?;
        ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Carries out `stoker karpenter clean`.
    pub async fn clean_karpenter(&self) -> anyhow::Result<String> {
        let mut stoker = tokio::process::Command::new(&self.setup.stoker);
        let output = stoker.args(["karpenter", "clean", "--kubeconfig"]).arg(&self.setup.stoker_kubeconfig).output().await?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "stoker karpenter clean: {told}");
        Ok(told)
    }

    /// What `stoker groups` prints.
    pub async fn groups(&self) -> anyhow::Result<String> {
        let url = format!("http://127.0.0.1:{}", self.ports[2]);
        let mut command = tokio::process::Command::new(&self.setup.stoker);
        let output = command.args(["groups", "--url", &url]).output().await.context("stoker groups")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The machines of Stoker's records, by what suppliers call them; a record that has none, by its placeholder.
    pub async fn records(&self) -> anyhow::Result<BTreeSet<String>> {
        let answer = self.get("/debug/view").await.map_err(anyhow::Error::msg)?;
        let body = answer.split_once("\r\n\r\n").context("an answer without a body")?.1;
        let view: serde_json::Value = serde_json::from_str(body)?;
        let records: Vec<Record> = serde_json::from_value(view["records"].clone())?;
        Ok(records.iter().map(|record| record.shown_id().to_string()).collect())
    }

    /// What Stoker's side port answers; the error is what it says when all is not well.
    pub async fn get(&self, path: &str) -> Result<String, String> {
        let answer = http::get(("127.0.0.1", self.ports[2]), path).await.map_err(|error| error.to_string())?;
        if http::is_ok(&answer) { Ok(answer) } else { Err(answer) }
    }
}

/// Ports that nobody listens on, of those that no connection is given of the system's own accord: one that is free now stays so.
fn free_ports<const COUNT: usize>() -> anyhow::Result<[u16; COUNT]> {
    /// Below the ports of the control planes.
    const FROM: Range<u16> = 10_000..20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // All held at once, so that they differ; processes that run side by side begin at different ones.
    let (mut held, own) = (Vec::new(), std::process::id().wrapping_mul(97));
    let of = u32::from(FROM.end - FROM.start);
    for _ in 0..of {
        if held.len() == COUNT {
            break;
        }
        let port = u32::from(FROM.start) + own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % of;
        held.extend(TcpListener::bind(("127.0.0.1", u16::try_from(port)?)));
    }
    ensure!(held.len() == COUNT, "no {COUNT} free ports in {FROM:?}");
    let mut ports = [0; COUNT];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
