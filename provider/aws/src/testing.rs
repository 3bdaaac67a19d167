//! What the unit tests of this crate share.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, InstanceType, LaunchKey, NodeClassName, NodeGroupId, Region, ZoneId, ZoneName};
use stoker_core::base::kinds::{Taint, TaintEffect};
use stoker_core::catalogue::template::{NodeTemplate, resources};
use stoker_core::facts::supply::LaunchRequest;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_core::market::price::PriceBook;
use stoker_core::market::sharing::Slices;
use stoker_service::suppliers::Launch;

use crate::config::{Config, NodeClass, Reached};

static BOOK: LazyLock<PriceBook> = LazyLock::new(|| stoker_pricing::embedded().unwrap());

/// What the price tables say of a type.
fn spec(instance_type: &str) -> Arc<InstanceSpec> {
    let is_it = |spec: &&Arc<InstanceSpec>| spec.cloud.as_str() == "aws" && spec.instance_type.as_str() == instance_type;
    Arc::clone(BOOK.specs().find(is_it).unwrap())
}

/// A launch for a group of that type, whose template is that of the price tables.
pub(crate) fn launch(instance_type: &str, capacity_type: CapacityType, more: &[(&str, &str)]) -> Launch {
    let spec = spec(instance_type);
    let (capacity, allocatable) = resources(&spec).unwrap();
    let group = format!("training.{}.us-east-1a", instance_type.replace('.', "-"));
    let place = Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("us-east-1").unwrap(),
        zone: ZoneId::new("use1-az1").unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
    };
    let labels = [
        ("stoker.dev/cluster", "prod"),
        ("stoker.dev/gpu", spec.gpu_model.as_str()),
        ("stoker.dev/group", group.as_str()),
        ("stoker.dev/pool", "training"),
        ("kubernetes.io/arch", spec.arch.as_str()),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", instance_type),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
    ];
    let labels = labels.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let taints = vec![Taint { key: "nvidia.com/gpu".to_owned(), value: "true".to_owned(), effect: TaintEffect::NoSchedule }];
    let template = NodeTemplate { labels, taints, capacity, allocatable, slices: Slices::default() };
    let request = LaunchRequest {
        key: LaunchKey::new(format!("prod/{group}/0c4de2a1/7/1")).unwrap(),
        group: NodeGroupId::new(&group).unwrap(),
        market: Market { place, capacity_type },
        zone_name: ZoneName::new("us-east-1a").unwrap(),
        reservation: None,
    };
    Launch {
        first_asked: Timestamp::UNIX_EPOCH,
        node_class: Some(NodeClassName::new("gpu").unwrap()),
        gpus: allocatable.gpus,
        pods: capacity.pods,
        kept: template.reserves(),
        disk: capacity.ephemeral,
        labels: template.labels,
        taints: template.taints,
        spec: Some(spec),
        ..request.into()
    }
}

/// A file with one class that has these fields beside its profile.
pub(crate) fn file(fields: &str) -> String {
    format!(
        "apiVersion: stoker.dev/v1alpha1\nkind: AwsSupplier\ncluster: {{ name: prod }}\nregions:\n- name: us-east-1\n  subnets: {{ \
         ids: [subnet-1] }}\n  securityGroups: {{ ids: [sg-1] }}\nnodeClasses:\n  gpu:\n    instanceProfile: stoker-node\n{fields}"
    )
}

/// A class that has these fields beside its profile.
pub(crate) fn class(fields: &str) -> NodeClass {
    let config = Config::parse("aws.yaml", &file(fields)).unwrap();
    config.classes.into_values().next().unwrap()
}

/// How a cluster of EKS is reached.
pub(crate) fn reached() -> Reached {
    Reached {
        endpoint: "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com".to_owned(),
        certificate_authority: "LS0tLS1CRUdJTg==".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        version: "1.33".to_owned(),
    }
}

/// Compares with the golden of that name, beside the tests of a module.
pub(crate) fn golden(module: &str, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module).join("golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
