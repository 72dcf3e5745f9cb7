//! `Accept-Encoding` (RFC 9110, 12.5.3): encodings with weights.

use super::encoder::Coding;

/// Most elements of the header that are looked at.
const MAX_ELEMENTS: usize = 32;

/// The encoding with the greatest weight; of several, the first one that the server knows. `None`: the body is wanted as it is, or as much.
pub(super) fn choose<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    known: impl Iterator<Item = Coding>,
) -> Option<Coding> {
    let mut sent = [(&b""[..], 0_u16); MAX_ELEMENTS];
    let elements = values.flat_map(|value| value.split(|byte| *byte == b',')).filter_map(element);
    let mut count = 0;
    for (place, element) in sent.iter_mut().zip(elements) {
        *place = element;
        count += 1;
    }
    let sent = &sent[..count];
    let weight_of = |name: &[u8], alias: &[u8]| {
        let is_named = |(one, _): &&(&[u8], u16)| one.eq_ignore_ascii_case(name) || one.eq_ignore_ascii_case(alias);
        sent.iter().find(is_named).map(|(_, weight)| *weight)
    };
    let of_others = weight_of(b"*", b"*");
    // Unless it is named, the body as it is has the least weight.
    let mut best = (None, weight_of(b"identity", b"identity").unwrap_or(0));
    for coding in known {
        let alias = if coding == Coding::Gzip { "x-gzip" } else { coding.name() };
        let weight = weight_of(coding.name().as_bytes(), alias.as_bytes()).or(of_others).unwrap_or(0);
        if weight > best.1 || (weight == best.1 && weight > 0 && best.0.is_none()) {
            best = (Some(coding), weight);
        }
    }
    best.0
}

/// A name and its weight in thousandths. An element with a weight that is none counts as refused.
fn element(text: &[u8]) -> Option<(&[u8], u16)> {
    let mut parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    Some((name, weight.map_or(1000, |text| thousandths(text).unwrap_or(0))))
}

/// `0`, `1`, or one of them with up to three decimals.
fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut value = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (byte, unit) in decimals.iter().zip([100, 10, 1]) {
        value += u16::from(byte.is_ascii_digit().then(|| byte - b'0')?) * unit;
    }
    (value <= 1000).then_some(value)
}

/// Reads any header, for [`crate::fuzzing`].
pub(crate) mod fuzz {
    use super::{Coding, choose};

    /// Whether a client that sends this header gets an encoded response.
    ///
    /// # Panics
    /// If a refused encoding is chosen, or the order of equal ones matters to the choice of one at all.
    pub fn accept_encoding(value: &[u8]) -> bool {
        let all = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
        let chosen = choose(std::iter::once(value), all.into_iter());
        let reversed = choose(std::iter::once(value), all.into_iter().rev());
        assert_eq!(chosen.is_some(), reversed.is_some());
        if let Some(coding) = chosen {
            let only = choose(std::iter::once(value), std::iter::once(coding));
            assert_eq!(only, Some(coding), "it is accepted beside the others, and not alone");
        }
        chosen.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_weight_wins_and_then_the_servers_order() {
        let all = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
        let zstd = Some(Coding::Zstd);
        let (brotli, gzip) = (Some(Coding::Brotli), Some(Coding::Gzip));
        for (text, chosen) in [
            ("gzip, deflate, br, zstd", zstd),
            ("gzip, deflate, br", brotli),
            ("gzip;q=1.0, br;q=0.5, *;q=0", gzip),
            ("GZIP", gzip),
            ("x-gzip", gzip),
            ("deflate, compress", None),
            ("*", zstd),
            ("*;q=0.1, zstd;q=0", brotli),
            ("gzip;q=0", None),
            ("gzip; q=0.001", gzip),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0.5, identity;q=0.5", gzip),
            ("identity;q=0, gzip;q=0.2", gzip),
            ("identity", None),
            ("", None),
            (",,;q=1,", None),
            ("gzip;q=2", None),
            ("gzip;q=1.5", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=", None),
            ("gzip;level=9;q=0.9, br;q=0.8", gzip),
        ] {
            let halves = text.split_inclusive(", ").map(|part| part.trim_end_matches(", ").as_bytes());
            assert_eq!(choose(std::iter::once(text.as_bytes()), all.into_iter()), chosen, "{text}");
            assert_eq!(choose(halves, all.into_iter()), chosen, "{text}, a header each");
        }
        let many = ["a,".repeat(MAX_ELEMENTS), "gzip".to_owned()].concat();
        assert_eq!(choose(std::iter::once(many.as_bytes()), all.into_iter()), None, "it is not read for ever");
    }
}
