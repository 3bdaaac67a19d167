//! The services next to EC2.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use super::{ACCOUNT, Rig, element, refused};
use crate::events;

fn parsed(told: &super::Told) -> Value {
    assert_eq!(told.0, 200, "{}", told.1);
    serde_json::from_str(&told.1).unwrap()
}

#[tokio::test]
async fn parameters_clusters_and_quotas_are_found() {
    let rig = Rig::new();
    let name = "/aws/service/bottlerocket/aws-k8s-1.33-nvidia/arm64/latest/image_id";
    let told = parsed(&rig.json("ssm", "AmazonSSM.GetParameter", &json!({ "Name": name }).to_string()).await);
    let id = told["Parameter"]["Value"].as_str().unwrap().to_owned();
    let told = rig.ask("DescribeImages", &[("ImageId.1", &id)]).await;
    assert_eq!(element(&told.1, "architecture"), "arm64");
    let told = rig.json("ssm", "AmazonSSM.GetParameter", r#"{"Name":"/none"}"#).await;
    assert!(told.0 == 400 && told.1.contains("ParameterNotFound"), "{}", told.1);

    let get = |name: &str| {
        let (parts, body) = rig.request("eks", "us-east-1", &[], "").into_parts();
        let mut request = Request::from_parts(parts, body);
        *request.method_mut() = http::Method::GET;
        *request.uri_mut() = format!("/clusters/{name}").parse().unwrap();
        request
    };
    let told = parsed(&rig.answer(get("prod")).await.unwrap());
    assert_eq!(told["cluster"]["version"], "1.33");
    let told = rig.peer.answer(get("none")).await.unwrap();
    assert_eq!(told.status(), 404);
    assert_eq!(told.headers()["x-amzn-errortype"], "ResourceNotFoundException");

    let quota = r#"{"ServiceCode":"ec2","QuotaCode":"L-DB2E81BA"}"#;
    let told = parsed(&rig.json("servicequotas", "ServiceQuotasV20190624.GetServiceQuota", quota).await);
    assert_eq!(told["Quota"]["Value"], 1_000.0);
    rig.peer.world().region("us-east-1").quotas.get_mut("L-DB2E81BA").unwrap().changed = false;
    let told = rig.json("servicequotas", "ServiceQuotasV20190624.GetServiceQuota", quota).await;
    assert!(told.0 == 400 && told.1.contains("NoSuchResourceException"), "{}", told.1);
    let told = parsed(&rig.json("servicequotas", "ServiceQuotasV20190624.GetAWSDefaultServiceQuota", quota).await);
    assert_eq!(told["Quota"]["UsageMetric"]["MetricDimensions"]["Class"], "G/OnDemand");
}

#[tokio::test]
async fn the_caller_is_the_account_of_its_key() {
    let rig = Rig::new();
    let request = || rig.request("sts", "us-east-1", &[], "Action=GetCallerIdentity&Version=2011-06-15");
    let told = rig.answer(request()).await.unwrap();
    assert_eq!(element(&told.1, "Account"), ACCOUNT);
    let request = request();
    rig.pass(301);
    refused(&rig.answer(request).await.unwrap(), 403, "SignatureDoesNotMatch");
}

#[tokio::test]
async fn a_role_of_another_account_is_assumed() {
    let rig = Rig::new();
    let body = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn:aws:iam::222222222222:role/stoker&RoleSessionName=stoker-prod";
    let told = rig.answer(rig.request("sts", "us-east-1", &[], body)).await.unwrap();
    assert_eq!(element(&told.1, "Arn"), "arn:aws:sts::222222222222:assumed-role/stoker/stoker-prod");
    assert_eq!(rig.peer.world().accounts[&element(&told.1, "AccessKeyId")], "222222222222");
}

#[tokio::test]
async fn list_prices_are_found_by_their_attributes() {
    let rig = Rig::new();
    let filters = [
        ("instanceType", "g6.xlarge"),
        ("regionCode", "us-east-1"),
        ("productFamily", "Compute Instance"),
        ("tenancy", "Shared"),
    ];
    let filters = filters.map(|(field, value)| json!({ "Type": "TERM_MATCH", "Field": field, "Value": value }));
    let body = json!({ "ServiceCode": "AmazonEC2", "Filters": filters }).to_string();
    let told = parsed(&rig.json("pricing", "AWSPriceListService.GetProducts", &body).await);
    assert_eq!(told["PriceList"].as_array().unwrap().len(), 1);
    assert!(told["PriceList"][0].as_str().unwrap().contains(r#""USD":"0.8048000000""#));
    let body = json!({ "ServiceCode": "AmazonEC2", "MaxResults": 5 }).to_string();
    let told = parsed(&rig.json("pricing", "AWSPriceListService.GetProducts", &body).await);
    assert_eq!((told["PriceList"].as_array().unwrap().len(), &told["NextToken"]), (5, &json!("5")));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_with_the_message_or_its_time() {
    let rig = Rig::new();
    rig.peer.world().region("us-east-1").add_queue("q");
    let url = "https://sqs.us-east-1.amazonaws.com/1/q";
    let receive = json!({ "QueueUrl": url, "WaitTimeSeconds": 20, "VisibilityTimeout": 20, "MaxNumberOfMessages": 10 });
    let receive = receive.to_string();
    let started = tokio::time::Instant::now();
    assert_eq!(parsed(&rig.json("sqs", "AmazonSQS.ReceiveMessage", &receive).await), json!({}));
    assert_eq!(started.elapsed().as_secs(), 20);
    let started = tokio::time::Instant::now();
    let id = rig.id("a", "t", &[]).await;
    let body = events::spot_interruption(&rig.peer.world().machines[&id], rig.peer.now());
    let send = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        rig.peer.send("q", &body);
    };
    let (told, ()) = tokio::join!(rig.json("sqs", "AmazonSQS.ReceiveMessage", &receive), send);
    assert_eq!(started.elapsed().as_secs(), 3);
    let told = parsed(&told);
    let event: Value = serde_json::from_str(told["Messages"][0]["Body"].as_str().unwrap()).unwrap();
    assert_eq!(event["detail"]["instance-id"], json!(id));
    let now = receive.replace(r#""WaitTimeSeconds":20"#, r#""WaitTimeSeconds":0"#);
    assert_eq!(parsed(&rig.json("sqs", "AmazonSQS.ReceiveMessage", &now).await), json!({}), "it is hidden");
    rig.pass(20);
    let told = parsed(&rig.json("sqs", "AmazonSQS.ReceiveMessage", &now).await);
    let receipt = json!({ "QueueUrl": "q", "ReceiptHandle": told["Messages"][0]["ReceiptHandle"] }).to_string();
    parsed(&rig.json("sqs", "AmazonSQS.DeleteMessage", &receipt).await);
    rig.pass(20);
    assert_eq!(parsed(&rig.json("sqs", "AmazonSQS.ReceiveMessage", &now).await), json!({}));
    let gone = rig.json("sqs", "AmazonSQS.GetQueueUrl", r#"{"QueueName":"none"}"#).await;
    assert!(gone.0 == 400 && gone.1.contains("com.amazonaws.sqs#QueueDoesNotExist"), "{}", gone.1);
}
