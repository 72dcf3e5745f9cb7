//! HTTP/2 frames written by hand (RFC 9113, section 4), so that a client can send what no library lets it send.

/// The client's connection preface and its SETTINGS.
pub fn preface(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let payload: Vec<u8> =
        settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    bytes.extend(frame(SETTINGS, 0, 0, &payload));
    bytes
}

/// Type of a frame with the head of a request.
pub const HEADERS: u8 = 1;
/// Type of a frame that cancels a stream.
pub const RST_STREAM: u8 = 3;
/// Type of a frame with settings.
pub const SETTINGS: u8 = 4;
/// Type of a frame that must be answered.
pub const PING: u8 = 6;
/// Type of a frame that continues a head.
pub const CONTINUATION: u8 = 9;

/// Flag: the stream has no body.
pub const END_STREAM: u8 = 1;
/// Flag: the head is complete.
pub const END_HEADERS: u8 = 4;

/// Setting: bytes of a body that may be sent before the client allows more.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header block of a GET request, without Huffman coding (RFC 7541, section 6).
pub fn head(path: &str) -> Vec<u8> {
    // Indices of the static table: `:method: GET`, `:scheme: http`, then `:path` and `:authority` as literals.
    let mut block = vec![0x82, 0x86];
    literal(&mut block, 4, path.as_bytes());
    literal(&mut block, 1, b"hold");
    block
}

/// A whole GET request on a stream.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head(path))
}

/// The header block of a request that adds a header of `size` bytes to the dynamic table and then refers to it `times` times.
pub fn hpack_bomb(size: usize, times: usize) -> Vec<u8> {
    let mut block = head("/raw");
    // A literal with incremental indexing and a new name.
    block.push(0x40);
    string(&mut block, b"x-bomb");
    string(&mut block, &vec![b'a'; size]);
    // 62 is the first index of the dynamic table.
    block.extend(std::iter::repeat_n(0x80 | 62, times));
    block
}

/// A literal without indexing whose name is in the static table.
fn literal(block: &mut Vec<u8>, name: u8, value: &[u8]) {
    block.push(name);
    string(block, value);
}

fn string(block: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 127 {
        block.push(text.len() as u8);
    } else {
        // An integer with a prefix of 7 bits (RFC 7541, section 5.1).
        block.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            block.push((rest % 128) as u8 | 0x80);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_frame_with_its_length() {
        let bytes = get(3, "/raw");
        assert_eq!(&bytes[..9], &[0, 0, (bytes.len() - 9) as u8, HEADERS, 5, 0, 0, 0, 3]);
        assert_eq!(&bytes[9..], b"\x82\x86\x04\x04/raw\x01\x04hold");
    }

    #[test]
    fn long_strings_have_lengths_of_several_bytes() {
        let mut block = Vec::new();
        string(&mut block, &[b'a'; 1337 + 127]);
        assert_eq!(&block[..3], &[127, 0xb9, 0x0a]);
    }
}
