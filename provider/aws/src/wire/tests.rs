use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stoker_service::clock::{Clock, VirtualClock};

use super::{Api, Class, Endpoints, Failure, Form, Keys, NoAnswer, Service, Transport, parsed, parsed_json};
use crate::answers::{Done, Machines, Run};

const RUN: &str = "<?xml version=\"1.0\"?>\n<RunInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r\
                   </requestId><instancesSet><item><instanceId>i-1</instanceId><placement><availabilityZone>us-east-1a\
                   </availabilityZone></placement><tagSet><item><key>a</key><value>b &amp; c</value></item></tagSet></item>\
                   </instancesSet></RunInstancesResponse>";

type Answered = Result<http::Response<Vec<u8>>, NoAnswer>;

/// Calls as they go out, and what they are answered.
#[derive(Clone, Default)]
struct Line {
    asked: Arc<Mutex<Vec<http::Request<Vec<u8>>>>>,
    answers: Arc<Mutex<Vec<Answered>>>,
}

impl Line {
    /// One that answers so, the last answer for ever.
    fn of(answers: Vec<Answered>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }

    fn transport(&self) -> Transport {
        let line = self.clone();
        Arc::new(move |request, _| {
            line.asked.lock().unwrap().push(request);
            let mut answers = line.answers.lock().unwrap();
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            async move { answer }.boxed()
        })
    }

    fn api(&self, region: &str, token: Option<&str>, endpoints: Endpoints) -> Api {
        let credentials = Credentials::new("AKIDTEST", "secret", token.map(ToOwned::to_owned), None, "test");
        let keys = Keys::from(SharedCredentialsProvider::new(credentials));
        Api::new(self.transport(), keys, region, endpoints, Clock::Virtual(VirtualClock::new(start())))
    }

    fn calls(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// The last call: its address, and a header of it.
    fn last(&self, header: &str) -> (String, String) {
        let asked = self.asked.lock().unwrap();
        let last = asked.last().unwrap();
        let value = last.headers().get(header).map(|value| value.to_str().unwrap().to_owned());
        (last.uri().to_string(), value.unwrap_or_default())
    }
}

fn start() -> Timestamp {
    "2026-11-02T12:00:00Z".parse().unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "answers may be none")]
fn answer(status: u16, body: &str) -> Answered {
    Ok(http::Response::builder().status(status).body(body.as_bytes().to_vec()).unwrap())
}

fn error(status: u16, code: &str) -> Answered {
    answer(status, &format!("<Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors></Response>"))
}

fn run() -> Form {
    Form::ec2("RunInstances")
}

#[tokio::test]
async fn every_call_is_signed_for_its_service_and_region() {
    let line = Line::of(vec![answer(200, RUN)]);
    line.api("us-east-1", None, Endpoints::new()).change::<Run>(&run()).await.unwrap();
    let (address, signed) = line.last("authorization");
    assert_eq!(address, "https://ec2.us-east-1.amazonaws.com/");
    let scope = "AWS4-HMAC-SHA256 Credential=AKIDTEST/20261102/us-east-1/ec2/aws4_request, SignedHeaders=";
    let (covered, signature) = signed.strip_prefix(scope).unwrap().split_once(", Signature=").unwrap();
    assert!(["content-type", "host", "x-amz-date"].iter().all(|name| covered.split(';').any(|one| one == *name)), "{covered}");
    assert_eq!(signature.len(), 64);
    assert_eq!(line.last("x-amz-date").1, "20261102T120000Z");
    assert_eq!(line.last("x-amz-security-token").1, "");
}

#[tokio::test]
async fn a_session_is_named_and_signed() {
    let line = Line::of(vec![answer(200, RUN)]);
    line.api("us-east-1", Some("session"), Endpoints::new()).change::<Run>(&run()).await.unwrap();
    assert_eq!(line.last("x-amz-security-token").1, "session");
    assert!(line.last("authorization").1.contains("x-amz-security-token"), "{}", line.last("authorization").1);
}

#[tokio::test]
async fn services_are_at_their_own_addresses() {
    let line = Line::of(vec![answer(200, "{}")]);
    let ask = async |region: &str, service| {
        let api = line.api(region, None, Endpoints::from([(Service::Ssm, "https://vpce.example".to_owned())]));
        api.ask_json::<Value>(service, "GetThing", &json!({})).await.unwrap();
        let (address, target) = line.last("x-amz-target");
        (address, target, line.last("authorization").1.split('/').skip(2).take(2).collect::<Vec<_>>().join("/"))
    };
    let of = |address: &str, target: &str, scope: &str| (address.to_owned(), target.to_owned(), scope.to_owned());
    let found = ask("eu-west-1", Service::ServiceQuotas).await;
    let quotas =
        of("https://servicequotas.eu-west-1.amazonaws.com/", "ServiceQuotasV20190624.GetThing", "eu-west-1/servicequotas");
    assert_eq!(found, quotas);
    let sqs = of("https://sqs.cn-north-1.amazonaws.com.cn/", "AmazonSQS.GetThing", "cn-north-1/sqs");
    assert_eq!(ask("cn-north-1", Service::Sqs).await, sqs);
    // One endpoint for all regions.
    let pricing = of("https://api.pricing.us-east-1.amazonaws.com/", "AWSPriceListService.GetThing", "us-east-1/pricing");
    assert_eq!(ask("eu-west-1", Service::Pricing).await, pricing);
    assert_eq!(ask("eu-west-1", Service::Ssm).await, of("https://vpce.example/", "AmazonSSM.GetThing", "eu-west-1/ssm"));
}

#[tokio::test(start_paused = true)]
async fn only_questions_are_asked_again() {
    for (given, of_a_question, of_a_change) in [
        (error(500, "InternalError"), 4, 1),
        (error(503, "RequestLimitExceeded"), 4, 1),
        (error(500, "InsufficientInstanceCapacity"), 1, 1),
        (error(403, "UnauthorizedOperation"), 1, 1),
        // With new credentials once more.
        (error(400, "ExpiredToken"), 2, 2),
        (Err(NoAnswer { sent: true, why: "cut".to_owned() }), 4, 1),
        (answer(502, "<html/>"), 4, 1),
    ] {
        let line = Line::of(vec![given.clone()]);
        let api = line.api("us-east-1", None, Endpoints::new());
        api.ask::<Done>(Service::Ec2, &run()).await.unwrap_err();
        assert_eq!(line.calls(), of_a_question, "{given:?}");
        api.change::<Run>(&run()).await.unwrap_err();
        assert_eq!(line.calls(), of_a_question + of_a_change, "{given:?}");
    }
    let line = Line::of(vec![error(500, "InternalError"), answer(200, RUN)]);
    line.api("us-east-1", None, Endpoints::new()).ask::<Run>(Service::Ec2, &run()).await.unwrap();
}

#[tokio::test]
async fn what_was_never_sent_is_told_from_what_was() {
    for (sent, expected) in [(false, "RunInstances: no connection: refused"), (true, "RunInstances: refused")] {
        let line = Line::of(vec![Err(NoAnswer { sent, why: "refused".to_owned() })]);
        let failure = line.api("us-east-1", None, Endpoints::new()).change::<Run>(&run()).await.unwrap_err();
        assert_eq!((failure.to_string().as_str(), failure.class()), (expected, Class::Transient));
        assert_eq!(matches!(failure, Failure::NotSent { .. }), !sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_is_seen_in_any_answer() {
    for (off, seen) in [(0, None), (200, None), (-200, None), (600, Some(600)), (-600, Some(-600))] {
        let date = (start() + SignedDuration::from_secs(off)).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let dated = http::Response::builder().status(400).header("date", date).body(Vec::new()).unwrap();
        let line = Line::of(vec![Ok(dated)]);
        let api = line.api("us-east-1", None, Endpoints::new());
        api.change::<Run>(&run()).await.unwrap_err();
        assert_eq!(api.skew().map(|skew| skew.as_secs()), seen, "{off}");
    }
}

#[test]
fn an_answer_that_is_cut_anywhere_is_none() {
    let run: Run = parsed("RunInstances", RUN.as_bytes()).unwrap();
    let machine = run.instances_set.into_iter().next().unwrap();
    assert_eq!((machine.instance_id.as_str(), machine.tag("a")), ("i-1", Some("b & c")));
    for end in 0..RUN.len() {
        let cut = parsed::<Run>("RunInstances", &RUN.as_bytes()[..end]);
        assert!(matches!(cut, Err(Failure::NoAnswer { .. })), "{}: {cut:?}", &RUN[..end]);
    }
}

#[test]
fn another_answer_than_the_one_that_was_asked_for_is_none() {
    for text in
        ["", "It works!", "<html><body/></html>", RUN, "{}", "<DescribeInstancesResponse>", "<DescribeInstancesResponse/>x<"]
    {
        let answer = parsed::<Machines>("DescribeInstances", text.as_bytes());
        assert!(answer.is_err() || text.starts_with("<DescribeInstancesResponse/>"), "{text}: {answer:?}");
    }
    assert!(parsed::<Machines>("DescribeInstances", &[0xFF, 0xFE]).is_err());
    assert!(parsed::<Machines>("DescribeInstances", b"<DescribeInstancesResponse/>").is_ok());
    assert_eq!(parsed_json::<BTreeMap<String, Value>>("DeleteMessage", b"").unwrap(), BTreeMap::new());
    assert!(parsed_json::<Value>("GetParameter", b"{\"Parameter\":").is_err());
}
