//! Tests of all encodings.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};

use super::buffers::{STEP_IN, STEP_OUT};
use super::*;

const TEXT: &[u8] = b"{\"a\": 1}";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ::brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    encoder.write_all(bytes).unwrap();
    encoder.into_inner()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).unwrap()
}

fn answer(encoding: &'static str, body: Vec<u8>) -> Received {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    Received { status: StatusCode::OK, headers: headers.into(), body: body.into(), at: tokio::time::Instant::now() }
}

async fn decoded(encoding: &'static str, body: Vec<u8>, max: usize) -> Result<Bytes, Failure> {
    let received = decode(answer(encoding, body), max).await?;
    assert_eq!(received.headers.len(), 1, "{:?}", received.headers);
    assert_eq!(received.headers.content_type(), Some(&b"application/json"[..]));
    Ok(received.body)
}

#[tokio::test]
async fn each_encoding_is_decoded() {
    for (encoding, body) in [
        ("gzip", gzip(TEXT)),
        ("GZIP", gzip(TEXT)),
        ("x-gzip", gzip(TEXT)),
        ("br", brotli(TEXT)),
        ("BR", brotli(TEXT)),
        ("zstd", zstd(TEXT)),
        ("zstd", [zstd(&TEXT[..3]), zstd(&TEXT[3..])].concat()),
        ("br, gzip", gzip(&brotli(TEXT))),
        ("deflate", zlib(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("identity", TEXT.to_vec()),
        ("deflate, gzip", gzip(&zlib(TEXT))),
        ("gzip,identity, ", gzip(TEXT)),
        ("gzip", [gzip(&TEXT[..3]), gzip(b""), gzip(&TEXT[3..])].concat()),
    ] {
        assert_eq!(decoded(encoding, body, 100).await.unwrap(), TEXT, "{encoding}");
    }
    assert_eq!(decoded("gzip", gzip(b""), 100).await.unwrap(), "");
}

#[tokio::test]
async fn optional_fields_of_a_gzip_header_are_skipped() {
    let plain = gzip(TEXT);
    let mut full = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3];
    full.extend_from_slice(b"\x03\0xyzname\0comment\0\0\0");
    full.extend_from_slice(&plain[10..]);
    assert_eq!(decoded("gzip", full.clone(), 100).await.unwrap(), TEXT);
    for length in 1..full.len() {
        assert!(decoded("gzip", full[..length].to_vec(), 100).await.is_err(), "{length}");
    }
}

#[tokio::test]
async fn a_truncated_stream_fails_wherever_it_ends() {
    let text = vec![b'x'; 100_000];
    for (encoding, whole) in [
        ("gzip", gzip(&text)),
        ("deflate", zlib(&text)),
        ("deflate", raw_deflate(&text)),
        ("br", brotli(&text)),
        ("zstd", zstd(&text)),
    ] {
        for length in 1..whole.len() {
            let failure = decoded(encoding, whole[..length].to_vec(), 1 << 20).await.unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Decode, "{encoding} {length}");
        }
        let failure = decoded(encoding, whole[..whole.len() - 1].to_vec(), 1 << 20).await.unwrap_err();
        let expected = format!("the answer's {encoding} stream is broken: it ends too early");
        assert_eq!(failure.detail, expected);
    }
}

#[tokio::test]
async fn invalid_and_trailing_bytes_fail() {
    let mut wrong_checksum = gzip(TEXT);
    let at = wrong_checksum.len() - 8;
    wrong_checksum[at] ^= 1;
    for (encoding, body, what) in [
        ("gzip", TEXT.to_vec(), "gzip stream is broken: it has no gzip header"),
        ("gzip", wrong_checksum, "gzip stream is broken: its checksum is wrong"),
        ("gzip", [gzip(TEXT), b"more".to_vec()].concat(), "gzip stream is broken: bytes follow its end"),
        ("deflate", [zlib(TEXT), b"more".to_vec()].concat(), "deflate stream is broken: bytes follow its end"),
        ("deflate", vec![0xff; 20], "deflate stream is broken: its bytes are not valid"),
        ("compress", TEXT.to_vec(), "\"compress\"; only gzip, deflate, br and zstd can be decoded: turn compress off"),
        ("br", vec![0xff; 20], "br stream is broken: its bytes are not valid"),
        ("br", [brotli(TEXT), b"more".to_vec()].concat(), "br stream is broken: bytes follow its end"),
        ("zstd", TEXT.to_vec(), "zstd stream is broken: its bytes are not valid"),
        ("zstd", [zstd(TEXT), b"more".to_vec()].concat(), "zstd stream is broken: "),
        ("gzip, lzma", gzip(TEXT), "content-encoding \"lzma\""),
        ("gzip, gzip, gzip, gzip", gzip(TEXT), "4 content-encodings"),
    ] {
        let failure = decoded(encoding, body, 100).await.unwrap_err();
        assert_eq!(failure.kind, ErrorKind::Decode, "{encoding}");
        assert!(failure.detail.contains(what), "{}", failure.detail);
    }
}

#[tokio::test]
async fn the_bound_counts_decoded_bytes() {
    let text = vec![b'x'; 10_000_000];
    for (encoding, body) in [
        ("gzip", gzip(&text)),
        ("deflate", zlib(&text)),
        ("gzip, gzip", gzip(&gzip(&text))),
        ("br", brotli(&text)),
        ("zstd", zstd(&text)),
    ] {
        assert!(body.len() < 11_000);
        for max in [0, 100, 1 << 20, 9_999_999] {
            let failure = decoded(encoding, body.clone(), max).await.unwrap_err();
            assert_eq!(failure.kind, ErrorKind::TooLarge, "{encoding} {max}");
        }
        assert_eq!(decoded(encoding, body, 10_000_000).await.unwrap(), text);
    }
}

#[test]
fn a_step_is_bounded_in_input_and_output() {
    let mut decoder = Decoder::new(Coding::Deflate, zlib(&vec![b'x'; 10_000_000]).into()).unwrap();
    let mut brotli = Decoder::new(Coding::Brotli, brotli(&vec![b'x'; 10_000_000]).into()).unwrap();
    let mut zstd = Decoder::new(Coding::Zstd, zstd(&vec![b'x'; 10_000_000]).into()).unwrap();
    // Blocks without content: stored, of length 0.
    let mut empty_blocks = Decoder::new(Coding::Deflate, [0, 0, 0, 0xff, 0xff].repeat(10_000).into()).unwrap();
    for _ in 0..10 {
        for decoder in [&mut decoder, &mut brotli, &mut zstd, &mut empty_blocks] {
            let (at, output) = (decoder.buffers.at, decoder.buffers.output.len());
            assert_eq!(decoder.step(usize::MAX), Ok(false));
            assert!(decoder.buffers.at - at <= STEP_IN && decoder.buffers.output.len() - output <= STEP_OUT);
        }
    }
}

#[tokio::test]
async fn a_few_bytes_cannot_ask_for_a_huge_window() {
    // The large window of brotli, of a gigabyte; and a window of 16 MB of zstd.
    for (encoding, body) in
        [("br", vec![0x11, 30, 0, 0, 0, 0]), ("zstd", vec![0x28, 0xb5, 0x2f, 0xfd, 0, 14 << 3, 1, 0, 0])]
    {
        let failure = decoded(encoding, body, 1 << 20).await.unwrap_err();
        assert!(failure.detail.ends_with("its bytes are not valid"), "{encoding}: {}", failure.detail);
    }
}
