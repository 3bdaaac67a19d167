//! What a launch needs and a file only describes: the account, subnets, groups, the cluster and images, by their ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stoker_core::base::ids::{NodeClassName, ZoneId};
use stoker_core::market::offer::Arch;
use tokio::time::{Instant, timeout};

use super::{Caller, RegionSupplier};
use crate::answers::{CallerIdentity, EksCluster, Identity, Images, Parameter, Reservation, SecurityGroups, Subnet, Subnets};
use crate::config::{Choice, Cluster, Config, Family, Image, NodeClass, Reached};
use crate::wire::{Class, Failure, Form, Service};

/// How long subnets and groups count, whose free addresses change.
const COUNTS_FOR: Duration = Duration::from_mins(1);

/// How long looking up may take. Where it takes longer, launches go by what was known.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(15);

/// How often newer images are asked for.
const NEWER_EVERY: Duration = Duration::from_hours(1);

/// How long a listing waits for the first look.
const FIRST_LOOK_WITHIN: Duration = Duration::from_secs(5);

/// How long what the cluster is counts.
const CLUSTER_COUNTS_FOR: Duration = Duration::from_mins(5);

/// Why there is no image.
#[derive(Debug, Clone)]
pub(crate) struct NoImage {
    pub(crate) why: String,
    /// Whether that is so; else it only could not be asked.
    pub(crate) is_certain: bool,
}

impl From<Failure> for NoImage {
    fn from(failure: Failure) -> Self {
        let is_certain = matches!(&failure, Failure::Said(said) if said.class() == Class::Final && said.status < 500);
        Self { why: failure.with_cure(), is_certain }
    }
}

/// What was looked up.
#[derive(Debug, Clone)]
pub(crate) struct LookedUp {
    at: Instant,
    /// Something of it was found to be wrong: launches do not go by it.
    is_doubted: bool,
    pub(crate) account: String,
    /// Those of a zone, the one with most free addresses first.
    pub(crate) subnets: BTreeMap<ZoneId, Vec<Subnet>>,
    pub(crate) groups: Vec<String>,
    pub(crate) cluster: Reached,
    /// The cluster's name in EKS.
    pub(crate) eks: String,
    cluster_at: Instant,
    /// Images by class and architecture, or why there is none. Once found it stays while the class says the same.
    images: BTreeMap<(NodeClassName, Arch), Result<String, NoImage>>,
    classes: BTreeMap<NodeClassName, NodeClass>,
    of_cluster: Cluster,
    /// What is wrong with what was found, but for what there is none of.
    pub(crate) faults: Vec<String>,
    /// That there is no subnet or group, with the cure.
    no_subnet: Option<String>,
    no_group: Option<String>,
}

impl LookedUp {
    /// The image of a class for that architecture.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn image(&self, class: &NodeClassName, arch: Arch) -> Result<&str, NoImage> {
        match self.images.get(&(class.clone(), arch)) {
            Some(Ok(image)) => Ok(image),
            Some(Err(why)) => Err(why.clone()),
            None => {
                let why = format!("node class {class} is new: its image is not looked up yet");
                Err(NoImage { why, is_certain: false })
            }
        }
    }

    /// Whether there is no image of that class here, of any architecture.
    pub(super) fn is_imageless(&self, class: &NodeClassName) -> bool {
        [Arch::Amd64, Arch::Arm64].iter().all(|arch| self.image(class, *arch).is_err())
    }

    /// All that is wrong with what was found. A region may have no machines of an architecture, and then no image either.
    pub(super) fn all_faults(&self) -> impl Iterator<Item = String> {
        let none = [&self.no_subnet, &self.no_group].into_iter().flatten();
        let imageless = self.classes.keys().filter(|name| self.is_imageless(name)).filter_map(|name| {
            let none = self.image(name, Arch::Amd64).err()?;
            Some(format!("node class {name}: {}", none.why))
        });
        none.chain(&self.faults).cloned().chain(imageless)
    }

    /// The class of that name.
    pub(crate) fn class(&self, name: &NodeClassName) -> Option<&NodeClass> {
        self.classes.get(name)
    }

    /// Whether the file still says what it was looked up by.
    fn is_of(&self, config: &Config) -> bool {
        self.classes == config.classes && self.of_cluster == config.cluster
    }

    /// The zone of a reservation.
    pub(super) fn zone_of(&self, one: &Reservation) -> Option<ZoneId> {
        let told = one.availability_zone_id.as_deref().and_then(|zone| ZoneId::new(zone).ok());
        told.or_else(|| self.zone_id(&one.availability_zone))
    }

    /// The names and ids of its zones.
    pub(crate) fn zones(&self) -> impl Iterator<Item = (String, ZoneId)> {
        let named = |(zone, subnets): (&ZoneId, &Vec<Subnet>)| Some((subnets.first()?.availability_zone.clone(), zone.clone()));
        self.subnets.iter().filter_map(named)
    }

    /// The id of the zone of that name.
    pub(crate) fn zone_id(&self, name: &str) -> Option<ZoneId> {
        let is_named = |subnets: &Vec<Subnet>| subnets.iter().any(|subnet| subnet.availability_zone == name);
        self.subnets.iter().find(|(_, subnets)| is_named(subnets)).map(|(zone, _)| zone.clone())
    }
}

impl RegionSupplier {
    /// What was looked up, of a minute ago at most. Where that fails, what was known before.
    pub(super) async fn looked_up(&self, config: &Config) -> Result<Arc<LookedUp>, String> {
        // By credentials of another account nothing is made, whatever was known of the right one.
        if let Err(failure @ Failure::NoCredentials(_)) = self.account().await {
            self.doubt_look(None);
            return Err(self.known().look_failed.insert(failure.to_string()).clone());
        }
        let before = self.known().looked_up.clone();
        let counts = |looked: &Arc<LookedUp>| !looked.is_doubted && looked.is_of(config);
        let is_fresh = |looked: &Arc<LookedUp>| looked.at.elapsed() < COUNTS_FOR && counts(looked);
        if let Some(looked) = before.clone().filter(is_fresh) {
            return Ok(looked);
        }
        let late = |_| {
            let why = format!("no answer within {} s", LOOKED_UP_WITHIN.as_secs());
            Err(Failure::NoAnswer { action: "looking up subnets, groups, cluster and images", why })
        };
        let looked = timeout(LOOKED_UP_WITHIN, self.look_up(config, before.as_deref())).await.unwrap_or_else(late);
        let mut known = self.known();
        known.look_failed = looked.as_ref().err().map(Failure::with_cure);
        match looked {
            Ok(looked) => {
                let looked = Arc::new(looked);
                known.looked_up = Some(Arc::clone(&looked));
                Ok(looked)
            }
            // Throttled, or a bad minute: launches by what was known are right as long as that is.
            Err(failure) => before.filter(counts).ok_or_else(|| failure.with_cure()),
        }
    }

    /// What was looked up last, however old: by it machines are outdated or not. It is looked up where nothing was yet, as a machine of
    /// which nobody says that it is outdated seems to be none any more. `None` where that cannot be had.
    pub(crate) async fn last_look(&self, config: &Config) -> Option<Arc<LookedUp>> {
        let last = self.known().looked_up.clone();
        match last {
            Some(last) => Some(last),
            None => timeout(FIRST_LOOK_WITHIN, self.looked_up(config)).await.ok()?.ok(),
        }
    }

    /// The next launch looks everything up again. Images stay pinned, but for that one.
    pub(super) fn doubt_look(&self, image: Option<(&NodeClassName, Arch)>) {
        if let Some(looked) = &mut self.known().looked_up {
            let looked = Arc::make_mut(looked);
            looked.is_doubted = true;
            if let Some((class, arch)) = image {
                looked.images.remove(&(class.clone(), arch));
            }
        }
    }

    /// The account that the credentials are of. Asked once for each access key.
    ///
    /// # Errors
    /// When they are of another than `aws.yaml` says, or than the first were: nothing of ours is there, and all would seem lost.
    pub(super) async fn account(&self) -> Result<String, Failure> {
        let key = self.api.access_key().await?;
        let known = self.known().caller.clone();
        if let Some(caller) = known.as_ref().filter(|caller| caller.key == key && self.is_meant(&caller.account)) {
            return Ok(caller.account.clone());
        }
        let answer: CallerIdentity = self.api.ask(Service::Sts, &Form::new("GetCallerIdentity", "2011-06-15")).await?;
        let Identity { account, arn } = answer.result;
        if !self.is_meant(&account) {
            let meant = self.config.account.as_deref().unwrap_or_default();
            return Err(Failure::NoCredentials(format!(
                "they are of account {account} ({arn}), and aws.yaml says account {meant} for {}: give Stoker credentials of \
                 {meant}, or correct account there; until then nothing is launched or listed",
                self.name
            )));
        }
        match known {
            Some(before) if before.account != account => Err(Failure::NoCredentials(format!(
                "they are of account {account} ({arn}), and were of {}: restart Stoker if that is meant",
                before.account
            ))),
            before => {
                if before.is_none() {
                    tracing::info!(region = %self.name, account, identity = arn, "calls to AWS are signed as this identity");
                }
                self.known().caller = Some(Caller { account: account.clone(), key });
                Ok(account)
            }
        }
    }

    /// Whether `aws.yaml` means that account, or any.
    fn is_meant(&self, account: &str) -> bool {
        self.config.account.as_deref().is_none_or(|meant| meant == account)
    }

    async fn look_up(&self, config: &Config, before: Option<&LookedUp>) -> Result<LookedUp, Failure> {
        let account = self.account().await?;
        let (subnets, groups) = futures::try_join!(self.subnets(), self.groups())?;
        let mut faults = Vec::new();
        let vpcs: BTreeSet<&str> =
            subnets.iter().map(|one| one.vpc_id.as_str()).chain(groups.iter().map(|(_, vpc)| vpc.as_str())).collect();
        if vpcs.len() > 1 {
            let vpcs = vpcs.into_iter().collect::<Vec<_>>().join(", ");
            faults.push(format!("subnets and security groups are of several VPCs ({vpcs}): choose those of one"));
        }
        let (no_subnet, no_group) = (self.some_subnets(subnets.len()).err(), self.some_groups(groups.len()).err());
        let kept =
            before.filter(|before| before.of_cluster == config.cluster && before.cluster_at.elapsed() < CLUSTER_COUNTS_FOR);
        let (cluster, cluster_at) = match kept {
            Some(before) => (before.cluster.clone(), before.cluster_at),
            None => (self.cluster(config).await?, Instant::now()),
        };
        let mut by_zone: BTreeMap<ZoneId, Vec<Subnet>> = BTreeMap::new();
        for subnet in subnets {
            match ZoneId::new(subnet.availability_zone_id.as_str()) {
                Ok(zone) => by_zone.entry(zone).or_default().push(subnet),
                Err(_) => faults.push(format!("subnet {} tells no zone", subnet.subnet_id)),
            }
        }
        for subnets in by_zone.values_mut() {
            subnets.sort_by_key(|subnet| std::cmp::Reverse(subnet.available_ip_address_count));
        }
        let images = self.images(config, &cluster, before).await;
        let (at, classes, of_cluster) = (Instant::now(), config.classes.clone(), config.cluster.clone());
        let groups = groups.into_iter().map(|(id, _)| id).collect();
        let eks = config.cluster.name.clone();
        let is_doubted = false;
        Ok(LookedUp {
            of_cluster,
            at,
            is_doubted,
            eks,
            account,
            subnets: by_zone,
            groups,
            cluster,
            cluster_at,
            images,
            classes,
            faults,
            no_subnet,
            no_group,
        })
    }

    /// That there are subnets.
    ///
    /// # Errors
    /// When there are none; in words.
    pub(super) fn some_subnets(&self, found: usize) -> Result<(), String> {
        some(found, "subnet", "subnets", &self.config.subnets)
    }

    /// The same of security groups.
    ///
    /// # Errors
    /// When there are none; in words.
    pub(super) fn some_groups(&self, found: usize) -> Result<(), String> {
        some(found, "security group", "securityGroups", &self.config.security_groups)
    }

    pub(super) async fn subnets(&self) -> Result<Vec<Subnet>, Failure> {
        let found: Subnets = self.api.ask(Service::Ec2, &chosen("DescribeSubnets", "SubnetId", &self.config.subnets)).await?;
        Ok(found.subnet_set.into_iter().collect())
    }

    pub(super) async fn groups(&self) -> Result<Vec<(String, String)>, Failure> {
        let form = chosen("DescribeSecurityGroups", "GroupId", &self.config.security_groups);
        let found: SecurityGroups = self.api.ask(Service::Ec2, &form).await?;
        // In one order, whatever order EC2 gives: a retry must be the same request.
        let groups: BTreeSet<_> = found.security_group_info.into_iter().map(|group| (group.group_id, group.vpc_id)).collect();
        Ok(groups.into_iter().collect())
    }

    pub(super) async fn cluster(&self, config: &Config) -> Result<Reached, Failure> {
        if let Some(known) = &config.cluster.known {
            return Ok(known.clone());
        }
        let path = format!("/clusters/{}", config.cluster.name);
        let EksCluster { cluster } = self.api.get(Service::Eks, "DescribeCluster", &config.cluster.region, &path).await?;
        let network = cluster.kubernetes_network_config;
        Ok(Reached {
            endpoint: cluster.endpoint,
            certificate_authority: cluster.certificate_authority.data,
            service_cidr: network.service_ipv4_cidr.or(network.service_ipv6_cidr).unwrap_or_default(),
            version: cluster.version,
        })
    }

    async fn images(
        &self,
        config: &Config,
        cluster: &Reached,
        before: Option<&LookedUp>,
    ) -> BTreeMap<(NodeClassName, Arch), Result<String, NoImage>> {
        let mut images = BTreeMap::new();
        for (name, class) in &config.classes {
            for arch in [Arch::Amd64, Arch::Arm64] {
                let of = (name.clone(), arch);
                // Pinned: a newer one would make a retry another request, and nodes of a group unlike each other.
                let says_the_same = |known: &NodeClass| (&known.image, known.family) == (&class.image, class.family);
                let same = before.filter(|before| {
                    before.classes.get(name).is_some_and(says_the_same) && before.cluster.version == cluster.version
                });
                let kept = same.and_then(|before| before.images.get(&of)).filter(|image| image.is_ok()).cloned();
                let image = match kept {
                    Some(image) => image,
                    None => self.image(class, arch, &cluster.version).await,
                };
                images.insert(of, image);
            }
        }
        images
    }

    /// Tells once of each image that is newer than the one that nodes of a class boot. It is asked every hour.
    pub(super) async fn tell_of_newer(&self, config: &Config, looked: &LookedUp) {
        {
            let mut known = self.known();
            if known.newer_asked_at.is_some_and(|at| at.elapsed() < NEWER_EVERY) {
                return;
            }
            known.newer_asked_at = Some(Instant::now());
        }
        for ((name, arch), image) in &looked.images {
            let (Ok(pinned), Some(class)) = (image, config.classes.get(name)) else { continue };
            // The others name one image for good.
            let (Image::Newest | Image::Parameter(_), Source::Parameter(parameter)) =
                (&class.image, source(class, *arch, &looked.cluster.version))
            else {
                continue;
            };
            let Ok(newest) = self.parameter(&parameter).await else { continue };
            let is_news = newest != *pinned && self.known().newer_images.insert(newest.clone());
            if is_news {
                tracing::info!(
                    region = %self.name, node_class = %name, image = newest, nodes_boot = pinned,
                    "a newer image is there: nodes boot it once the class names its release, or Stoker is restarted; those that run \
                     the old one are outdated then"
                );
            }
        }
    }

    async fn image(&self, class: &NodeClass, arch: Arch, version: &str) -> Result<String, NoImage> {
        let id = match source(class, arch, version) {
            Source::Id(id) => id,
            Source::Parameter(parameter) => self.parameter(&parameter).await?,
        };
        let found: Images = self.api.ask(Service::Ec2, &Form::ec2("DescribeImages").with_list("ImageId", [&id])).await?;
        let found = found.images_set.into_iter().find(|image| image.image_id == id);
        let wanted = aws_arch(arch);
        match found {
            Some(image) if image.architecture == wanted => Ok(id),
            Some(image) => Err(no_image(format!("image {id} is for {}, not for {wanted}", image.architecture))),
            None => Err(no_image(format!("image {id} does not exist here, or may not be used by this account"))),
        }
    }

    async fn parameter(&self, name: &str) -> Result<String, Failure> {
        let found: Parameter = self.api.ask_json(Service::Ssm, "GetParameter", &json!({ "Name": name })).await?;
        Ok(found.parameter.value)
    }
}

fn no_image(why: String) -> NoImage {
    NoImage { why, is_certain: true }
}

/// The architecture as AWS spells it.
const fn aws_arch(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "x86_64",
        Arch::Arm64 => "arm64",
    }
}

/// Where the id of an image is found.
enum Source {
    /// The file has it.
    Id(String),
    /// This parameter of SSM holds it.
    Parameter(String),
}

/// Where the image of a class is found, for Kubernetes of that version.
fn source(class: &NodeClass, arch: Arch, version: &str) -> Source {
    let arch = aws_arch(arch);
    let bottlerocket = |release: &str| format!("/aws/service/bottlerocket/aws-k8s-{version}-nvidia/{arch}/{release}/image_id");
    let eks = |name: &str| format!("/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{arch}/nvidia/{name}/image_id");
    Source::Parameter(match (&class.image, class.family) {
        (Image::Id(id), _) => return Source::Id(id.clone()),
        (Image::Parameter(parameter), _) => parameter.clone(),
        (Image::Newest, Family::Bottlerocket) => bottlerocket("latest"),
        (Image::Release(release), Family::Bottlerocket) => bottlerocket(release),
        (Image::Newest, Family::Al2023 | Family::Custom) => eks("recommended"),
        (Image::Release(release), Family::Al2023 | Family::Custom) => {
            eks(&format!("amazon-eks-node-al2023-{arch}-nvidia-{version}-{release}"))
        }
    })
}

/// That something was found of what a file chooses.
fn some(found: usize, what: &str, key: &str, choice: &Choice) -> Result<(), String> {
    let chosen = match choice {
        _ if found > 0 => return Ok(()),
        Choice::Ids(ids) => format!("ids {}", ids.join(", ")),
        Choice::Tags(tags) => {
            format!("tags {}", tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", "))
        }
    };
    let cure = if matches!(choice, Choice::Tags(_)) { ", or tag one" } else { "" };
    Err(format!("no {what} is found by {chosen}: correct {key} in aws.yaml{cure}"))
}

/// The call that finds what a file chooses.
fn chosen(action: &'static str, ids: &str, choice: &Choice) -> Form {
    let form = Form::ec2(action);
    match choice {
        Choice::Ids(chosen) => form.with_list(ids, chosen),
        Choice::Tags(tags) => tags.iter().fold(form, |form, (key, value)| form.filter(&format!("tag:{key}"), [value])),
    }
}
