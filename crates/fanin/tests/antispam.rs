//! examples/antispam as a user runs it: two mails, and each model says of them what LightGBM says.
#![cfg(unix)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Serving, TIMEOUT};
use serde_json::Value;

fn check(serving: &Serving, mail: &str) -> Value {
    let mut stream =
        TcpStream::connect_timeout(&serving.listen.parse().expect("an address"), TIMEOUT).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let length = mail.len();
    write!(
        stream,
        "POST /check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{mail}"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}"))
}

#[test]
fn ten_models_say_of_a_mail_what_lightgbm_says() {
    let example = common::root().join("examples/antispam");
    let serving = Serving::with(&example, &[("LISTEN", "127.0.0.1:0"), ("ADMIN", "off"), ("MODELS", "127.0.0.1:0")]);
    let read = |name: &str| std::fs::read_to_string(example.join("mails").join(name)).expect("it is there");
    let expected: Value = serde_json::from_str(&read("expected.json")).expect("JSON");
    for (mail, spam) in [("spam", true), ("ham", false)] {
        let text = read(&format!("{mail}.txt"));
        // The route's 200 ms are for a release build on a machine of its own: a model that is late has no say here, so ask again.
        let answer = (0..50)
            .map(|_| check(&serving, &text))
            .find(|answer| answer["models"].as_object().is_some_and(|said| said.len() == 10))
            .expect("all ten answer");
        assert_eq!(answer["spam"], spam, "{answer}");
        assert_eq!(answer["models"], expected[mail], "{mail}");
    }
    serving.signal("-TERM");
    assert_eq!(serving.end().0, Some(0));
}
