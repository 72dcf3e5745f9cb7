//! Routes that serve gRPC methods, called by Python's grpcio and by grpcurl.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Serving, root, run};

const PROTO: &str = r#"syntax = "proto3";
package shop.v1;
service Products {
  rpc Page(PageRequest) returns (Product);
  rpc List(PageRequest) returns (stream Product);
  rpc Upload(stream Product) returns (Product);
  rpc Refuse(PageRequest) returns (stream Product);
  rpc Unserved(PageRequest) returns (Product);
}
message PageRequest { string id = 1; repeated string tags = 2; int64 big = 3; }
message Product { string id = 1; double price = 2; repeated string tags = 3; int64 big = 4; string seen = 5; }
"#;

const FLOW: &str = r#"def page(req):
    asked = req.body
    if asked["id"] == "none":
        abort(404, "there is no product 50 % für \"none\"")
    if asked["id"] == "wrong":
        return {"id": "x", "prise": 1}
    if asked["id"] == "teapot":
        return response(status = 409, body = {"why": "busy"})
    product = {"id": asked["id"], "price": 1.5, "tags": asked["tags"], "big": asked["big"], "seen": req.headers.get("x-who", "")}
    return response(headers = {"x-served-by": "flow"}, body = product)

def upload(req):
    return {"id": ",".join([one["id"] for one in req.body]), "price": len(req.body)}

def refuse(req):
    detail = {"@type": "type.googleapis.com/shop.v1.Product", "id": "7", "price": 1.5}
    if req.body["id"] == "late":
        return response(status = "ABORTED", message = "half", trailers = {"x-end": "1"}, body = [{"id": "a"}])
    abort("FAILED_PRECONDITION", "sold \"out\"", details = [detail])

def list_all(req):
    return [{"id": tag} for tag in req.body["tags"]]
"#;

const WRONG: &str = r#"def page(req):
    abort("NOT_FUND", "there is none")

def late(req):
    return response(status = "not_found")
"#;

const TOML: &str = r#"[server]
listen = "127.0.0.1:0"
admin = "off"
workers = 2
queueing = "off"

[grpc]
proto = "shop.proto"

[[routes]]
grpc = "shop.v1.Products/Page"
flow = "flow.star:page"
timeout = "30s"
max_body = "64KiB"

[[routes]]
grpc = "shop.v1.Products/List"
flow = "flow.star:list_all"
timeout = "30s"

[[routes]]
grpc = "shop.v1.Products/Upload"
flow = "flow.star:upload"
timeout = "30s"

[[routes]]
grpc = "shop.v1.Products/Refuse"
flow = "flow.star:refuse"
timeout = "30s"

[[routes]]
path = "/plain"
flow = "flow.star:list_all"
"#;

const CLIENT: &str = r#"
import sys, grpc, tempfile, importlib
from grpc_tools import protoc
folder, address = sys.argv[1:3]
out = tempfile.mkdtemp()
assert protoc.main(["protoc", "-I" + folder, "--python_out=" + out, "--grpc_python_out=" + out, "shop.proto"]) == 0
sys.path.insert(0, out)
import shop_pb2 as pb, shop_pb2_grpc as stubs
channel = grpc.insecure_channel(address)
products = stubs.ProductsStub(channel)

for compression in (None, grpc.Compression.Gzip):
    answer, call = products.Page.with_call(
        pb.PageRequest(id="7", tags=["a", "b" * 2000], big=2**62), timeout=20, compression=compression, metadata=[("x-who", "me")])
    assert (answer.id, answer.price, list(answer.tags), answer.big, answer.seen) == ("7", 1.5, ["a", "b" * 2000], 2**62, "me"), answer
    assert ("x-served-by", "flow") in [(m.key, m.value) for m in call.initial_metadata()], call.initial_metadata()
assert products.Page(pb.PageRequest(), timeout=20).id == ""
assert [one.id for one in products.List(pb.PageRequest(tags=["x", "y", "z"]), timeout=20)] == ["x", "y", "z"]
assert [one.id for one in products.List(pb.PageRequest(), timeout=20)] == []

def fails(code, text, call):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, (error.code(), error.details())
        assert text in error.details(), error.details()
    else:
        raise AssertionError(f"no {code}")

raw = lambda path: channel.unary_unary(path)
code = grpc.StatusCode
fails(code.NOT_FOUND, 'there is no product 50 % für "none"', lambda: products.Page(pb.PageRequest(id="none"), timeout=20))
fails(code.INTERNAL, "log", lambda: products.Page(pb.PageRequest(id="wrong"), timeout=20))
fails(code.ABORTED, "busy", lambda: products.Page(pb.PageRequest(id="teapot"), timeout=20))
fails(code.UNIMPLEMENTED, "No route", lambda: raw("/shop.v1.Products/None")(b"", timeout=20))
fails(code.UNIMPLEMENTED, "", lambda: raw("/plain")(b"", timeout=20))
fails(code.INVALID_ARGUMENT, "not a valid shop.v1.PageRequest", lambda: raw("/shop.v1.Products/Page")(b"\xff\xff", timeout=20))
fails(code.RESOURCE_EXHAUSTED, "65536", lambda: products.Page(pb.PageRequest(id="x" * 100_000), timeout=20))
fails(code.RESOURCE_EXHAUSTED, "max_body",
      lambda: products.Page(pb.PageRequest(id="x" * 100_000), timeout=20, compression=grpc.Compression.Gzip))
fails(code.UNIMPLEMENTED, "", lambda: products.Unserved(pb.PageRequest(), timeout=20))
uploaded = products.Upload(iter([pb.Product(id="a"), pb.Product(id="b")]), timeout=20)
assert (uploaded.id, uploaded.price) == ("a,b", 2), uploaded

# A code, a message and a detail of the flow's.
try:
    list(products.Refuse(pb.PageRequest(), timeout=20))
except grpc.RpcError as error:
    assert (error.code(), error.details()) == (code.FAILED_PRECONDITION, 'sold "out"'), error
    (packed,) = [m.value for m in error.trailing_metadata() if m.key == "grpc-status-details-bin"]
    assert b"type.googleapis.com/shop.v1.Product" in packed, packed
    assert pb.Product(id="7", price=1.5).SerializeToString() in packed, packed
else:
    raise AssertionError("it did not fail")
# Messages, and the error after them.
late, seen = products.Refuse(pb.PageRequest(id="late"), timeout=20), []
try:
    for one in late:
        seen.append(one.id)
except grpc.RpcError as error:
    assert (seen, error.code(), error.details()) == (["a"], code.ABORTED, "half"), (seen, error)
    assert ("x-end", "1") in [(m.key, m.value) for m in error.trailing_metadata()]
else:
    raise AssertionError("it did not fail")
print("well")
"#;

fn write(dir: &Path, toml: &str) {
    fs::write(dir.join("shop.proto"), PROTO).expect("written");
    fs::write(dir.join("flow.star"), FLOW).expect("written");
    fs::write(dir.join("wrong.star"), WRONG).expect("written");
    fs::write(dir.join("fanin.toml"), toml).expect("written");
}

#[test]
fn grpcio_calls_the_methods_of_routes() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), TOML);
    let serving = Serving::start(dir.path());
    let python = root().join(".venv/triton/bin/python");
    let output = Command::new(&python)
        .args(["-c", CLIENT, dir.path().to_str().expect("text"), &serving.listen])
        .output()
        .unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup triton", python.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "well\n");
    let line = serving.logged("shop.v1.Products/Page");
    assert!(line.contains("shop.v1.Product has no field prise"), "{line}");
    // Who is no gRPC client is told so.
    let plain = serving.post("/shop.v1.Products/Page", "{}");
    assert!(plain.starts_with("HTTP/1.1 415") && plain.contains("application/grpc"), "{plain}");
}

/// As docs/grpc.md shows it.
#[test]
fn grpcurl_calls_the_methods_of_routes() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), TOML);
    let serving = Serving::start(dir.path());
    let program = root().join(".venv/go/bin/grpcurl");
    let call = |method: &str, message: &str| {
        let output = Command::new(&program)
            .current_dir(dir.path())
            .args(["-plaintext", "-max-time", "20", "-import-path", ".", "-proto", "shop.proto", "-d", message])
            .args([&serving.listen, &format!("shop.v1.Products/{method}")])
            .output()
            .unwrap_or_else(|error| panic!("{error}: {}; run .ci/setup grpcurl", program.display()));
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (success, text) = call("Page", r#"{"id": "7"}"#);
    assert!(success && text.contains(r#""id": "7""#) && text.contains(r#""price": 1.5"#), "{text}");
    let (success, text) = call("List", r#"{"tags": ["x", "y"]}"#);
    assert!(success && text.contains(r#""id": "x""#) && text.contains(r#""id": "y""#), "{text}");
    let (success, text) = call("Page", r#"{"id": "none"}"#);
    assert!(!success && text.contains("NotFound") && text.contains("there is no product"), "{text}");
}

#[test]
fn what_is_wrong_is_found_before_serving() {
    for (toml, expected) in [
        (
            TOML.replace("Products/Page", "Products/Pages"),
            "there is no method shop.v1.Products/Pages; did you mean shop.v1.Products/Page?",
        ),
        (TOML.replace("flow.star:page", "wrong.star:page"), "abort(): \"NOT_FUND\" is no status code of gRPC"),
        (TOML.replace("flow.star:list_all", "wrong.star:late"), "response(): \"not_found\" is no status code of gRPC"),
        (TOML.replace("[grpc]\nproto = \"shop.proto\"\n", ""), "nothing describes its method"),
        (TOML.replace("proto = \"shop.proto\"", ""), "grpc needs `proto`"),
        (TOML.replace("proto = \"shop.proto\"", "reflection = true"), "grpc needs `proto`"),
        (TOML.replace("shop.proto", "none.proto"), "there is no file none.proto"),
        (
            TOML.replace("grpc = \"shop.v1.Products/Page\"", "grpc = \"Page\""),
            "`Page` is no method; write \"package.Service/Method\"",
        ),
        (TOML.replace("max_body = \"64KiB\"", "path = \"/x\""), "cannot be combined with `grpc`"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), &toml);
        let (status, out, err) = run(&["check", dir.path().to_str().expect("text")]);
        let all = out + &err;
        assert!(status == Some(1) && all.contains(expected), "{expected} in\n{all}");
    }
}
