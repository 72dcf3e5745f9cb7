//! What a call sends: its messages out of the body, or out of the query of a GET.

use std::borrow::Cow;
use std::io::Read;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};
use bytes::Bytes;
use flate2::bufread::GzDecoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName};
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use super::status::Status;
use super::{Call, Codec, Protocol};

/// Bytes before each message of a stream: flags, and its length.
pub const PREFIX: usize = 5;

const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const CONNECT_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
const CONNECT_ACCEPT: HeaderName = HeaderName::from_static("connect-accept-encoding");
const CONNECT_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");

/// Base64 for URLs, with or without padding.
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The compression of a call's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
}

/// How the messages of a call are read.
#[derive(Debug)]
pub struct Reader {
    call: Call,
    encoding: Encoding,
    /// The message of a GET.
    from_query: Option<Vec<u8>>,
}

impl Call {
    /// How the messages of a call are read.
    ///
    /// # Errors
    /// Something in its head that is wrong, or not understood.
    pub fn reader(self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Reader, Status> {
        if method != Method::POST {
            return Reader::of_query(uri.query().unwrap_or_default());
        }
        let is_connect = matches!(self.protocol, Protocol::Connect | Protocol::ConnectStream);
        if is_connect && headers.get(CONNECT_VERSION).is_some_and(|version| version != "1") {
            return Err(Status::new(INVALID_ARGUMENT, "the only connect-protocol-version is 1"));
        }
        if self.codec == Codec::Unknown {
            return Err(Status::new(UNIMPLEMENTED, "the messages must be protobuf or JSON"));
        }
        let name = match self.protocol {
            Protocol::Connect => CONTENT_ENCODING,
            Protocol::ConnectStream => CONNECT_ENCODING,
            _ => GRPC_ENCODING,
        };
        let encoding = encoding(headers.get(name).map_or(&b"identity"[..], |value| value.as_bytes()))?;
        Ok(Reader { call: self, encoding, from_query: None })
    }

    /// Whether the client understands gzip.
    pub fn accepts_gzip(self, headers: &HeaderMap) -> bool {
        let name = match self.protocol {
            Protocol::Connect => ACCEPT_ENCODING,
            Protocol::ConnectStream => CONNECT_ACCEPT,
            _ => GRPC_ACCEPT,
        };
        let lists = headers.get_all(name).iter().filter_map(|list| list.to_str().ok());
        lists.flat_map(|list| list.split(',')).any(|one| {
            let (name, quality) = one.split_once(';').unwrap_or((one, ""));
            let quality = quality.trim().strip_prefix("q=").and_then(|quality| quality.parse::<f32>().ok());
            name.trim().eq_ignore_ascii_case("gzip") && quality.is_none_or(|quality| quality > 0.0)
        })
    }
}

impl Reader {
    /// The call; that of a GET has the codec that its query names.
    pub fn call(&self) -> Call {
        self.call
    }

    /// Bytes that the messages of a body may take, compressed ones included.
    pub fn bound(&self, body: &Bytes, max: usize) -> usize {
        if self.encoding == Encoding::Gzip { max.max(body.len()) } else { body.len() }
    }

    fn of_query(query: &str) -> Result<Reader, Status> {
        let bad = |what: &str| Status::new(INVALID_ARGUMENT, what);
        let (mut codec, mut compressed, mut is_base64, mut message) = (None, Encoding::Identity, false, None);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = || decode(value).ok_or_else(|| bad("the query is not encoded correctly"));
            match name {
                "connect" if value != "v1" => return Err(bad("the only version in the query is connect=v1")),
                "encoding" => {
                    codec = match value {
                        "json" => Some(Codec::Json),
                        "proto" => Some(Codec::Proto),
                        _ => return Err(bad("encoding in the query must be json or proto")),
                    }
                }
                "compression" => compressed = encoding(&decoded()?)?,
                "base64" => {
                    is_base64 = match value {
                        "1" => true,
                        "0" | "" => false,
                        _ => return Err(bad("base64 in the query must be 1 or 0")),
                    }
                }
                "message" => message = Some(decoded()?.into_owned()),
                _ => {}
            }
        }
        let codec = codec.ok_or_else(|| bad("the query has no encoding; it must be json or proto"))?;
        let message = message.ok_or_else(|| bad("the query has no message"))?;
        let message = match is_base64 {
            true => URL_SAFE.decode(&message).map_err(|_| bad("message in the query is no base64"))?,
            false => message,
        };
        let call = Call { protocol: Protocol::Connect, codec };
        Ok(Reader { call, encoding: compressed, from_query: Some(message) })
    }

    /// The messages, decompressed: exactly one, unless the method takes a stream.
    ///
    /// # Errors
    /// What is wrong with the body, or a message has more than `max` bytes.
    pub fn read(self, body: Bytes, max: usize, takes_stream: bool) -> Result<Vec<Bytes>, Status> {
        if let Some(message) = self.from_query {
            return Ok(vec![plain(message.into(), self.encoding, max)?]);
        }
        let body = match self.call.protocol {
            Protocol::Connect => return Ok(vec![plain(body, self.encoding, max)?]),
            Protocol::GrpcWebText => {
                from_text(&body).ok_or_else(|| Status::new(INVALID_ARGUMENT, "the body is no base64"))?
            }
            _ => body,
        };
        let mut messages = Vec::new();
        let mut rest = body;
        while let Some(message) = next(&mut rest, self.encoding, max)? {
            messages.push(message);
            if messages.len() > 1 && !takes_stream {
                return Err(Status::new(UNIMPLEMENTED, "the call has more than one message"));
            }
        }
        if messages.is_empty() && !takes_stream {
            return Err(Status::new(UNIMPLEMENTED, "the call has no message"));
        }
        Ok(messages)
    }
}

/// A form-encoded value.
fn decode(value: &str) -> Option<Cow<'_, [u8]>> {
    let spaced: Cow<'_, str> = if value.contains('+') { value.replace('+', " ").into() } else { value.into() };
    let well_formed = |text: &str| {
        let bytes = text.as_bytes();
        let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || (is_hex(at + 1) && is_hex(at + 2)))
    };
    if !well_formed(&spaced) {
        return None;
    }
    Some(percent_decode_str(&spaced).collect::<Vec<u8>>().into())
}

fn encoding(name: &[u8]) -> Result<Encoding, Status> {
    match name {
        b"identity" | b"" => Ok(Encoding::Identity),
        b"gzip" => Ok(Encoding::Gzip),
        _ => Err(Status::new(UNIMPLEMENTED, "the only compression that is understood is gzip")),
    }
}

/// The next message of a stream; `None` at its end.
fn next(rest: &mut Bytes, encoding: Encoding, max: usize) -> Result<Option<Bytes>, Status> {
    if rest.is_empty() {
        return Ok(None);
    }
    let cut_off = || Status::new(INVALID_ARGUMENT, "the message is cut off");
    let prefix: [u8; PREFIX] = *rest.first_chunk().ok_or_else(cut_off)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    if length > max {
        return Err(too_large(max));
    }
    let encoding = match (prefix[0], encoding) {
        (0, _) => Encoding::Identity,
        (1, Encoding::Gzip) => Encoding::Gzip,
        (1, Encoding::Identity) => {
            return Err(Status::new(INTERNAL, "the message is compressed, and no header says how"));
        }
        _ => return Err(Status::new(INVALID_ARGUMENT, "the flags of a message are neither 0 nor 1")),
    };
    if rest.len() < PREFIX + length {
        return Err(cut_off());
    }
    let message = rest.slice(PREFIX..PREFIX + length);
    *rest = rest.slice(PREFIX + length..);
    plain(message, encoding, max).map(Some)
}

/// A message, decompressed.
fn plain(message: Bytes, encoding: Encoding, max: usize) -> Result<Bytes, Status> {
    // An empty message may be left as it is.
    if encoding == Encoding::Identity || message.is_empty() {
        return if message.len() > max { Err(too_large(max)) } else { Ok(message) };
    }
    let mut plain = Vec::new();
    let mut decoder = GzDecoder::new(&message[..]);
    let read = decoder.by_ref().take(max.saturating_add(1) as u64).read_to_end(&mut plain);
    read.map_err(|_| Status::new(INVALID_ARGUMENT, "the message is no gzip"))?;
    if plain.len() > max {
        return Err(too_large(max));
    }
    if !decoder.into_inner().is_empty() {
        return Err(Status::new(INVALID_ARGUMENT, "bytes follow the compressed message"));
    }
    Ok(plain.into())
}

fn too_large(max: usize) -> Status {
    Status::new(RESOURCE_EXHAUSTED, format!("the message has more than {max} bytes (max_body)"))
}

/// The bytes of a gRPC-Web text, which may be several texts one after the other, each with its padding.
fn from_text(text: &[u8]) -> Option<Bytes> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut rest = text;
    while !rest.is_empty() {
        // Padding ends a text, at a multiple of four.
        let end = match rest.iter().position(|byte| *byte == b'=') {
            Some(at) => (at / 4 + 1) * 4,
            None => rest.len(),
        };
        let (one, after) = rest.split_at_checked(end)?;
        STANDARD.decode_vec(one, &mut bytes).ok()?;
        rest = after;
    }
    Some(bytes.into())
}

/// Reads any bytes as the bodies of all protocols and as a query. Whether some protocol takes them.
///
/// # Panics
/// If a message is larger than allowed, or messages of a stream are not what the bytes say.
pub(crate) fn fuzz(bytes: &[u8]) -> bool {
    const MAX: usize = 1000;
    let body = Bytes::copy_from_slice(bytes);
    let mut taken = false;
    for protocol in [Protocol::Grpc, Protocol::GrpcWebText, Protocol::Connect] {
        for encoding in [Encoding::Identity, Encoding::Gzip] {
            let call = Call { protocol, codec: Codec::Proto };
            let read = |takes_stream| {
                let reader = Reader { call, encoding, from_query: None };
                reader.read(body.clone(), MAX, takes_stream)
            };
            let stream = read(true);
            if let Ok(messages) = &stream {
                assert!(messages.iter().all(|message| message.len() <= MAX));
                if protocol == Protocol::Grpc && encoding == Encoding::Identity {
                    assert_eq!(messages.iter().map(|message| message.len() + PREFIX).sum::<usize>(), bytes.len());
                }
            }
            match (read(false), stream) {
                (Ok(one), Ok(all)) => assert_eq!(one, all),
                (Ok(_), Err(error)) => panic!("one message, and no stream: {error:?}"),
                _ => {}
            }
            taken |= protocol != Protocol::Connect && read(true).is_ok_and(|messages| !messages.is_empty());
        }
    }
    if let Ok(query) = std::str::from_utf8(bytes) {
        let read = Reader::of_query(query).and_then(|reader| reader.read(Bytes::new(), MAX, false));
        taken |= read.is_ok_and(|messages| messages.len() == 1 && messages[0].len() <= MAX);
    }
    taken
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("a vector has room");
        encoder.finish().expect("a vector has room")
    }

    fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
        [&[flags][..], &(message.len() as u32).to_be_bytes(), message].concat()
    }

    fn read(protocol: Protocol, encoding: Encoding, body: &[u8]) -> Result<Vec<Bytes>, Status> {
        let reader = Reader { call: Call { protocol, codec: Codec::Proto }, encoding, from_query: None };
        reader.read(Bytes::copy_from_slice(body), 100, false)
    }

    #[test]
    fn a_body_is_exactly_one_message() {
        let grpc = |body: &[u8], encoding| read(Protocol::Grpc, encoding, body);
        assert_eq!(grpc(b"\0\0\0\0\x02ab", Encoding::Identity).unwrap(), ["ab"]);
        assert_eq!(grpc(b"\0\0\0\0\0", Encoding::Gzip).unwrap(), [""]);
        assert_eq!(grpc(&framed(1, &gzip(&[7; 100])), Encoding::Gzip).unwrap()[0], [7; 100][..]);
        let two_members = [gzip(b"a"), gzip(b"b")].concat();
        for (bytes, encoding, code, expected) in [
            (&b""[..], Encoding::Identity, 12, "no message"),
            (b"\0\0\0", Encoding::Identity, 3, "cut off"),
            (b"\0\0\0\0\x03ab", Encoding::Identity, 3, "cut off"),
            (b"\0\xff\xff\xff\xffab", Encoding::Identity, 8, "max_body"),
            (b"\0\0\0\0\x01ab", Encoding::Identity, 3, "cut off"),
            (b"\0\0\0\0\x01a\0\0\0\0\0", Encoding::Identity, 12, "more than one message"),
            (b"\x02\0\0\0\x02ab", Encoding::Identity, 3, "neither 0 nor 1"),
            (b"\x80\0\0\0\x02ab", Encoding::Identity, 3, "neither 0 nor 1"),
            (b"\x01\0\0\0\x02ab", Encoding::Identity, 13, "no header says how"),
            (b"\x01\0\0\0\x02ab", Encoding::Gzip, 3, "no gzip"),
            (&framed(1, &gzip(&[7; 101])), Encoding::Gzip, 8, "max_body"),
            (&framed(1, &two_members), Encoding::Gzip, 3, "bytes follow"),
        ] {
            let status = grpc(bytes, encoding).unwrap_err();
            assert!(status.code == code && status.message.contains(expected), "{expected}: {status:?}");
        }
    }

    #[test]
    fn texts_may_be_several() {
        let text = |text: &str| read(Protocol::GrpcWebText, Encoding::Identity, text.as_bytes());
        assert_eq!(text("AAAAAAJhYg==").unwrap(), ["ab"]);
        // The prefix and the message in texts of their own.
        assert_eq!(text("AAAAAAI=YWI=").unwrap(), ["ab"]);
        for wrong in ["AAAAAAJhYg=", "AAAA!AJhYg==", "=", "AAAAAAI=Y"] {
            assert_eq!(text(wrong).unwrap_err().message, "the body is no base64", "{wrong}");
        }
    }

    #[test]
    fn queries_have_a_message() {
        let read = |query: &str| {
            Reader::of_query(query).and_then(|reader| Ok((reader.call().codec, reader.read(Bytes::new(), 100, false)?)))
        };
        let only = |codec, message: &'static str| (codec, vec![Bytes::from_static(message.as_bytes())]);
        assert_eq!(
            read("connect=v1&encoding=json&message=%7B%22id%22%3A%22+7%22%7D").unwrap(),
            only(Codec::Json, r#"{"id":" 7"}"#)
        );
        assert_eq!(read("encoding=proto&base64=1&message=_-8").unwrap().1[0][..], [0xff, 0xef]);
        assert_eq!(read("encoding=proto&base64=1&message=YWI%3D").unwrap(), only(Codec::Proto, "ab"));
        assert_eq!(read("encoding=proto&message=").unwrap(), only(Codec::Proto, ""));
        let packed = URL_SAFE.encode(gzip(b"packed"));
        let query = format!("encoding=json&base64=1&compression=gzip&message={packed}");
        assert_eq!(read(&query).unwrap(), only(Codec::Json, "packed"));
        for (query, code, expected) in [
            ("", 3, "no encoding"),
            ("encoding=json", 3, "no message"),
            ("encoding=xml&message=", 3, "json or proto"),
            ("connect=v2&encoding=json&message=", 3, "connect=v1"),
            ("encoding=json&message=%zz", 3, "not encoded"),
            ("encoding=json&message=a&base64=yes", 3, "1 or 0"),
            ("encoding=json&message=!&base64=1", 3, "no base64"),
            ("encoding=json&message=a&compression=br", 12, "gzip"),
            ("encoding=json&message=a&compression=gzip", 3, "no gzip"),
        ] {
            let status = read(query).unwrap_err();
            assert!(status.code == code && status.message.contains(expected), "{query}: {status:?}");
        }
    }

    #[test]
    fn who_accepts_gzip() {
        let accepts = |protocol, name: &'static str, list: &'static str| {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), list.parse().expect("valid"))]);
            Call { protocol, codec: Codec::Proto }.accepts_gzip(&headers)
        };
        assert!(accepts(Protocol::Grpc, "grpc-accept-encoding", "identity, deflate, gzip"));
        assert!(accepts(Protocol::Connect, "accept-encoding", "br, gzip;q=0.5"));
        assert!(!accepts(Protocol::Connect, "accept-encoding", "br, gzip;q=0"));
        assert!(!accepts(Protocol::Grpc, "accept-encoding", "gzip"));
    }
}
