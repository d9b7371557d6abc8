//! The queue of future events, in order of time.
//!
//! Events that are due soon are in a short sorted list; these are mostly datagrams in flight. All later events, mostly
//! timers and planned actions, are in a four-way heap. The nodes of such a heap share cache lines, and with the few
//! hundred entries of a simulated group it is two or three levels deep. Only small keys move in both; the events stay
//! where they were stored. Events of the same time come out in the order in which they were pushed, so a run never
//! depends on the layout of the queue.

/// Events of type `E`, each due at a time in nanoseconds.
pub(crate) struct Queue<E> {
    /// Keys before all keys in the heap, in descending order.
    soon: Vec<Key>,
    heap: Vec<Key>,
    /// The events, each at the index that its key contains.
    events: Vec<Option<E>>,
    free: Vec<usize>,
    pushed: u64,
}

/// From the highest bits: the time, the number of events pushed before, and the index of the event.
type Key = u128;

const TIME_SHIFT: u32 = 64;
const PLACE_BITS: u32 = 24;
const PLACES_MAX: usize = 1 << PLACE_BITS;

const CHILDREN: usize = 4;

/// Most keys in the sorted list; a longer list is slower than the heap.
const SOON_MAX: usize = 64;

impl<E: Copy> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue {
            soon: Vec::with_capacity(SOON_MAX + 1),
            heap: Vec::with_capacity(1024),
            events: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            pushed: 0,
        }
    }

    /// Adds `event`, due at `time`. Inlined, so that the event is constructed where it is stored.
    #[inline(always)]
    pub(crate) fn push(&mut self, time: u64, event: E) {
        let place = self.free.pop().unwrap_or_else(|| self.add_place());
        self.events[place] = Some(event);
        self.insert(Key::from(time) << TIME_SHIFT | Key::from(self.pushed << PLACE_BITS) | place as Key);
        self.pushed += 1;
    }

    #[cold]
    fn add_place(&mut self) -> usize {
        assert!(self.events.len() < PLACES_MAX, "more than {PLACES_MAX} events in the queue");
        self.events.push(None);
        self.events.len() - 1
    }

    fn insert(&mut self, key: Key) {
        if self.heap.first().is_some_and(|first| *first < key) {
            self.sift_up(key);
            return;
        }
        let mut place = self.soon.len();
        self.soon.push(key);
        while place > 0 && self.soon[place - 1] < key {
            self.soon[place] = self.soon[place - 1];
            place -= 1;
        }
        self.soon[place] = key;
        if self.soon.len() > SOON_MAX {
            self.spill();
        }
    }

    /// Moves the later half of the list to the heap.
    #[cold]
    fn spill(&mut self) {
        let earlier = self.soon.split_off(SOON_MAX / 2);
        let later = std::mem::replace(&mut self.soon, earlier);
        later.into_iter().for_each(|key| self.sift_up(key));
    }

    /// Removes and returns the next event and its time, if it is due by `until`.
    #[inline]
    pub(crate) fn pop_by(&mut self, until: u64) -> Option<(u64, E)> {
        let key = *self.soon.last().or(self.heap.first())?;
        let time = (key >> TIME_SHIFT) as u64;
        if time > until {
            return None;
        }
        if self.soon.pop().is_none() {
            self.pop_heap();
        }
        let place = key as usize % PLACES_MAX;
        self.free.push(place);
        Some((time, self.events[place]?))
    }

    fn pop_heap(&mut self) {
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sift_down(last);
        }
    }

    fn sift_up(&mut self, key: Key) {
        let mut hole = self.heap.len();
        self.heap.push(key);
        while hole > 0 {
            let parent = (hole - 1) / CHILDREN;
            if key > self.heap[parent] {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = key;
    }

    fn sift_down(&mut self, key: Key) {
        let mut hole = 0;
        loop {
            let children = CHILDREN * hole + 1;
            let end = (children + CHILDREN).min(self.heap.len());
            let Some(least) = (children..end).reduce(|a, b| if self.heap[b] < self.heap[a] { b } else { a })
            else {
                break;
            };
            if self.heap[least] > key {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use unisono_core::Random;

    #[test]
    fn events_come_out_by_time_and_then_by_age() {
        let mut random = Random::from_u64(7);
        let mut queue = Queue::new();
        let mut expected: Vec<(u64, u32)> = Vec::new();
        for round in 0..2_000u32 {
            let time = random.below(50);
            queue.push(time, round);
            expected.push((time, round));
        }
        expected.sort();
        let found: Vec<(u64, u32)> = core::iter::from_fn(|| queue.pop_by(u64::MAX)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn popping_between_pushes_keeps_the_order() {
        let mut random = Random::from_u64(8);
        let (mut queue, mut now, mut popped) = (Queue::new(), 0, 0);
        for round in 0..5_000u32 {
            queue.push(now + random.below(100), round);
            if random.chance(0.6) {
                let (time, _) = queue.pop_by(u64::MAX).expect("just pushed");
                assert!(time >= now, "time went back");
                (now, popped) = (time, popped + 1);
            }
        }
        assert!(popped > 2_000);
    }
}
