//! The shop of `examples/`: five variants of the same page, and the requests that each sends.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use crate::common::{Script, Setup, after, paused, setup_routes};
use fanin_upstream::{ErrorKind, Request};
use http::Method;

const MASKS: &str = r#"{
    "page": {"name": "page", "attributes": ["name", "brand", "price", "available", "rating", "no_such_attribute"]},
    "short": {"name": "short", "attributes": ["name", "price"]},
    "reviews": {"name": "reviews", "attributes": ["rating", "review_count"]},
    "prices": {"name": "prices", "attributes": ["price", "rating"]},
    "empty": {"name": "empty", "attributes": ["no_such_attribute"]}
}"#;
const WAYS: [&str; 5] = ["/ways/sequence", "/ways/parallel", "/ways/variant1", "/ways/variant2", "/products"];

/// The example's configuration and flows, with the masks in a snapshot.
fn shop(answers: impl Fn(&str, &Request) -> Script + 'static) -> Setup {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop");
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("flows")).unwrap();
    std::fs::create_dir(dir.path().join("web")).unwrap();
    for flow in ["owners.star", "products.star", "ways.star", "web.star"] {
        std::fs::copy(source.join("flows").join(flow), dir.path().join("flows").join(flow)).unwrap();
    }
    let toml = std::fs::read_to_string(source.join("fanin.toml")).unwrap();
    let toml = toml.replace("every = \"5m\" }", "every = \"5m\", dump = \"masks.dump\" }");
    // The same tests run on threads, which answer in one.
    let toml = toml.replace("progressive = true", "");
    assert!(toml.contains("masks.dump"));
    std::fs::write(dir.path().join("fanin.toml"), toml).unwrap();
    let masks = format!("{{\"snapshot\":\"/masks\",\"fetched\":1}}\n{MASKS}");
    std::fs::write(dir.path().join("masks.dump"), masks).unwrap();
    setup_routes(dir, answers)
}

fn query<'q>(request: &'q Request, name: &str) -> Vec<&'q str> {
    let query = request.path_and_query.split_once('?').map_or("", |(_, query)| query);
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or("").split(',').filter(|item| !item.is_empty()).collect()
}

fn backend(upstream: &str, request: &Request) -> String {
    match upstream {
        "masks" => {
            let masks: serde_json::Value = serde_json::from_str(MASKS).unwrap();
            masks[request.path_and_query.strip_prefix("/masks/").unwrap()].to_string()
        }
        "recommendations" => r#"{"substitutes": ["p7", "p2"], "complements": ["p8", "p404"]}"#.to_owned(),
        owner => {
            let item = |id: &&str| {
                let fields =
                    query(request, "fields").iter().map(|f| format!("\"{f}\":\"{f} of {id}\"")).collect::<Vec<_>>();
                format!("\"{id}\":{{{}}}", fields.join(","))
            };
            assert!(!query(request, "fields").is_empty(), "{owner} got a request without fields");
            let known: Vec<&str> = query(request, "ids").into_iter().filter(|id| *id != "p404").collect();
            format!("{{{}}}", known.iter().map(item).collect::<Vec<_>>().join(","))
        }
    }
}

async fn page(it: &Setup, way: &str, mask: &str) -> Result<serde_json::Value, &'static str> {
    page_of(it, way, mask, r#"["p1", "p2"]"#).await
}

async fn page_of(it: &Setup, way: &str, mask: &str, ids: &str) -> Result<serde_json::Value, &'static str> {
    let mut incoming = it.incoming(way);
    incoming.method = Method::POST;
    let body = format!(r#"{{"products": {ids}, "mask": "{mask}", "recommendation_mask": "short"}}"#);
    incoming.body = body.into();
    let reply = it.flows.run(it.route(way), incoming).await;
    reply.result.map(|success| serde_json::from_slice(&success.body.concat()).unwrap()).map_err(|error| error.kind)
}

/// When the last required call for the page's own products was sent.
fn critical(it: &Setup) -> u64 {
    let sent = it.events().into_iter().filter(|event| {
        event.contains("ids=p1,") && ["catalog", "prices", "stock"].iter().any(|owner| event.contains(owner))
    });
    sent.filter_map(|event| event.split(' ').next()?.parse().ok()).max().unwrap()
}

#[test]
fn all_variants_give_the_same_page_and_merging_sends_fewest_requests() {
    paused(async {
        let mut calls = Vec::new();
        let mut pages = Vec::new();
        for way in WAYS {
            let it = shop(|upstream, request| after(10, backend(upstream, request)));
            pages.push(page(&it, way, "page").await.unwrap());
            calls.push(it.events().len());
        }
        assert_eq!(calls, [11, 9, 7, 5, 5]);
        for page in &pages {
            assert_eq!(page, &pages[4]);
        }
        let page = &pages[4];
        assert_eq!(page["products"][1]["price"], "price of p2");
        assert_eq!(
            page["substitutes"][1],
            serde_json::json!({"id": "p2", "name": "name of p2", "price": "price of p2"})
        );
        assert_eq!(page["complements"].as_array().unwrap().len(), 1, "what the catalog does not know is left out");
        assert!(!page.to_string().contains("no_such_attribute"), "no backend has it, so no request names it");
    });
}

#[test]
fn slow_recommendations_delay_required_calls_by_linger_at_most() {
    paused(async {
        let run = |way: &'static str, delay: u64| async move {
            let it = shop(move |upstream, request| match upstream {
                "recommendations" => after(delay, backend(upstream, request)),
                _ => after(10, backend(upstream, request)),
            });
            let page = page(&it, way, "page").await.unwrap();
            (critical(&it), page["substitutes"].as_array().map_or(0, Vec::len), it.elapsed())
        };
        assert_eq!(run("/products", 10).await, (10, 2, 20), "in time");
        assert_eq!(run("/products", 100).await, (15, 2, 110), "slow");
        // They end at the deadline of optional calls, since the script has no other timeout, and the page lacks them.
        assert_eq!(run("/products", 10_000).await, (15, 0, 9000), "hanging");
        assert_eq!(run("/ways/variant1", 10_000).await, (0, 0, 9000));
        assert_eq!(run("/ways/variant2", 10_000).await, (9000, 0, 9010), "the trap");
    });
}

#[test]
fn failures_and_malformed_masks() {
    paused(async {
        let it = shop(|upstream, request| match upstream {
            "recommendations" | "reviews" => after(5, "").error(ErrorKind::Connect),
            _ => after(10, backend(upstream, request)),
        });
        let whole = page(&it, "/products", "page").await.unwrap();
        assert_eq!(
            (whole["products"].as_array().unwrap().len(), whole["substitutes"].as_array().unwrap().len()),
            (2, 0)
        );
        assert_eq!(page(&it, "/products", "none").await, Err("abort"));
        let odd = page(&it, "/products", "empty").await.unwrap();
        assert_eq!(odd["products"], serde_json::json!([]), "a mask of attributes that nobody owns shows no product");
        let it = shop(|upstream, request| match upstream {
            "prices" => after(5, "").error(ErrorKind::Connect),
            _ => after(10, backend(upstream, request)),
        });
        assert_eq!(page(&it, "/products", "page").await, Err("upstream-unreachable"));
    });
}

/// The page for each mask, which every way gives alike.
async fn every_way(
    masks: &[&str],
    answers: impl Fn(&str, &Request) -> Script + Clone + 'static,
) -> Vec<serde_json::Value> {
    let mut first: Option<Vec<serde_json::Value>> = None;
    for way in WAYS {
        let it = shop(answers.clone());
        let mut pages = Vec::new();
        for mask in masks {
            pages.push(page(&it, way, mask).await.unwrap_or_else(|kind| panic!("{way} with {mask}: {kind}")));
        }
        assert_eq!(first.get_or_insert(pages.clone()), &pages, "{way}");
    }
    first.unwrap()
}

#[test]
fn all_ways_give_the_same_page_for_every_mask() {
    paused(async {
        let masks = ["page", "short", "reviews", "prices", "empty"];
        let pages = every_way(&masks, |upstream, request| after(10, backend(upstream, request))).await;
        for (mask, page) in masks.iter().zip(pages) {
            assert_eq!(page["products"].as_array().unwrap().len(), if *mask == "empty" { 0 } else { 2 }, "{mask}");
            assert_eq!(page["substitutes"].as_array().unwrap().len(), 2, "{mask}");
        }
    });
}

#[test]
fn a_page_of_reviews_needs_no_reviews() {
    paused(async {
        let pages = every_way(&["reviews"], |upstream, request| match upstream {
            "reviews" => after(5, "").error(ErrorKind::Connect),
            _ => after(10, backend(upstream, request)),
        });
        let page = &pages.await[0];
        assert_eq!(page["products"], serde_json::json!([{"id": "p1"}, {"id": "p2"}]));
        assert_eq!(page["substitutes"][0]["name"], "name of p7");
    });
}

#[test]
fn answers_of_the_wrong_shape_are_the_fault_of_their_owner() {
    const WRONG: [&str; 7] = ["null", "[]", "17", "", "{\"products\":[null]}", "{\"p1\":17}", "{\"p1\":[]}"];
    paused(async {
        for way in WAYS {
            let wrong = Rc::new(Cell::new(("", "")));
            let answers = wrong.clone();
            let it = shop(move |upstream, request| match answers.get() {
                (owner, body) if upstream == owner => after(5, body),
                _ => after(10, backend(upstream, request)),
            });
            for body in WRONG {
                for (owner, kind) in
                    [("catalog", Some("upstream-answer")), ("reviews", None), ("recommendations", None)]
                {
                    wrong.set((owner, body));
                    let page = page(&it, way, "page").await;
                    // The first way ends the request itself, as its author does not know what failed.
                    let kind = if way == "/ways/sequence" { kind.map(|_| "abort") } else { kind };
                    assert_eq!(page.as_ref().err().copied(), kind, "{way}, {owner} answers {body:?}");
                    if let Ok(page) = page {
                        assert_eq!(page["products"][1]["price"], "price of p2");
                    }
                }
            }
        }
    });
}

#[test]
fn a_product_that_is_null_is_unknown() {
    paused(async {
        let pages = every_way(&["page"], |upstream, request| match upstream {
            "catalog" => after(5, backend(upstream, request).replacen("\"p1\":", "\"p1\":null,\"x\":", 1)),
            _ => after(10, backend(upstream, request)),
        });
        let page = &pages.await[0];
        assert_eq!(page["products"].as_array().unwrap().len(), 1);
        assert_eq!(page["products"][0]["id"], "p2");
    });
}

#[test]
fn ids_that_are_no_strings_are_the_fault_of_the_client() {
    paused(async {
        let it = shop(|upstream, request| after(10, backend(upstream, request)));
        for ids in ["[null]", "[[]]", "17", "null", "{}"] {
            for way in WAYS {
                assert_eq!(page_of(&it, way, "page", ids).await, Err("abort"), "{way} {ids}");
            }
        }
        assert_eq!(it.events(), Vec::<String>::new());
    });
}
