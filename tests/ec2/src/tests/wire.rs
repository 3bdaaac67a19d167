//! Signatures, clocks, faults, and the peer on a port.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Rig, element, refused};
use crate::{Fault, Rule};

#[tokio::test]
async fn a_request_must_be_signed_and_of_now() {
    let rig = Rig::new();
    let body = "Action=DescribeInstances&Version=2016-11-15";
    let mut unsigned = rig.request("ec2", "us-east-1", &[], body);
    unsigned.headers_mut().remove("authorization");
    refused(&rig.answer(unsigned).await.unwrap(), 401, "AuthFailure");
    let (late, early) = (rig.request("ec2", "us-east-1", &[], body), rig.request("ec2", "us-east-1", &[], body));
    rig.pass(301);
    let told = rig.peer.answer(late).await.unwrap();
    assert_eq!(told.headers()["date"], rig.peer.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string().as_str());
    refused(&(told.status().as_u16(), String::from_utf8(told.into_body()).unwrap()), 400, "RequestExpired");
    rig.pass(-602);
    refused(&rig.answer(early).await.unwrap(), 401, "AuthFailure");
    refused(&rig.ask_in("eu-north-9", "DescribeInstances", &[]).await.unwrap(), 401, "AuthFailure");
    refused(&rig.ask("DescribeTides", &[]).await, 400, "InvalidAction");
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_matches_wins() {
    let rig = Rig::new();
    {
        let mut world = rig.peer.world();
        let whole = Rule::of("DescribeInstances", Fault::status(500, "InternalError", "zone outage"));
        world.fault(whole.matching("Filter.availability-zone", ""));
        world.fault(Rule::of("DescribeSubnets", Fault::Truncated).times(1));
        world.fault(Rule::of("DescribeSubnets", Fault::Huge).times(1));
        world.fault(Rule::of("DescribeSubnets", Fault::NoXml).times(1));
        world.fault(Rule::of("DescribeSubnets", Fault::Html).times(1));
        world.fault(Rule::of("DescribeSubnets", Fault::None).delay(Duration::from_secs(20)));
    }
    refused(&rig.ask("DescribeInstances", &[]).await, 500, "InternalError");
    let zone = [("Filter.1.Name", "availability-zone"), ("Filter.1.Value.1", "us-east-1a")];
    assert_eq!(rig.ask("DescribeInstances", &zone).await.0, 200);
    let half = rig.ask("DescribeSubnets", &[]).await.1;
    assert!(half.len() > 100 && !half.contains("</DescribeSubnetsResponse>"));
    assert!(rig.ask("DescribeSubnets", &[]).await.1.len() > 16 << 20);
    assert_eq!(rig.ask("DescribeSubnets", &[]).await.1, "It works!\n");
    assert_eq!(rig.ask("DescribeSubnets", &[]).await.0, 502);
    let started = tokio::time::Instant::now();
    let told = rig.ask("DescribeSubnets", &[]).await;
    assert_eq!((told.0, element(&told.1, "availabilityZoneId").as_str()), (200, "use1-az1"));
    assert_eq!(started.elapsed().as_secs(), 20);
    assert_eq!(rig.peer.world().count("DescribeSubnets"), 5);
}

#[tokio::test]
async fn chance_fails_about_so_many_calls_and_the_same_by_the_same_seed() {
    let mut seen = Vec::new();
    for seed in [1, 1, 2] {
        let rig = Rig::new();
        {
            let mut world = rig.peer.world();
            (world.seed, world.buckets) = (seed, false);
            world.fault(Rule::of("DescribeSubnets", Fault::status(503, "RequestLimitExceeded", "later")).per_thousand(150));
        }
        let mut refused = Vec::new();
        for call in 0..400 {
            if rig.ask("DescribeSubnets", &[]).await.0 == 503 {
                refused.push(call);
            }
        }
        assert!((30..=90).contains(&refused.len()), "{} of 400", refused.len());
        seen.push(refused);
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
}

/// Sends a launch over TCP and reads what comes until the connection ends.
async fn over_tcp(rig: &Rig, url: &str) -> String {
    let params = rig.launch("a", "t", &[]);
    let mut body = "Action=RunInstances&Version=2016-11-15".to_owned();
    for (name, value) in &params {
        body.extend(["&", name, "=", value]);
    }
    let (parts, body) = rig.request("ec2", "us-east-1", &[], &body).into_parts();
    let mut text = "POST / HTTP/1.1\r\nhost: peer\r\nconnection: close\r\n".to_owned();
    for (name, value) in &parts.headers {
        text.extend([name.as_str(), ": ", value.to_str().unwrap(), "\r\n"]);
    }
    text.extend(["content-length: ", &body.len().to_string(), "\r\n\r\n", &String::from_utf8(body).unwrap()]);
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    stream.read_to_end(&mut told).await.unwrap();
    String::from_utf8(told).unwrap()
}

#[tokio::test]
async fn a_lost_answer_closes_the_connection_without_a_byte() {
    let rig = Rig::new();
    let served = rig.peer.listen().await;
    rig.peer.world().fault(Rule::of("RunInstances", Fault::Lose).times(1));
    assert_eq!(over_tcp(&rig, served.url()).await, "");
    assert_eq!(rig.peer.world().alive().len(), 1);
    let told = over_tcp(&rig, served.url()).await;
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
    assert_eq!(rig.peer.world().machines.len(), 1);
    let url = served.url().to_owned();
    drop(served);
    tokio::task::yield_now().await;
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).await.is_err());
}
