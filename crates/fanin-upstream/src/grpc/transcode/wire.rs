//! Numbers and fields of the wire format.

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::grpc) enum Wire {
    Varint,
    Fixed64,
    Length,
    Fixed32,
}

/// Reads a message's bytes. `None` of its methods: the bytes are not valid, or have groups.
#[derive(Clone, Copy)]
pub(in crate::grpc) struct Reader<'w> {
    pub(super) bytes: &'w [u8],
    pub(super) at: usize,
}

impl<'w> Reader<'w> {
    pub(in crate::grpc) fn new(bytes: &'w [u8]) -> Reader<'w> {
        Reader { bytes, at: 0 }
    }

    pub(in crate::grpc) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = *self.bytes.get(self.at)?;
        if first < 0x80 {
            self.at += 1;
            return Some(u64::from(first));
        }
        let mut value = 0;
        for (shift, byte) in self.bytes[self.at..].iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (shift * 7);
            if *byte < 0x80 {
                self.at += shift + 1;
                // The tenth byte has room for one bit.
                return (shift < 9 || *byte <= 1).then_some(value);
            }
        }
        None
    }

    /// A field's number and how its value is written.
    #[inline]
    pub(in crate::grpc) fn key(&mut self) -> Option<(u32, Wire)> {
        let key = u32::try_from(self.varint()?).ok()?;
        let wire = match key & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Length,
            5 => Wire::Fixed32,
            _ => return None,
        };
        (key >= 8).then_some((key >> 3, wire))
    }

    fn take(&mut self, count: usize) -> Option<&'w [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    pub(super) fn fixed32(&mut self) -> Option<[u8; 4]> {
        self.take(4)?.try_into().ok()
    }

    pub(super) fn fixed64(&mut self) -> Option<[u8; 8]> {
        self.take(8)?.try_into().ok()
    }

    /// Bytes with their length before them.
    pub(in crate::grpc) fn length(&mut self) -> Option<&'w [u8]> {
        let count = usize::try_from(self.varint()?).ok()?;
        self.take(count)
    }

    /// Passes over a value.
    #[inline]
    pub(in crate::grpc) fn skip(&mut self, wire: Wire) -> Option<()> {
        match wire {
            Wire::Varint => drop(self.varint()?),
            Wire::Fixed64 => drop(self.fixed64()?),
            Wire::Length => drop(self.length()?),
            Wire::Fixed32 => drop(self.fixed32()?),
        }
        Some(())
    }
}

pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends what `write` appends, with its length before it.
pub(super) fn write_length(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    // Most lengths take one byte.
    out.push(0);
    let start = out.len();
    write(out)?;
    let mut length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return Some(());
    }
    let mut prefix = Vec::with_capacity(5);
    write_varint(&mut prefix, length as u64);
    let more = prefix.len() - 1;
    length += start;
    out.resize(length + more, 0);
    out.copy_within(start..length, start + more);
    out[start - 1..start + more].copy_from_slice(&prefix);
    Some(())
}
