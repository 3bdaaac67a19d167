//! What to do about an error of AWS, where that follows from its code.

use super::Failure;
use super::failure::Said;

impl Failure {
    /// What failed, and what to do about it where that is known.
    pub(crate) fn with_cure(&self) -> String {
        match self {
            Self::Said(said) => said.cure().map_or_else(|| self.to_string(), |cure| format!("{self}: {cure}")),
            Self::NotSent { .. } => format!("{self}: let this machine reach AWS, or name its endpoints of the VPC in aws.yaml"),
            Self::NoAnswer { .. } | Self::NoCredentials(_) => self.to_string(),
        }
    }
}

impl Said {
    fn cure(&self) -> Option<&'static str> {
        Some(match (self.code.as_str(), self.action) {
            ("OptInRequired", _) => {
                "enable the region with `aws account enable-region --region-name REGION`, or take it out of regions in aws.yaml"
            }
            // EC2 does not know a key in a region that its account has not enabled, and neither does STS.
            ("AuthFailure" | "InvalidClientTokenId" | "UnrecognizedClientException", _) => {
                "where other regions work, enable this one with `aws account enable-region --region-name REGION`, or take it out of \
                 regions in aws.yaml; where none works, give another access key"
            }
            ("PendingVerification", _) => "wait until AWS has verified the account for the region, which takes hours at most",
            ("Blocked" | "AccountDisabled", _) => "ask AWS's support to open the account again",
            ("ExpiredToken" | "ExpiredTokenException" | "RequestExpired", _) => "log in again, or set the clock",
            ("SignatureDoesNotMatch" | "IncompleteSignature" | "InvalidSignatureException", _) => {
                "give the secret key of this access key, or set the clock"
            }
            ("ResourceNotFoundException", "DescribeCluster") => {
                "correct cluster.name in aws.yaml, or name the cluster's own region as cluster.region; for a cluster outside EKS \
                 write endpoint, certificateAuthority, serviceCidr and version"
            }
            ("QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue", _) => {
                "correct interruptionQueue in aws.yaml, make the queue with what `stoker aws policy --format cloudformation` prints, \
                 or take the field out"
            }
            ("InvalidParameterValue", "RunInstances") if self.message.contains("IAM Instance Profile") => {
                "correct instanceProfile of the node class, or make the profile with `aws iam create-instance-profile` and \
                 `aws iam add-role-to-instance-profile`"
            }
            ("ParameterNotFound", _) => {
                "correct image.version or image.ssm of the node class; without them the image is that of the cluster's version"
            }
            (code, _) if code.starts_with("InvalidAMIID.") => "correct image.id of the node class: images differ by region",
            (code, _) if code.starts_with("InvalidSubnetID.") || code.starts_with("InvalidSubnetId.") => {
                "correct subnets.ids of the region in aws.yaml"
            }
            (code, _) if code.starts_with("InvalidGroup.") || code.starts_with("InvalidGroupId.") => {
                "correct securityGroups.ids of the region in aws.yaml"
            }
            ("InvalidPlacementGroup.Unknown", _) => "correct placementGroup of the node class, or make the group",
            _ => return None,
        })
    }
}
