//! Errors, trailers and the end of a stream in Connect.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::{HeaderMap, HeaderName};
use serde_json::{Map, Value, json};

use super::status::Status;

/// The flag of the last frame of a stream.
const END: u8 = 0x02;

/// An error as JSON.
pub(super) fn error(status: &Status) -> Vec<u8> {
    error_value(status).to_string().into_bytes()
}

fn error_value(status: &Status) -> Value {
    let mut error = json!({ "code": status.name() });
    if !status.message.is_empty() {
        error["message"] = status.message.as_str().into();
    }
    let details = status.details.iter().map(|detail| {
        let mut one = json!({ "type": detail.kind, "value": STANDARD_NO_PAD.encode(&detail.value) });
        if let Some(shown) = detail.json.as_ref().and_then(|json| serde_json::from_slice::<Value>(json).ok()) {
            one["debug"] = shown;
        }
        one
    });
    let details: Vec<Value> = details.collect();
    if !details.is_empty() {
        error["details"] = details.into();
    }
    error
}

/// The last frame of a stream: an error if there is one, and the trailers.
pub(super) fn end_frame(status: &Status) -> Vec<u8> {
    let mut end = Map::new();
    if status.code != 0 {
        end.insert("error".to_owned(), error_value(status));
    }
    if let Some(trailers) = &status.trailers {
        let mut metadata = Map::new();
        for name in trailers.keys() {
            let values = trailers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            metadata.insert(name.to_string(), values.map(|value| Value::from(value.into_owned())).collect());
        }
        end.insert("metadata".to_owned(), metadata.into());
    }
    let text = Value::from(end).to_string();
    let mut frame = Vec::with_capacity(5 + text.len());
    frame.push(END);
    // What flows set is far below 4 GB.
    frame.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// Trailers of a call with one message are headers with a prefix.
pub(super) fn add_trailers(trailers: &HeaderMap, headers: &mut HeaderMap) {
    for (name, value) in trailers {
        // A prefix leaves the name valid.
        if let Ok(name) = HeaderName::try_from(format!("trailer-{name}")) {
            headers.append(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::Detail;
    use super::*;

    #[test]
    fn errors_and_ends_are_written() {
        let detail = Detail { kind: "a.B".to_owned(), value: vec![8, 1].into(), json: Some("{\"c\":1}".into()) };
        let mut status = Status { details: vec![detail], ..Status::new(9, "no") };
        let mut trailers = HeaderMap::new();
        trailers.append("x-a", "1".parse().unwrap());
        trailers.append("x-a", "2".parse().unwrap());
        status.trailers = Some(Box::new(trailers.clone()));
        let error = json!({
            "code": "failed_precondition", "message": "no",
            "details": [{ "type": "a.B", "value": "CAE", "debug": { "c": 1 } }],
        });
        let text = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(text(&super::error(&status)), error);
        let frame = end_frame(&status);
        assert_eq!((frame[0], frame[4] as usize), (2, frame.len() - 5));
        assert_eq!(text(&frame[5..]), json!({ "error": error, "metadata": { "x-a": ["1", "2"] } }));
        assert_eq!(end_frame(&Status::default()), b"\x02\0\0\0\x02{}");
        let mut headers = HeaderMap::new();
        add_trailers(&trailers, &mut headers);
        assert_eq!(headers.get_all("trailer-x-a").iter().count(), 2);
    }
}
