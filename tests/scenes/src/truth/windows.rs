//! Windows: no free node is released before its time, whatever restarted in between.

use jiff::{SignedDuration, Timestamp};
use stoker_core::policy::rules::stabilization::Window;

use crate::scene::Scene;

impl Scene {
    /// The nodes that the provider released since it was last looked: the autoscaler may take them.
    pub(super) fn judges_releases(&mut self) {
        for node in std::mem::take(&mut self.desk_mut().released) {
            self.truth.count("nodes released");
            self.window_is_over(node.as_str(), "released");
            self.turns_are_kept(node.as_str());
            self.truth.may_go.insert(node.to_string());
        }
    }

    /// A node that is released, or that the autoscaler chooses, was free for its pool's window, has lived for its minimum, and its pool has
    /// not just grown, whatever restarted in between.
    pub(super) fn window_is_over(&mut self, node: &str, how: &str) {
        let now = self.now;
        let Some((pool, ..)) = self.pool_of_node(node) else { return };
        let Some(rules) = &pool.stabilization else { return };
        let Some(machine) = self.desk().cloud.of_node(node) else { return };
        let price = crate::market::price(&machine.made.market);
        let mut window = rules.scale_down;
        if rules.window == Window::EqualCost {
            // What 150 s of waiting cost, a minute at least.
            window = window.min(SignedDuration::from_secs((150 * pool.waiting.0 / price).max(60)));
        }
        let since = self.truth.seen_free_since.get(node).filter(|_| !self.truth.seen_busy.contains(node));
        let free = since.map_or(SignedDuration::ZERO, |since| self.truth.passed(*since, now));
        // It is ordered some seconds before it is launched, and long before where markets refused it.
        let records = self.desk().memory.records.values();
        let own = records.clone().find(|record| record.instance() == Some(&machine.made.provider_id));
        let ordered = own.and_then(|record| self.desk().ordered.get(&record.id)).copied();
        let born = ordered.map_or(machine.made.launched_at, |at| at.min(machine.made.launched_at));
        let lived = self.truth.passed(born, now) + SignedDuration::from_secs(15);
        let of_pool = records.filter(|record| record.order.is_some() && record.instance().is_some());
        let of_pool =
            of_pool.filter(|record| self.desk().catalogue.groups.get(&record.group).is_some_and(|g| g.pool == pool.name));
        let grew = of_pool.filter_map(|record| self.desk().ordered.get(&record.id)).max();
        let quiet = grew.map_or(SignedDuration::MAX, |at| self.truth.passed(*at, now));
        // In off-hours nodes beyond their limit wait for nothing.
        let off = pool.off_hours.as_ref().is_some_and(|off| off.max_nodes.is_some() && off.at(self.desk().wall().0).0);
        // What the cloud takes waits for nothing either.
        let taken = machine.reclaim.is_some();
        let (least, growth) = (rules.minimum_life, rules.after_scale_up);
        // One that was released has waited through its own windows, whatever is on now; of growth a user's closed node waits for nothing.
        let early = !self.truth.may_go.contains(node) && (free < window || lived < least);
        let grows = quiet < growth && !self.truth.touched.contains(node);
        if (early || grows) && !off && !taken {
            let what = format!(
                "{node} is {how} after {} s free of {}, {} s of life of {} and {} s after growth of {}",
                free.as_secs(),
                window.as_secs(),
                lived.as_secs(),
                least.as_secs(),
                quiet.as_secs(),
                growth.as_secs(),
            );
            self.truth.breaks(now, &what);
        }
    }

    /// No more nodes of a pool are released within one window than its share.
    fn turns_are_kept(&mut self, node: &str) {
        let now = self.now;
        let Some((pool, ..)) = self.pool_of_node(node) else { return };
        let Some(rules) = pool.stabilization.clone().filter(|rules| rules.max_removals.0 < 100) else { return };
        let name = pool.name.clone();
        let of_pool = self.desk().limits.iter().filter(|(id, _)| self.group_is_of(id.as_str(), pool));
        let there: u32 = of_pool.map(|(_, limits)| limits.target).sum();
        let lately: Vec<_> = self.truth.let_go.remove(&name).unwrap_or_default();
        // One that a pod came to has given its turn back.
        let gone = |node: &str| self.autoscaler.cluster().node(node).is_none();
        // One that was kept again meanwhile has one turn all the same.
        let counts = |(at, other): &(Timestamp, String)| {
            let stands = other != node && (gone(other) || self.truth.may_go.contains(other));
            stands && self.truth.passed(*at, now) < rules.scale_down
        };
        let mut lately: Vec<_> = lately.into_iter().filter(counts).collect();
        lately.push((now, node.to_owned()));
        // Those that are gone, or about to be, were there when their turn came; the others count already.
        let ends = |node: &str| self.desk().cloud.of_node(node).is_none_or(|machine| machine.ends_at.is_some());
        let went = lately.iter().filter(|(_, node)| ends(node)).count();
        let there = usize::try_from(there).unwrap_or(usize::MAX).saturating_add(went);
        let most = (there.saturating_mul(usize::from(rules.max_removals.0)) / 100).max(1);
        if lately.len() > most {
            self.truth.breaks(now, &format!("{} nodes of {name} are released within one window, {most} at most", lately.len()));
        }
        self.truth.let_go.insert(name, lately);
    }
}
