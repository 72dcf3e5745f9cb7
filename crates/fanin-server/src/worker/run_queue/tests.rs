//! The run queue's rules, one by one.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn queue() -> (Rc<RunQueue>, Instant) {
    let queue = RunQueue::new(Some(5 * MS), 100);
    (queue, Instant::now())
}

#[tokio::test(start_paused = true)]
async fn more_arrivals_are_an_overload_sooner() {
    let (queue, now) = queue();
    let held = (0..30).map(|_| queue.enqueue(Priority::Normal, now).unwrap()).collect::<Vec<_>>();
    let (sustained, growth) = OverloadDetector::SPANS;
    let goes_on = |spans| queue.detector.set_arrival_spans(now, spans);
    queue.start_interval.set(MS / 2);
    goes_on(sustained - 1);
    assert!(!queue.is_overloaded(now), "the last one waits for 15 ms, three times the target");
    goes_on(sustained);
    assert!(queue.is_overloaded(now));
    queue.start_interval.set(MS);
    goes_on(growth);
    assert!(queue.is_overloaded(now), "for six times the target");
    goes_on(growth - 1);
    assert!(!queue.is_overloaded(now));
    drop(held);
}

fn poll(ready: &QueuedRequest) -> Poll<Result<(), QueueTimeout>> {
    ready.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn it_is_inactive_while_the_worker_sleeps_now_and_then() {
    let (queue, now) = queue();
    for at in 0..100 {
        queue.on_request(now + at * MS, at % 2 == 0);
        assert!(!queue.is_active());
    }
    for at in 99..103 {
        queue.on_request(now + at * MS, false);
    }
    assert!(queue.is_active(), "more than half of the target without sleep");
    let off = RunQueue::new(None, 100);
    off.on_request(now + 1000 * MS, false);
    assert!(!off.is_active());
}

#[test]
fn higher_priority_starts_first_and_equals_in_order() {
    let (queue, now) = queue();
    let enter = |priority| queue.enqueue(priority, now).unwrap();
    let (low, first, second) = (enter(Priority::Low), enter(Priority::Normal), enter(Priority::Normal));
    let critical = enter(Priority::Critical);
    assert_eq!(queue.start_waiting(now, 2), 2);
    assert!(poll(&critical).is_ready() && poll(&first).is_ready());
    assert!(poll(&second).is_pending() && poll(&low).is_pending());
    assert_eq!(queue.start_waiting(now, 10), 2);
    assert_eq!((poll(&second), poll(&low)), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
    assert_eq!(queue.len(), 0);
}

#[test]
fn a_burst_may_wait_longer_than_a_request_under_overload() {
    let (queue, now) = queue();
    let burst = (0..10).map(|_| queue.enqueue(Priority::Normal, now).unwrap()).collect::<Vec<_>>();
    assert_eq!(queue.start_waiting(now + 40 * MS, 1), 1);
    assert!(burst[1..].iter().all(|ready| poll(ready).is_pending()));
    let late = queue.enqueue(Priority::Normal, now + 48 * MS).unwrap();
    assert_eq!(queue.start_waiting(now + 51 * MS, 1), 1, "after 51 ms it is refused, after 3 ms it is started");
    assert!(burst[1..].iter().all(|ready| poll(ready) == Poll::Ready(Err(QueueTimeout))));
    assert_eq!(poll(&late), Poll::Ready(Ok(())));
}

#[test]
fn sustained_arrivals_are_no_burst() {
    let (queue, now) = queue();
    let mut waiting = Vec::new();
    for at in 0..16 {
        let at = now + at * MS;
        waiting.extend((0..3).map(|_| queue.enqueue(Priority::Normal, at)));
        queue.start_waiting(at, 1);
    }
    assert!(waiting.iter().all(Result::is_ok), "it has grown for three spans only now");
    queue.start_interval.set(MS);
    assert_eq!(queue.enqueue(Priority::Normal, now + 16 * MS).unwrap_err(), QueueTimeout);
    queue.start_waiting(now + 22 * MS, 1);
    let refused = waiting.iter().flatten().filter(|ready| poll(ready) == Poll::Ready(Err(QueueTimeout))).count();
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_request_that_would_wait_too_long_is_refused_at_once() {
    let (queue, now) = queue();
    queue.start_interval.set(MS);
    queue.detector.set_sustained_delay();
    let overloaded = now + 60 * MS;
    let waiting = (0..6).map(|_| queue.enqueue(Priority::Normal, overloaded).unwrap()).collect::<Vec<_>>();
    assert_eq!(queue.enqueue(Priority::Normal, overloaded).unwrap_err(), QueueTimeout);
    assert_eq!(queue.enqueue(Priority::Low, overloaded).unwrap_err(), QueueTimeout);
    assert!(queue.enqueue(Priority::Critical, overloaded).is_ok(), "it would be the first");
    drop(waiting);
    assert_eq!(queue.len(), 0);
    assert!(queue.enqueue(Priority::Low, overloaded).is_ok(), "requests that left do not count");
}

#[test]
fn after_a_refusal_bursts_are_not_tolerated_for_a_while() {
    let (queue, now) = queue();
    queue.start_interval.set(MS);
    queue.detector.set_sustained_delay();
    let overloaded = now + 60 * MS;
    let waiting = (0..6).map(|_| queue.enqueue(Priority::Normal, overloaded).unwrap()).collect::<Vec<_>>();
    assert!(queue.enqueue(Priority::Normal, overloaded).is_err());
    drop(waiting);
    let burst = |at: Instant| {
        queue.start_waiting(at, 1);
        let all = (0..20).map(|_| queue.enqueue(Priority::Normal, at)).collect::<Vec<_>>();
        all.iter().filter(|ready| ready.is_ok()).count()
    };
    assert_eq!(burst(overloaded + 10 * MS), 6, "an empty queue does not end the overload");
    assert_eq!(burst(overloaded + 600 * MS), 20, "half a second later it has ended");
}

#[test]
fn a_burst_is_bounded_by_count() {
    let (queue, now) = queue();
    queue.start_interval.set(MS);
    let waiting = (0..100).map(|_| queue.enqueue(Priority::Normal, now).unwrap()).collect::<Vec<_>>();
    assert_eq!(queue.enqueue(Priority::Normal, now).unwrap_err(), QueueTimeout);
    assert!(queue.enqueue(Priority::Critical, now).is_ok());
    drop(waiting);
}

#[test]
fn a_request_that_leaves_is_passed_over() {
    let (queue, now) = queue();
    let gone = queue.enqueue(Priority::Normal, now).unwrap();
    let stays = queue.enqueue(Priority::Normal, now).unwrap();
    drop(gone);
    assert_eq!((queue.len(), queue.start_waiting(now, 1)), (1, 1));
    assert!(poll(&stays).is_ready());
    assert!(queue.queues.borrow().iter().all(VecDeque::is_empty));
}

#[tokio::test]
async fn few_flows_start_beside_cpu_bound_ones() {
    let queue = RunQueue::new(Some(Duration::from_secs(3600)), 1000);
    let iterations = Rc::new(Cell::new(0));
    let (counted, local) = (iterations.clone(), tokio::task::LocalSet::new());
    local.spawn_local(queue.clone().run(move |_| {
        counted.set(counted.get() + 1);
        20
    }));
    let test = async {
        queue.is_active.set(true);
        queue.wake.notify_one();
        let waiting = (0..50).map(|_| queue.enqueue(Priority::Normal, Instant::now()).unwrap());
        for ready in waiting.collect::<Vec<_>>() {
            assert_eq!(std::future::poll_fn(|cx| ready.poll(cx)).await, Ok(()));
        }
        assert!(
            (490..520).contains(&iterations.get()),
            "{} iterations for 50 flows, one in ten iterations",
            iterations.get()
        );
    };
    local.run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn the_start_interval_counts_iterations_without_a_start() {
    let queue = RunQueue::new(Some(Duration::from_secs(3600)), 1000);
    let local = tokio::task::LocalSet::new();
    let iterations = Rc::new(Cell::new(0_u32));
    let counted = iterations.clone();
    local.spawn_local(queue.clone().run(move |_| {
        counted.set(counted.get() + 1);
        20
    }));
    local.spawn_local(async {
        loop {
            tokio::time::advance(MS / 4).await;
        }
    });
    let test = async {
        queue.is_active.set(true);
        queue.wake.notify_one();
        let waiting = (0..50).map(|_| queue.enqueue(Priority::Normal, Instant::now()).unwrap());
        let mut waiting = waiting.collect::<Vec<_>>();
        let begun = Instant::now();
        for ready in waiting.drain(..49) {
            assert_eq!(std::future::poll_fn(|cx| ready.poll(cx)).await, Ok(()));
        }
        let (interval, took) = (queue.start_interval.get(), begun.elapsed() / 49);
        assert!(took > 2 * begun.elapsed() / iterations.get(), "not every iteration starts a flow");
        assert!(took * 4 / 5 < interval && interval < took * 5 / 4, "expected {interval:?}, measured {took:?}");
    };
    local.run_until(test).await;
}

#[tokio::test]
async fn the_task_starts_all_and_deactivates_the_queue() {
    let queue = RunQueue::new(Some(Duration::from_secs(3600)), 100);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(queue.clone().run(|_| 0));
    let test = async {
        queue.is_active.set(true);
        queue.wake.notify_one();
        let waiting = (0..100).map(|_| queue.enqueue(Priority::Normal, Instant::now()).unwrap());
        for ready in waiting.collect::<Vec<_>>() {
            assert_eq!(std::future::poll_fn(|cx| ready.poll(cx)).await, Ok(()));
        }
        while queue.is_active() {
            tokio::task::yield_now().await;
        }
    };
    local.run_until(test).await;
}

/// Simulates a worker that starts 3.5 requests a millisecond, for half a second. After a `burst`, `rate` requests a millisecond arrive as
/// a Poisson process. Returns how many are refused, and after how many milliseconds the first is.
fn offered(rate: f64, burst: usize, seed: u64) -> (usize, Option<u32>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let queue = RunQueue::new(Some(10 * MS), 10_000);
    let now = Instant::now();
    queue.start_interval.set(MS * 2 / 7);
    let (mut waiting, mut refused, mut first) = (Vec::new(), 0, None);
    let mut next = 0.0;
    for at in 0..500 {
        let moment = now + at * MS;
        let mut coming = if at == 0 { burst } else { 0 };
        while next < f64::from(at) {
            coming += 1;
            next -= (1.0 - random.f64()).ln() / rate;
        }
        for _ in 0..coming {
            match queue.enqueue(Priority::Normal, moment) {
                Ok(ready) => waiting.push(ready),
                Err(QueueTimeout) => refused += 1,
            }
        }
        queue.start_waiting(moment, 3 + at as usize % 2);
        waiting.retain(|ready| match poll(ready) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(QueueTimeout)) => {
                refused += 1;
                false
            }
        });
        first = first.or((refused > 0).then_some(at));
    }
    (refused, first)
}

#[test]
fn a_burst_at_80_percent_load_is_no_overload() {
    for burst in [0, 100, 200, 300] {
        let refused = (0..50).filter(|seed| offered(2.8, burst, *seed).0 > 0).count();
        // Random arrivals look like an overload now and then.
        assert!(refused <= 1, "{refused} of 50 times after a burst of {burst}");
    }
}

#[test]
fn a_higher_overload_is_detected_sooner() {
    for (rate, within) in [(4.0, 400), (7.0, 80), (17.0, 40), (35.0, 40)] {
        for (burst, seed) in [0, 100, 300].into_iter().flat_map(|burst| (0..20).map(move |seed| (burst, seed))) {
            let first = offered(rate, burst, seed).1;
            assert!(first.is_some_and(|at| at < within), "{rate} a millisecond, a burst of {burst}: {first:?}");
        }
    }
}
