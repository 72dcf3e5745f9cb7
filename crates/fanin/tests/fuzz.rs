//! The corpora of `fuzz/` and what chance makes of them: bounded runs of what the fuzz targets do for as long as one likes.

use std::path::Path;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).expect("the corpus is in the checkout");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    files.sort();
    files.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    /// A few bytes changed, a piece gone, doubled or from elsewhere, the rest cut off.
    fn changes(&mut self, all: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = all[self.below(all.len())].clone();
        for _ in 0..=self.below(4) {
            let (at, length) = (self.below(bytes.len()), self.below(24));
            let end = (at + length).min(bytes.len());
            match self.below(7) {
                0 => drop(bytes.drain(at..end)),
                1 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                2 => {
                    let other = &all[self.below(all.len())];
                    let from = self.below(other.len());
                    let piece = other[from..(from + length).min(other.len())].to_vec();
                    bytes.splice(at..end, piece);
                }
                3 => bytes.truncate(at),
                4 => {
                    let numbers: [&[u8]; 6] = [b"-1", b"18446744073709551615", b"1e308", b"NaN", b"null", b"[]"];
                    bytes.splice(at..at, numbers[self.below(numbers.len())].iter().copied());
                }
                _ if at < bytes.len() => bytes[at] = self.below(256) as u8,
                _ => {}
            }
        }
        bytes
    }
}

/// Gives how many of the corpus were taken: a corpus that is refused as a whole tries nothing.
fn run(target: &str, cases: usize, feed: impl Fn(&[u8]) -> bool) -> usize {
    let corpus = corpus(target);
    let taken = corpus.iter().filter(|bytes| feed(bytes)).count();
    let mut random = Random(7);
    for _ in 0..cases {
        feed(&random.changes(&corpus));
    }
    taken
}

#[test]
fn model_files() {
    assert_eq!(run("model", 4000, |bytes| fanin_model::fuzzing::model(bytes) > 0), corpus("model").len());
}

#[test]
fn messages_to_models() {
    assert_eq!(run("message", 20_000, fanin_model::fuzzing::message), corpus("message").len());
}

#[test]
fn bodies_to_models() {
    assert_eq!(run("body", 20_000, fanin_model::fuzzing::json_request), corpus("body").len());
}

#[test]
fn headers_of_the_proxy_protocol() {
    assert_eq!(run("proxy", 20_000, fanin_server::fuzzing::proxy_header), corpus("proxy").len());
}

#[test]
fn clients_that_proxies_name() {
    assert_eq!(run("forwarded", 20_000, fanin_server::fuzzing::forwarded), corpus("forwarded").len());
}

#[test]
fn headers_of_a_trace() {
    assert_eq!(run("trace", 20_000, fanin_tracecontext::fuzzing::headers), corpus("trace").len());
}

#[test]
fn ids_of_last_events() {
    assert_eq!(run("event_id", 20_000, fanin_push::fuzzing::event_id), corpus("event_id").len());
}

#[test]
fn tokens_and_keys_of_issuers() {
    assert_eq!(run("token", 20_000, fanin_auth::fuzzing::token_or_keys), corpus("token").len());
}

#[test]
fn certificates_of_clients() {
    let taken = run("client_certificate", 20_000, fanin_tls::fuzzing::client_certificate);
    assert_eq!(taken, corpus("client_certificate").len());
}

#[test]
fn access_logs_to_size_by() {
    assert_eq!(run("access_log", 20_000, fanin_lab::fuzzing::access_log), corpus("access_log").len());
}

#[test]
fn configuration_files() {
    assert_eq!(run("config", 5000, fanin_config::fuzzing::config), corpus("config").len());
}

#[test]
fn answers_over_http() {
    assert_eq!(run("answer", 20_000, fanin_upstream::fuzzing::answer), corpus("answer").len());
}

#[test]
fn requests_to_the_server() {
    assert_eq!(run("requests", 20_000, fanin_server::fuzzing::requests), corpus("requests").len());
}

#[test]
fn forms_that_clients_send() {
    assert_eq!(run("form", 20_000, fanin_flow::fuzzing::form), corpus("form").len());
}

#[test]
fn cookies_that_clients_send() {
    assert_eq!(run("cookies", 20_000, fanin_flow::fuzzing::cookies), corpus("cookies").len());
}

#[test]
fn encodings_and_tags_that_clients_accept() {
    assert_eq!(run("accept", 20_000, fanin_server::fuzzing::accept), corpus("accept").len());
}

#[test]
fn directives_of_caches_and_ranges() {
    assert_eq!(run("caching", 20_000, fanin_server::fuzzing::caching), corpus("caching").len());
}

#[test]
fn frames_of_websocket_clients() {
    let corpus = corpus("websocket");
    // Those that neither close nor are refused.
    let open = run("websocket", 20_000, fanin_websocket::fuzzing::client);
    assert_eq!(open, 3, "of {}", corpus.len());
}

#[test]
fn calls_of_methods() {
    assert_eq!(run("calls", 20_000, fanin_server::fuzzing::calls), corpus("calls").len());
}

#[test]
fn reflection_of_services() {
    assert_eq!(run("reflection", 20_000, fanin_grpc::fuzzing::conversation), corpus("reflection").len());
}

#[test]
fn queries_and_headers_of_requests() {
    assert_eq!(run("query", 20_000, fanin_flow::fuzzing::query), corpus("query").len());
    assert_eq!(run("headers", 20_000, fanin_flow::fuzzing::headers), corpus("headers").len());
}

#[test]
fn chunked_bodies() {
    assert_eq!(run("chunked", 20_000, fanin_upstream::fuzzing::chunked), corpus("chunked").len());
}

#[test]
fn messages_of_grpc() {
    let frames = |bytes: &[u8]| fanin_upstream::fuzzing::frames(bytes) & fanin_model::fuzzing::frame(bytes);
    assert_eq!(run("frames", 20_000, frames), corpus("frames").len());
}

#[test]
fn messages_of_served_methods() {
    assert_eq!(run("transcode", 20_000, fanin_upstream::fuzzing::transcode), corpus("transcode").len());
}

#[test]
fn messages_of_other_instances() {
    assert_eq!(run("broker", 20_000, fanin_broker::fuzzing::message), corpus("broker").len());
}

#[test]
fn compressed_answers() {
    let corpus = corpus("content_encoding");
    assert_eq!(run("content_encoding", 5000, fanin_upstream::fuzzing::content_encoding), corpus.len());
}

#[test]
fn values_of_postgres() {
    let value = |bytes: &[u8]| {
        let typed = bytes.split_first_chunk();
        typed.is_some_and(|(number, bytes)| fanin_upstream::fuzzing::value(u16::from_le_bytes(*number), bytes))
    };
    assert_eq!(run("value", 20_000, value), corpus("value").len());
}

#[test]
fn messages_of_postgres() {
    assert_eq!(run("postgres", 5000, fanin_upstream::fuzzing::messages), corpus("postgres").len());
}

#[test]
fn values_of_mysql() {
    assert_eq!(run("mysql_value", 20_000, fanin_upstream::fuzzing::mysql_value), corpus("mysql_value").len());
}

#[test]
#[cfg(feature = "lsp")]
fn messages_of_editors() {
    assert_eq!(run("lsp", 3000, fanin_lsp::fuzzing::messages), corpus("lsp").len());
}

#[test]
fn files_of_recorded_requests() {
    assert_eq!(run("dump", 5000, fanin_trace::fuzzing::dump), corpus("dump").len());
}

#[test]
fn recordings() {
    assert_eq!(run("recording", 3000, fanin_recording::fuzzing::file), corpus("recording").len());
    run("recording", 1000, fanin_recording::fuzzing::scrub);
}
