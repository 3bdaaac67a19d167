//! `aws.yaml`: what nodes on EC2 are made with, and where. The policy keeps what is about money and limits.

#[cfg(test)]
pub(crate) mod example;
mod raw;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};

use stoker_core::base::ids::{NodeClassName, Region};
use stoker_core::base::text::{nearest, quoted};
use stoker_core::policy::{API_VERSION, Fault, Path, label_value};
use stoker_service::files;
use stoker_service::yaml::{self, Faults};

pub use raw::{Efa, Family, LocalDisks, NodeNames, RawAws};
use raw::{RawChoice, RawCluster, RawDisk, RawImage, RawNodeClass, RawRegion};

use crate::user_data;
use crate::wire::{Endpoints, Role, Service};

/// Least size of a root disk in GiB. Node templates promise 100, of which a file system and the reserve of the kubelet take some.
const LEAST_DISK: u32 = 105;

/// Most tags that EC2 takes, less Stoker's own.
const MOST_TAGS: usize = 40;

/// How tags begin that are not the operator's.
const TAKEN_TAGS: [&str; 3] = ["stoker.dev/", "kubernetes.io/", "aws:"];

/// How the tag begins by which EKS knows machines of a cluster.
const EKS_TAG: &str = "kubernetes.io/cluster/";

/// The file as the rules accept it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) cluster: Cluster,
    pub(crate) regions: BTreeMap<Region, RegionConfig>,
    pub(crate) classes: BTreeMap<NodeClassName, NodeClass>,
}

/// The cluster that nodes join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    /// Where EKS has it.
    pub(crate) region: String,
    /// How it is reached; `None` where EKS is asked.
    pub(crate) known: Option<Reached>,
}

/// How a node reaches its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) endpoint: String,
    pub(crate) certificate_authority: String,
    pub(crate) service_cidr: String,
    pub(crate) version: String,
}

/// A region that machines are made in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionConfig {
    /// The account that is meant; `None` for that of the first credentials.
    pub(crate) account: Option<String>,
    pub(crate) subnets: Choice,
    pub(crate) security_groups: Choice,
    pub(crate) queue: Option<String>,
    pub(crate) role: Option<Role>,
    pub(crate) endpoints: Endpoints,
}

/// Which ones of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    Tags(BTreeMap<String, String>),
    Ids(Vec<String>),
}

/// What machines are made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeClass {
    pub(crate) instance_profile: String,
    pub(crate) family: Family,
    pub(crate) image: Image,
    pub(crate) disk_gib: u32,
    pub(crate) throughput: Option<u32>,
    pub(crate) iops: Option<u32>,
    pub(crate) kms_key: Option<String>,
    pub(crate) local_disks: LocalDisks,
    pub(crate) efa: Efa,
    pub(crate) placement_group: Option<String>,
    pub(crate) node_names: NodeNames,
    pub(crate) user_data: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Which image machines boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Image {
    /// The newest that AWS makes.
    Newest,
    /// That release of it.
    Release(String),
    /// This one.
    Id(String),
    /// The one that a parameter of SSM holds.
    Parameter(String),
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    /// It cannot be read.
    #[error("{}: cannot be read: mount it where Stoker runs, or correct config in the policy", path.display())]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It does not hold.
    #[error("{0}")]
    Faults(Faults),
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or every fault of it.
    pub fn read(path: &FilePath) -> Result<Self, BadConfig> {
        let text = files::read_text(path).map_err(|source| BadConfig::Read { path: path.to_owned(), source })?;
        Self::parse(&files::shown(path), &text).map_err(BadConfig::Faults)
    }

    /// Reads a text. `file_name` is only shown.
    ///
    /// # Errors
    /// Every fault, by line.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        yaml::load_checked(file_name, text, validated).map(|read| read.value)
    }

    /// Instance profiles of the node classes.
    pub fn instance_profiles(&self) -> BTreeSet<&str> {
        self.classes.values().map(|class| class.instance_profile.as_str()).collect()
    }

    /// Names of the node classes.
    pub fn node_classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(NodeClassName::as_str)
    }

    /// Names of the regions that machines are made in.
    pub fn regions(&self) -> impl Iterator<Item = &str> {
        self.regions.keys().map(Region::as_str)
    }

    /// The JSON Schema of the file, for editors.
    pub fn schema() -> serde_json::Value {
        yaml::schema_of::<RawAws>()
    }
}

fn validated(raw: &RawAws) -> Result<Config, Vec<Fault>> {
    let mut rules = Rules::default();
    let root = Path::root();
    if raw.api_version != API_VERSION {
        rules.add(
            &root.key("apiVersion"),
            format!("{} is not a supported version: write {API_VERSION}", quoted(&raw.api_version)),
        );
    }
    if raw.kind != "AwsSupplier" {
        rules.add(&root.key("kind"), format!("{} is not a supported kind: write AwsSupplier", quoted(&raw.kind)));
    }
    let first = raw.regions.first().map(|region| region.name.as_str());
    let cluster = rules.cluster(&root.key("cluster"), &raw.cluster, first.unwrap_or_default());
    let regions = rules.regions(&root.key("regions"), &raw.regions, &raw.cluster.name);
    let path = root.key("nodeClasses");
    if raw.node_classes.is_empty() {
        rules.add(&path, "is empty: write at least one, which pools name as nodeClass");
    }
    let mut classes = BTreeMap::new();
    for (name, class) in &raw.node_classes {
        let path = path.key(name);
        let read = rules.class(&path, class);
        rules.holds(&path, label_value(name));
        match NodeClassName::new(name.as_str()) {
            Ok(name) => drop(classes.insert(name, read)),
            Err(error) => rules.add(&path, format!("{error}: write one")),
        }
    }
    if rules.0.is_empty() { Ok(Config { cluster, regions, classes }) } else { Err(rules.0) }
}

/// Every fault found so far.
#[derive(Default)]
struct Rules(Vec<Fault>);

impl Rules {
    fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.0.push(Fault { path: path.clone(), message: message.into() });
    }

    fn holds(&mut self, path: &Path, checked: Result<(), String>) {
        if let Err(message) = checked {
            self.add(path, message);
        }
    }

    fn given(&mut self, path: &Path, text: Option<&str>, rule: fn(&str) -> Result<(), String>) {
        self.holds(path, text.map_or(Ok(()), rule));
    }

    fn filled(&mut self, path: &Path, text: &str, what: &str) {
        if text.is_empty() || text.contains(char::is_whitespace) {
            self.add(path, format!("{} is no {what}: write it without spaces", quoted(text)));
        }
    }

    fn cluster(&mut self, path: &Path, raw: &RawCluster, first_region: &str) -> Cluster {
        let RawCluster { name, region, endpoint, certificate_authority, service_cidr, version } = raw;
        self.filled(&path.key("name"), name, "name of a cluster");
        let parts = [
            ("endpoint", endpoint),
            ("certificateAuthority", certificate_authority),
            ("serviceCidr", service_cidr),
            ("version", version),
        ];
        if parts.iter().any(|(_, part)| part.is_some()) {
            let keys = parts.map(|(key, _)| key).join(", ");
            for (key, _) in parts.iter().filter(|(_, part)| part.is_none()) {
                self.add(&path.key(*key), format!("is missing: write all of {keys}, or none of them for a cluster of EKS"));
            }
        }
        self.given(&path.key("region"), region.as_deref(), values::region);
        self.given(&path.key("serviceCidr"), service_cidr.as_deref(), values::cidr);
        self.given(&path.key("version"), version.as_deref(), values::version);
        if let Some(endpoint) = endpoint.as_deref().filter(|endpoint| !endpoint.starts_with("https://")) {
            self.add(&path.key("endpoint"), format!("{} is no address: write https://host:port", quoted(endpoint)));
        }
        let known = || {
            Some(Reached {
                endpoint: endpoint.clone()?,
                certificate_authority: certificate_authority.clone()?,
                service_cidr: service_cidr.clone()?,
                version: version.clone()?,
            })
        };
        Cluster { name: name.clone(), region: region.as_deref().unwrap_or(first_region).to_owned(), known: known() }
    }

    fn regions(&mut self, path: &Path, raw: &[RawRegion], cluster: &str) -> BTreeMap<Region, RegionConfig> {
        if raw.is_empty() {
            self.add(path, "is empty: write at least one region");
        }
        let mut regions = BTreeMap::new();
        for (at, region) in raw.iter().enumerate() {
            let path = path.index(at);
            self.holds(&path.key("name"), values::region(&region.name));
            let endpoints = self.endpoints(&path.key("endpoints"), &region.endpoints);
            let role = region.assume_role.as_ref().map(|role| {
                self.holds(&path.key("assumeRole").key("arn"), values::role(&role.arn));
                Role {
                    arn: role.arn.clone(),
                    external_id: role.external_id.clone(),
                    session: format!("stoker-{cluster}"),
                    sts: endpoints.get(&Service::Sts).cloned(),
                }
            });
            self.account(&path, region);
            self.given(&path.key("interruptionQueue"), region.interruption_queue.as_deref(), values::queue);
            let read = RegionConfig {
                account: region.account.clone(),
                subnets: self.choice(&path.key("subnets"), &region.subnets, "subnet-"),
                security_groups: self.choice(&path.key("securityGroups"), &region.security_groups, "sg-"),
                queue: region.interruption_queue.clone(),
                role,
                endpoints,
            };
            if let Ok(name) = Region::new(region.name.as_str())
                && regions.insert(name, read).is_some()
            {
                self.add(&path.key("name"), format!("{} is listed twice: remove one", quoted(&region.name)));
            }
        }
        regions
    }

    fn endpoints(&mut self, path: &Path, raw: &BTreeMap<String, String>) -> Endpoints {
        let keys = Service::BY_KEY.map(|(key, _)| key);
        let mut endpoints = Endpoints::new();
        for (key, address) in raw {
            let path = path.key(key);
            match Service::BY_KEY.iter().find(|(known, _)| known == key) {
                Some((_, service)) => drop(endpoints.insert(*service, address.clone())),
                None => match nearest(key, keys) {
                    Some(near) => self.add(&path, format!("is no service: did you mean {near}?")),
                    None => self.add(&path, format!("is no service that Stoker calls: known are {}", keys.join(", "))),
                },
            }
            self.holds(&path, values::address(address));
        }
        endpoints
    }

    /// The account of a region, which a role names too.
    fn account(&mut self, path: &Path, raw: &RawRegion) {
        let Some(account) = &raw.account else { return };
        let path = path.key("account");
        if account.len() != 12 || !account.bytes().all(|byte| byte.is_ascii_digit()) {
            self.add(&path, format!("{} is no account: write its 12 digits, in quotes", quoted(account)));
        } else if let Some(role) = raw.assume_role.as_ref().filter(|role| role.arn.split(':').nth(4) != Some(account)) {
            self.add(&path, format!("is {account}, and the role of assumeRole is of another: {}", quoted(&role.arn)));
        }
    }

    fn choice(&mut self, path: &Path, raw: &RawChoice, prefix: &str) -> Choice {
        match (raw.tags.is_empty(), raw.ids.is_empty()) {
            (false, false) => self.add(path, "has tags and ids: write one of them"),
            (true, true) => self.add(path, format!("names none: write tags: {{ key: value }}, or ids: [{prefix}…]")),
            _ => {}
        }
        for (at, id) in raw.ids.iter().enumerate() {
            let path = path.key("ids").index(at);
            if !id.starts_with(prefix) {
                self.add(&path, format!("{} is no id: it begins with {prefix}", quoted(id)));
            } else if raw.ids.iter().take(at).any(|before| before == id) {
                self.add(&path, format!("{} is listed twice: remove one", quoted(id)));
            }
        }
        if raw.tags.contains_key("") {
            self.add(&path.key("tags"), "has an empty key: write the key of the tag");
        }
        if raw.ids.is_empty() { Choice::Tags(raw.tags.clone()) } else { Choice::Ids(raw.ids.clone()) }
    }

    fn class(&mut self, path: &Path, raw: &RawNodeClass) -> NodeClass {
        self.holds(&path.key("instanceProfile"), values::instance_profile(&raw.instance_profile));
        let image = self.image(&path.key("image"), &raw.image);
        let RawDisk { size_gib, throughput, iops, kms_key } = raw.disk.clone();
        let disk_gib = size_gib.unwrap_or(LEAST_DISK);
        if !(LEAST_DISK..=16_384).contains(&disk_gib) {
            let message = format!("is {disk_gib}: write {LEAST_DISK} to 16384, as node templates promise 100 GiB to pods");
            self.add(&path.key("disk").key("sizeGiB"), message);
        }
        for (key, value, range) in [("throughput", throughput, values::GP3_THROUGHPUT), ("iops", iops, values::GP3_IOPS)] {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                let message = format!("is {value}: gp3 takes {} to {}", range.start(), range.end());
                self.add(&path.key("disk").key(key), message);
            }
        }
        self.holds(&path.key("disk").key("throughput"), values::throughput(throughput, iops));
        self.holds(&path.key("disk").key("iops"), values::iops(iops, disk_gib));
        if raw.placement_group.as_deref() == Some("") {
            self.add(&path.key("placementGroup"), "is empty: name a placement group, or leave the field out");
        }
        self.given(&path.key("disk").key("kmsKey"), kms_key.as_deref(), values::kms_key);
        match &raw.user_data {
            Some(text) => self.holds(&path.key("userData"), user_data::check(raw.image.family, text)),
            None if raw.image.family == Family::Custom => {
                self.add(&path.key("userData"), "is missing: write what the kubelet of a custom image joins with");
            }
            None => {}
        }
        if raw.tags.len() > MOST_TAGS {
            self.add(&path.key("tags"), format!("are {}: EC2 takes {MOST_TAGS} beside Stoker's", raw.tags.len()));
        }
        for (key, value) in &raw.tags {
            let path = path.key("tags").key(key);
            if key.starts_with(EKS_TAG) {
                self.add(&path, "is set by Stoker itself, for the cluster of the file: take it out");
            } else if let Some(taken) = TAKEN_TAGS.iter().find(|taken| key.starts_with(*taken)) {
                self.add(&path, format!("begins with {taken}, which is not yours to set: call it otherwise"));
            }
            if key.is_empty() {
                self.add(&path, "has no key: EC2 takes 1 to 128 characters");
            } else if key.chars().count() > 128 || value.chars().count() > 256 {
                self.add(&path, "is longer than EC2 takes: 128 characters for a key, 256 for a value");
            }
        }
        NodeClass {
            instance_profile: raw.instance_profile.clone(),
            family: raw.image.family,
            image,
            disk_gib,
            throughput,
            iops,
            kms_key,
            local_disks: raw.local_disks,
            efa: raw.efa,
            placement_group: raw.placement_group.clone(),
            node_names: raw.node_names,
            user_data: raw.user_data.clone(),
            tags: raw.tags.clone(),
        }
    }

    fn image(&mut self, path: &Path, raw: &RawImage) -> Image {
        let RawImage { family, version, id, ssm } = raw;
        let given: BTreeSet<&str> = [("version", version), ("id", id), ("ssm", ssm)]
            .iter()
            .filter(|(_, given)| given.is_some())
            .map(|(key, _)| *key)
            .collect();
        if given.len() > 1 {
            let both = given.into_iter().collect::<Vec<_>>().join(" and ");
            self.add(path, format!("has {both}: write one of them"));
        }
        if let Some(id) = id.as_deref().filter(|id| !id.starts_with("ami-")) {
            self.add(&path.key("id"), format!("{} is no image: it begins with ami-", quoted(id)));
        }
        self.given(&path.key("ssm"), ssm.as_deref(), values::parameter);
        if let Some(version) = version {
            self.holds(&path.key("version"), values::release(*family, version));
        }
        if *family == Family::Custom && id.is_none() && ssm.is_none() {
            self.add(&path.key("id"), "is missing: name the custom image with id, or with ssm");
        }
        match (id, ssm, version) {
            (Some(id), ..) => Image::Id(id.clone()),
            (None, Some(parameter), _) => Image::Parameter(parameter.clone()),
            (None, None, Some(version)) => Image::Release(version.clone()),
            (None, None, None) => Image::Newest,
        }
    }
}
