//! The retailer's backends: 300 products whose attributes are owned by four services, masks, recommendations.

use serde_json::{Map, Value, json};

use super::backend::{Backend, Call, Reply, mix, pick};
use super::{Sample, has};

/// Masks, the four owners of attributes, recommendations.
pub static BACKENDS: [Backend; 6] = [
    Backend { name: "masks", variable: "MASKS_URL", delay: (5, 8), answer: masks },
    Backend { name: "catalog", variable: "CATALOG_URL", delay: (8, 20), answer: |call| owned(call, catalog) },
    Backend { name: "prices", variable: "PRICES_URL", delay: (5, 15), answer: |call| owned(call, price) },
    Backend { name: "stock", variable: "STOCK_URL", delay: (5, 15), answer: |call| owned(call, stock) },
    Backend { name: "reviews", variable: "REVIEWS_URL", delay: (10, 25), answer: |call| owned(call, review) },
    Backend { name: "recommendations", variable: "RECOMMENDATIONS_URL", delay: (6, 14), answer: recommendations },
];

/// What the demo sends.
pub static SAMPLES: [Sample; 5] = [
    Sample {
        shows: "masks from memory; one request to each owner of attributes, for products and recommendations together",
        method: "POST",
        target: "/products",
        body: r#"{"products": ["p101", "p117", "p230"], "mask": "product_detail_page_attributes", "recommendation_mask": "name_and_photo_only"}"#,
        status: 200,
        check: |body| {
            has(body, "/products/2/price") && has(body, "/substitutes/0/photo") && has(body, "/complements/0/name")
        },
    },
    Sample {
        shows: "the same without merging: recommendations are fetched by requests of their own",
        method: "POST",
        target: "/ways/parallel",
        body: r#"{"products": ["p101", "p117", "p230"], "mask": "product_detail_page_attributes", "recommendation_mask": "name_and_photo_only"}"#,
        status: 200,
        check: |body| has(body, "/products/2/price") && has(body, "/complements/0/name"),
    },
    Sample {
        shows: "a short mask needs only the service that owns its attributes",
        method: "GET",
        target: "/products/p142?mask=name_and_photo_only",
        body: "",
        status: 200,
        check: |body| has(body, "/name") && !has(body, "/price"),
    },
    Sample {
        shows: "no such product",
        method: "GET",
        target: "/products/p999",
        body: "",
        status: 404,
        check: |body| has(body, "/title"),
    },
    Sample {
        shows: "no such mask",
        method: "GET",
        target: "/products/p142?mask=everything",
        body: "",
        status: 400,
        check: |body| has(body, "/title"),
    },
];

const FIRST: u64 = 100;
const LAST: u64 = 399;
const BRANDS: [&str; 8] = ["Alder", "Birch", "Cedar", "Hazel", "Linden", "Maple", "Rowan", "Spruce"];
const KINDS: [&str; 8] = ["lamp", "kettle", "desk", "chair", "speaker", "monitor", "keyboard", "backpack"];
const COLOURS: [&str; 6] = ["white", "black", "green", "blue", "grey", "red"];

fn number(id: &str) -> Option<u64> {
    id.strip_prefix('p')?.parse().ok().filter(|number| (FIRST..=LAST).contains(number))
}

/// Masks and the attributes that they stand for.
const MASKS: [(&str, &[&str]); 3] = [
    (
        "product_detail_page_attributes",
        &[
            "name",
            "photo",
            "brand",
            "category",
            "description",
            "weight",
            "price",
            "old_price",
            "currency",
            "available",
            "delivery_days",
            "rating",
            "review_count",
        ],
    ),
    ("name_and_photo_only", &["name", "photo"]),
    ("list_attributes", &["name", "photo", "price", "currency", "rating"]),
];

/// One mask, or the whole table by name.
fn masks(call: &Call) -> Reply {
    let mask = |name: &str, attributes: &[&str]| json!({ "name": name, "attributes": attributes });
    if call.path == "/masks" {
        let all: Map<_, _> =
            MASKS.iter().map(|(name, attributes)| ((*name).to_owned(), mask(name, attributes))).collect();
        return Reply::ok(all.into());
    }
    let asked = call.path.strip_prefix("/masks/").unwrap_or_default();
    match MASKS.iter().find(|(name, _)| *name == asked) {
        Some((name, attributes)) => Reply::ok(mask(name, attributes)),
        None => Reply::not_found(),
    }
}

/// The asked fields of the asked products, by id.
fn owned(call: &Call, all: fn(&str) -> Value) -> Reply {
    if call.path != "/products" {
        return Reply::not_found();
    }
    let fields = call.list("fields");
    let mut products = Map::new();
    for id in call.list("ids") {
        if number(id).is_none() {
            continue;
        }
        let Value::Object(mut product) = all(id) else { continue };
        product.retain(|field, _| fields.contains(&field.as_str()));
        products.insert(id.to_owned(), product.into());
    }
    Reply::ok(products.into())
}

fn catalog(id: &str) -> Value {
    let (brand, kind) = (pick(&BRANDS, &format!("brand {id}")), pick(&KINDS, &format!("kind {id}")));
    let colour = pick(&COLOURS, &format!("colour {id}"));
    json!({
        "name": format!("{brand} {colour} {kind}"),
        "photo": format!("https://img.example/{id}.webp"),
        "brand": brand,
        "category": kind,
        "description": format!("A {colour} {kind} by {brand}. Made to last, easy to mend, and shipped without plastic."),
        "weight": (300 + mix(&format!("weight {id}")) % 9000) as f64 / 1000.0,
    })
}

fn price(id: &str) -> Value {
    let cents = 990 + 100 * (mix(&format!("price {id}")) % 400);
    json!({ "price": cents as f64 / 100.0, "old_price": (cents + 1000) as f64 / 100.0, "currency": "EUR" })
}

fn stock(id: &str) -> Value {
    let pieces = mix(&format!("stock {id}")) % 30;
    json!({ "available": pieces > 3, "delivery_days": 1 + pieces % 5 })
}

fn review(id: &str) -> Value {
    let count = mix(&format!("reviews {id}")) % 400;
    json!({ "rating": 3.0 + (count % 20) as f64 / 10.0, "review_count": count })
}

fn recommendations(call: &Call) -> Reply {
    if call.path != "/recommendations" {
        return Reply::not_found();
    }
    let other = |what: &str, count: u64| -> Vec<String> {
        let known: Vec<&str> = call.list("ids").into_iter().filter(|id| number(id).is_some()).collect();
        known
            .into_iter()
            .flat_map(|id| (0..count).map(move |n| (id, n)))
            .map(|(id, n)| format!("p{}", FIRST + mix(&format!("{what} {n} of {id}")) % (LAST - FIRST + 1)))
            .collect()
    };
    Reply::ok(json!({ "substitutes": other("substitute", 2), "complements": other("complement", 1) }))
}
