//! Boot data: what a new machine is given so that its kubelet joins the cluster.
//!
//! The operator writes it as a template, for kubeadm, k3s, Talos or an image of their own. Stoker fills in what it alone knows: a
//! bootstrap token, labels and taints. The plugin fills in what the cloud alone knows.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files;
use crate::kube::tokens::BootTokens;
use crate::suppliers::Launch;
use stoker_core::base::kinds::Taint;
use stoker_core::base::text::{nearest, quoted};

/// How all that is filled in begins; it ends with `@`.
const BEGIN: &str = "@STOKER_";

/// Largest template, in bytes: a hundred machines of a call fit the 4 MiB that gRPC takes. Clouds take 16 KiB and more.
const LARGEST: usize = 32 << 10;

/// What can be filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    /// A bootstrap token: `id.secret`.
    Token,
    /// Labels as `kubelet --node-labels` takes them: `a=b,c=d`.
    Labels,
    /// Labels as a JSON object, which is YAML too.
    LabelsJson,
    /// Taints as `kubelet --register-with-taints` takes them: `a=b:NoSchedule`.
    Taints,
    /// Taints as Talos takes them, as a JSON object: `{"a": "b:NoSchedule"}`.
    TaintsJson,
    /// `maxPods` of the kubelet: a number.
    MaxPods,
    /// `kubeReserved` as `kubelet --kube-reserved` takes it: `cpu=80m,memory=893Mi`.
    KubeReserved,
    /// The Node's `spec.providerID`: the plugin's to fill in.
    ProviderId,
    /// The Node's name: the plugin's to fill in.
    NodeName,
}

impl Marker {
    const ALL: [Self; 9] = [
        Self::Token,
        Self::Labels,
        Self::LabelsJson,
        Self::Taints,
        Self::TaintsJson,
        Self::MaxPods,
        Self::KubeReserved,
        Self::ProviderId,
        Self::NodeName,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "@STOKER_TOKEN@",
            Self::Labels => "@STOKER_LABELS@",
            Self::LabelsJson => "@STOKER_LABELS_JSON@",
            Self::Taints => "@STOKER_TAINTS@",
            Self::TaintsJson => "@STOKER_TAINTS_JSON@",
            Self::MaxPods => "@STOKER_MAX_PODS@",
            Self::KubeReserved => "@STOKER_KUBE_RESERVED@",
            Self::ProviderId => "@STOKER_PROVIDER_ID@",
            Self::NodeName => "@STOKER_NODE_NAME@",
        }
    }
}

/// A template that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTemplate {
    /// It cannot be read.
    #[error("boot template {}: cannot be read: mount it where Stoker runs, or correct bootTemplate in the policy", path.display())]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is too large.
    #[error("boot template {}: has {size} bytes, more than {LARGEST}: have the machine fetch what is large", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        size: usize,
    },
    /// It has a marker that does not exist.
    #[error("boot template {}:{line}: {} is nothing that is filled in: {cure}", path.display(), quoted(marker))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What stands there.
        marker: String,
        /// What to write.
        cure: String,
    },
    /// It asks for tokens, and no cluster is watched.
    #[error("boot template {}: asks for @STOKER_TOKEN@, and there is no cluster to make it in: give --kubeconfig FILE", .0.display())]
    NoCluster(PathBuf),
}

/// A template.
pub struct Boot {
    path: PathBuf,
    text: String,
    /// Where its tokens come from; `None` where it asks for none.
    tokens: Option<Arc<BootTokens>>,
}

impl Boot {
    /// Reads the template at `path`.
    ///
    /// # Errors
    /// When it cannot be read, is too large, has a marker that does not exist, or needs `tokens` where there are none.
    pub fn read(path: &Path, tokens: Option<Arc<BootTokens>>) -> Result<Self, BadTemplate> {
        let text = files::read_text(path).map_err(|source| BadTemplate::Read { path: path.to_owned(), source })?;
        if text.len() > LARGEST {
            return Err(BadTemplate::Large { path: path.to_owned(), size: text.len() });
        }
        for (at, line) in text.lines().enumerate() {
            if let Some(marker) = unknown(line) {
                let cure = match nearest(marker, Marker::ALL.iter().map(|marker| marker.as_str())) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("write one of {}", Marker::ALL.map(Marker::as_str).join(", ")),
                };
                return Err(BadTemplate::Unknown { path: path.to_owned(), line: at + 1, marker: marker.to_owned(), cure });
            }
        }
        let tokens = if text.contains(Marker::Token.as_str()) {
            Some(tokens.ok_or_else(|| BadTemplate::NoCluster(path.to_owned()))?)
        } else {
            None
        };
        Ok(Self { path: path.to_owned(), text, tokens })
    }

    /// The boot data of a launch.
    ///
    /// # Errors
    /// Where a token is wanted and cannot be had; in words.
    pub async fn data(&self, launch: &Launch) -> Result<String, String> {
        let token = match &self.tokens {
            Some(tokens) => Some(tokens.mint(&launch.request.key).await.map_err(|error| error.to_string())?),
            None => None,
        };
        Ok(filled(&self.text, launch, token.as_deref()))
    }
}

impl fmt::Debug for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Boot").field(&self.path).finish()
    }
}

/// The first marker of a line that does not exist.
fn unknown(line: &str) -> Option<&str> {
    let begins = line.match_indices(BEGIN).map(|(at, _)| line.get(at..).unwrap_or_default());
    let mut markers = begins.map(|rest| {
        let end = rest.char_indices().skip(1).find(|(_, c)| !c.is_ascii_uppercase() && *c != '_');
        match end {
            Some((at, '@')) => rest.get(..=at).unwrap_or(rest),
            Some((at, _)) => rest.get(..at).unwrap_or(rest),
            None => rest,
        }
    });
    markers.find(|marker| Marker::ALL.iter().all(|known| known.as_str() != *marker))
}

/// The first marker of a text that [`filled`] does not fill in without a token: one that does not exist, or is another's to fill in.
pub fn left_over(text: &str) -> Option<&str> {
    let of_others = [Marker::Token, Marker::ProviderId, Marker::NodeName].map(Marker::as_str);
    text.lines().find_map(unknown).or_else(|| of_others.into_iter().find(|marker| text.contains(*marker)))
}

/// The text with all filled in that follows from a launch, and a token where there is one.
pub fn filled(text: &str, launch: &Launch, token: Option<&str>) -> String {
    let labels = launch.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let taints = launch.taints.iter().map(|taint| format!("{}={}:{}", taint.key, taint.value, taint.effect.as_str()));
    let taints = taints.collect::<Vec<_>>().join(",");
    let of_talos = |taint: &Taint| (taint.key.clone(), format!("{}:{}", taint.value, taint.effect.as_str()).into());
    let labels_json = launch.labels.iter().map(|(key, value)| (key.clone(), value.clone().into()));
    let labels_json = serde_json::Value::Object(labels_json.collect()).to_string();
    let taints_json = serde_json::Value::Object(launch.taints.iter().map(of_talos).collect()).to_string();
    let max_pods = launch.pods.to_string();
    let reserved = format!("cpu={}m,memory={}Mi", launch.kept.milli_cpu, launch.kept.memory.0);
    let values = [
        (Marker::Token, token.unwrap_or_default()),
        (Marker::Labels, &labels),
        (Marker::LabelsJson, &labels_json),
        (Marker::Taints, &taints),
        (Marker::TaintsJson, &taints_json),
        (Marker::MaxPods, &max_pods),
        (Marker::KubeReserved, &reserved),
    ];
    values.iter().fold(text.to_owned(), |text, (marker, value)| text.replace(marker.as_str(), value))
}

#[cfg(test)]
mod tests {
    use stoker_core::base::ids::{Cloud, InstanceType, LaunchKey, NodeGroupId, Region, ZoneId, ZoneName};
    use stoker_core::base::kinds::TaintEffect;
    use stoker_core::facts::supply::LaunchRequest;
    use stoker_core::market::offer::{CapacityType, Market, Place};

    use super::*;

    fn launch() -> Launch {
        let place = Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new("r").unwrap(),
            zone: ZoneId::new("z").unwrap(),
            instance_type: InstanceType::new("t").unwrap(),
        };
        let market = Market { place, capacity_type: CapacityType::OnDemand };
        let zone_name = ZoneName::from(&market.place.zone);
        let (key, group) = (LaunchKey::new("c/g/0c4de2a1/1/1").unwrap(), NodeGroupId::new("g").unwrap());
        let labels = [("a", "1"), ("b.example/c", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let taint = |key: &str| Taint { key: key.to_owned(), value: "v".to_owned(), effect: TaintEffect::NoSchedule };
        let request = LaunchRequest { key, group, market, zone_name, reservation: None };
        Launch { labels: labels.into(), taints: vec![taint("x"), taint("y")], ..request.into() }
    }

    #[test]
    fn all_that_stoker_knows_is_filled_in_and_the_rest_is_the_plugins() {
        let text =
            "@STOKER_TOKEN@ @STOKER_LABELS@ @STOKER_TAINTS@\n@STOKER_LABELS_JSON@ @STOKER_TAINTS_JSON@ @STOKER_PROVIDER_ID@";
        let wanted = "id.secret a=1,b.example/c=2 x=v:NoSchedule,y=v:NoSchedule\n\
                      {\"a\":\"1\",\"b.example/c\":\"2\"} {\"x\":\"v:NoSchedule\",\"y\":\"v:NoSchedule\"} @STOKER_PROVIDER_ID@";
        assert_eq!(filled(text, &launch(), Some("id.secret")), wanted);
    }

    #[test]
    fn a_template_with_a_fault_is_refused_by_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("boot.yaml");
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let error = Boot::read(&path, None).map(|_| ()).unwrap_err().to_string();
            error.strip_prefix(&format!("boot template {}", path.display())).unwrap().to_owned()
        };
        assert_eq!(
            told("a\nb: @STOKER_LABEL@\n"),
            ":2: \"@STOKER_LABEL@\" is nothing that is filled in: did you mean @STOKER_LABELS@?"
        );
        assert!(told("@STOKER_ x").starts_with(":1: \"@STOKER_\" is nothing that is filled in: write one of @STOKER_TOKEN@, "));
        assert!(told(&"x".repeat(LARGEST + 1)).contains("has 32769 bytes, more than 32768: have the machine fetch"));
        assert!(told("@STOKER_TOKEN@").contains("there is no cluster to make it in"));
        assert!(Boot::read(&dir.path().join("none"), None).unwrap_err().to_string().contains("correct bootTemplate"));
        std::fs::write(&path, "no markers, user@example.com").unwrap();
        assert!(Boot::read(&path, None).is_ok());
    }

    #[test]
    fn the_templates_of_the_examples_have_no_fault() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/examples/boot");
        let files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 3);
        for file in files {
            // Each asks for a token, which is asked for last.
            assert!(matches!(Boot::read(&file, None), Err(BadTemplate::NoCluster(_))), "{}", file.display());
            let text = std::fs::read_to_string(&file).unwrap();
            let filled = filled(&text, &launch(), Some("id.secret"));
            let read: serde_json::Value = serde_saphyr::from_str(&filled).unwrap();
            assert!(read.is_object(), "{}", file.display());
        }
    }
}
