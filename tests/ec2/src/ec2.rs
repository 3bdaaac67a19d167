//! The calls of EC2: which there are, their filters and their pages.

mod instances;
mod market;
mod network;
mod notices;

pub(crate) use instances::reservation_id;

use jiff::Timestamp;

use crate::region::{Region, Tags};
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;
use crate::xml::Xml;

/// What stands in the answer's element, or why there is none.
pub(crate) type Answer = Result<String, Refusal>;

impl World {
    /// Does a call to EC2.
    pub(crate) fn ec2(&mut self, asked: &Asked, now: Timestamp) -> Answer {
        if asked.get("Version") != Some("2016-11-15") {
            return Err(Refusal::bad("NoSuchVersion", "The requested version does not exist."));
        }
        if self.buckets && !self.tokens_left.take(asked, now) {
            return Err(Refusal::new(503, "RequestLimitExceeded", "Request limit exceeded."));
        }
        let place = (asked.account.clone(), asked.region.clone());
        if !self.regions.contains_key(&place) {
            if asked.account == self.account {
                let not_valid = "AWS was not able to validate the provided access credentials";
                return Err(Refusal::new(401, "AuthFailure", not_valid));
            }
            self.regions.insert(place, Region::default());
        }
        match asked.action.as_str() {
            "RunInstances" => self.run_instances(asked, now),
            "TerminateInstances" => self.terminate_instances(asked, now),
            "DescribeInstances" => self.describe_instances(asked, now),
            "DescribeSubnets" => self.describe_subnets(asked, now),
            "DescribeSecurityGroups" => self.describe_groups(asked),
            "DescribeImages" => self.describe_images(asked, now),
            "DescribeAvailabilityZones" => self.describe_zones(asked),
            "DescribeInstanceTypes" => self.describe_types(asked),
            "DescribeInstanceTypeOfferings" => self.describe_offerings(asked),
            "DescribeSpotPriceHistory" => self.describe_spot_prices(asked, now),
            "DescribeCapacityReservations" => self.describe_reservations(asked, now),
            "DescribeReservedInstances" => self.describe_reserved(asked),
            "DescribeSpotInstanceRequests" => self.describe_spot_requests(asked, now),
            "DescribeInstanceStatus" => self.describe_status(asked, now),
            "GetConsoleOutput" => self.console_output(asked, now),
            action => Err(Refusal::bad("InvalidAction", format!("The action {action} is not valid for this web service."))),
        }
    }

    /// The region that is asked.
    pub(crate) fn asked_region(&self, asked: &Asked) -> Result<&Region, Refusal> {
        let place = (asked.account.clone(), asked.region.clone());
        self.regions.get(&place).ok_or_else(|| Refusal::new(401, "AuthFailure", "no such region"))
    }
}

/// The values that an item has for a filter; `None` where there is no such filter.
pub(crate) type Values = Option<Vec<String>>;

/// Whether an item passes all filters of a call.
pub(crate) fn passes(asked: &Asked, value: impl Fn(&str) -> Values) -> Result<bool, Refusal> {
    let mut passed = true;
    for (name, wanted) in asked.filters() {
        let values = value(&name).ok_or_else(|| Refusal::value(format!("The filter '{name}' is invalid")))?;
        passed &= values.iter().any(|value| wanted.iter().any(|wanted| is_like(value, wanted)));
    }
    Ok(passed)
}

/// Items that pass all filters of a call. An unknown filter is refused, also where there is no item.
pub(crate) fn passing<T>(
    asked: &Asked,
    items: Vec<T>,
    none: &T,
    value: impl Fn(&T, &str) -> Values,
) -> Result<Vec<T>, Refusal> {
    passes(asked, |name| value(none, name))?;
    let mut passed = Vec::new();
    for item in items {
        if passes(asked, |name| value(&item, name))? {
            passed.push(item);
        }
    }
    Ok(passed)
}

/// The values of the filters `tag:KEY` and `tag-key`.
pub(crate) fn tag_values(tags: &Tags, filter: &str) -> Values {
    match filter.strip_prefix("tag:") {
        Some(key) => Some(tags.get(key).cloned().into_iter().collect()),
        None if filter == "tag-key" => Some(tags.keys().cloned().collect()),
        None => None,
    }
}

/// One value of a filter.
#[expect(clippy::unnecessary_wraps, reason = "the other arms have filters that there are not")]
pub(crate) fn one(value: &str) -> Values {
    Some(vec![value.to_owned()])
}

/// Whether a value is what a filter wants: `*` is any text, `?` any letter.
pub(crate) fn is_like(value: &str, wanted: &str) -> bool {
    let mut letters = wanted.chars();
    match letters.next() {
        None => value.is_empty(),
        Some('*') => {
            let rest = letters.as_str();
            value.char_indices().any(|(at, _)| is_like(value.get(at..).unwrap_or_default(), rest)) || is_like("", rest)
        }
        Some(letter) => {
            let mut of = value.chars();
            of.next().is_some_and(|first| letter == '?' || first == letter) && is_like(of.as_str(), letters.as_str())
        }
    }
}

/// A page of items, which come in the order of their keys, and the token of the next.
///
/// Tokens are `page-2.KEY` and so on, so that a fault can name the page that fails.
pub(crate) fn page<T>(world: &World, asked: &Asked, items: Vec<T>, key: impl Fn(&T) -> String) -> Result<Page<T>, Refusal> {
    let most = match asked.get("MaxResults").map(str::parse::<usize>) {
        None => world.page_limit,
        Some(Ok(most)) if (5..=1_000).contains(&most) => most.min(world.page_limit),
        Some(_) => {
            let message = "Value for parameter maxResults is invalid. Expecting a value between 5 and 1000.";
            return Err(Refusal::value(message));
        }
    };
    let (number, after) = match asked.get("NextToken") {
        None => (1, None),
        Some(token) => {
            let parts = token.strip_prefix("page-").and_then(|token| token.split_once('.'));
            let parts = parts.and_then(|(number, after)| Some((number.parse::<usize>().ok()?, after)));
            let (number, after) = parts.ok_or_else(|| Refusal::bad("InvalidNextToken", "The token is not valid."))?;
            (number, Some(after))
        }
    };
    let mut rest = items.into_iter().filter(|item| after.is_none_or(|after| key(item).as_str() > after));
    let items: Vec<T> = rest.by_ref().take(most).collect();
    let last = items.last().filter(|_| rest.next().is_some()).map(&key);
    Ok(Page { items, next: last.map(|last| format!("page-{}.{last}", number + 1)) })
}

/// A page.
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// The page as a list of that name.
    pub(crate) fn write(self, name: &str, write: impl FnMut(&mut Xml, T)) -> String {
        Xml::of(|xml| {
            xml.items(name, self.items, write);
            xml.some("nextToken", self.next);
        })
    }
}
