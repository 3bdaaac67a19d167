//! What each error of a launch means: the table of the contract, row by row, by the call itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use stoker_aws::check::OfPolicy;
use stoker_core::base::ids::SupplierName;
use stoker_core::facts::supply::RefusalKind::{self, Config, OutOfCapacity, Permission, QuotaExceeded};
use stoker_core::facts::supply::{LaunchOutcome, RefusalScope};
use stoker_core::market::offer::CapacityType;
use stoker_fake_ec2::{Fault, Rule};

use crate::bench::Bench;

/// What must come of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Means {
    /// A "no", of that width, for so many minutes where EC2's supplier says so.
    No(RefusalKind, RefusalScope, Option<i64>),
    Unclear,
}

const fn no(kind: RefusalKind, scope: RefusalScope) -> Means {
    Means::No(kind, scope, None)
}

/// How often a launch is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Once,
    /// With what was looked up anew, or with new credentials.
    Twice,
    /// As long as there is time.
    Often,
}

/// Bought on demand where nothing else is said.
struct Row {
    status: u16,
    code: &'static str,
    message: &'static str,
    bought: CapacityType,
    means: Means,
    asked: Asked,
}

const fn row(status: u16, code: &'static str, means: Means) -> Row {
    Row { status, code, message: "EC2's words", bought: CapacityType::OnDemand, means, asked: Asked::Once }
}

impl Row {
    fn says(self, message: &'static str) -> Self {
        Self { message, ..self }
    }

    fn bought(self, bought: CapacityType) -> Self {
        Self { bought, ..self }
    }

    fn asked(self, asked: Asked) -> Self {
        Self { asked, ..self }
    }
}

fn rows() -> Vec<Row> {
    use CapacityType::{Reserved, Spot};
    use RefusalScope::{CapacityTypeInRegion, Market, Region, TypeInZone, Zone};
    let of_quota = |name: &str| no(QuotaExceeded, RefusalScope::Quota(name.to_owned()));
    let of_reservation = |kind| no(kind, RefusalScope::Reservation("cr-1".to_owned()));
    let mut rows = vec![
        row(500, "InsufficientInstanceCapacity", no(OutOfCapacity, Market)),
        row(500, "InsufficientInstanceCapacity", no(OutOfCapacity, Market)).bought(Spot),
        row(500, "InsufficientInstanceCapacity", of_reservation(OutOfCapacity)).bought(Reserved),
        row(500, "InsufficientInstanceCapacity", no(Config, Market)).says("the limit of a Spread placement group is reached"),
        row(400, "UnfulfillableCapacity", no(OutOfCapacity, Market)),
        row(500, "InsufficientHostCapacity", no(OutOfCapacity, Market)),
        row(500, "InsufficientVolumeCapacity", no(OutOfCapacity, Zone)),
        row(400, "VolumeTypeNotAvailableInZone", no(OutOfCapacity, Zone)),
        row(400, "ReservationCapacityExceeded", of_reservation(OutOfCapacity)).bought(Reserved),
        row(400, "InvalidLaunchTargets", of_reservation(OutOfCapacity)).bought(Reserved),
        row(400, "InvalidCapacityReservationState.PendingActivation", of_reservation(OutOfCapacity)).bought(Reserved),
        row(400, "InvalidCapacityReservationId.NotFound", of_reservation(Config)).bought(Reserved),
        row(400, "SpotMaxPriceTooLow", no(OutOfCapacity, Market)).bought(Spot),
        row(400, "Unsupported", Means::No(Config, TypeInZone, Some(720))),
        row(400, "InsufficientFreeAddressesInSubnet", no(OutOfCapacity, Zone)),
        row(400, "VcpuLimitExceeded", of_quota("L-DB2E81BA")),
        row(400, "InstanceLimitExceeded", of_quota("L-DB2E81BA")),
        row(400, "MaxSpotInstanceCountExceeded", of_quota("L-3819A6DF")).bought(Spot),
        row(400, "MaxFleetCountExceeded", of_quota("L-3819A6DF")).bought(Spot),
        row(403, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", no(Permission, CapacityTypeInRegion)).bought(Spot),
        row(401, "OptInRequired", Means::No(Permission, Region, Some(30))),
        row(400, "PendingVerification", Means::No(Permission, Region, Some(30))),
        row(400, "IdempotentParameterMismatch", no(Config, Market)),
        row(400, "IdempotentInstanceTerminated", no(OutOfCapacity, Market)),
        row(401, "AuthFailure", Means::Unclear)
            .says("AWS was not able to validate the provided access credentials")
            .asked(Asked::Twice),
        row(400, "SomethingNew", no(Config, Market)),
        row(418, "SomethingNew", no(Config, Market)),
        row(500, "SomethingNew", Means::Unclear),
        row(503, "SomethingNew", Means::Unclear),
    ];
    let many = |codes: &[&'static str], one: fn(&'static str) -> Row| codes.iter().map(|code| one(code)).collect::<Vec<_>>();
    let quotas = [
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "AttachmentLimitExceeded",
        "ResourceLimitExceeded",
    ];
    rows.extend(many(&quotas, |code| row(400, code, no(QuotaExceeded, Region))));
    let rights = ["UnauthorizedOperation", "AuthFailure", "AccessDenied", "Blocked", "AccountDisabled"];
    rows.extend(many(&rights, |code| row(403, code, no(Permission, Region))));
    let stale = ["InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound"];
    rows.extend(many(&stale, |code| row(400, code, no(Config, Market)).asked(Asked::Twice)));
    let requests = [
        "InvalidParameter",
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "MissingParameter",
        "InvalidBlockDeviceMapping",
        "InvalidUserData.Malformed",
        "InvalidPlacementGroup.Unknown",
        "UnsupportedOperation",
        "TagPolicyViolation",
        "TagLimitExceeded",
        "InvalidTagKey.Malformed",
    ];
    rows.extend(many(&requests, |code| row(400, code, no(Config, Market))));
    let throttles =
        ["RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException", "BandwidthLimitExceeded"];
    rows.extend(many(&throttles, |code| row(503, code, Means::Unclear).asked(Asked::Often)));
    let faults = [
        "InternalError",
        "InternalFailure",
        "ServerInternal",
        "ServiceUnavailable",
        "Unavailable",
        "InsufficientAddressCapacity",
        "RetryableError",
    ];
    rows.extend(many(&faults, |code| row(500, code, Means::Unclear)));
    let credentials =
        ["ExpiredToken", "RequestExpired", "InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature"];
    rows.extend(many(&credentials, |code| row(400, code, Means::Unclear).asked(Asked::Twice)));
    rows
}

#[tokio::test(start_paused = true)]
async fn each_error_of_a_launch_means_what_the_table_says() {
    for Row { status, code, message, bought, means, asked } in rows() {
        let bench = Bench::new().await;
        bench.world(|world| world.fault(Rule::of("RunInstances", Fault::status(status, code, message))));
        let mut launch = bench.order(1, "g6.xlarge", "use1-az1", bought);
        launch.request.reservation = (bought == CapacityType::Reserved).then(|| "cr-1".to_owned());
        let said = match bench.launch(&launch).await {
            LaunchOutcome::Refused(refusal) => {
                assert!(refusal.message.contains(code) && refusal.message.contains(message), "{code}: {}", refusal.message);
                Means::No(refusal.kind, refusal.scope, refusal.retry_after.map(|after| after.as_mins()))
            }
            LaunchOutcome::Unclear { message: said, .. } => {
                // One that was asked until the time was over may say just that.
                assert!(said.contains(code) || asked == Asked::Often, "{code}: {said}");
                Means::Unclear
            }
            LaunchOutcome::Launched(made) => panic!("{code}: {made:?}"),
        };
        assert_eq!(said, means, "{status} {code}");
        let (calls, looks) = bench.world(|world| {
            let last = world.calls.iter().rposition(|call| call.action == "RunInstances").unwrap();
            let looked = world.calls[last..]
                .iter()
                .any(|call| call.action == "DescribeInstances" && call.params.values().any(|value| value == "client-token"));
            (world.count("RunInstances"), looked)
        });
        let as_often = match asked {
            Asked::Once => calls == 1,
            Asked::Twice => calls == 2,
            Asked::Often => calls > 2,
        };
        assert!(as_often, "{status} {code} was asked {calls} times");
        if matches!(means, Means::No(..)) {
            assert!(looks, "{status} {code} was refused without a look for a machine");
        }
    }
}

/// A "no" needs the look: where that fails, nothing is known.
#[tokio::test(start_paused = true)]
async fn a_no_that_cannot_be_looked_behind_is_unclear() {
    for fault in [Fault::status(503, "Unavailable", "later"), Fault::Cut, Fault::Html, Fault::status(403, "AccessDenied", "no")]
    {
        let bench = Bench::new().await;
        bench.world(|world| {
            world.fault(Rule::of("RunInstances", Fault::status(500, "InsufficientInstanceCapacity", "none left")));
            world.fault(Rule::of("DescribeInstances", fault).matching("Filter.client-token", "stk1-*"));
        });
        let said = bench.unclear(&bench.usual(1)).await;
        assert!(said.contains("none left") && said.contains("looking for a machine"), "{said}");
    }
}

/// Junk is no answer, whatever was done.
#[tokio::test(start_paused = true)]
async fn junk_for_an_answer_refuses_nothing_and_loses_nothing() {
    for fault in [Fault::Html, Fault::Truncated, Fault::NoXml, Fault::Cut, Fault::Lose] {
        let bench = Bench::new().await;
        let first = bench.made(&bench.usual(1)).await;
        bench.list().await.unwrap();
        let junk = |action: &str| bench.world(|world| world.rules = vec![Rule::of(action, fault.clone())]);
        let launch = bench.usual(2);
        junk("RunInstances");
        bench.unclear(&launch).await;
        bench.world(|world| world.rules.clear());
        let second = bench.made(&launch).await;
        assert_eq!(bench.world(|world| world.alive().len()), 2, "{fault:?}");
        junk("DescribeInstances");
        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
        let listed = bench.list().await.unwrap();
        assert!(listed.instances.contains_key(&first.provider_id) && listed.instances.contains_key(&second.provider_id));
        assert!(listed.oldest() < bench.now(), "{fault:?}: an old listing is told as a new one");
        junk("TerminateInstances");
        let ended = bench.end(std::slice::from_ref(&first.provider_id)).await;
        assert!(ended[&first.provider_id].is_err(), "{fault:?}");
        bench.world(|world| world.rules.clear());
        let ended = bench.end(std::slice::from_ref(&first.provider_id)).await;
        assert_eq!(ended[&first.provider_id], Ok(()), "{fault:?}");
        assert_eq!(bench.world(|world| world.alive().len()), 1, "{fault:?}");
    }
}

/// Whatever right is missing, the check names it, so that its statement can be printed.
#[tokio::test(start_paused = true)]
async fn the_check_names_each_right_that_is_missing() {
    for action in [
        "DescribeSubnets",
        "DescribeSecurityGroups",
        "DescribeImages",
        "DescribeInstances",
        "DescribeInstanceStatus",
        "DescribeInstanceTypes",
        "DescribeInstanceTypeOfferings",
        "DescribeSpotPriceHistory",
        "DescribeCapacityReservations",
        "DescribeReservedInstances",
        "RunInstances",
        "DescribeCluster",
        "GetParameter",
        "GetServiceQuota",
        "GetMetricData",
        "GetProducts",
        "DescribeSavingsPlans",
    ] {
        let bench = Bench::new().await;
        bench.world(|world| world.fault(Rule::of(action, Fault::status(403, "AccessDeniedException", "no"))));
        let denied: BTreeSet<String> = bench.check().await.into_iter().filter_map(|one| one.denied).collect();
        assert_eq!(denied, [action.to_owned()].into());
    }
}

/// Of more launches than one run tries the first zone of each pool and market comes first, and the rest are named.
#[tokio::test(start_paused = true)]
async fn a_check_tries_forty_launches_and_names_the_others() {
    let bench = Bench::new().await;
    let pool = |at| {
        format!(
            "- {{ name: p{at}, workload: training, gpu: {{ models: [L4] }}, where: {{ clouds: [aws], regions: [us-east-1] }}, \
             nodeClass: gpu, limits: {{ maxNodes: 1 }} }}\n"
        )
    };
    let pools: String = (0..7).map(pool).collect();
    let text = format!(
        "apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: prod\nsuppliers: [{{ name: aws, kind: aws, config: /aws.yaml }}]\n\
         pools:\n{pools}"
    );
    let policy = Arc::new(stoker_service::policy_file::parse("policy.yaml", &text, None).unwrap());
    let found = bench.check_pools(Some(&OfPolicy { policy, supplier: SupplierName::new("aws").unwrap() })).await;
    assert_eq!(bench.count("RunInstances"), 40);
    let row = |what: &str| found.iter().find(|one| one.what == what).and_then(|one| one.told.as_deref().ok()).unwrap();
    assert_eq!(row("launch for p6, on-demand"), "allowed in use1-az1, use1-az2, tried with g6.xlarge");
    assert_eq!(
        row("launches not tried"),
        "2 of 42, as one run tries 40: launch for p6, spot in use1-az4; launch for p6, on-demand in use1-az4"
    );
}
