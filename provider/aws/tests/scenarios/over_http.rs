//! The same over HTTP, with the transport of a real service: signed, and bounded in what is read.

use std::sync::Arc;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use stoker_aws::config::Config;
use stoker_aws::{Access, Aws, https};
use stoker_core::base::ids::{ClusterName, SupplierName};
use stoker_core::facts::supply::LaunchOutcome;
use stoker_fake_ec2::{ACCESS_KEY, Fault, Peer, Rule, SERVICES};
use stoker_service::clock::Clock;
use stoker_service::listener::install_crypto;
use stoker_service::suppliers::{Launch, Supplier as _};

use crate::bench::{ACCOUNT, BOOK, Bench, file_with};

async fn supplier(url: &str) -> Aws {
    let endpoints: Vec<String> = SERVICES.iter().map(|service| format!("{service}: \"{url}\"")).collect();
    let file = file_with(&format!("endpoints: {{ {} }}", endpoints.join(", ")));
    install_crypto();
    let access = Access {
        transport: https().unwrap(),
        credentials: Some(SharedCredentialsProvider::new(Credentials::new(ACCESS_KEY, "secret", None, None, "test"))),
        clock: Clock::system(),
    };
    let (name, cluster) = (SupplierName::new("aws").unwrap(), ClusterName::new("prod").unwrap());
    Aws::start(name, cluster, (Config::parse("aws.yaml", &file).unwrap(), None), &BOOK, access).await
}

/// What a launch became.
async fn launch(aws: &Aws, launch: &Launch) -> LaunchOutcome {
    aws.launch(launch.first_asked, vec![launch.clone()]).await.remove(0).1
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_and_loses_nothing() {
    let peer = Peer::new(ACCOUNT);
    let served = peer.listen().await;
    let aws = Arc::new(supplier(served.url()).await);
    let bench = Bench::new().await;
    let order = Launch { first_asked: peer.now(), ..bench.usual(1) };
    peer.world().fault(Rule::of("RunInstances", Fault::Huge));
    let LaunchOutcome::Unclear { message, .. } = launch(&aws, &order).await else { panic!("it was read") };
    assert!(message.contains("more than 16 MiB"), "{message}");
    peer.world().fault(Rule::of("DescribeInstances", Fault::Huge));
    let error = aws.observe(peer.now()).await.unwrap_err();
    assert!(error.message.contains("more than 16 MiB"), "{error}");
    peer.world().rules.clear();
    let LaunchOutcome::Launched(made) = launch(&aws, &order).await else { panic!("not launched") };
    assert!(aws.observe(peer.now()).await.unwrap().instances.contains_key(&made.provider_id));
    peer.world().fault(Rule::of("TerminateInstances", Fault::Huge));
    let ended = aws.terminate(peer.now(), vec![made.provider_id.clone()]).await;
    assert!(ended[0].1.is_err(), "{ended:?}");
    peer.world().rules.clear();
    assert!(aws.terminate(peer.now(), vec![made.provider_id]).await[0].1.is_ok());
    assert!(peer.world().alive().is_empty());
}
