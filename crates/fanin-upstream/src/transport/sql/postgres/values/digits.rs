//! Numbers with a fixed number of digits.

/// Writes a number that is not negative, with leading zeros up to `width` digits, of at most 20.
pub(super) fn padded(out: &mut Vec<u8>, value: i64, width: usize) {
    let mut text = [b'0'; 20];
    let (mut left, mut at) = (value.unsigned_abs(), text.len());
    while left > 0 {
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    out.extend_from_slice(&text[at.min(text.len() - width)..]);
}
