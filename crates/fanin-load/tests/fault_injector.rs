//! Each fault, seen from the client's side of the injector. Time is paused: delays are exact and cost nothing.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use fanin_load::fault_injector::{Fault, FaultInjector, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const LONG: Duration = Duration::from_secs(3600);

/// Answers each byte with a hundred bytes counted up from it, and ends when the client does.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while let Ok(first) = stream.read_u8().await {
                    if stream.write_all(&answer(first)).await.is_err() {
                        return;
                    }
                }
                stream.write_all(b"end").await.ok();
            });
        }
    });
    addr
}

fn answer(first: u8) -> Vec<u8> {
    (0..100).map(|i| first.wrapping_add(i)).collect()
}

async fn injector() -> FaultInjector {
    FaultInjector::start(upstream().await, 7).await.unwrap()
}

async fn connect(injector: &FaultInjector) -> TcpStream {
    TcpStream::connect(injector.addr()).await.unwrap()
}

async fn ask(stream: &mut TcpStream, first: u8) -> std::io::Result<Vec<u8>> {
    stream.write_u8(first).await?;
    let mut got = vec![0; 100];
    stream.read_exact(&mut got).await?;
    Ok(got)
}

#[tokio::test(start_paused = true)]
async fn without_a_fault_all_passes_and_is_counted() {
    let injector = injector().await;
    let mut stream = connect(&injector).await;
    assert_eq!(ask(&mut stream, 1).await.unwrap(), answer(1));
    assert_eq!(ask(&mut stream, 200).await.unwrap(), answer(200));
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"end", "one direction may end before the other");
    assert_eq!((injector.accepted(), injector.bytes_requested(), injector.bytes_answered()), (1, 2, 203));
}

#[tokio::test(start_paused = true)]
async fn refused_connections_are_refused_by_the_kernel_until_it_passes() {
    let injector = injector().await;
    let mut before = connect(&injector).await;
    ask(&mut before, 1).await.unwrap();
    injector.set(Fault::Refuse);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(TcpStream::connect(injector.addr()).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut before, 2).await.unwrap(), answer(2), "a connection that there was goes on");
    injector.set(Fault::Pass);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(ask(&mut connect(&injector).await, 3).await.unwrap(), answer(3));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_host_says_nothing_until_it_is_back() {
    let injector = injector().await;
    let mut stream = connect(&injector).await;
    ask(&mut stream, 1).await.unwrap();
    injector.set(Fault::Hang);
    assert!(timeout(LONG, ask(&mut stream, 2)).await.is_err());
    stream.shutdown().await.unwrap();
    assert!(timeout(LONG, stream.read_u8()).await.is_err(), "not even the end passes");
    injector.set(Fault::Pass);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [answer(2), b"end".to_vec()].concat());
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_seen_at_once_on_old_and_new_connections() {
    let injector = injector().await;
    let mut stream = connect(&injector).await;
    ask(&mut stream, 1).await.unwrap();
    injector.set(Fault::Reset);
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(connect(&injector).await.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    injector.set(Fault::Pass);
    let mut stream = connect(&injector).await;
    ask(&mut stream, 1).await.unwrap();
    injector.reset_connections();
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(ask(&mut connect(&injector).await, 5).await.unwrap(), answer(5), "once means once");
    assert_eq!(injector.accepted(), 4);
}

#[tokio::test(start_paused = true)]
async fn answers_are_delayed_sliced_and_slowed() {
    let injector = injector().await;
    let mut stream = connect(&injector).await;
    ask(&mut stream, 1).await.unwrap();
    for (fault, least) in [
        (Fault::Delay(LONG), LONG),
        // 100 bytes in pieces of 30 have three pauses between them.
        (Fault::Slice { bytes: 30, pause: LONG }, 3 * LONG),
        (Fault::Slice { bytes: 0, pause: Duration::from_secs(1) }, Duration::from_secs(99)),
        // 10 bytes a tick of 10 ms: nine ticks before the last.
        (Fault::Bandwidth(1000), Duration::from_millis(90)),
        (Fault::Bandwidth(1), Duration::from_secs(99)),
    ] {
        injector.set(fault);
        let start = Instant::now();
        assert_eq!(ask(&mut stream, 9).await.unwrap(), answer(9), "{fault:?}");
        assert!((least..least * 2).contains(&start.elapsed()), "{fault:?}: {:?}", start.elapsed());
        injector.set(Fault::Pass);
        // The pause after the last piece belongs to the fault.
        ask(&mut stream, 0).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn corruption_flips_bits_as_its_seed_says() {
    let upstream = upstream().await;
    let mut seen = Vec::new();
    for seed in [1, 1, 2] {
        let injector = FaultInjector::start(upstream, seed).await.unwrap();
        injector.set(Fault::Corrupt { one_in: 10 });
        let got = ask(&mut connect(&injector).await, 1).await.unwrap();
        let flips: Vec<u32> = got.iter().zip(answer(1)).map(|(a, b)| (a ^ b).count_ones()).collect();
        assert!(flips.iter().all(|bits| *bits <= 1));
        assert!((1..50).contains(&flips.iter().sum::<u32>()), "{flips:?}");
        seen.push(got);
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_the_connection_in_the_middle_of_an_answer() {
    let injector = injector().await;
    let mut stream = connect(&injector).await;
    ask(&mut stream, 1).await.unwrap();
    injector.set(Fault::Cut(130));
    assert_eq!(ask(&mut stream, 2).await.unwrap(), answer(2));
    stream.write_u8(3).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, &answer(3)[..30], "and the end is an orderly one");
}

#[tokio::test(start_paused = true)]
async fn steps_are_played_in_order_and_end_in_peace() {
    let injector = injector().await;
    let second = Duration::from_secs(1);
    let steps = [Fault::Hang, Fault::Delay(second), Fault::Refuse].map(|fault| Step { fault, lasts: second });
    tokio::spawn(injector.play(steps.to_vec()));
    let mut seen = Vec::new();
    for _ in 0..4 {
        tokio::time::sleep(second / 2).await;
        seen.push(injector.fault());
        tokio::time::sleep(second / 2).await;
    }
    assert_eq!(seen, [Fault::Hang, Fault::Delay(second), Fault::Refuse, Fault::Pass]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_gate_lets_go_of_its_connections_and_its_port() {
    let injector = injector().await;
    let addr = injector.addr();
    let mut stream = connect(&injector).await;
    ask(&mut stream, 1).await.unwrap();
    assert_eq!(injector.connections(), 1);
    drop(injector);
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(TcpStream::connect(addr).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
