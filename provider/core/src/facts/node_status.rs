//! Status of a Node as it was read: its verdict annotation and condition.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::base::shared::SharedText;

/// What a Node bears of Stoker's, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownStatus {
    /// The annotation's word, whatever it is; `None` where there is no annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<SharedText>,
    /// The condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
}

/// The condition on a Node. Times are in whole seconds, as the API server keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: SharedText,
    /// The verdict as one word.
    pub reason: SharedText,
    /// What it rests on, in words.
    pub message: SharedText,
    /// Since when the verdict is this one; `None` where somebody else has changed it.
    pub since: Option<Timestamp>,
    /// When it was last told.
    pub told_at: Option<Timestamp>,
}
