//! Malformed and ambiguous requests over HTTP/1.1. The cases follow what the http-garden project, llhttp's and h1spec's tests publish.
//!
//! After each one an ordinary request is sent. A request that is refused for its framing ends the connection: what follows is not
//! read. Any other leaves no doubt where it ends, and the ordinary one is answered.

/// What a case is called, the bytes of its request, and the statuses of all responses, that of [`AFTER`] included.
pub type Case = (&'static str, Vec<u8>, &'static [u16]);

/// An ordinary request, sent after each of them on the same connection. It ends it.
pub const AFTER: &[u8] = b"GET /greeting HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
/// Refused, and the end of the connection.
const REFUSED: &[u16] = &[400];
/// Refused for what it says; where it ends is known.
const WRONG: &[u16] = &[400, 200];
const READ: &[u16] = &[200, 200];

/// A request with a body to a route that sends the body back: what it is called, its headers and body, statuses of all responses.
const BODIES: &[(&str, &[u8], &[u16])] = &[
    ("a body", b"content-length: 3\r\n\r\nabc", READ),
    ("chunks", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", READ),
    ("both framings", b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("both framings, other order", b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", REFUSED),
    ("both framings, length 0", b"content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("both framings, other case", b"CONTENT-LENGTH:3\r\nTRANSFER-ENCODING:CHUNKED\r\n\r\n0\r\n\r\n", REFUSED),
    ("two equal lengths", b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc", READ),
    ("two lengths", b"content-length: 3\r\ncontent-length: 4\r\n\r\nabc", REFUSED),
    ("a list of lengths", b"content-length: 3, 3\r\n\r\nabc", REFUSED),
    ("length with plus", b"content-length: +3\r\n\r\nabc", REFUSED),
    ("length with minus", b"content-length: -1\r\n\r\nabc", REFUSED),
    ("length with a space inside", b"content-length: 3 3\r\n\r\nabc", REFUSED),
    ("empty length", b"content-length: \r\n\r\nabc", REFUSED),
    ("hexadecimal length", b"content-length: 0x3\r\n\r\nabc", REFUSED),
    ("length above 64 bits", b"content-length: 18446744073709551619\r\n\r\nabc", REFUSED),
    ("length with underscore", b"content-length: 0_3\r\n\r\nabc", REFUSED),
    ("length with a full stop", b"content-length: 3.0\r\n\r\nabc", REFUSED),
    ("length in other digits", b"content-length: \xd9\xa3\r\n\r\nabc", REFUSED),
    ("space before the colon", b"content-length : 3\r\n\r\nabc", REFUSED),
    ("tab before the colon", b"content-length\t: 3\r\n\r\nabc", REFUSED),
    ("length in a folded line", b"content-length:\r\n 3\r\n\r\nabc", REFUSED),
    ("LF after a header", b"x: y\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("LF after the length", b"content-length: 3\n\r\nabc", REFUSED),
    ("LF ends the head", b"content-length: 3\r\n\nabc", REFUSED),
    ("LF in a value", b"x: a\nb: c\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("CR in a value", b"x: a\rb\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("CR CR LF", b"content-length: 3\r\r\n\r\nabc", REFUSED),
    ("a folded header", b"x: a\r\n b\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("a folded header with tab", b"x: a\r\n\tb\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("a folded coding", b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("identity", b"transfer-encoding: identity\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("chunked, identity", b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", REFUSED),
    ("identity, chunked", b"transfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n", WRONG),
    ("gzip, chunked", b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", WRONG),
    ("chunked, chunked", b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", WRONG),
    ("chunked twice", b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", WRONG),
    ("an empty element", b"transfer-encoding: ,chunked\r\n\r\n0\r\n\r\n", WRONG),
    ("xchunked", b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("chunkedx", b"transfer-encoding: chunkedx\r\n\r\n0\r\n\r\n", REFUSED),
    ("quoted chunked", b"transfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n", REFUSED),
    ("chunked with a parameter", b"transfer-encoding: chunked;a=b\r\n\r\n0\r\n\r\n", REFUSED),
    ("vertical tab before chunked", b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("NUL before chunked", b"transfer-encoding: \0chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("empty coding", b"transfer-encoding: \r\n\r\n0\r\n\r\n", REFUSED),
    ("coding with an underscore", b"transfer_encoding: chunked\r\ncontent-length: 3\r\n\r\nabc", READ),
    ("chunk size with plus", b"transfer-encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("chunk size with minus", b"transfer-encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("chunk size with 0x", b"transfer-encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("chunk size with underscore", b"transfer-encoding: chunked\r\n\r\n0_3\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("chunk size above 64 bits", b"transfer-encoding: chunked\r\n\r\n10000000000000003\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("chunk size with zeros", b"transfer-encoding: chunked\r\n\r\n00000003\r\nabc\r\n0\r\n\r\n", READ),
    ("chunk size in capitals", b"transfer-encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n", READ),
    ("space before a chunk size", b"transfer-encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("no chunk size", b"transfer-encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("letters for a chunk size", b"transfer-encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("chunk extension", b"transfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n", READ),
    ("LF in a chunk extension", b"transfer-encoding: chunked\r\n\r\n3;a\nabc\r\n0\r\n\r\n", REFUSED),
    ("CR in a chunk extension", b"transfer-encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n0\r\n\r\n", REFUSED),
    ("LF after a chunk size", b"transfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", REFUSED),
    ("LF after a chunk", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n", REFUSED),
    ("CR after a chunk", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r0\r\n\r\n", REFUSED),
    ("nothing after a chunk", b"transfer-encoding: chunked\r\n\r\n3\r\nabc0\r\n\r\n", REFUSED),
    ("a chunk too long", b"transfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", REFUSED),
    ("LF after the last chunk", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\n\n", REFUSED),
    ("space in a trailer's name", b"transfer-encoding: chunked\r\n\r\n0\r\ncontent-length : 5\r\n\r\n", REFUSED),
    ("trailer", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n", READ),
    ("length in a trailer", b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\ncontent-length: 50\r\n\r\n", READ),
    ("NUL in a value", b"x: a\0b\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("control character in a value", b"x: a\x01b\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("DEL in a value", b"x: a\x7fb\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("NUL in a name", b"x\0: a\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("empty name", b": a\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("no colon", b"x\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("parenthesis in a name", b"x(: a\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("name that is not ASCII", b"x\xc3\xa9: a\r\ncontent-length: 3\r\n\r\nabc", REFUSED),
    ("length among the hop-by-hop headers", b"connection: content-length\r\ncontent-length: 3\r\n\r\nabc", READ),
    ("two hosts", b"host: b\r\ncontent-length: 3\r\n\r\nabc", WRONG),
    ("unknown expectation", b"expect: 200-ok\r\ncontent-length: 3\r\n\r\nabc", READ),
];

/// Whole requests.
const HEADS: &[(&str, &[u8], &[u16])] = &[
    ("a request", b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n", READ),
    ("LF after the request line", b"GET /hello HTTP/1.1\nhost: a\r\n\r\n", REFUSED),
    ("LF everywhere", b"GET /hello HTTP/1.1\nhost: a\n\n", REFUSED),
    ("empty line before", b"\r\nGET /hello HTTP/1.1\r\nhost: a\r\n\r\n", READ),
    ("space before the first header", b"GET /hello HTTP/1.1\r\n host: a\r\n\r\n", REFUSED),
    ("no host", b"GET /hello HTTP/1.1\r\nx: y\r\n\r\n", WRONG),
    ("empty host", b"GET /hello HTTP/1.1\r\nhost: \r\n\r\n", WRONG),
    ("path in the host", b"GET /hello HTTP/1.1\r\nhost: a/b@c\r\n\r\n", WRONG),
    ("user in the host", b"GET /hello HTTP/1.1\r\nhost: u@a\r\n\r\n", WRONG),
    ("space in the host", b"GET /hello HTTP/1.1\r\nhost: a b\r\n\r\n", WRONG),
    ("comma in the host", b"GET /hello HTTP/1.1\r\nhost: a,b\r\n\r\n", READ),
    ("port that is no number", b"GET /hello HTTP/1.1\r\nhost: a:b\r\n\r\n", WRONG),
    ("method with parenthesis", b"GE(T /hello HTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("method in small letters", b"get /hello HTTP/1.1\r\nhost: a\r\n\r\n", &[405, 200]),
    ("space before the method", b" GET /hello HTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("two spaces", b"GET  /hello HTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("tabs", b"GET\t/hello\tHTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("space in the target", b"GET /hello x HTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("tab in the target", b"GET /hello\tx HTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("NUL in the target", b"GET /hello\0 HTTP/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("target without a slash", b"GET hello HTTP/1.1\r\nhost: a\r\n\r\n", &[404, 200]),
    ("absolute target with another host", b"GET http://b/hello HTTP/1.1\r\nhost: a\r\n\r\n", READ),
    ("space after the version", b"GET /hello HTTP/1.1 \r\nhost: a\r\n\r\n", REFUSED),
    ("version 1.2", b"GET /hello HTTP/1.2\r\nhost: a\r\n\r\n", REFUSED),
    ("version 2.0", b"GET /hello HTTP/2.0\r\nhost: a\r\n\r\n", REFUSED),
    ("version 1.10", b"GET /hello HTTP/1.10\r\nhost: a\r\n\r\n", REFUSED),
    ("version in small letters", b"GET /hello http/1.1\r\nhost: a\r\n\r\n", REFUSED),
    ("no version", b"GET /hello\r\n\r\n", REFUSED),
    ("chunks over HTTP/1.0", b"POST /echo HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", REFUSED),
    ("pipelined with LF", b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\nGET /hello HTTP/1.1\nhost: a\r\n\r\n", &[200, 400]),
];

/// All cases. They are requests to `POST /echo` and `GET /hello`; [`AFTER`] is one to `GET /greeting`.
pub fn requests() -> impl Iterator<Item = Case> {
    let bodies = BODIES.iter().map(|(name, rest, expected)| {
        (*name, [b"POST /echo HTTP/1.1\r\nhost: a\r\n".as_slice(), rest].concat(), *expected)
    });
    let heads = HEADS.iter().map(|(name, bytes, expected)| (*name, bytes.to_vec(), *expected));
    bodies.chain(heads)
}
