//! Channels, their logs and their subscribers, in paused time. Also the seam to other instances.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fanin_config::Push;
use fanin_push::{Channels, Hub, PublishError, Relay, SubscribeError, Subscription};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(3600);

fn settings() -> Push {
    Push { heartbeat: Duration::from_secs(10), log_events: 3, ..Push::default() }
}

async fn with<F: Future>(settings: Push, test: impl FnOnce(Arc<Channels>, Rc<Hub>) -> F) -> F::Output {
    let channels = Channels::new(settings);
    let run = async {
        let hub = Hub::new(channels.clone());
        spawn_local(hub.clone().run());
        test(channels, hub).await
    };
    LocalSet::new().run_until(run).await
}

fn subscribe(hub: &Rc<Hub>, names: &[&str], last: Option<&str>) -> Result<Subscription, SubscribeError> {
    Subscription::new(hub, names.iter().copied(), last)
}

/// The next piece; `None` at the end.
async fn next(subscription: &mut Subscription) -> Option<String> {
    let piece = timeout(LONG, poll_fn(|context| subscription.poll_next(context))).await.expect("in time")?;
    Some(String::from_utf8(piece.to_vec()).expect("text"))
}

/// The next piece that is no heartbeat.
async fn event(subscription: &mut Subscription) -> String {
    loop {
        match next(subscription).await.expect("not the end").as_str() {
            ":\n\n" => {}
            piece => return piece.to_owned(),
        }
    }
}

fn id(piece: &str) -> &str {
    piece.lines().find_map(|line| line.strip_prefix("id: ")).unwrap_or_else(|| panic!("no id in {piece:?}"))
}

#[tokio::test(start_paused = true)]
async fn events_reach_the_subscribers_of_their_channel_in_order() {
    with(settings(), |channels, hub| async move {
        let mut a = subscribe(&hub, &["a"], None).unwrap();
        let mut b = subscribe(&hub, &["b"], None).unwrap();
        assert!(event(&mut a).await.starts_with("retry: 2000\nid: "));
        assert!(event(&mut b).await.starts_with("retry: 2000\nid: "));
        let publisher = channels.clone();
        let waits = spawn_local(async move {
            let pieces = [event(&mut a).await, event(&mut a).await];
            (a, pieces)
        });
        sleep(Duration::from_secs(1)).await;
        // From another thread, as another worker does it.
        let ids = std::thread::spawn(move || {
            let one = publisher.publish("a", None, b"1").unwrap();
            (one, publisher.publish("a", Some("goal"), b"{\"x\": 2}").unwrap())
        });
        let ids = ids.join().unwrap();
        let (_a, pieces) = waits.await.unwrap();
        assert_eq!(pieces[0], format!("id: {}\ndata: 1\n\n", ids.0));
        assert_eq!(pieces[1], format!("id: {}\nevent: goal\ndata: {{\"x\": 2}}\n\n", ids.1));
        channels.publish("b", None, b"3").unwrap();
        assert!(event(&mut b).await.ends_with("data: 3\n\n"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_misses_nothing() {
    with(settings(), |channels, hub| async move {
        let mut first = subscribe(&hub, &["a"], None).unwrap();
        // Also before its first event.
        let start = event(&mut first).await;
        drop(first);
        let one = channels.publish("a", None, b"1").unwrap();
        channels.publish("a", None, b"2").unwrap();
        for (last, events) in [(id(&start), &["1", "2"][..]), (&one, &["2"])] {
            let mut again = subscribe(&hub, &["a"], Some(last)).unwrap();
            let start = event(&mut again).await;
            assert!(!start.contains("lost") && id(&start) == last, "{start}");
            for data in events {
                assert!(event(&mut again).await.contains(&format!("data: {data}\n")));
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_too_late_is_told() {
    with(settings(), |channels, hub| async move {
        let first = channels.publish("a", None, b"0").unwrap();
        let ids: Vec<String> = (1..=4).map(|_| channels.publish("a", None, b"1").unwrap()).collect();
        let future = format!("{}9", ids[3]);
        for last in [&*first, "another-3", "", "nonsense", &future] {
            let mut again = subscribe(&hub, &["a"], Some(last)).unwrap();
            let start = event(&mut again).await;
            assert!(start.contains("event: lost\n") && id(&start) == ids[3], "{last}: {start}");
            // It goes on with what comes now.
            channels.publish("b", None, b"1").unwrap();
        }
        assert!(!event(&mut subscribe(&hub, &["a"], Some(&ids[0])).unwrap()).await.contains("lost"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_is_told_and_ends() {
    with(settings(), |channels, hub| async move {
        let mut slow = subscribe(&hub, &["a"], None).unwrap();
        event(&mut slow).await;
        let ids: Vec<String> = (0..4).map(|_| channels.publish("a", None, b"1").unwrap()).collect();
        let told = event(&mut slow).await;
        assert_eq!(told, format!("id: {}\nevent: lost\ndata: {{}}\n\n", ids[3]));
        assert_eq!(next(&mut slow).await, None);
        // With that id it comes back to where the channel is.
        assert!(!event(&mut subscribe(&hub, &["a"], Some(id(&told))).unwrap()).await.contains("lost"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn several_channels_have_one_id() {
    with(settings(), |channels, hub| async move {
        let mut both = subscribe(&hub, &["a", "b"], None).unwrap();
        event(&mut both).await;
        channels.publish("a", None, b"1").unwrap();
        channels.publish("a", None, b"2").unwrap();
        channels.publish("b", Some("x"), b"3").unwrap();
        let pieces = [event(&mut both).await, event(&mut both).await, event(&mut both).await];
        let data: Vec<_> = pieces.iter().map(|piece| piece.split("data: ").nth(1).unwrap().trim()).collect();
        // A busy channel does not hide the other.
        assert_eq!(data, ["1", "3", "2"]);
        let mut again = subscribe(&hub, &["a", "b"], Some(id(&pieces[0]))).unwrap();
        assert!(id(&event(&mut again).await).ends_with("-1.0"));
        assert!(event(&mut again).await.ends_with("data: 2\n\n"));
        assert!(event(&mut again).await.ends_with("event: x\ndata: 3\n\n"));
        // An id of other channels names nothing here.
        let mut other = subscribe(&hub, &["a"], Some(id(&pieces[0]))).unwrap();
        assert!(event(&mut other).await.contains("lost"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bounds_refuse() {
    let most = Push {
        max_subscribers: 3,
        max_channel_subscribers: 2,
        max_channels: 2,
        max_channels_per_subscriber: 2,
        max_event: 4,
        ..settings()
    };
    with(most.clone(), |channels, hub| async move {
        let error = |names: &[&str]| subscribe(&hub, names, None).err().expect("refused");
        assert_eq!(error(&[]), SubscribeError::Count { count: 0, limit: 2 });
        assert_eq!(error(&["a", "b", "c"]), SubscribeError::Count { count: 3, limit: 2 });
        assert!(matches!(error(&[""]), SubscribeError::Name(_)) && matches!(error(&["a\n"]), SubscribeError::Name(_)));
        let mut kept = vec![subscribe(&hub, &["a"], None).unwrap(), subscribe(&hub, &["a"], None).unwrap()];
        assert_eq!(error(&["a"]), SubscribeError::ChannelSubscribers(2));
        // What a refused one had is taken back: the third may come.
        kept.push(subscribe(&hub, &["b"], None).unwrap());
        assert_eq!(error(&["b"]), SubscribeError::Subscribers(3));
        assert_eq!(channels.publish("c", None, b"1"), Err(PublishError::Channels(2)));
        assert_eq!(channels.publish("a", None, b"12345"), Err(PublishError::TooLarge { size: 5, limit: 4 }));
        for name in ["lost", "drain", "", "a\nb"] {
            assert!(matches!(channels.publish("a", Some(name), b"1"), Err(PublishError::Event(_))), "{name}");
        }
        kept.clear();
        assert!(subscribe(&hub, &["a", "b"], None).is_ok());
        channels.configure(Push { max_event: 5, ..most.clone() });
        assert!(channels.publish("a", None, b"12345").is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_quiet_subscribers_get_heartbeats() {
    with(settings(), |channels, hub| async move {
        let mut subscriber = subscribe(&hub, &["a"], None).unwrap();
        event(&mut subscriber).await;
        for _ in 0..5 {
            let before = Instant::now();
            assert_eq!(next(&mut subscriber).await.as_deref(), Some(":\n\n"));
            let waited = before.elapsed();
            assert!(waited >= Duration::from_secs(4) && waited <= Duration::from_secs(10), "{waited:?}");
        }
        for _ in 0..10 {
            sleep(Duration::from_secs(3)).await;
            channels.publish("a", None, b"1").unwrap();
            assert!(next(&mut subscriber).await.unwrap().contains("data: 1"));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn idle_channels_leave_and_their_ids_stay_apart() {
    with(Push { max_channels: 1, ..settings() }, |channels, hub| async move {
        let old = channels.publish("a", None, b"1").unwrap();
        let kept = subscribe(&hub, &["a"], None).unwrap();
        sleep(LONG).await;
        assert!(channels.publish("b", None, b"1").is_err(), "a channel with a subscriber stays");
        drop(kept);
        sleep(Duration::from_secs(290)).await;
        assert!(channels.publish("b", None, b"1").is_err());
        sleep(Duration::from_secs(30)).await;
        let new = channels.publish("b", None, b"1").unwrap();
        assert_ne!(old, new);
        // An id of a removed channel names no event of a later one.
        sleep(LONG).await;
        channels.publish("a", None, b"1").unwrap();
        let mut again = subscribe(&hub, &["a"], Some(&old)).unwrap();
        assert!(event(&mut again).await.contains("event: lost\n"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_all_and_spreads_their_return() {
    with(settings(), |channels, hub| async move {
        let mut all: Vec<_> = (0..20).map(|_| subscribe(&hub, &["a"], None).unwrap()).collect();
        for one in &mut all {
            event(one).await;
        }
        channels.publish("a", None, b"1").unwrap();
        hub.drain();
        let mut times = std::collections::HashSet::new();
        for one in &mut all {
            // What is in the log comes first.
            assert!(event(one).await.contains("data: 1"));
            let last = event(one).await;
            assert!(last.ends_with("event: drain\ndata: {}\n\n"), "{last}");
            let retry: u64 = last.lines().next().unwrap().strip_prefix("retry: ").unwrap().parse().unwrap();
            assert!((2000..=4000).contains(&retry));
            times.insert(retry);
            assert_eq!(next(one).await, None);
        }
        assert!(times.len() > 1);
        assert_eq!(subscribe(&hub, &["a"], None).err(), Some(SubscribeError::Draining));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn subscribers_hear_of_a_gap_within_the_retry_time_and_go_on() {
    with(settings(), |channels, hub| async move {
        let mut all: Vec<_> = (0..50).map(|_| subscribe(&hub, &["a", "b"], None).unwrap()).collect();
        for one in &mut all {
            event(one).await;
        }
        channels.publish("a", None, b"0").unwrap();
        channels.add_gap(|name| name == "a");
        channels.publish("a", None, b"1").unwrap();
        channels.publish("b", None, b"2").unwrap();
        let began = Instant::now();
        let told = all.into_iter().map(|mut one| {
            spawn_local(async move {
                // What is whole does not wait.
                assert!(event(&mut one).await.ends_with("data: 2\n\n"));
                assert_eq!(began.elapsed(), Duration::ZERO);
                let lost = event(&mut one).await;
                assert!(lost.ends_with("event: lost\ndata: {}\n\n"), "{lost}");
                let waited = began.elapsed();
                assert!(event(&mut one).await.ends_with("data: 1\n\n"));
                (waited, id(&lost).to_owned())
            })
        });
        let told: Vec<_> = told.collect();
        let mut times = std::collections::HashSet::new();
        for one in told {
            let (waited, place) = one.await.unwrap();
            assert!(waited <= Duration::from_secs(2) + Duration::from_millis(1), "{waited:?}");
            times.insert(waited);
            // Who comes back from there hears of it no more.
            let mut again = subscribe(&hub, &["a", "b"], Some(&place)).unwrap();
            assert!(!event(&mut again).await.contains("lost"));
        }
        assert!(times.len() > 25, "{times:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_away_during_a_gap_is_told() {
    with(settings(), |channels, hub| async move {
        let before = channels.publish("a", None, b"0").unwrap();
        channels.add_gap(|_| true);
        let mut again = subscribe(&hub, &["a"], Some(&before)).unwrap();
        let start = event(&mut again).await;
        assert!(start.contains("event: lost\n"), "{start}");
        drop(again);
        // Also if the channel was removed meanwhile, whether a gap or an event was missed.
        for missed in [true, false] {
            let last = channels.publish("a", None, b"0").unwrap();
            drop(subscribe(&hub, &["a"], Some(&last)).unwrap());
            sleep(LONG).await;
            if missed {
                channels.add_gap(|_| true);
            } else {
                assert_eq!(channels.receive("a", None, b"1"), Ok(false));
            }
            let mut again = subscribe(&hub, &["a"], Some(&last)).unwrap();
            let start = event(&mut again).await;
            assert!(start.contains("event: lost\n"), "{start}");
            drop(again);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_of_others_reach_subscribers_and_make_no_channels() {
    with(settings(), |channels, hub| async move {
        assert_eq!(channels.receive("a", None, b"1"), Ok(false));
        let mut one = subscribe(&hub, &["a"], None).unwrap();
        let start = event(&mut one).await;
        assert_eq!(channels.receive("a", Some("goal"), b"2"), Ok(true));
        assert!(event(&mut one).await.ends_with("event: goal\ndata: 2\n\n"));
        assert!(matches!(channels.receive("a", Some("lost"), b"1"), Err(PublishError::Event(_))));
        drop(one);
        // They are in the log for a client that comes back.
        let mut one = subscribe(&hub, &["a"], Some(id(&start))).unwrap();
        assert!(!event(&mut one).await.contains("lost"));
        assert!(event(&mut one).await.ends_with("data: 2\n\n"));
        drop(one);
        // But they do not keep the channel.
        for _ in 0..40 {
            sleep(Duration::from_secs(10)).await;
            let _ = channels.receive("a", None, b"3");
        }
        assert_eq!(channels.receive("a", None, b"3"), Ok(false));
    })
    .await;
}

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<(String, Vec<u8>)>>);

impl Relay for Kept {
    fn encode(&self, channel: &str, name: Option<&str>, data: &[u8]) -> Vec<u8> {
        [channel.as_bytes(), name.unwrap_or("-").as_bytes(), data].join(&b' ')
    }

    fn send(&self, channel: &str, message: Vec<u8>) {
        self.0.lock().unwrap().push((channel.to_owned(), message));
    }

    fn wake(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_relay_gets_what_is_published_here_and_only_that() {
    with(settings(), |channels, _hub| async move {
        let kept = Arc::new(Kept::default());
        channels.set_relay(Some(kept.clone()));
        channels.publish("a", Some("goal"), b"1").unwrap();
        assert!(channels.publish("a", Some("lost"), b"1").is_err());
        channels.receive("a", None, b"2").unwrap();
        channels.set_relay(None);
        channels.publish("a", None, b"3").unwrap();
        assert_eq!(*kept.0.lock().unwrap(), [("a".to_owned(), b"a goal 1".to_vec())]);
    })
    .await;
}
