//! Something of each group, found without comparing the groups' long names.

/// A group, by the order in which the client first heard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(usize);

impl Slot {
    pub(super) const fn new(at: usize) -> Self {
        Self(at)
    }

    pub(super) const fn at(self) -> usize {
        self.0
    }
}

/// Something of each group that has it.
#[derive(Debug, Clone)]
pub(super) struct ByGroup<T>(Vec<Option<T>>);

impl<T> Default for ByGroup<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByGroup<T> {
    pub(super) fn get(&self, group: Slot) -> Option<&T> {
        self.0.get(group.0)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, group: Slot) -> Option<&mut T> {
        self.0.get_mut(group.0)?.as_mut()
    }

    pub(super) fn has(&self, group: Slot) -> bool {
        self.get(group).is_some()
    }

    fn place(&mut self, group: Slot) -> Option<&mut Option<T>> {
        if self.0.len() <= group.0 {
            self.0.resize_with(group.0 + 1, || None);
        }
        self.0.get_mut(group.0)
    }

    pub(super) fn insert(&mut self, group: Slot, value: T) {
        if let Some(place) = self.place(group) {
            *place = Some(value);
        }
    }

    /// What it has of the group; the default where it had nothing.
    pub(super) fn or_default(&mut self, group: Slot) -> Option<&mut T>
    where
        T: Default,
    {
        self.place(group).map(Option::get_or_insert_default)
    }

    pub(super) fn remove(&mut self, group: Slot) -> Option<T> {
        self.0.get_mut(group.0)?.take()
    }

    pub(super) fn retain(&mut self, keeps: impl Fn(Slot, &T) -> bool) {
        for (at, place) in self.0.iter_mut().enumerate() {
            if place.as_ref().is_some_and(|value| !keeps(Slot(at), value)) {
                *place = None;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.0.iter().enumerate().filter_map(|(at, value)| Some((Slot(at), value.as_ref()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

impl<T> FromIterator<(Slot, T)> for ByGroup<T> {
    fn from_iter<I: IntoIterator<Item = (Slot, T)>>(all: I) -> Self {
        let mut made = Self::default();
        all.into_iter().for_each(|(group, value)| made.insert(group, value));
        made
    }
}
