//! The services next to EC2: STS, SSM, EKS, quotas, prices and savings plans.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::TypeInfo;
use crate::region::Quota;
use crate::reply::{Body, Refusal};
use crate::request::{Asked, Protocol};
use crate::world::World;
use crate::xml::Xml;

/// Products of a page at most.
const PRODUCTS: usize = 100;

impl World {
    /// Does what was asked of any service but SQS.
    pub(crate) fn work(&mut self, asked: &Asked, now: Timestamp) -> Result<Body, Refusal> {
        self.end_blocks(now);
        match (asked.service.as_str(), asked.action.as_str()) {
            ("ec2", _) if asked.protocol == Protocol::Ec2 => self.ec2(asked, now).map(Body::Xml),
            ("sts", "GetCallerIdentity") => Ok(Body::Xml(identity(asked))),
            ("sts", "AssumeRole") => self.assume_role(asked, now).map(Body::Xml),
            ("ssm", "GetParameter") => self.parameter(asked, now).map(Body::Json),
            ("eks", "DescribeCluster") => self.cluster(asked).map(Body::Json),
            ("servicequotas", "GetServiceQuota") => self.quota(asked, false).map(Body::Json),
            ("servicequotas", "GetAWSDefaultServiceQuota") => self.quota(asked, true).map(Body::Json),
            ("pricing", "GetProducts") => Ok(Body::Json(self.products(asked))),
            ("savingsplans", "DescribeSavingsPlans") => Ok(Body::Json(json!({ "savingsPlans": self.savings_plans }))),
            ("monitoring", "GetMetricData") => Ok(Body::Xml(self.metric_data(asked, now))),
            ("sqs", _) => self.sqs(asked, now).map(Body::Json),
            (service, action) => {
                let message = format!("The peer does not know {action} of {service}");
                Err(Refusal::bad("UnknownOperationException", message))
            }
        }
    }

    /// Hands out credentials of the role's account, as many as are asked for.
    fn assume_role(&mut self, asked: &Asked, now: Timestamp) -> Result<String, Refusal> {
        let role = asked.get("RoleArn").unwrap_or_default();
        let mut parts = role.split(':');
        let (account, name) = (parts.nth(4).unwrap_or_default(), parts.next().unwrap_or_default());
        if account.is_empty() || name.is_empty() {
            return Err(Refusal::bad("ValidationError", format!("{role} is invalid")));
        }
        let key = format!("ASIA{:016X}", self.next_number());
        self.accounts.insert(key.clone(), account.to_owned());
        let session = asked.get("RoleSessionName").unwrap_or_default();
        Ok(Xml::of(|xml| {
            xml.node("Credentials", |xml| {
                xml.text("AccessKeyId", &key);
                xml.text("SecretAccessKey", "secret");
                xml.text("SessionToken", "session");
                xml.time("Expiration", now + Duration::from_hours(1));
            });
            xml.node("AssumedRoleUser", |xml| {
                xml.text("AssumedRoleId", format!("AROATEST:{session}"));
                xml.text("Arn", format!("arn:aws:sts::{account}:assumed-{name}/{session}"));
            });
        }))
    }

    fn parameter(&self, asked: &Asked, now: Timestamp) -> Result<Value, Refusal> {
        let name = asked.get("Name").unwrap_or_default();
        let region = self.asked_region(asked).ok();
        let value = region.and_then(|region| region.parameters.get(name));
        let value = value.ok_or_else(|| Refusal::bad("ParameterNotFound", format!("Parameter {name} not found.")))?;
        let data_type = if value.starts_with("ami-") { "aws:ec2:image" } else { "text" };
        let parameter = json!({
            "Name": name, "Type": "String", "Value": value, "Version": 1, "DataType": data_type,
            "ARN": format!("arn:aws:ssm:{}::parameter{name}", asked.region), "LastModifiedDate": now.as_second(),
        });
        Ok(json!({ "Parameter": parameter }))
    }

    fn cluster(&self, asked: &Asked) -> Result<Value, Refusal> {
        let name = asked.get("name").unwrap_or_default();
        let region = self.asked_region(asked).ok();
        let cluster = region.and_then(|region| region.clusters.get(name)).ok_or_else(|| {
            let message = format!("No cluster found for name: {name}.");
            Refusal::new(404, "ResourceNotFoundException", message)
        })?;
        let cluster = json!({
            "name": cluster.name, "version": cluster.version, "endpoint": cluster.endpoint, "status": cluster.status,
            "arn": format!("arn:aws:eks:{}:{}:cluster/{name}", asked.region, asked.account),
            "certificateAuthority": { "data": cluster.ca },
            "kubernetesNetworkConfig": { "serviceIpv4Cidr": cluster.service_cidr, "ipFamily": "ipv4" },
            "accessConfig": { "authenticationMode": "API_AND_CONFIG_MAP" },
        });
        Ok(json!({ "cluster": cluster }))
    }

    fn quota(&self, asked: &Asked, is_default: bool) -> Result<Value, Refusal> {
        let code = asked.get("QuotaCode").unwrap_or_default();
        let quotas = self.asked_region(asked).ok().map(|region| &region.quotas);
        let quota = quotas.filter(|_| asked.get("ServiceCode") == Some("ec2")).and_then(|quotas| quotas.get(code));
        let quota = quota.filter(|quota| is_default || quota.changed);
        let quota = quota.ok_or_else(|| {
            let message = format!("The request failed because the quota {code} does not exist or was never changed.");
            Refusal::bad("NoSuchResourceException", message)
        })?;
        Ok(json!({ "Quota": quota_json(asked, code, quota) }))
    }

    /// What `AWS/Usage` counts of quotas: as it was at the last five minutes, and nothing where nobody counts.
    fn metric_data(&self, asked: &Asked, now: Timestamp) -> String {
        let queries = asked.structures("MetricDataQueries.member");
        let results = queries.into_iter().map(|query| {
            let dimensions = asked.structures(&format!("{query}.MetricStat.Metric.Dimensions.member"));
            let value = |name: &str| asked.get(&format!("{query}.{name}")).unwrap_or_default();
            let class = dimensions.iter().find_map(|dimension| {
                let is_class = asked.get(&format!("{dimension}.Name")) == Some("Class");
                is_class.then(|| asked.get(&format!("{dimension}.Value"))).flatten()
            });
            let is_usage = value("MetricStat.Metric.Namespace") == "AWS/Usage" && dimensions.len() == 4;
            let region = self.asked_region(asked).ok().filter(|_| is_usage);
            let used = class.zip(region).and_then(|(class, region)| region.usage.get(class).copied());
            (value("Id").to_owned(), used)
        });
        let results: Vec<(String, Option<u32>)> = results.collect();
        Xml::of(|xml| {
            xml.node("MetricDataResults", |xml| {
                for (id, used) in &results {
                    xml.node("member", |xml| {
                        xml.text("Id", id);
                        xml.text("StatusCode", "Complete");
                        xml.node("Timestamps", |xml| used.iter().for_each(|_| xml.time("member", now)));
                        xml.node("Values", |xml| used.iter().for_each(|used| xml.text("member", format!("{used}.0"))));
                    });
                }
            });
        })
    }

    fn products(&self, asked: &Asked) -> Value {
        let filters = asked.body["Filters"].as_array().cloned().unwrap_or_default();
        let mut found = Vec::new();
        for ((account, region), of) in &self.regions {
            let prices = of.list_prices.iter().filter(|_| *account == self.account);
            for (name, price) in prices {
                let product = product(region, name, price, self.types.get(name));
                let fields = &product["product"];
                let passes = filters.iter().all(|filter| {
                    let field = filter["Field"].as_str().unwrap_or_default();
                    let value = if field == "productFamily" { &fields[field] } else { &fields["attributes"][field] };
                    field == "ServiceCode" || value == &filter["Value"]
                });
                if passes && asked.get("ServiceCode") == Some("AmazonEC2") {
                    found.push(product.to_string());
                }
            }
        }
        let most = asked.body["MaxResults"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(PRODUCTS);
        let start: usize = asked.get("NextToken").map_or(Ok(0), str::parse).unwrap_or(usize::MAX);
        let end = start.saturating_add(most.min(PRODUCTS).min(self.page_limit));
        let page: Vec<&String> = found.iter().skip(start).take(end.saturating_sub(start)).collect();
        let mut answer = json!({ "FormatVersion": "aws_v1", "PriceList": page });
        if end < found.len() {
            answer["NextToken"] = json!(end.to_string());
        }
        answer
    }
}

fn identity(asked: &Asked) -> String {
    Xml::of(|xml| {
        xml.text("Arn", format!("arn:aws:sts::{}:assumed-role/stoker/stoker-test", asked.account));
        xml.text("UserId", format!("AROATEST:{}", asked.key));
        xml.text("Account", &asked.account);
    })
}

fn quota_json(asked: &Asked, code: &str, quota: &Quota) -> Value {
    let (class, market) = match code {
        "L-DB2E81BA" => ("G", "OnDemand"),
        "L-417A185B" => ("P", "OnDemand"),
        "L-3819A6DF" => ("G", "Spot"),
        "L-C4BD4855" => ("P5", "Spot"),
        _ => ("P", "Spot"),
    };
    let dimensions = json!({
        "Class": format!("{class}/{market}"), "Resource": "vCPU", "Service": "EC2", "Type": "Resource",
    });
    json!({
        "ServiceCode": "ec2", "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)", "QuotaCode": code,
        "QuotaArn": format!("arn:aws:servicequotas:{}:{}:ec2/{code}", asked.region, asked.account),
        "QuotaName": quota.name, "Value": f64::from(quota.limit), "Unit": "None", "Adjustable": true, "GlobalQuota": false,
        "UsageMetric": {
            "MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount", "MetricDimensions": dimensions,
            "MetricStatisticRecommendation": "Maximum",
        },
    })
}

/// A product of the price list: the on-demand price of a type in a region.
fn product(region: &str, name: &str, price: &str, of: Option<&TypeInfo>) -> Value {
    let sku = format!("{:016X}", crate::world::scrambled(&format!("{region}/{name}")));
    let (offer, rate) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
    let attributes = json!({
        "servicecode": "AmazonEC2", "instanceType": name, "regionCode": region, "operatingSystem": "Linux", "tenancy": "Shared",
        "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand", "locationType": "AWS Region",
        "licenseModel": "No License required", "operation": "RunInstances",
        "vcpu": of.map_or(0, |of| of.vcpus).to_string(), "gpu": of.map_or(0, |of| of.gpus).to_string(),
        "memory": format!("{} GiB", of.map_or(0, |of| of.memory_mib / 1_024)),
    });
    let dimension = json!({
        "rateCode": rate, "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": { "USD": price }, "appliesTo": [],
        "description": format!("${price} per On Demand Linux {name} Instance Hour"),
    });
    let term = json!({
        "sku": sku, "offerTermCode": "JRTCKXETXF", "termAttributes": {}, "effectiveDate": "2026-11-01T00:00:00Z",
        "priceDimensions": { rate: dimension },
    });
    json!({
        "product": { "sku": sku, "productFamily": "Compute Instance", "attributes": attributes },
        "serviceCode": "AmazonEC2", "version": "20261101000000", "publicationDate": "2026-11-01T00:00:00Z",
        "terms": { "OnDemand": { offer: term } },
    })
}
