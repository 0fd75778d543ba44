use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What happens next: by time, and of one time in the order it was put down.
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    written: u64,
}

struct Entry<T> {
    at: Duration,
    number: u64,
    what: T,
}

impl<T> Agenda<T> {
    pub fn new() -> Self {
        Agenda { heap: BinaryHeap::new(), written: 0 }
    }

    pub fn add(&mut self, at: Duration, what: T) {
        self.heap.push(Reverse(Entry { at, number: self.written, what }));
        self.written += 1;
    }

    pub fn next(&mut self) -> Option<(Duration, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_entries_in_any_order_when_asked_then_by_time_and_then_as_written() {
        let mut agenda = Agenda::new();
        for (at, what) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            agenda.add(Duration::from_secs(at), what);
        }
        let order: String = std::iter::from_fn(|| agenda.next()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcd");
    }
}
