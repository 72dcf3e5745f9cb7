//! Lookups in snapshots.

use crate::common::{after, load_toml, paused, setup_toml};

const TOML: &str = "
[upstreams.masks]
url = \"http://127.0.0.1:1\"
timeout = \"100ms\"
snapshot = { path = \"/masks\", key = \"name\", dump = \"DUMP\" }
[upstreams.a]
url = \"http://127.0.0.1:1\"
";

const LOAD: &str = "load(\"@upstreams\", \"a\", \"masks\")\n";

fn dumped(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("masks.dump");
    let rows = r#"[{"name": "short", "attributes": ["x", "y"]}, {"name": "7", "attributes": []}]"#;
    std::fs::write(&path, format!("{{\"snapshot\":\"/masks\",\"fetched\":1}}\n{rows}")).unwrap();
    TOML.replace("DUMP", path.to_str().unwrap())
}

#[test]
fn lookup_sends_no_call() {
    paused(async {
        let dir = tempfile::tempdir().unwrap();
        let flow = "def flow(req):\n    name = a.get(\"/name\")\n    pending = masks.lookup(name[\"n\"])\n    mask = masks.lookup(\"short\")\n    none = masks.lookup(\"long\")\n    return [mask[\"attributes\"], len(mask[\"attributes\"]), none, none == None, masks.lookup(7), pending[\"name\"], len(masks.table())]\n";
        let it = setup_toml(&dumped(&dir), &format!("{LOAD}{flow}"), |_, _| after(5, "{\"n\": \"short\"}"));
        assert_eq!(it.text("/").await, r#"[["x", "y"],2,null,true,{"name": "7", "attributes": []},"short",2]"#);
        assert_eq!(it.events(), ["0 GET a/name"]);
    });
}

#[test]
fn an_item_that_does_not_exist_is_no_failure_of_its_owner_nor_of_those_who_need_it() {
    paused(async {
        let dir = tempfile::tempdir().unwrap();
        let flow = format!(
            "{LOAD}def flow(req):\n    return a.get(\"/x\", query = {{\"q\": masks.lookup(\"none\")[\"attributes\"]}})\n"
        );
        let it = setup_toml(&dumped(&dir), &flow, |_, _| after(5, "1"));
        let reply = it.run("/").await;
        assert_eq!((reply.partial, it.events().len()), (None, 0));
        let success = reply.result.unwrap();
        assert_eq!(success.headers.get("fanin-partial"), None);
        assert_eq!(success.body.concat(), b"null");
    });
}

#[test]
fn lookup_awaits_the_first_table_and_then_fails() {
    paused(async {
        let dir = tempfile::tempdir().unwrap();
        let toml = TOML.replace("DUMP", dir.path().join("none.dump").to_str().unwrap());
        let flow = format!("{LOAD}def flow(req):\n    return masks.lookup(\"short\")\n");
        let it = setup_toml(&toml, &flow, |_, _| after(5, "1"));
        assert_eq!(it.error("/").await.kind, "upstream-timeout");
        assert_eq!(it.elapsed(), 100);
    });
}

#[test]
fn missing_field_of_a_row_names_the_upstream() {
    paused(async {
        let dir = tempfile::tempdir().unwrap();
        let flow = format!("{LOAD}def flow(req):\n    return masks.lookup(\"short\")[\"attribute\"]\n");
        let it = setup_toml(&dumped(&dir), &flow, |_, _| after(5, "1"));
        assert_eq!(it.error("/").await.kind, "flow");
    });
}

#[test]
fn wrong_arguments_of_lookups() {
    let dir = tempfile::tempdir().unwrap();
    let toml = dumped(&dir);
    let problems = load_toml(&toml, &format!("{LOAD}def flow(req):\n    return a.lookup(1)\n"), "").map(|_| ());
    assert!(problems.unwrap_err().join("\n").contains("a has no method lookup"));
    paused(async {
        for flow in ["masks.lookup()", "masks.lookup([1])", "masks.table(1)", "masks.lookup(\"a\", timeout = 3)"] {
            let it = setup_toml(&toml, &format!("{LOAD}def flow(req):\n    return {flow}\n"), |_, _| after(5, "1"));
            assert_eq!(it.error("/").await.kind, "flow", "{flow}");
        }
    });
}
