//! What is going to happen, in the order in which it will.
//!
//! What comes soon, before all that waits long, is a short sorted list: datagrams under way, mostly, while the heap
//! keeps timers and plans. The heap is four-way: its nodes share cache lines, and with the few hundred entries that a
//! simulated group keeps it is two or three levels deep. Entries of one moment come out in the order in which they went
//! in, so a run never depends on how they happen to lie.

/// Entries of type `E`, each due at a time in nanoseconds.
pub(crate) struct Queue<E> {
    /// Those before all in the heap, the first of them last.
    soon: Vec<Entry<E>>,
    heap: Vec<Entry<E>>,
    pushed: u64,
}

#[derive(Clone, Copy)]
struct Entry<E> {
    /// The time, and below it how many entries went in before.
    key: u128,
    event: E,
}

impl<E: Copy> Entry<E> {
    fn before(&self, other: &Entry<E>) -> bool {
        self.key < other.key
    }

    fn time(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

const CHILDREN: usize = 4;

/// A longer list costs more than the heap.
const SOON_MAX: usize = 16;

impl<E: Copy> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { soon: Vec::with_capacity(SOON_MAX + 1), heap: Vec::with_capacity(1024), pushed: 0 }
    }

    /// Lets `event` happen at `time`.
    pub(crate) fn push(&mut self, time: u64, event: E) {
        let entry = Entry { key: u128::from(time) << 64 | u128::from(self.pushed), event };
        self.pushed += 1;
        if self.heap.first().is_some_and(|first| first.before(&entry)) {
            self.sift_up(entry);
            return;
        }
        let later = self.soon.iter().rposition(|other| entry.before(other)).map_or(0, |last| last + 1);
        self.soon.insert(later, entry);
        if self.soon.len() > SOON_MAX {
            let latest = self.soon.remove(0);
            self.sift_up(latest);
        }
    }

    /// When the next event happens.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.soon.last().or(self.heap.first()).map(Entry::time)
    }

    /// The next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        let first = match self.soon.pop() {
            Some(first) => first,
            None => self.pop_heap()?,
        };
        Some((first.time(), first.event))
    }

    fn pop_heap(&mut self) -> Option<Entry<E>> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.sift_down(last);
        }
        Some(first)
    }

    fn sift_up(&mut self, entry: Entry<E>) {
        let mut hole = self.heap.len();
        self.heap.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / CHILDREN;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }

    fn sift_down(&mut self, entry: Entry<E>) {
        let mut hole = 0;
        loop {
            let children = CHILDREN * hole + 1;
            let end = (children + CHILDREN).min(self.heap.len());
            let Some(least) =
                (children..end).reduce(|a, b| if self.heap[b].before(&self.heap[a]) { b } else { a })
            else {
                break;
            };
            if !self.heap[least].before(&entry) {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = entry;
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
        let found: Vec<(u64, u32)> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn popping_between_pushes_keeps_the_order() {
        let mut random = Random::from_u64(8);
        let (mut queue, mut now, mut popped) = (Queue::new(), 0, 0);
        for round in 0..5_000u32 {
            queue.push(now + random.below(100), round);
            if random.chance(0.6) {
                let (time, _) = queue.pop().expect("just pushed");
                assert!(time >= now, "time went back");
                (now, popped) = (time, popped + 1);
            }
        }
        assert!(popped > 2_000);
    }
}
