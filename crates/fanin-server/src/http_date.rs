//! The `Date` header of the current second.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Bytes of a date as HTTP has it (RFC 9110, section 5.6.7).
pub(crate) const DATE_LEN: usize = 29;

/// The date as text, for the present second.
#[derive(Debug)]
pub(crate) struct HttpDate {
    text: [u8; DATE_LEN],
    /// When the second is over.
    until: Option<Instant>,
}

impl HttpDate {
    pub(crate) const fn new() -> RefCell<HttpDate> {
        RefCell::new(HttpDate { text: [b' '; DATE_LEN], until: None })
    }

    pub(crate) fn at(&mut self, now: Instant) -> &[u8; DATE_LEN] {
        if self.until.is_none_or(|until| now >= until) {
            let time = SystemTime::now();
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            let of_second = Duration::from_nanos(since_epoch.subsec_nanos().into());
            self.until = Some(now + (Duration::from_secs(1) - of_second));
            let text = httpdate::fmt_http_date(time);
            if let Ok(text) = text.as_bytes().try_into() {
                self.text = text;
            }
        }
        &self.text
    }
}
