//! A retailer's backends: masks, four owners of attributes, recommendations. All but the masks take 5 to 15 ms.

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::reply::{Action, ok};
use crate::process;

/// Owners and their attributes, as in `examples/shop`.
const OWNERS: [(&str, &[&str]); 4] = [
    ("catalog", &["name", "photo", "brand", "category", "description", "weight"]),
    ("prices", &["price", "old_price", "currency"]),
    ("stock", &["available", "delivery_days"]),
    ("reviews", &["rating", "review_count"]),
];
/// Without these there is no page.
const CRITICAL: [&str; 3] = ["catalog", "prices", "stock"];
/// A product that every request of the benchmark asks for itself, and that is never recommended.
const MAIN: &str = "p101";

/// The backends, and what they saw since the last reset.
#[derive(Debug)]
pub struct Shop {
    seed: u64,
    first: Option<Instant>,
    critical: Option<Instant>,
    calls: u64,
}

impl Default for Shop {
    fn default() -> Self {
        Self { seed: 0x9e37_79b9_7f4a_7c15, first: None, critical: None, calls: 0 }
    }
}

impl Shop {
    /// What a path below `/shop/` asks for: `masks`, `masks/NAME`, `OWNER/products?ids=&fields=`,
    /// `recommendations/MODE/recommendations?ids=` with the mode `healthy`, `slow` (ten times) or `hanging`; `reset` starts to
    /// count anew, `seen` tells the calls, the microseconds from the first one to the end of the last that is critical,
    /// and when that was by the monotonic clock.
    pub fn ask(&mut self, path: &[u8]) -> Action {
        let path = std::str::from_utf8(path).unwrap_or_default();
        let rest = path.strip_prefix("/shop/").unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        match path {
            "reset" => {
                (self.first, self.critical, self.calls) = (None, None, 0);
                return Action::Made(ok(b"{}"), Duration::ZERO);
            }
            "seen" => {
                let span = self.first.zip(self.critical).map_or(0, |(first, last)| (last - first).as_micros());
                // The clock that other processes read, too.
                let ago = self.critical.map_or(Duration::ZERO, |last| last.elapsed());
                let at = process::nanos().saturating_sub(ago.as_nanos() as u64);
                let body = format!(r#"{{"calls":{},"critical":{span},"critical_at":{at}}}"#, self.calls);
                return Action::Made(ok(body.as_bytes()), Duration::ZERO);
            }
            _ => {}
        }
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.calls += 1;
        let usual = Duration::from_millis(5 + self.random() % 11);
        let (body, delay) = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["masks", "masks"] => (masks(), usual),
            ["masks", "masks", name] => (mask(name), usual),
            ["recommendations", mode, "recommendations"] => match *mode {
                "hanging" => return Action::Silence,
                "slow" => (recommended(query), usual * 10),
                _ => (recommended(query), usual),
            },
            [owner, "products"] => {
                if CRITICAL.contains(owner) && query.contains(MAIN) {
                    self.critical = self.critical.max(Some(now + usual));
                }
                (products(owner, query), usual)
            }
            _ => (String::new(), Duration::ZERO),
        };
        Action::Made(ok(body.as_bytes()), delay)
    }

    /// Xorshift: all servers meet the same delays, more or less.
    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
}

fn list<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_default().split(',').filter(|item| !item.is_empty())
}

fn mask(name: &str) -> String {
    let short = ["name", "photo"];
    let all: Vec<&str> = OWNERS.iter().flat_map(|(_, attributes)| attributes.iter().copied()).collect();
    let attributes = if name == "name_and_photo_only" { &short[..] } else { &all[..] };
    format!(r#"{{"name":"{name}","attributes":["{}"]}}"#, attributes.join("\",\""))
}

fn masks() -> String {
    let entry = |name| format!(r#""{name}":{}"#, mask(name));
    format!("{{{},{}}}", entry("product_detail_page_attributes"), entry("name_and_photo_only"))
}

/// Two substitutes and one complement for each product.
fn recommended(query: &str) -> String {
    let numbers: Vec<u32> = list(query, "ids").filter_map(|id| id.strip_prefix('p')?.parse().ok()).collect();
    let substitutes: Vec<String> =
        numbers.iter().flat_map(|n| [format!("\"p{}\"", n + 1000), format!("\"p{}\"", n + 2000)]).collect();
    let complements: Vec<String> = numbers.iter().map(|n| format!("\"p{}\"", n + 3000)).collect();
    format!(r#"{{"substitutes":[{}],"complements":[{}]}}"#, substitutes.join(","), complements.join(","))
}

fn products(owner: &str, query: &str) -> String {
    let known = OWNERS.iter().find(|(name, _)| *name == owner).map_or(&[][..], |(_, attributes)| attributes);
    let fields: Vec<&str> = list(query, "fields").filter(|field| known.contains(field)).collect();
    let mut body = String::from("{");
    for (at, id) in list(query, "ids").enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(body, "{comma}\"{id}\":{{");
        for (at, field) in fields.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            // Written into a string, which cannot fail.
            let _ = match *field {
                "price" | "old_price" | "weight" | "rating" => write!(body, "{comma}\"{field}\":12.50"),
                "delivery_days" | "review_count" => write!(body, "{comma}\"{field}\":3"),
                "available" => write!(body, "{comma}\"{field}\":true"),
                "description" => {
                    write!(
                        body,
                        "{comma}\"{field}\":\"Made to last, easy to mend, and shipped without plastic, {id}.\""
                    )
                }
                other => write!(body, "{comma}\"{other}\":\"{other} of {id}\""),
            };
        }
        body.push('}');
    }
    body.push('}');
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(shop: &mut Shop, path: &str) -> (serde_json::Value, Duration) {
        let Action::Made(bytes, delay) = shop.ask(path.as_bytes()) else { panic!("{path}") };
        let head = memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap() + 4;
        (serde_json::from_slice(&bytes[head..]).unwrap(), delay)
    }

    #[test]
    fn it_is_the_examples_shop() {
        let mut shop = Shop::default();
        let (masks, _) = body(&mut shop, "/shop/masks/masks");
        assert_eq!(masks["product_detail_page_attributes"]["attributes"].as_array().unwrap().len(), 13);
        let (mask, _) = body(&mut shop, "/shop/masks/masks/name_and_photo_only");
        assert_eq!(mask["attributes"], serde_json::json!(["name", "photo"]));
        let (offers, slow) = body(&mut shop, "/shop/recommendations/slow/recommendations?ids=p101,p102");
        assert_eq!(offers["substitutes"].as_array().unwrap().len(), 4);
        assert!(slow >= Duration::from_millis(50));
        assert_eq!(shop.ask(b"/shop/recommendations/hanging/recommendations?ids=p1"), Action::Silence);
        let (found, delay) = body(&mut shop, "/shop/prices/products?ids=p101,p7&fields=price,name");
        assert_eq!(found, serde_json::json!({"p101": {"price": 12.5}, "p7": {"price": 12.5}}));
        assert!((5..=15).contains(&delay.as_millis()));
        let (seen, _) = body(&mut shop, "/shop/seen");
        assert_eq!((seen["calls"].as_u64(), seen["critical"].as_u64() >= Some(5000)), (Some(5), true));
        body(&mut shop, "/shop/reset");
        assert_eq!(body(&mut shop, "/shop/seen").0["calls"], 0);
    }
}
