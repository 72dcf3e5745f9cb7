//! Parallel calls: moving a pending value does not wait, deciding on it does.

use crate::common::{after, paused, setup};

#[test]
fn two_calls_run_in_parallel() {
    paused(async {
        let it = setup(
            "def flow(req):\n    x = a.get(\"/x\")\n    y = b.get(\"/y\")\n    return {\"x\": x, \"y\": y}\n",
            |_, _| after(5, "{\"n\": 1.50}"),
        );
        assert_eq!(it.text("/").await, "{\"x\":{\"n\": 1.50},\"y\":{\"n\": 1.50}}");
        assert_eq!(it.elapsed(), 5);
    });
}

#[test]
fn call_starts_when_its_arguments_arrive() {
    paused(async {
        let star = "def flow(req):\n    found = a.get(\"/ids\")\n    slow = b.get(\"/slow\")\n    return {\"s\": slow, \"v\": c.get(\"/v\", query = {\"ids\": found[\"ids\"]})}\n";
        let it = setup(star, |upstream, _| match upstream {
            "a" => after(5, "{\"ids\": [1, 20]}"),
            "b" => after(30, "1"),
            _ => after(5, "2"),
        });
        assert_eq!(it.text("/").await, "{\"s\":1,\"v\":2}");
        assert_eq!(it.events(), ["0 GET a/ids", "0 GET b/slow", "5 GET c/v?ids=1,20"]);
        assert_eq!(it.elapsed(), 30);
    });
}

#[test]
fn twenty_items_that_decide_take_two_rounds() {
    paused(async {
        let star = "def one(i):\n    first = a.get(\"/first\", query = {\"i\": i})\n    if first[\"more\"]:\n        return b.get(\"/second\", query = {\"i\": i})\n    return None\n\ndef flow(req):\n    return [one(i) for i in range(20)]\n";
        let it =
            setup(star, |upstream, _| if upstream == "a" { after(5, "{\"more\": true}") } else { after(5, "\"x\"") });
        let body = it.text("/").await;
        assert_eq!(body, format!("[{}]", ["\"x\""; 20].join(",")));
        assert_eq!(it.elapsed(), 10);
        assert_eq!(it.events().len(), 40);
    });
}

#[test]
fn twenty_items_that_decide_inside_the_comprehension_take_two_rounds() {
    paused(async {
        let star = "def flow(req):\n    return [b.get(\"/second\") if a.get(\"/first\")[\"more\"] else None for i in range(20)]\n";
        let it =
            setup(star, |upstream, _| if upstream == "a" { after(5, "{\"more\": true}") } else { after(5, "\"x\"") });
        assert_eq!(it.text("/").await, format!("[{}]", ["\"x\""; 20].join(",")));
        assert_eq!(it.elapsed(), 10);
    });
}

#[test]
fn two_functions_that_await_run_in_parallel() {
    paused(async {
        let star = "
def user_block(req):
    user = a.get(\"/user\")
    if user[\"vip\"]:
        return {\"user\": user, \"offers\": b.get(\"/offers\")}
    return {\"user\": user}

def cart_block(req):
    cart = a.get(\"/cart\")
    if len(cart[\"items\"]) > 0:
        return {\"cart\": cart, \"prices\": b.get(\"/prices\")}
    return {}

def flow(req):
    return {\"user\": user_block(req), \"cart\": cart_block(req)}
";
        let it = setup(star, |_, request| match request.path_and_query.as_str() {
            "/user" => after(5, "{\"vip\": true}"),
            "/cart" => after(5, "{\"items\": [1]}"),
            _ => after(5, "[]"),
        });
        let body = it.text("/").await;
        assert_eq!(
            body,
            "{\"user\":{\"user\":{\"vip\": true},\"offers\":[]},\"cart\":{\"cart\":{\"items\": [1]},\"prices\":[]}}"
        );
        assert_eq!(it.elapsed(), 10);
    });
}

#[test]
fn arguments_are_captured_as_they_were() {
    paused(async {
        let star = "def flow(req):\n    ids = [1]\n    found = a.get(\"/wait\")\n    x = b.get(\"/x\", query = {\"ids\": ids, \"f\": found[\"f\"]})\n    ids.append(2)\n    return [x, ids]\n";
        let it = setup(star, |_, _| after(5, "{\"f\": 0}"));
        it.text("/").await;
        assert_eq!(it.events()[1], "5 GET b/x?ids=1&f=0");
    });
}

#[test]
fn unused_read_is_cancelled_at_the_end() {
    paused(async {
        let star = "def flow(req):\n    x = a.get(\"/never\")\n    return 1\n";
        let it = setup(star, |_, _| after(5000, "1"));
        assert_eq!(it.text("/").await, "1");
        assert_eq!(it.elapsed(), 0);
        assert_eq!(it.events(), ["0 GET a/never", "cancelled GET a/never"]);
    });
}

#[test]
fn guard_function() {
    paused(async {
        let star = "def flow(req):\n    a.get(\"/check\")\n    return b.get(\"/data\")\n";
        let it = setup(star, |upstream, _| if upstream == "a" { after(5, "{}").status(403) } else { after(1, "1") });
        let error = it.error("/").await;
        assert_eq!(error.status, 502);
        assert_eq!(it.events(), ["0 GET a/check"]);
    });
}

#[test]
fn unused_result_of_a_guard_still_aborts() {
    paused(async {
        let star = "
def check(req):
    if a.get(\"/allowed\")[\"ok\"] == False:
        abort(403, \"no\")
    return 1

def flow(req):
    unused = check(req)
    return {\"data\": b.get(\"/data\")}
";
        let it = setup(star, |upstream, _| if upstream == "a" { after(50, "{\"ok\": false}") } else { after(1, "1") });
        let error = it.error("/").await;
        assert_eq!((error.status.as_u16(), &*error.detail), (403, "no"));
        assert_eq!(it.elapsed(), 50);
    });
}
