//! Quotas of an account in a region, and how much of them is used.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::json;
use stoker_core::facts::supply::QuotaFact;
use stoker_core::market::quota_names::KnownQuota;

use super::RegionSupplier;
use crate::answers::{MetricData, ServiceQuota, UsageMetric};
use crate::wire::{Failure, Form, Service};

/// How old a count may be: `CloudWatch` has it some minutes late, every five minutes.
const COUNTED_WITHIN: SignedDuration = SignedDuration::from_mins(30);
const PERIOD: &str = "300";

impl RegionSupplier {
    /// The account's quotas of GPU machines, in vCPUs.
    pub(super) async fn quotas(&self) -> Result<BTreeMap<&'static str, QuotaFact>, Failure> {
        let (mut quotas, mut metrics) = (BTreeMap::new(), Vec::new());
        for quota in KnownQuota::all().filter(|quota| quota.cloud == "aws") {
            let name = quota.name;
            let asked = json!({ "ServiceCode": "ec2", "QuotaCode": name });
            let as_of = self.api.now();
            let told = self.api.ask_json::<ServiceQuota>(Service::ServiceQuotas, "GetServiceQuota", &asked).await;
            let is_unknown = |failure: &Failure| failure.code() == Some("NoSuchResourceException");
            let told = match told {
                // Never changed in this account: AWS's default holds.
                Err(failure) if is_unknown(&failure) => {
                    self.api.ask_json(Service::ServiceQuotas, "GetAWSDefaultServiceQuota", &asked).await
                }
                other => other,
            };
            let told = match told {
                // Not every region has every quota.
                Err(failure) if is_unknown(&failure) => continue,
                other => other?,
            };
            if let Some(limit) = told.quota.value.and_then(whole) {
                quotas.insert(name, QuotaFact { limit, used: None, as_of });
                metrics.extend(told.quota.usage_metric.map(|metric| (name, metric)));
            }
        }
        // A limit is worth having without it.
        let used = self.used(&metrics).await;
        self.known().facts.told_usage(used.as_ref().err());
        for (name, used) in used.unwrap_or_default() {
            quotas.entry(name).and_modify(|fact| fact.used = Some(used));
        }
        Ok(quotas)
    }

    /// How much of quotas the whole account uses, as far as it was counted lately.
    async fn used(&self, metrics: &[(&'static str, UsageMetric)]) -> Result<BTreeMap<&'static str, u32>, Failure> {
        if metrics.is_empty() {
            return Ok(BTreeMap::new());
        }
        let now = self.api.now();
        let stamp = |at: jiff::Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let begins = now.saturating_sub(COUNTED_WITHIN).unwrap_or(now);
        let mut asked: Vec<(String, String)> = vec![
            ("StartTime".to_owned(), stamp(begins)),
            ("EndTime".to_owned(), stamp(now)),
            ("ScanBy".to_owned(), "TimestampDescending".to_owned()),
        ];
        for (at, (_, metric)) in metrics.iter().enumerate() {
            let query = format!("MetricDataQueries.member.{}", at + 1);
            let statistic = metric.metric_statistic_recommendation.as_deref().unwrap_or("Maximum");
            let fields = [
                ("Id", format!("q{at}")),
                ("MetricStat.Metric.Namespace", metric.metric_namespace.clone()),
                ("MetricStat.Metric.MetricName", metric.metric_name.clone()),
                ("MetricStat.Period", PERIOD.to_owned()),
                ("MetricStat.Stat", statistic.to_owned()),
            ];
            asked.extend(fields.map(|(name, value)| (format!("{query}.{name}"), value)));
            for (number, (name, value)) in metric.metric_dimensions.iter().enumerate() {
                let dimension = format!("{query}.MetricStat.Metric.Dimensions.member.{}", number + 1);
                asked.extend([(format!("{dimension}.Name"), name.clone()), (format!("{dimension}.Value"), value.clone())]);
            }
        }
        let told: MetricData =
            self.api.ask(Service::CloudWatch, &Form::new("GetMetricData", "2010-08-01").with_all(asked)).await?;
        let of = |id: &str| metrics.get(id.strip_prefix('q')?.parse::<usize>().ok()?);
        let results = told.result.metric_data_results.members;
        let used = results.iter().filter_map(|result| {
            let (name, _) = of(&result.id)?;
            // The newest comes first; where none was counted lately nobody knows.
            Some((*name, result.values.members.first()?.trim().parse().ok().and_then(whole)?))
        });
        Ok(used.collect())
    }
}

/// A number of vCPUs, which AWS tells as a fraction.
fn whole(value: f64) -> Option<u32> {
    let is_whole = value.is_finite() && (0.0..=f64::from(u32::MAX)).contains(&value);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above; a part of a vCPU is none")]
    is_whole.then(|| value.floor() as u32)
}
