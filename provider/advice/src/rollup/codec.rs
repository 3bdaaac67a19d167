//! An hour of a node as bytes: forty thousand of these an hour are kept for a month, so every byte counts.
//!
//! Numbers are in groups of seven bits, lowest first, the top bit set while more follow. A text is its length and its bytes. A name of a
//! GPU in its usual form is its sixteen bytes. The first byte is the form's number.

use std::sync::Arc;

use super::attribute::{Holder, Owner, Unattributed};
use super::histogram::Histogram;
use super::hour::{Bought, Cell, NodeHour, Unit};
use super::labels::PodLabels;
use super::levels::Levels;
use stoker_core::base::ids::{Cloud, GpuUuid, InstanceType, NodeName, PoolName, Region, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::facts::reading::Permille;
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::sharing::MigProfile;

/// The form that is written here.
const FORM: u8 = 2;
/// The form before: its pods have no labels.
const WITHOUT_LABELS: u8 = 1;

/// Bytes that are no hour of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an hour of readings, or one of a newer release")]
pub struct Damaged;

impl NodeHour {
    /// The hour as bytes, without its number and its node.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out(Vec::with_capacity(64 + self.cells.len() * 96));
        out.0.push(FORM);
        match &self.bought {
            None => out.0.push(0),
            Some(bought) => {
                let Bought { pool, market: Market { place, capacity_type }, price, gpus, units } = bought;
                out.0.push(1);
                for text in [
                    pool.as_str(),
                    place.cloud.as_str(),
                    place.region.as_str(),
                    place.zone.as_str(),
                    place.instance_type.as_str(),
                ] {
                    out.text(text);
                }
                out.text(capacity_type.as_str());
                out.number(price.0.unsigned_abs());
                out.number((*gpus).into());
                out.number((*units).into());
            }
        }
        let mut holders: Vec<&Holder> = self.cells.iter().map(|cell| &cell.holder).collect();
        holders.sort();
        holders.dedup();
        out.length(holders.len());
        for holder in &holders {
            match holder {
                Holder::Nobody => out.0.push(0),
                Holder::Pod { name, owner, labels } => {
                    out.0.push(1);
                    out.text(name);
                    out.text(&owner.namespace);
                    out.text(&owner.name);
                    out.text(labels.as_str());
                }
                Holder::Unattributed(why) => {
                    out.0.push(2);
                    out.length(Unattributed::ALL.iter().position(|known| known == why).unwrap_or(0));
                }
            }
        }
        out.length(self.cells.len());
        for Cell { unit, holder, levels } in &self.cells {
            out.uuid(&unit.gpu);
            match &unit.mig {
                None => out.0.push(0),
                Some(mig) => {
                    out.0.push(1);
                    out.uuid(mig);
                    out.text(&unit.profile.map(|profile| profile.to_string()).unwrap_or_default());
                }
            }
            out.length(holders.binary_search(&holder).unwrap_or(0));
            out.levels(levels);
        }
        out.0
    }

    /// Reads an hour back.
    ///
    /// # Errors
    /// When the bytes are not what [`encode`](Self::encode) made.
    pub fn decode(hour: i64, node: NodeName, bytes: &[u8]) -> Result<Self, Damaged> {
        let mut from = In(bytes);
        let has_labels = match from.byte()? {
            FORM => true,
            WITHOUT_LABELS => false,
            _ => return Err(Damaged),
        };
        let bought = match from.byte()? {
            0 => None,
            1 => Some(from.bought()?),
            _ => return Err(Damaged),
        };
        let holders = (0..from.length()?).map(|_| from.holder(has_labels)).collect::<Result<Vec<_>, _>>()?;
        let mut cells = Vec::new();
        for _ in 0..from.length()? {
            let gpu = from.uuid()?;
            let (mig, profile) = match from.byte()? {
                0 => (None, None),
                1 => (Some(from.uuid()?), from.profile()?),
                _ => return Err(Damaged),
            };
            let holder = holders.get(from.small::<usize>()?).ok_or(Damaged)?.clone();
            cells.push(Cell { unit: Unit { gpu, mig, profile }, holder, levels: from.levels()? });
        }
        from.0.is_empty().then_some(Self { hour, node, bought, cells }).ok_or(Damaged)
    }
}

struct Out(Vec<u8>);

impl Out {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or(0));
    }

    fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn uuid(&mut self, uuid: &GpuUuid) {
        if let Some((mark, bytes)) = packed(uuid.as_str()) {
            self.0.push(mark);
            self.0.extend_from_slice(&bytes);
        } else {
            self.0.push(0);
            self.text(uuid.as_str());
        }
    }

    fn levels(&mut self, levels: &Levels) {
        let Levels {
            seconds,
            samples,
            known,
            utilization,
            memory,
            sm,
            bandwidth,
            memory_peak,
            memory_total,
            worked,
            resident,
            empty,
            joules,
        } = levels;
        for number in [seconds, samples, known, worked, resident, empty] {
            self.number(u64::from(*number));
        }
        for number in [memory_peak, memory_total, joules] {
            self.number(*number);
        }
        for histogram in [utilization, memory, sm, bandwidth] {
            // Zero says that nothing was known; else the peak, one up.
            self.number(histogram.peak.map_or(0, |peak| u64::from(peak.get()) + 1));
            if histogram.peak.is_some() {
                self.length(histogram.buckets.len());
                for (bucket, held) in &histogram.buckets {
                    self.0.push(*bucket);
                    self.number(u64::from(*held));
                }
            }
        }
    }
}

/// What a GPU's or an instance's name begins with, by its mark.
const PREFIXES: [(u8, &str); 2] = [(1, "GPU-"), (2, "MIG-")];
/// Where a UUID has its dashes.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// The sixteen bytes of a name in its usual form, such as `GPU-8f1c2b6e-…`, and the mark of what it begins with.
fn packed(name: &str) -> Option<(u8, [u8; 16])> {
    let (mark, hex) = PREFIXES.into_iter().find_map(|(mark, prefix)| Some((mark, name.strip_prefix(prefix)?)))?;
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    // Only what comes back the same: capitals, and dashes elsewhere, stay text.
    (unpacked(mark, &bytes)? == name).then_some((mark, bytes))
}

fn unpacked(mark: u8, bytes: &[u8]) -> Option<String> {
    let (_, prefix) = PREFIXES.into_iter().find(|(known, _)| *known == mark)?;
    let mut text = String::with_capacity(40);
    for byte in bytes {
        if DASHES.contains(&text.len()) {
            text.push('-');
        }
        text.push(char::from_digit(u32::from(byte >> 4), 16)?);
        text.push(char::from_digit(u32::from(byte & 15), 16)?);
    }
    Some(format!("{prefix}{text}"))
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn byte(&mut self) -> Result<u8, Damaged> {
        let (first, rest) = self.0.split_first().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*first)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damaged)
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Damaged> {
        T::try_from(self.number()?).map_err(|_| Damaged)
    }

    /// How many follow: never more than there are bytes left, as each takes at least one.
    fn length(&mut self) -> Result<usize, Damaged> {
        let length: usize = self.small()?;
        if length <= self.0.len() { Ok(length) } else { Err(Damaged) }
    }

    fn text(&mut self) -> Result<&'a str, Damaged> {
        let length = self.length()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Damaged)
    }

    fn uuid(&mut self) -> Result<GpuUuid, Damaged> {
        let text = match self.byte()? {
            0 => self.text()?.to_owned(),
            mark => unpacked(mark, self.bytes(16)?).ok_or(Damaged)?,
        };
        GpuUuid::new(text).map_err(|_| Damaged)
    }

    fn profile(&mut self) -> Result<Option<MigProfile>, Damaged> {
        match self.text()? {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| Damaged),
        }
    }

    fn bought(&mut self) -> Result<Bought, Damaged> {
        let pool = PoolName::new(self.text()?).map_err(|_| Damaged)?;
        let place = Place {
            cloud: Cloud::new(self.text()?).map_err(|_| Damaged)?,
            region: Region::new(self.text()?).map_err(|_| Damaged)?,
            zone: ZoneId::new(self.text()?).map_err(|_| Damaged)?,
            instance_type: InstanceType::new(self.text()?).map_err(|_| Damaged)?,
        };
        let capacity_type = CapacityType::of(self.text()?).ok_or(Damaged)?;
        let market = Market { place, capacity_type };
        Ok(Bought { pool, market, price: UsdPerHour(self.small()?), gpus: self.small()?, units: self.small()? })
    }

    fn holder(&mut self, has_labels: bool) -> Result<Holder, Damaged> {
        match self.byte()? {
            0 => Ok(Holder::Nobody),
            1 => {
                let name = Arc::from(self.text()?);
                let owner = Owner { namespace: Arc::from(self.text()?), name: Arc::from(self.text()?) };
                let labels = if has_labels { PodLabels::from_text(self.text()?) } else { PodLabels::default() };
                Ok(Holder::Pod { name, owner, labels })
            }
            2 => Ok(Holder::Unattributed(*Unattributed::ALL.get(self.small::<usize>()?).ok_or(Damaged)?)),
            _ => Err(Damaged),
        }
    }

    fn levels(&mut self) -> Result<Levels, Damaged> {
        Ok(Levels {
            seconds: self.small()?,
            samples: self.small()?,
            known: self.small()?,
            worked: self.small()?,
            resident: self.small()?,
            empty: self.small()?,
            memory_peak: self.number()?,
            memory_total: self.number()?,
            joules: self.number()?,
            utilization: self.histogram()?,
            memory: self.histogram()?,
            sm: self.histogram()?,
            bandwidth: self.histogram()?,
        })
    }

    fn histogram(&mut self) -> Result<Histogram, Damaged> {
        let peak = match self.small::<u16>()? {
            0 => return Ok(Histogram::default()),
            up => Permille::new(up - 1).ok_or(Damaged)?,
        };
        let mut buckets = Vec::new();
        for _ in 0..self.length()? {
            let bucket = (self.byte()?, self.small()?);
            if bucket.0 > 100 || buckets.last().is_some_and(|(last, _)| *last >= bucket.0) {
                return Err(Damaged);
            }
            buckets.push(bucket);
        }
        Ok(Histogram { buckets, peak: Some(peak) })
    }
}
