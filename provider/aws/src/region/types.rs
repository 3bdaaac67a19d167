//! What instance types are made of, as EC2 tells.

use std::collections::BTreeMap;

use jiff::Timestamp;
use stoker_core::base::ids::InstanceType;
use stoker_core::base::units::MiB;
use stoker_core::facts::supply::MachineFact;
use stoker_core::market::offer::Network;

use super::RegionSupplier;
use super::facts::TYPES_IN_A_CALL;
use crate::answers::{InstanceTypes, Interfaces, TypeInfo};
use crate::wire::{Failure, Form};

impl RegionSupplier {
    /// The types that the price tables know here, as EC2 knows them.
    pub(super) async fn machine_types(&self) -> Result<BTreeMap<InstanceType, MachineFact>, Failure> {
        let as_of = self.api.now();
        let mut known = BTreeMap::new();
        for types in self.types.chunks(TYPES_IN_A_CALL) {
            // As a filter: one that this region does not have would fail the call for all.
            let all = Form::ec2("DescribeInstanceTypes").filter("instance-type", types.iter().map(InstanceType::as_str));
            let take = |page: InstanceTypes| {
                known.extend(
                    page.instance_type_set
                        .iter()
                        .filter_map(|told| Some((InstanceType::new(told.instance_type.as_str()).ok()?, fact(told, as_of)?))),
                );
                page.next_token
            };
            self.api.pages(&all, take).await?;
        }
        Ok(known)
    }
}

/// What EC2 tells of a type; nothing of one of which it does not tell the least.
fn fact(told: &TypeInfo, as_of: Timestamp) -> Option<MachineFact> {
    let gpus: u32 = told.gpu_info.gpus.iter().filter_map(|gpu| gpu.count).fold(0, u32::saturating_add);
    // Disks are sold in gigabytes of 10⁹ bytes.
    let mib = |gb: u32| MiB(u64::from(gb) * 1_000_000_000 / (1024 * 1024));
    Some(MachineFact {
        vcpus: told.v_cpu_info.default?,
        memory: MiB(u64::from(told.memory_info.mib?)),
        gpus: Some(gpus).filter(|gpus| *gpus > 0),
        network: network(&told.network_info),
        local_disk: told.instance_storage_info.gb.filter(|gb| *gb > 0).map(mib),
        as_of,
    })
}

/// The network of a type. A pod has an address of the card that a node boots with; one of each interface is the interface's own, and two
/// pods share the node's.
fn network(told: &Interfaces) -> Option<Network> {
    let first = told.default_network_card_index.unwrap_or(0);
    let card = told.network_cards.iter().find(|card| card.network_card_index == Some(first))?;
    let addresses = told.ipv4_addresses_per_interface?.checked_sub(1)?;
    Some(Network {
        pods: card.maximum_network_interfaces?.checked_mul(addresses)?.checked_add(2)?,
        cards: told.maximum_network_cards?.max(1),
        efa_interfaces: told.efa_info.maximum_efa_interfaces.unwrap_or(0),
    })
}
