//! Timeouts of a connection, in time that the tests set.

use super::*;

fn conn() -> (ConnectionState, Rc<Cell<Instant>>, fanin_config::Server) {
    let now = Rc::new(Cell::new(Instant::now()));
    let conn = ConnectionState::new("127.0.0.1:1".parse().unwrap(), now.clone(), Arc::default());
    (conn, now, fanin_config::Server::default())
}

fn after(conn: &ConnectionState, now: &Cell<Instant>, wait: Duration, server: &fanin_config::Server) -> Option<Closed> {
    now.set(now.get() + wait);
    conn.check_timeouts(now.get(), server, false)
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn idle_and_head_have_timeouts_of_their_own() {
    let (conn, now, server) = conn();
    assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
    conn.on_read();
    assert_eq!(after(&conn, &now, server.header_timeout, &server), None);
    // More bytes of the same head do not prolong it.
    conn.on_read();
    assert_eq!(after(&conn, &now, MS, &server), Some(Closed::Header));
    assert_eq!(after(&conn, &now, MS, &server), None, "reported once");
}

#[test]
fn it_is_between_requests_only_if_one_head_arrived_at_a_time() {
    fn ends_one(conn: &ConnectionState) {
        conn.on_request_start();
        conn.on_request_end();
        assert!(!conn.is_between_requests(), "the response is still to be written");
        conn.on_flush();
    }
    let begun = |reads: &[&[u8]]| {
        let conn = conn().0;
        reads.iter().for_each(|bytes| conn.on_head_bytes(bytes));
        assert!(!conn.is_between_requests());
        ends_one(&conn);
        conn
    };
    assert!(conn().0.is_between_requests());
    assert!(begun(&[b"GET\r\n\r\n"]).is_between_requests());
    assert!(begun(&[b"GE", b"T\r\n\r\n"]).is_between_requests());
    // A head whose end is not seen may have more bytes behind it.
    assert!(!begun(&[b"GET\r\n", b"\r\n"]).is_between_requests());
    let half_behind = begun(&[b"GET\r\n\r\nGE"]);
    assert!(!half_behind.is_between_requests());
    half_behind.on_head_bytes(b"T\r\n\r\n");
    ends_one(&half_behind);
    assert!(!half_behind.is_between_requests(), "for good");
    let two = begun(&[b"GET\r\n\r\nGET\r\n\r\n"]);
    ends_one(&two);
    assert!(!two.is_between_requests());
    let with_body = begun(&[b"GET\r\n\r\n"]);
    with_body.on_head_bytes(b"GET\r\n\r\n");
    with_body.on_request_body();
    ends_one(&with_body);
    assert!(!with_body.is_between_requests());
    let ahead = begun(&[b"GET\r\n\r\n"]);
    ahead.on_head_bytes(b"GET\r\n\r\n");
    ahead.on_request_start();
    ahead.on_read();
    ahead.on_request_end();
    ahead.on_flush();
    assert!(!ahead.is_between_requests());
}

#[test]
fn a_running_request_is_not_timed_out_here() {
    let (conn, now, server) = conn();
    conn.on_read();
    conn.on_request_start();
    assert_eq!(after(&conn, &now, server.idle_timeout * 10, &server), None);
    conn.on_request_end();
    assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
    assert_eq!(after(&conn, &now, MS, &server), Some(Closed::Idle));
}

#[test]
fn a_client_that_reads_nothing_is_closed_even_while_it_sends_requests() {
    let (conn, now, server) = conn();
    conn.set_http2();
    conn.on_request_start();
    conn.on_write_blocked();
    assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
    conn.on_write_blocked();
    assert_eq!(after(&conn, &now, MS, &server), Some(Closed::Write));
}

#[test]
fn a_client_that_takes_less_than_the_minimum_rate_is_closed() {
    let (conn, now, server) = conn();
    let window = server.slow_reader_timeout.unwrap();
    let least = server.min_read_rate * window.as_secs() as usize;
    let respond = |bytes| {
        conn.on_request_start();
        conn.on_request_end();
        conn.on_response_start(bytes);
    };
    respond(10 * least);
    assert_eq!(after(&conn, &now, MS, &server), None);
    // Enough in each window.
    for _ in 0..3 {
        conn.on_bytes_taken(least);
        assert_eq!(after(&conn, &now, window + MS, &server), None);
    }
    // Writes that take nothing of a response, such as answers to PING, are no progress.
    conn.on_bytes_taken(least - 1);
    conn.on_write();
    assert_eq!(after(&conn, &now, window + MS, &server), Some(Closed::SlowReader));
}

#[test]
fn a_client_that_has_taken_all_may_be_idle() {
    let (conn, now, mut server) = conn();
    let window = server.slow_reader_timeout.unwrap();
    conn.on_response_start(5);
    conn.on_bytes_taken(2);
    conn.on_response_end(3);
    assert_eq!(after(&conn, &now, window + MS, &server), None);
    // The time without a response is not the next one's.
    conn.on_response_start(5);
    assert_eq!(after(&conn, &now, window / 2, &server), None);
    server.slow_reader_timeout = None;
    assert_eq!(after(&conn, &now, window * 2, &server), None);
}

#[test]
fn progress_of_a_download_is_not_idleness() {
    let (conn, now, server) = conn();
    conn.on_request_start();
    conn.on_request_end();
    for _ in 0..5 {
        assert_eq!(after(&conn, &now, server.idle_timeout, &server), None);
        conn.on_write();
    }
}
