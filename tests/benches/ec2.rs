//! The supplier for EC2 against its peer, over HTTP: how long a listing of many machines takes and how much memory, and how launches keep to
//! the pace that EC2 takes. The peer runs in a process of its own.

mod common {
    pub(crate) mod report;
}

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use common::report::{Report, is_short, short};
use jiff::Timestamp;
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws, Transport};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{ClusterName, InstanceType, LaunchKey, NodeClassName, NodeGroupId, SupplierName, ZoneName};
use stoker_core::facts::supply::{LaunchOutcome, LaunchRequest};
use stoker_core::market::offer::{CapacityType, Market};
use stoker_fake_ec2::{ACCESS_KEY, Machine, Peer, aws_yaml};
use stoker_service::clock::Clock;
use stoker_service::suppliers::{Launch, Supplier as _};
use stoker_tests::process::memory_mb;

/// Machines of the listing, and of its short form.
const MACHINES: usize = 5_000;
const SHORT_MACHINES: usize = 2_000;
/// Launches, at the pace that EC2 takes: five at once and two a second.
const LAUNCHES: u64 = 200;
const SHORT_LAUNCHES: u64 = 12;
/// Launches of a call, as the service makes them.
const BATCH: usize = 20;
/// Listings, the best of which counts.
const ROUNDS: u32 = 5;

/// The peer, in a process of its own. It ends with this.
struct Cloud {
    process: Child,
    url: String,
}

impl Cloud {
    fn start(machines: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.args(["--peer", &machines.to_string()]).stdout(Stdio::piped()).spawn()?;
        let out = process.stdout.take().context("the peer has no output")?;
        let mut url = String::new();
        BufReader::new(out).read_line(&mut url)?;
        ensure!(url.starts_with("http://"), "the peer did not start: {url:?}");
        Ok(Self { process, url: url.trim().to_owned() })
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves a peer with so many machines of the cluster, until it is ended.
async fn serve(machines: usize) -> Result<()> {
    let peer = Peer::new("111111111111");
    let served = peer.listen().await;
    {
        let mut world = peer.world();
        world.buckets = true;
        world.region("us-east-1").set_quota("L-DB2E81BA", 1_000_000);
    }
    if machines > 0 {
        let aws = supplier(served.url()).await?;
        let launch = launch(&aws, 0).await?;
        aws.launch(Timestamp::now(), vec![launch]).await;
        let mut world = peer.world();
        let first: Machine = world.machines.values().next().context("no machine")?.clone();
        for record in 1..machines {
            let mut machine = first.clone();
            machine.id = format!("i-{record:017x}");
            machine.token = format!("of-{record}");
            machine.tags.insert("stoker.dev/launch-key".to_owned(), format!("bench/g/0c4de2a1/{record}/1"));
            world.machines.insert(machine.id.clone(), machine);
        }
    }
    println!("{}", served.url());
    std::future::pending().await
}

async fn supplier(url: &str) -> Result<Aws> {
    let config = Config::parse("aws.yaml", &aws_yaml(url)).map_err(|faults| anyhow::anyhow!("{faults}"))?;
    let book = stoker_pricing::embedded().map_err(|faults| anyhow::anyhow!("{faults}"))?;
    let credentials = SharedCredentialsProvider::new(Credentials::new(ACCESS_KEY, "secret", None, None, "bench"));
    let transport = stoker_aws::https().map_err(anyhow::Error::msg)?;
    let access = Access { transport, credentials: Some(credentials), clock: Clock::system() };
    Ok(Aws::start(SupplierName::new("aws")?, ClusterName::new("bench")?, (config, None), &book, access).await)
}

async fn launch(aws: &Aws, record: u64) -> Result<Launch> {
    let facts = aws.market_facts(Wall(Timestamp::now())).await?;
    let (name, g6) = (ZoneName::new("us-east-1a")?, InstanceType::new("g6.xlarge")?);
    let mut sold = facts.offered.values().flatten().filter(|place| place.instance_type == g6);
    let place = sold.next().context("no g6.xlarge is sold")?.clone();
    let request = LaunchRequest {
        key: LaunchKey::new(format!("bench/g/0c4de2a1/{record}/1"))?,
        group: NodeGroupId::new("g")?,
        market: Market { place, capacity_type: CapacityType::OnDemand },
        zone_name: name,
        reservation: None,
    };
    Ok(Launch { first_asked: Timestamp::now(), node_class: Some(NodeClassName::new("gpu")?), ..request.into() })
}

/// How long a plain client takes for the same pages, without a look at them: the bound.
async fn fetched(transport: &Transport, url: &str, machines: usize) -> Result<(Duration, usize)> {
    let begun = Instant::now();
    let (mut bytes, mut token) = (0, String::new());
    for _ in 0..machines.div_ceil(1_000) {
        let body = format!(
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Astoker.dev%2Fcluster&Filter.1.Value.1=bench&MaxResults=1000{token}"
        );
        let date = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!(
            "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{}/us-east-1/ec2/aws4_request, SignedHeaders=host;x-amz-date, Signature=0",
            &date[..8]
        );
        let request = http::Request::post(url).header("authorization", scope).header("x-amz-date", date);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body.into_bytes())?;
        let answer = transport(request, Duration::from_secs(30)).await.map_err(|none| anyhow::anyhow!("{}", none.why))?;
        ensure!(answer.status().is_success(), "{}", String::from_utf8_lossy(answer.body()));
        bytes += answer.body().len();
        let text = String::from_utf8_lossy(answer.body());
        let next = text.split("<nextToken>").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default();
        token = format!("&NextToken={next}");
    }
    Ok((begun.elapsed(), bytes))
}

async fn measure() -> Result<()> {
    let mut report = Report::new("ec2");
    let (machines, launches) = if is_short() { (SHORT_MACHINES, SHORT_LAUNCHES) } else { (MACHINES, LAUNCHES) };
    let transport = stoker_aws::https().map_err(anyhow::Error::msg)?;
    let cloud = Cloud::start(machines)?;
    let peak = || memory_mb(std::process::id(), "VmHWM");
    let before = peak()?;
    let (mut best, mut bound, mut bytes) = (Duration::MAX, Duration::MAX, 0);
    for _ in 0..ROUNDS {
        // A listing of a moment ago is answered from memory: each round has a supplier that has none.
        let aws = supplier(&cloud.url).await?;
        let begun = Instant::now();
        let listed = aws.observe(Timestamp::now()).await?;
        let took = begun.elapsed();
        ensure!(listed.instances.len() == machines, "{} of {machines} machines", listed.instances.len());
        best = best.min(took);
        let (plain, read) = fetched(&transport, &cloud.url, machines).await?;
        (bound, bytes) = (bound.min(plain), read);
    }
    let (took, grown) = (best.as_secs_f64(), peak()? - before);
    println!(
        "{machines} machines in {} MB of XML: listed in {} s, fetched alone in {} s, memory grew by {} MB",
        short(f64::from(u32::try_from(bytes)?) / 1e6),
        short(took),
        short(bound.as_secs_f64()),
        short(grown)
    );
    report.judge(&format!("listing of {machines}"), took, "s", "5", took <= 5.0);
    report.judge("memory of it", grown, "MB", "60", grown <= 60.0);
    drop(cloud);

    let cloud = Cloud::start(0)?;
    let aws = Arc::new(supplier(&cloud.url).await?);
    let first = launch(&aws, 0).await?;
    let all: Vec<Launch> = (1..=launches)
        .map(|record| {
            let mut one = first.clone();
            one.request.key = LaunchKey::new(format!("bench/g/0c4de2a1/{record}/1"))?;
            Ok(one)
        })
        .collect::<Result<_>>()?;
    let begun = Instant::now();
    let mut open = all;
    while !open.is_empty() {
        for batch in std::mem::take(&mut open).chunks(BATCH) {
            let outcomes = aws.launch(Timestamp::now(), batch.to_vec()).await;
            for (key, outcome) in outcomes {
                match outcome {
                    LaunchOutcome::Launched(_) => {}
                    LaunchOutcome::Unclear { .. } => open.extend(batch.iter().filter(|one| one.request.key == key).cloned()),
                    LaunchOutcome::Refused(no) => anyhow::bail!("{key}: {}", no.message),
                }
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    // What EC2 gives an account: five at once, and two a second.
    let bound = (f64::from(u32::try_from(launches)?) - 5.0) / 2.0;
    let bar = bound + 12.5;
    report.judge(&format!("{launches} launches"), took, "s", &short(bar), took <= bar);
    report.ratio("launches-over-ec2s-pace", took / bound);
    report.print();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().position(|arg| arg == "--peer") {
        Some(at) => serve(args.get(at + 1).context("how many machines?")?.parse()?).await,
        None => Box::pin(measure()).await,
    }
}
