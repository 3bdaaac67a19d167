//! What EC2 and its neighbours answer. Everything that is not used is skipped, and every field may be missing.
#![expect(clippy::struct_field_names, reason = "fields are called as AWS calls them")]

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A list: `<item>`s, of which there may be none, or no list at all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(crate) struct Items<T> {
    #[serde(rename = "item", default = "Vec::new")]
    items: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<T> Items<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

impl<T> IntoIterator for Items<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

/// A text; nothing where the element is empty.
fn filled<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

/// A number; nothing where the element is empty or holds none.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    Ok(filled(from)?.and_then(|text| text.parse().ok()))
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Tag {
    key: String,
    value: String,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Machine {
    pub(crate) instance_id: String,
    pub(crate) instance_state: MachineState,
    #[serde(deserialize_with = "filled")]
    pub(crate) private_dns_name: Option<String>,
    pub(crate) instance_type: String,
    pub(crate) image_id: String,
    pub(crate) architecture: String,
    #[serde(deserialize_with = "filled")]
    pub(crate) launch_time: Option<String>,
    pub(crate) placement: Placement,
    #[serde(deserialize_with = "filled")]
    pub(crate) instance_lifecycle: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(crate) spot_instance_request_id: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(crate) capacity_reservation_id: Option<String>,
    pub(crate) tag_set: Items<Tag>,
    pub(crate) state_reason: StateReason,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct MachineState {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Placement {
    pub(crate) availability_zone: String,
    #[serde(deserialize_with = "filled")]
    pub(crate) availability_zone_id: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StateReason {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Machine {
    /// The value of its tag of that key.
    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        self.tag_set.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str())
    }
}

/// The answer of `RunInstances`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Run {
    pub(crate) instances_set: Items<Machine>,
}

/// The answer of `DescribeInstances`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Machines {
    pub(crate) reservation_set: Items<Run>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

/// The answer of `DescribeInstanceStatus`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct InstanceStatuses {
    pub(crate) instance_status_set: Items<InstanceStatus>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct InstanceStatus {
    pub(crate) instance_id: String,
    pub(crate) system_status: StatusCheck,
    pub(crate) instance_status: StatusCheck,
    pub(crate) events_set: Items<ScheduledEvent>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct StatusCheck {
    pub(crate) status: String,
    pub(crate) details: Items<StatusDetail>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StatusDetail {
    #[serde(deserialize_with = "filled")]
    pub(crate) impaired_since: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ScheduledEvent {
    pub(crate) description: String,
    #[serde(deserialize_with = "filled")]
    pub(crate) not_before: Option<String>,
}

/// The answer of `GetConsoleOutput`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Console {
    /// In base64.
    #[serde(deserialize_with = "filled")]
    pub(crate) output: Option<String>,
}

/// An answer of which only matters that it came.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {}

/// The answer of `DescribeSubnets`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Subnets {
    pub(crate) subnet_set: Items<Subnet>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Subnet {
    pub(crate) subnet_id: String,
    pub(crate) vpc_id: String,
    pub(crate) availability_zone: String,
    pub(crate) availability_zone_id: String,
    #[serde(deserialize_with = "number")]
    pub(crate) available_ip_address_count: Option<u32>,
}

/// The answer of `DescribeSecurityGroups`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecurityGroups {
    pub(crate) security_group_info: Items<SecurityGroup>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecurityGroup {
    pub(crate) group_id: String,
    pub(crate) vpc_id: String,
}

/// The answer of `DescribeImages`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Images {
    pub(crate) images_set: Items<ImageInfo>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ImageInfo {
    pub(crate) image_id: String,
    pub(crate) architecture: String,
}

/// The answer of `DescribeInstanceTypeOfferings`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Offerings {
    pub(crate) instance_type_offering_set: Items<Offering>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Offering {
    pub(crate) instance_type: String,
    pub(crate) location: String,
}

/// The answer of `DescribeInstanceTypes`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct InstanceTypes {
    pub(crate) instance_type_set: Items<TypeInfo>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TypeInfo {
    pub(crate) instance_type: String,
    pub(crate) v_cpu_info: Cpus,
    pub(crate) memory_info: Memory,
    pub(crate) instance_storage_info: Storage,
    pub(crate) network_info: Interfaces,
    pub(crate) gpu_info: GpuInfo,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Cpus {
    #[serde(rename = "defaultVCpus", deserialize_with = "number")]
    pub(crate) default: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    #[serde(rename = "sizeInMiB", deserialize_with = "number")]
    pub(crate) mib: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Storage {
    #[serde(rename = "totalSizeInGB", deserialize_with = "number")]
    pub(crate) gb: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Interfaces {
    #[serde(deserialize_with = "number")]
    pub(crate) maximum_network_cards: Option<u32>,
    #[serde(deserialize_with = "number")]
    pub(crate) default_network_card_index: Option<u32>,
    pub(crate) network_cards: Items<NetworkCard>,
    #[serde(deserialize_with = "number")]
    pub(crate) ipv4_addresses_per_interface: Option<u32>,
    pub(crate) efa_info: EfaInfo,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NetworkCard {
    #[serde(deserialize_with = "number")]
    pub(crate) network_card_index: Option<u32>,
    #[serde(deserialize_with = "number")]
    pub(crate) maximum_network_interfaces: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EfaInfo {
    #[serde(deserialize_with = "number")]
    pub(crate) maximum_efa_interfaces: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct GpuInfo {
    pub(crate) gpus: Items<GpuCount>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct GpuCount {
    #[serde(deserialize_with = "number")]
    pub(crate) count: Option<u32>,
}

/// The answer of `DescribeSpotPriceHistory`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotPrices {
    pub(crate) spot_price_history_set: Items<SpotPrice>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotPrice {
    pub(crate) instance_type: String,
    pub(crate) availability_zone: String,
    pub(crate) spot_price: String,
    pub(crate) timestamp: String,
}

/// The answer of `DescribeCapacityReservations`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Reservations {
    pub(crate) capacity_reservation_set: Items<Reservation>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Reservation {
    pub(crate) capacity_reservation_id: String,
    pub(crate) instance_type: String,
    pub(crate) availability_zone: String,
    #[serde(deserialize_with = "filled")]
    pub(crate) availability_zone_id: Option<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) total_instance_count: Option<u32>,
    #[serde(deserialize_with = "number")]
    pub(crate) available_instance_count: Option<u32>,
    #[serde(deserialize_with = "filled")]
    pub(crate) start_date: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(crate) end_date: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(crate) reservation_type: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(crate) placement_group_arn: Option<String>,
    pub(crate) state: String,
}

/// The answer of `DescribeReservedInstances`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ReservedInstances {
    pub(crate) reserved_instances_set: Items<ReservedInstance>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ReservedInstance {
    pub(crate) reserved_instances_id: String,
    pub(crate) instance_type: String,
    #[serde(deserialize_with = "filled")]
    pub(crate) availability_zone: Option<String>,
    #[serde(deserialize_with = "number")]
    pub(crate) instance_count: Option<u32>,
    /// In seconds.
    #[serde(deserialize_with = "number")]
    pub(crate) duration: Option<u32>,
    #[serde(deserialize_with = "filled")]
    pub(crate) fixed_price: Option<String>,
    pub(crate) recurring_charges: Items<RecurringCharge>,
    #[serde(deserialize_with = "filled")]
    pub(crate) end: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RecurringCharge {
    pub(crate) frequency: String,
    pub(crate) amount: String,
}

/// The answer of `DescribeSpotInstanceRequests`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotRequests {
    pub(crate) spot_instance_request_set: Items<SpotRequest>,
    #[serde(deserialize_with = "filled")]
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotRequest {
    #[serde(deserialize_with = "filled")]
    pub(crate) instance_id: Option<String>,
    pub(crate) status: SpotStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotStatus {
    pub(crate) code: String,
    #[serde(deserialize_with = "filled")]
    pub(crate) update_time: Option<String>,
}

/// The answer of `GetCallerIdentity`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallerIdentity {
    #[serde(rename = "GetCallerIdentityResult")]
    pub(crate) result: Identity,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Identity {
    #[serde(rename = "Account")]
    pub(crate) account: String,
    #[serde(rename = "Arn")]
    pub(crate) arn: String,
}

/// The answer of `ssm:GetParameter`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Parameter {
    pub(crate) parameter: ParameterValue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ParameterValue {
    pub(crate) value: String,
}

/// The answer of `eks:DescribeCluster`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EksCluster {
    pub(crate) cluster: EksClusterInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EksClusterInfo {
    pub(crate) version: String,
    pub(crate) endpoint: String,
    pub(crate) certificate_authority: EksAuthority,
    pub(crate) kubernetes_network_config: EksNetwork,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EksAuthority {
    pub(crate) data: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EksNetwork {
    pub(crate) service_ipv4_cidr: Option<String>,
    pub(crate) service_ipv6_cidr: Option<String>,
}

/// The answer of `servicequotas:GetServiceQuota` and `GetAWSDefaultServiceQuota`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct ServiceQuota {
    pub(crate) quota: QuotaValue,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct QuotaValue {
    pub(crate) value: Option<f64>,
    pub(crate) usage_metric: Option<UsageMetric>,
}

/// The metric of `CloudWatch` that counts what is used of a quota.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct UsageMetric {
    pub(crate) metric_namespace: String,
    pub(crate) metric_name: String,
    pub(crate) metric_dimensions: BTreeMap<String, String>,
    pub(crate) metric_statistic_recommendation: Option<String>,
}

/// The answer of `cloudwatch:GetMetricData`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetricData {
    #[serde(rename = "GetMetricDataResult")]
    pub(crate) result: MetricDataResult,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct MetricDataResult {
    pub(crate) metric_data_results: Members<MetricValues>,
}

/// What a metric showed, newest first.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct MetricValues {
    pub(crate) id: String,
    pub(crate) values: Members<String>,
}

/// A list of a query service other than EC2: `<member>`s, of which there may be none.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(crate) struct Members<T> {
    #[serde(rename = "member", default = "Vec::new")]
    pub(crate) members: Vec<T>,
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self { members: Vec::new() }
    }
}

/// The answer of `savingsplans:DescribeSavingsPlans`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SavingsPlans {
    pub(crate) savings_plans: Vec<SavingsPlan>,
    pub(crate) next_token: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SavingsPlan {
    pub(crate) savings_plan_id: String,
    pub(crate) savings_plan_type: String,
    pub(crate) region: Option<String>,
    pub(crate) ec2_instance_family: Option<String>,
    pub(crate) currency: Option<String>,
    /// What is committed to an hour.
    pub(crate) commitment: Option<String>,
    pub(crate) end: Option<String>,
}

/// The answer of `sqs:GetQueueUrl`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QueueUrl {
    #[serde(rename = "QueueUrl")]
    pub(crate) url: String,
}

/// The answer of `sqs:ReceiveMessage`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Messages {
    pub(crate) messages: Vec<Message>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Message {
    pub(crate) body: String,
    pub(crate) receipt_handle: String,
}

/// The answer of `pricing:GetProducts`: each product is JSON in a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct Products {
    pub(crate) price_list: Vec<String>,
}

/// A product of the price list: its on-demand terms, each with its rates.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Product {
    terms: Terms,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Terms {
    #[serde(rename = "OnDemand")]
    on_demand: BTreeMap<String, Offer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Offer {
    price_dimensions: BTreeMap<String, Rate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rate {
    unit: String,
    price_per_unit: BTreeMap<String, String>,
}

impl Product {
    /// Dollars an hour, as text; `None` where it is not sold so, or for another money.
    pub(crate) fn usd_per_hour(&self) -> Option<&str> {
        let rates = self.terms.on_demand.values().flat_map(|offer| offer.price_dimensions.values());
        let mut hourly = rates.filter(|rate| rate.unit == "Hrs").filter_map(|rate| rate.price_per_unit.get("USD"));
        hourly.next().map(String::as_str)
    }
}

/// What an event of `EventBridge` says, as far as it matters. Fields that are not used may be anything.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    // AWS's page on blocks writes the second; the wire has the first.
    #[serde(rename = "detail-type", alias = "detail_type")]
    pub(crate) detail_type: String,
    pub(crate) time: Option<String>,
    pub(crate) detail: BTreeMap<String, serde_json::Value>,
}

impl Event {
    /// A text of its detail.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.detail.get(key)?.as_str()
    }
}
