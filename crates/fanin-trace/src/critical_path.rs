//! The critical path from recorded times.

use std::time::Duration;

use crate::call::CallTrace;

/// Marks the calls of the critical path: backwards from the response, each time the call that ended last before the point in question.
/// `last` is the call whose answer the response waited for, if that is known.
///
/// Where a call names what it awaited, that decides. A tier that computes between two calls does not break the path.
pub fn mark_critical_path(calls: &mut [CallTrace], last: Option<u32>) {
    calls.iter_mut().for_each(|call| call.critical = false);
    let ended_last = |calls: &[CallTrace], among: &mut dyn Iterator<Item = usize>| {
        among.filter(|at| calls[*at].ended.is_some()).max_by_key(|at| calls[*at].ended)
    };
    let mut next = match last {
        Some(last) => Some(last as usize).filter(|at| *at < calls.len()),
        None => ended_last(calls, &mut (0..calls.len())),
    };
    while let Some(at) = next {
        if calls[at].critical {
            break;
        }
        calls[at].critical = true;
        let begun = calls[at].sent.unwrap_or(Duration::MAX);
        let awaited = calls[at].awaited.clone();
        let mut awaited = awaited
            .iter()
            .map(|index| *index as usize)
            .filter(|index| *index < calls.len() && calls[*index].ended.is_some_and(|ended| ended <= begun));
        next = ended_last(calls, &mut awaited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;

    fn critical(calls: &[CallTrace]) -> Vec<usize> {
        (0..calls.len()).filter(|at| calls[*at].critical).collect()
    }

    #[test]
    fn path_follows_what_was_awaited_last() {
        let mut calls = [call("a", 0, 0, 10), call("b", 0, 0, 20), call("c", 20, 20, 30), call("d", 10, 10, 25)];
        calls[2].awaited = vec![0, 1];
        calls[3].awaited = vec![0];
        mark_critical_path(&mut calls, None);
        assert_eq!(critical(&calls), [1, 2]);
        mark_critical_path(&mut calls, Some(3));
        assert_eq!(critical(&calls), [0, 3]);
    }

    #[test]
    fn broken_records_end() {
        let mut calls = [call("a", 0, 0, 10), call("b", 0, 0, 10)];
        calls[0].awaited = vec![1, 7];
        calls[1].awaited = vec![0];
        calls[0].sent = Some(Duration::from_millis(10));
        calls[1].sent = Some(Duration::from_millis(10));
        mark_critical_path(&mut calls, Some(0));
        assert_eq!(critical(&calls), [0, 1]);
        mark_critical_path(&mut calls, Some(9));
        assert_eq!(critical(&calls), Vec::<usize>::new());
        mark_critical_path(&mut [], None);
    }
}
