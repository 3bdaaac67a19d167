//! That the autoscaler speaks with Stoker at all, and asks it first.

use super::{Case, Cure, Release, Verdict, error, info, to_do, warning, write};

/// Expanders, by the autoscaler's names.
const EXPANDERS: [&str; 7] = ["random", "most-pods", "least-waste", "least-nodes", "price", "priority", "grpc"];

pub(super) fn too_old(case: Case<'_>) -> Option<Verdict> {
    let (release, first) = (case.values.release, Release::FIRST);
    error(
        format!("{release} has no external gRPC provider, which first comes with {first}"),
        to_do(format!("run {first} or later, best of your cluster's own minor version")),
    )
}

pub(super) fn provider(case: Case<'_>) -> Option<Verdict> {
    let named = case.values.given.text("cloud-provider");
    (named != Some("externalgrpc"))
        .then(|| error("the autoscaler does not request nodes from Stoker", write("--cloud-provider=externalgrpc")))?
}

pub(super) fn config(case: Case<'_>) -> Option<Verdict> {
    let why = "the autoscaler exits without a file that says where Stoker is";
    let cure = to_do("write --cloud-config=FILE, with Stoker's address and the client certificate");
    case.values.given.text("cloud-config").is_none_or(str::is_empty).then(|| error(why, cure))?
}

/// The names in `--expander`; `None` where they are not known here.
fn expanders(case: Case<'_>) -> Option<Vec<&str>> {
    Some(case.values.text("expander")?.split(',').collect())
}

fn asks_stoker(case: Case<'_>) -> bool {
    expanders(case).is_some_and(|names| names.contains(&"grpc"))
}

pub(super) fn expander(case: Case<'_>) -> Option<Verdict> {
    let names = expanders(case)?;
    let cure = write("--expander=grpc,least-waste");
    if let Some(unknown) = names.iter().find(|name| !EXPANDERS.contains(name)) {
        let why = format!(
            "there is no expander {}, and the autoscaler exits with an error",
            stoker_core::base::text::quoted(unknown)
        );
        return error(why, cure);
    }
    if names.iter().enumerate().any(|(at, name)| names.iter().take(at).any(|earlier| earlier == name)) {
        return error("one expander is listed twice, and the autoscaler exits with an error", cure);
    }
    if names.iter().rev().skip(1).any(|name| *name == "random") {
        return error("after random no choice is left, and the autoscaler exits because of what follows it", cure);
    }
    match names[..] {
        ["grpc"] => info("if Stoker is unreachable, and among options that it ranks equal, the choice is random", cure),
        ["grpc", ..] => None,
        _ if names.contains(&"grpc") => warning(
            "what comes before grpc narrows the options before Stoker sees them, and only Stoker knows prices, quotas and \
             commitments",
            cure,
        ),
        _ if names.contains(&"price") => warning(
            "asks for the price of each group and pod one by one, and sends neither sizes nor running nodes: commitments and \
             quotas count only as far as a price per node can express them",
            cure_with_expander(),
        ),
        _ => warning(
            "which group grows is chosen without prices, quotas and commitments, which only Stoker knows",
            cure_with_expander(),
        ),
    }
}

/// All that the gRPC expander needs.
fn cure_with_expander() -> Cure {
    Cure::Write(vec![
        "--expander=grpc,least-waste".to_owned(),
        "--grpc-expander-url=HOST:8087".to_owned(),
        "--grpc-expander-cert=FILE".to_owned(),
    ])
}

pub(super) fn url(case: Case<'_>) -> Option<Verdict> {
    let cure = to_do("write --grpc-expander-url=HOST:PORT, where HOST is a name in Stoker's server certificate");
    match (asks_stoker(case), case.values.text("grpc-expander-url")?) {
        (true, "") => error("the expander grpc has no address", cure),
        (true, url) if !is_host_and_port(url) => error("is not host:port", cure),
        (false, url) if !url.is_empty() => {
            info("has no effect without the expander grpc", write("--expander=grpc,least-waste"))
        }
        _ => None,
    }
}

fn is_host_and_port(url: &str) -> bool {
    let parts = url.rsplit_once(':').filter(|_| !url.contains("//"));
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

pub(super) fn certificate(case: Case<'_>) -> Option<Verdict> {
    let missing = asks_stoker(case) && case.values.text("grpc-expander-cert")?.is_empty();
    let why = "the expander speaks TLS only, and without the file the autoscaler exits after a single Info line";
    missing.then(|| error(why, to_do("write --grpc-expander-cert=FILE, the CA of Stoker's server certificate")))?
}

pub(super) fn lease(case: Case<'_>) -> Option<Verdict> {
    let elects = case.values.given.text("leader-elect") != Some("false");
    let own = case.values.given.has("leader-elect-resource-name") || case.values.given.has("leader-elect-resource-namespace");
    (elects && !own).then(|| {
        info(
            "is the default lease: with another autoscaler in this cluster, only one of the two would work",
            Cure::Write(vec![
                "--leader-elect-resource-name=cluster-autoscaler-stoker".to_owned(),
                "--status-config-map-name=cluster-autoscaler-stoker-status".to_owned(),
            ]),
        )
    })?
}

pub(super) fn asynchronous(case: Case<'_>) -> Option<Verdict> {
    let why =
        "needs a cloud provider that makes and deletes node groups in the background; the external gRPC provider does not";
    case.values.is_on("async-node-groups")?.then(|| warning(why, Cure::TakeOut))?
}
