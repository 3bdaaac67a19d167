//! What a region of a new world holds.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::TypeInfo;
use crate::region::{Cluster, Image, Quota, Region, SecurityGroup, SpotPrice, Subnet, Tags, Zone};

/// Quotas that count vCPU: code and name.
const QUOTAS: [(&str, &str); 5] = [
    ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("L-417A185B", "Running On-Demand P instances"),
    ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("L-C4BD4855", "All P5 Spot Instance Requests"),
];

/// Types with their list and Spot prices in us-east-1.
const LIST_PRICES: [(&str, &str, &str); 8] = [
    ("g4dn.xlarge", "0.5260000000", "0.210400"),
    ("g5.xlarge", "1.0060000000", "0.402400"),
    ("g5g.xlarge", "0.4200000000", "0.168000"),
    ("g6.xlarge", "0.8048000000", "0.321900"),
    ("g6.2xlarge", "0.9776000000", "0.391000"),
    ("g6.12xlarge", "4.6016000000", "1.840600"),
    ("p4d.24xlarge", "21.9576420000", "7.900000"),
    ("p5.48xlarge", "55.0400000000", "16.500000"),
];

/// The Kubernetes version of the default clusters and images.
const KUBERNETES: &str = "1.33";

impl Region {
    /// A region in which `stoker` may launch: a subnet a zone, a group, images, a profile, a cluster `prod`, and everything in stock.
    ///
    /// `zones` are the letters of its zones with their ids. Ids of subnets and groups end with the zone's or region's name.
    pub fn furnished(name: &str, zones: &[(&str, &str)], types: &BTreeMap<String, TypeInfo>, now: Timestamp) -> Self {
        let prod: Tags = [("stoker.dev/discovery".to_owned(), "prod".to_owned())].into();
        let vpc = format!("vpc-{name}");
        let mut region = Self { spot_role: true, ..Self::default() };
        region.profiles.insert("stoker-node".to_owned());
        let group = format!("sg-{name}");
        region
            .groups
            .insert(group.clone(), SecurityGroup { id: group, vpc: vpc.clone(), name: "nodes".to_owned(), tags: prod.clone() });
        for (letter, id) in zones {
            let zone = Zone { name: format!("{name}{letter}"), id: (*id).to_owned() };
            let subnet = format!("subnet-{}", zone.name);
            region.subnets.insert(
                subnet.clone(),
                Subnet { id: subnet, zone_id: zone.id.clone(), vpc: vpc.clone(), free: 4_000, tags: prod.clone() },
            );
            for name in types.keys() {
                region.offered.insert((name.clone(), zone.id.clone()));
            }
            for (name, _, spot) in LIST_PRICES {
                let (instance_type, zone_id) = (name.to_owned(), zone.id.clone());
                region.spot_prices.push(SpotPrice { instance_type, zone_id, price: spot.to_owned(), at: now });
            }
            region.zones.push(zone);
        }
        for (code, name) in QUOTAS {
            region.quotas.insert(code.to_owned(), Quota { name: name.to_owned(), limit: 1_000, changed: true });
        }
        for (name, price, _) in LIST_PRICES {
            region.list_prices.insert(name.to_owned(), price.to_owned());
        }
        region.add_images(name, now);
        region.clusters.insert("prod".to_owned(), cluster("prod", name));
        region
    }

    fn add_images(&mut self, region: &str, now: Timestamp) {
        for arch in ["x86_64", "arm64"] {
            let eks = format!("/aws/service/eks/optimized-ami/{KUBERNETES}/amazon-linux-2023/{arch}/nvidia");
            let name = format!("amazon-eks-node-al2023-{arch}-nvidia-{KUBERNETES}-v20260714");
            let id = self.add_image(region, arch, &name, now);
            self.parameters.insert(format!("{eks}/recommended/image_id"), id.clone());
            self.parameters.insert(format!("{eks}/recommended/image_name"), name.clone());
            self.parameters.insert(format!("{eks}/{name}/image_id"), id);
            let bottlerocket = format!("/aws/service/bottlerocket/aws-k8s-{KUBERNETES}-nvidia/{arch}");
            let name = format!("bottlerocket-aws-k8s-{KUBERNETES}-nvidia-{arch}-v1.46.0-5cd59b8e");
            let id = self.add_image(region, arch, &name, now);
            self.parameters.insert(format!("{bottlerocket}/latest/image_id"), id.clone());
            self.parameters.insert(format!("{bottlerocket}/latest/image_version"), "1.46.0-5cd59b8e".to_owned());
            self.parameters.insert(format!("{bottlerocket}/1.46.0/image_id"), id);
        }
    }

    /// Adds an image of that architecture and name, made now; its id differs between regions.
    pub fn add_image(&mut self, region: &str, arch: &str, name: &str, now: Timestamp) -> String {
        let id = format!("ami-{:017x}", crate::world::scrambled(&format!("{region}/{name}")));
        let root_device = "/dev/xvda".to_owned();
        let (arch, name) = (arch.to_owned(), name.to_owned());
        let image = Image { id: id.clone(), arch, name, created: now, deprecated: None, root_device };
        self.images.insert(id.clone(), image);
        id
    }
}

/// A cluster of that name in a region.
fn cluster(name: &str, region: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        version: KUBERNETES.to_owned(),
        endpoint: format!("https://0123456789ABCDEF.gr7.{region}.eks.amazonaws.com"),
        ca: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUMKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        status: "ACTIVE".to_owned(),
    }
}
