//! The rules of the peer, asked without a network.

mod launching;
mod looking;
mod services;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{Request, Response};
use jiff::Timestamp;

use crate::{ACCESS_KEY, Peer};

const ACCOUNT: &str = "111111111111";
const START: i64 = 1_790_000_000;

/// A peer whose clock a test sets, and what asks it.
struct Rig {
    peer: Peer,
    clock: Arc<AtomicI64>,
}

/// An answer: its status and its text.
type Told = (u16, String);

impl Rig {
    fn new() -> Self {
        let clock = Arc::new(AtomicI64::new(START));
        let told = Arc::clone(&clock);
        let now = move || Timestamp::from_second(told.load(Ordering::SeqCst)).unwrap();
        Self { peer: Peer::with_clock(ACCOUNT, Arc::new(now)), clock }
    }

    fn pass(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }

    /// A signed request.
    fn request(&self, service: &str, region: &str, headers: &[(&str, &str)], body: &str) -> Request<Vec<u8>> {
        let stamp = self.peer.now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!("{ACCESS_KEY}/20260101/{region}/{service}/aws4_request");
        let signed = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=content-type;host;x-amz-date, Signature=00");
        let mut request = Request::post("/").header("authorization", signed).header("x-amz-date", stamp);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body.as_bytes().to_vec()).unwrap()
    }

    async fn answer(&self, request: Request<Vec<u8>>) -> Option<Told> {
        let response: Response<Vec<u8>> = self.peer.answer(request).await?;
        Some((response.status().as_u16(), String::from_utf8(response.into_body()).unwrap()))
    }

    /// A call to EC2 in a region.
    async fn ask_in(&self, region: &str, action: &str, params: &[(&str, &str)]) -> Option<Told> {
        let escaped = |text: &str| text.replace('%', "%25").replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
        let mut body = format!("Action={action}&Version=2016-11-15");
        for (name, value) in params {
            body.extend(["&", name, "=", &escaped(value)]);
        }
        self.answer(self.request("ec2", region, &[], &body)).await
    }

    /// A call to EC2 in us-east-1 that is answered.
    async fn ask(&self, action: &str, params: &[(&str, &str)]) -> Told {
        self.ask_in("us-east-1", action, params).await.unwrap()
    }

    /// A call to a JSON service.
    async fn json(&self, service: &str, target: &str, body: &str) -> Told {
        let request = self.request(service, "us-east-1", &[("x-amz-target", target)], body);
        self.answer(request).await.unwrap()
    }

    /// An on-demand launch of a g6.xlarge in a zone of us-east-1, with more parameters or others.
    fn launch(&self, zone: &str, token: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let image = {
            let mut world = self.peer.world();
            let name = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/nvidia/recommended/image_id";
            world.region("us-east-1").parameters[name].clone()
        };
        let mut params: Vec<(String, String)> = [
            ("ImageId", image.as_str()),
            ("InstanceType", "g6.xlarge"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("ClientToken", token),
            ("UserData", &BASE64_STANDARD.encode("hello")),
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SubnetId", &format!("subnet-us-east-1{zone}")),
            ("NetworkInterface.1.SecurityGroupId.1", "sg-us-east-1"),
            ("IamInstanceProfile.Name", "stoker-node"),
            ("CapacityReservationSpecification.CapacityReservationPreference", "none"),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "stoker.dev/cluster"),
            ("TagSpecification.1.Tag.1.Value", "prod"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        for (name, value) in more {
            params.retain(|(of, _)| of != name);
            params.push(((*name).to_owned(), (*value).to_owned()));
        }
        params
    }

    /// Such a launch, if it is answered.
    async fn run_lost(&self, zone: &str, token: &str, more: &[(&str, &str)]) -> Option<Told> {
        let params = self.launch(zone, token, more);
        let params: Vec<(&str, &str)> = params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.ask_in("us-east-1", "RunInstances", &params).await
    }

    /// Such a launch.
    async fn run(&self, zone: &str, token: &str, more: &[(&str, &str)]) -> Told {
        self.run_lost(zone, token, more).await.unwrap()
    }

    /// The id of the machine that such a launch makes.
    async fn id(&self, zone: &str, token: &str, more: &[(&str, &str)]) -> String {
        let told = self.run(zone, token, more).await;
        assert_eq!(told.0, 200, "{}", told.1);
        element(&told.1, "instanceId")
    }
}

/// The text of the first element of that name.
fn element(text: &str, name: &str) -> String {
    let after = text.split_once(&format!("<{name}>")).map_or("", |(_, after)| after);
    after.split_once(&format!("</{name}>")).map_or("", |(value, _)| value).to_owned()
}

/// An error: its status and its code.
#[track_caller]
fn refused(told: &Told, status: u16, code: &str) {
    assert_eq!((told.0, element(&told.1, "Code").as_str()), (status, code), "{}", told.1);
}
