//! The queue's rules one by one.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn queue() -> (Rc<ReadyQueue>, Instant) {
    let queue = ReadyQueue::new(Some(5 * MS), 100);
    let now = queue.drains.get().began;
    (queue, now)
}

#[tokio::test(start_paused = true)]
async fn the_more_comes_the_sooner_it_is_known() {
    let (queue, now) = queue();
    let held = (0..30).map(|_| queue.enqueue(Priority::Normal, now).unwrap()).collect::<Vec<_>>();
    let goes_on = |spans| queue.growth.set(Growth::of_spans(now, spans));
    queue.each.set(MS / 2);
    goes_on(GOES_ON - 1);
    assert!(!queue.stands(now), "the last one waits for 15 ms, three times the bound");
    goes_on(GOES_ON);
    assert!(queue.stands(now));
    queue.each.set(MS);
    goes_on(GROWS);
    assert!(queue.stands(now), "for six times the bound");
    goes_on(GROWS - 1);
    assert!(!queue.stands(now));
    drop(held);
}

/// Makes it one that has stood for long.
fn stand(queue: &ReadyQueue) {
    let mut drains = queue.drains.get();
    drains.stands = true;
    queue.drains.set(drains);
}

fn poll(ready: &Ready) -> Poll<Result<(), TooLate>> {
    ready.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn it_is_off_while_the_worker_sleeps_now_and_then() {
    let (queue, now) = queue();
    for at in 0..100 {
        queue.request_comes(now + at * MS, at % 2 == 0);
        assert!(!queue.is_on());
    }
    for at in 99..103 {
        queue.request_comes(now + at * MS, false);
    }
    assert!(queue.is_on(), "more than half of the bound without sleep");
    let off = ReadyQueue::new(None, 100);
    off.request_comes(now + 1000 * MS, false);
    assert!(!off.is_on());
}

#[test]
fn the_more_important_starts_first_and_equals_in_order() {
    let (queue, now) = queue();
    let enter = |priority| queue.enqueue(priority, now).unwrap();
    let (low, first, second) = (enter(Priority::Low), enter(Priority::Normal), enter(Priority::Normal));
    let critical = enter(Priority::Critical);
    assert_eq!(queue.turn(now, 2), 2);
    assert!(poll(&critical).is_ready() && poll(&first).is_ready());
    assert!(poll(&second).is_pending() && poll(&low).is_pending());
    assert_eq!(queue.turn(now, 10), 2);
    assert_eq!((poll(&second), poll(&low)), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
    assert_eq!(queue.len(), 0);
}

#[test]
fn a_burst_may_wait_longer_than_who_comes_to_a_queue_that_stands() {
    let (queue, now) = queue();
    let burst = (0..10).map(|_| queue.enqueue(Priority::Normal, now).unwrap()).collect::<Vec<_>>();
    assert_eq!(queue.turn(now + 40 * MS, 1), 1);
    assert!(burst[1..].iter().all(|ready| poll(ready).is_pending()));
    let late = queue.enqueue(Priority::Normal, now + 48 * MS).unwrap();
    assert_eq!(queue.turn(now + 51 * MS, 1), 1, "who has waited for 51 ms is refused, who has for 3 is started");
    assert!(burst[1..].iter().all(|ready| poll(ready) == Poll::Ready(Err(TooLate))));
    assert_eq!(poll(&late), Poll::Ready(Ok(())));
}

#[test]
fn requests_that_go_on_to_come_are_no_burst() {
    let (queue, now) = queue();
    let mut waiting = Vec::new();
    for at in 0..16 {
        let at = now + at * MS;
        waiting.extend((0..3).map(|_| queue.enqueue(Priority::Normal, at)));
        queue.turn(at, 1);
    }
    assert!(waiting.iter().all(Result::is_ok), "it has grown for three times 5 ms only now");
    queue.each.set(MS);
    assert_eq!(queue.enqueue(Priority::Normal, now + 16 * MS).unwrap_err(), TooLate);
    queue.turn(now + 22 * MS, 1);
    let refused = waiting.iter().flatten().filter(|ready| poll(ready) == Poll::Ready(Err(TooLate))).count();
    assert!(refused > 10, "{refused}");
}

#[test]
fn who_would_wait_too_long_is_refused_at_once() {
    let (queue, now) = queue();
    queue.each.set(MS);
    stand(&queue);
    let standing = now + 60 * MS;
    let waiting = (0..6).map(|_| queue.enqueue(Priority::Normal, standing).unwrap()).collect::<Vec<_>>();
    assert_eq!(queue.enqueue(Priority::Normal, standing).unwrap_err(), TooLate);
    assert_eq!(queue.enqueue(Priority::Low, standing).unwrap_err(), TooLate);
    assert!(queue.enqueue(Priority::Critical, standing).is_ok(), "it would be the first");
    drop(waiting);
    assert_eq!(queue.len(), 0);
    assert!(queue.enqueue(Priority::Low, standing).is_ok(), "who has left is not in the way");
}

#[test]
fn after_a_refusal_bursts_have_to_wait_until_it_is_calm() {
    let (queue, now) = queue();
    queue.each.set(MS);
    stand(&queue);
    let standing = now + 60 * MS;
    let waiting = (0..6).map(|_| queue.enqueue(Priority::Normal, standing).unwrap()).collect::<Vec<_>>();
    assert!(queue.enqueue(Priority::Normal, standing).is_err());
    drop(waiting);
    let burst = |at: Instant| {
        queue.turn(at, 1);
        let all = (0..20).map(|_| queue.enqueue(Priority::Normal, at)).collect::<Vec<_>>();
        all.iter().filter(|ready| ready.is_ok()).count()
    };
    assert_eq!(burst(standing + 10 * MS), 6, "the queue was empty, but that is not the end of it");
    assert_eq!(burst(standing + 600 * MS), 20, "half a second later it is");
}

#[test]
fn a_burst_is_bounded_by_count() {
    let (queue, now) = queue();
    queue.each.set(MS);
    let waiting = (0..100).map(|_| queue.enqueue(Priority::Normal, now).unwrap()).collect::<Vec<_>>();
    assert_eq!(queue.enqueue(Priority::Normal, now).unwrap_err(), TooLate);
    assert!(queue.enqueue(Priority::Critical, now).is_ok());
    drop(waiting);
}

#[test]
fn who_leaves_is_passed_over() {
    let (queue, now) = queue();
    let gone = queue.enqueue(Priority::Normal, now).unwrap();
    let stays = queue.enqueue(Priority::Normal, now).unwrap();
    drop(gone);
    assert_eq!((queue.len(), queue.turn(now, 1)), (1, 1));
    assert!(poll(&stays).is_ready());
    assert!(queue.queues.borrow().iter().all(VecDeque::is_empty));
}

#[tokio::test]
async fn beside_flows_that_compute_for_long_few_start() {
    let queue = ReadyQueue::new(Some(Duration::from_secs(3600)), 1000);
    let laps = Rc::new(Cell::new(0));
    let (counted, local) = (laps.clone(), tokio::task::LocalSet::new());
    local.spawn_local(queue.clone().run(move |_| {
        counted.set(counted.get() + 1);
        20
    }));
    let test = async {
        queue.on.set(true);
        queue.wake.notify_one();
        let waiting = (0..50).map(|_| queue.enqueue(Priority::Normal, Instant::now()).unwrap());
        for ready in waiting.collect::<Vec<_>>() {
            assert_eq!(std::future::poll_fn(|cx| ready.poll(cx)).await, Ok(()));
        }
        assert!((490..520).contains(&laps.get()), "{} laps for 50 flows, one in ten laps", laps.get());
    };
    local.run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn what_each_takes_counts_the_laps_between() {
    let queue = ReadyQueue::new(Some(Duration::from_secs(3600)), 1000);
    let local = tokio::task::LocalSet::new();
    let laps = Rc::new(Cell::new(0_u32));
    let counted = laps.clone();
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
        queue.on.set(true);
        queue.wake.notify_one();
        let waiting = (0..50).map(|_| queue.enqueue(Priority::Normal, Instant::now()).unwrap());
        let mut waiting = waiting.collect::<Vec<_>>();
        let begun = Instant::now();
        for ready in waiting.drain(..49) {
            assert_eq!(std::future::poll_fn(|cx| ready.poll(cx)).await, Ok(()));
        }
        let (each, took) = (queue.each.get(), begun.elapsed() / 49);
        assert!(took > 2 * begun.elapsed() / laps.get(), "a flow is not started each lap");
        assert!(took * 4 / 5 < each && each < took * 5 / 4, "{each:?} is foreseen, {took:?} it takes");
    };
    local.run_until(test).await;
}

#[tokio::test]
async fn the_task_starts_all_and_turns_itself_off() {
    let queue = ReadyQueue::new(Some(Duration::from_secs(3600)), 100);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(queue.clone().run(|_| 0));
    let test = async {
        queue.on.set(true);
        queue.wake.notify_one();
        let waiting = (0..100).map(|_| queue.enqueue(Priority::Normal, Instant::now()).unwrap());
        for ready in waiting.collect::<Vec<_>>() {
            assert_eq!(std::future::poll_fn(|cx| ready.poll(cx)).await, Ok(()));
        }
        while queue.is_on() {
            tokio::task::yield_now().await;
        }
    };
    local.run_until(test).await;
}

/// A worker that does 3.5 requests a millisecond; `rate` of them come as independent users do after a `burst`. How many are refused
/// within half a second, and after how many milliseconds the first is.
fn offered(rate: f64, burst: usize, seed: u64) -> (usize, Option<u32>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let queue = ReadyQueue::new(Some(10 * MS), 10_000);
    let now = queue.drains.get().began;
    queue.each.set(MS * 2 / 7);
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
                Err(TooLate) => refused += 1,
            }
        }
        queue.turn(moment, 3 + at as usize % 2);
        waiting.retain(|ready| match poll(ready) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(TooLate)) => {
                refused += 1;
                false
            }
        });
        first = first.or((refused > 0).then_some(at));
    }
    (refused, first)
}

#[test]
fn a_pause_at_80_percent_of_what_can_be_done_is_no_overload() {
    for burst in [0, 100, 200, 300] {
        let refused = (0..50).filter(|seed| offered(2.8, burst, *seed).0 > 0).count();
        // Chance looks like an overload now and then.
        assert!(refused <= 1, "{refused} of 50 times after a burst of {burst}");
    }
}

#[test]
fn the_higher_an_overload_the_sooner_it_is_known() {
    for (rate, within) in [(4.0, 400), (7.0, 80), (17.0, 40), (35.0, 40)] {
        for (burst, seed) in [0, 100, 300].into_iter().flat_map(|burst| (0..20).map(move |seed| (burst, seed))) {
            let first = offered(rate, burst, seed).1;
            assert!(first.is_some_and(|at| at < within), "{rate} a millisecond, a burst of {burst}: {first:?}");
        }
    }
}
