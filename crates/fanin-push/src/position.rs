//! The ids of events: the process's life and the place after the event in the log of each channel.

use smallvec::SmallVec;

/// Places in the logs of a subscription's channels, in the order of the subscription.
pub(crate) type Places = SmallVec<[u64; 1]>;

/// Longest id that is read.
const MAX_ID: usize = 4 << 10;

/// The id of a subscriber that has all events before `places`. `epoch` is one life of the process: its log ends with it.
pub(crate) fn id(epoch: &str, places: impl Iterator<Item = u64>) -> String {
    let mut text = format!("{epoch}-");
    for (at, place) in places.enumerate() {
        if at > 0 {
            text.push('.');
        }
        text.push_str(&place.to_string());
    }
    text
}

/// The places that an id names, if it is of this life of the process and of so many channels.
pub(crate) fn parse(text: &str, epoch: &str, channels: usize) -> Option<Places> {
    let (life, places) = text.rsplit_once('-')?;
    if text.len() > MAX_ID || life != epoch {
        return None;
    }
    let places = places.split('.').map(|place| place.parse().ok()).collect::<Option<Places>>()?;
    (places.len() == channels).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_another_life_or_of_other_channels_are_unknown() {
        let text = id("a1", [3, 20].into_iter());
        assert_eq!(text, "a1-3.20");
        assert_eq!(parse(&text, "a1", 2).as_deref(), Some(&[3, 20][..]));
        for (text, channels) in [(&*text, 1), ("a2-3", 1), ("a1-", 1), ("a1-x", 1), ("3", 1), ("", 1), ("a1-3.", 2)] {
            assert_eq!(parse(text, "a1", channels), None, "{text}");
        }
    }
}
