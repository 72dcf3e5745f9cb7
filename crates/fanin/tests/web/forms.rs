//! Forms, as curl sends them and as calls send them.

use crate::{curl, service};

const BACKEND: &str = r#"
def echo(req):
    return {"form": req.form_all, "files": {name: [[file.filename, file.type, file.text] for file in list] for name, list in req.files.items()}}
"#;

const FLOW: &str = r#"
load("@upstreams", "backend")

def read(req):
    files = [[name, file.filename, file.type, file.size] for name, list in req.files.items() for file in list]
    return {"title": req.form["title"], "tags": req.form_all.get("tag", []), "files": files}

def pass_on(req):
    photo = req.files["photo"][0]
    return backend.post("/echo", multipart = {
        "title": req.form["title"],
        "n": [1, 2],
        "none": None,
        "photo": photo,
        "made": file("text ü", "a.txt", type = "text/plain"),
    })

def urlencoded(req):
    return backend.post("/echo", form = {"a": ["1", "&="], "b": req.form["title"], "none": None})
"#;

#[test]
fn both_kinds_in_both_directions() {
    let route = |name: &str| format!("[[routes]]\nmethod = \"POST\"\npath = \"/{name}\"\nflow = \"web.star:{name}\"\n");
    let (_backend, backend) = service(&route("echo"), BACKEND);
    let routes = ["read", "pass_on", "urlencoded"].map(route).concat();
    let toml = format!("[upstreams.backend]\nurl = \"http://{}\"\n{routes}", backend.listen);
    let (dir, serving) = service(&toml, FLOW);
    let photo = dir.path().join("photo.bin");
    std::fs::write(&photo, "bytes of a photo").expect("written");
    let photo = format!("photo=@{};type=image/x-own", photo.display());
    let post = |path: &str, fields: &[&str]| curl(&[fields, &[&format!("http://{}/{path}", serving.listen)]].concat());
    let sent = ["--data-urlencode", "title=ü & =", "-d", "tag=a", "-d", "tag=b"];
    assert_eq!(post("read", &sent), r#"{"title":"ü & =","tags":["a","b"],"files":[]}"#);
    let sent = ["-F", "title=ü\r\n--x", "-F", "tag=a", "-F", &photo];
    assert_eq!(
        post("read", &sent),
        r#"{"title":"ü\r\n--x","tags":["a"],"files":[["photo","photo.bin","image/x-own",16]]}"#
    );
    assert_eq!(
        post("pass_on", &["-F", "title=t", "-F", &photo]),
        r#"{"form":{"title":["t"],"n":["1","2"]},"files":{"photo":[["photo.bin","image/x-own","bytes of a photo"]],"made":[["a.txt","text/plain","text ü"]]}}"#
    );
    assert_eq!(post("urlencoded", &["-d", "title=x+y"]), r#"{"form":{"a":["1","&="],"b":["x y"]},"files":{}}"#);
    // What is wrong is the client's fault.
    for (sent, message) in [
        (&["-d", "tag=a"][..], "title"),
        (&["-H", "content-type: application/json", "-d", "{}"], "no form"),
        (&["-H", "content-type: multipart/form-data", "-d", "x"], "boundary"),
        (&["-H", "content-type: multipart/form-data; boundary=b", "-d", "--b"], "not valid"),
    ] {
        let answer = post("read", &[&["-i"], sent].concat());
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(message), "{message}: {answer}");
    }
}
