//! How many requests are in progress, from one moment to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Goes through intervals `[start, end)` in order of their starts and tells `span(from, to, count)` for each stretch of
/// time during which `count` of them run, without gaps and in order, stretches of none between the first and the last
/// included. An interval without length is never running.
///
/// Takes memory for the intervals that run at once, not for all.
pub(crate) fn sweep(intervals: impl Iterator<Item = (i64, i64)>, mut span: impl FnMut(i64, i64, u64)) {
    let mut ends: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
    let mut now: Option<i64> = None;
    let mut advance = |to: i64, count: usize, now: &mut Option<i64>| {
        if let Some(from) = *now
            && from < to
        {
            span(from, to, count as u64);
        }
        *now = Some(to);
    };
    for (start, end) in intervals {
        if end <= start {
            continue;
        }
        while let Some(Reverse(first)) = ends.peek().copied()
            && first <= start
        {
            advance(first, ends.len(), &mut now);
            ends.pop();
        }
        advance(start, ends.len(), &mut now);
        ends.push(Reverse(end));
    }
    while let Some(Reverse(first)) = ends.peek().copied() {
        advance(first, ends.len(), &mut now);
        ends.pop();
    }
}

/// The most intervals that run at once.
pub(crate) fn most(intervals: impl Iterator<Item = (i64, i64)>) -> u64 {
    // Only the heap's size matters: no need to stop at each end.
    let mut ends: BinaryHeap<Reverse<i64>> = BinaryHeap::new();
    let mut most = 0;
    for (start, end) in intervals {
        if end <= start {
            continue;
        }
        // One goes out, if any may, in the place of the one that comes in: a sift less than popping and pushing.
        if let Some(mut first) = ends.peek_mut()
            && first.0 <= start
        {
            *first = Reverse(end);
        } else {
            ends.push(Reverse(end));
            most = most.max(ends.len());
        }
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_time_once() {
        let intervals = [(0, 10), (2, 2), (2, 5), (5, 7), (20, 21), (20, 22)];
        let mut spans = Vec::new();
        sweep(intervals.into_iter(), |from, to, count| spans.push((from, to, count)));
        let joined: Vec<(i64, i64, u64)> =
            spans.chunk_by(|a, b| a.2 == b.2).map(|same| (same[0].0, same[same.len() - 1].1, same[0].2)).collect();
        assert_eq!(joined, [(0, 2, 1), (2, 7, 2), (7, 10, 1), (10, 20, 0), (20, 21, 2), (21, 22, 1)]);
        assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(most(intervals.into_iter()), 2);
    }
}
