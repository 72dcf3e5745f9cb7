//! Folders as upstreams.

use std::os::unix::fs::symlink;
use std::rc::Rc;
use std::time::Duration;

use crate::common::run;
use fanin_upstream::{Answer, CallContext, CallError, ErrorKind, Request, Upstreams, WorkerClient};
use http::{HeaderMap, Method};
use tokio::time::Instant;

struct Folder {
    dir: tempfile::TempDir,
    upstreams: Upstreams,
    worker: Rc<WorkerClient>,
}

impl Folder {
    fn new(more: &str) -> Folder {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("secret"), "not for you").unwrap();
        let text = format!("[upstreams.docs]\nfiles = 'in'\ntimeout = '60s'\n{more}");
        let config = fanin_config::Config::parse(&text, "fanin.toml", dir.path(), &|_| None).unwrap();
        let upstreams = Upstreams::new(config.upstreams.values()).unwrap();
        Folder { dir, upstreams, worker: WorkerClient::new() }
    }

    fn inside(&self) -> std::path::PathBuf {
        self.dir.path().join("in")
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.inside().join(name), text).unwrap();
    }

    async fn call(&self, method: &str, path: &str) -> Result<Answer, CallError> {
        let request = Request {
            method: Method::GET,
            path_and_query: format!("/{method}"),
            headers: HeaderMap::new(),
            body: format!("[{path:?}]").into(),
        };
        let context = CallContext::new(Instant::now() + Duration::from_secs(60));
        self.upstreams.get("docs").unwrap().call(&self.worker, request, context).await
    }

    async fn text(&self, method: &str, path: &str) -> String {
        let answer = self.call(method, path).await.unwrap();
        format!("{} {}", answer.status.as_u16(), std::str::from_utf8(&answer.body).unwrap())
    }
}

#[test]
fn files_are_read_whole_by_line_and_counted() {
    run(async {
        let docs = Folder::new("");
        docs.write("a.txt", "one\ntwo \"2\"\r\n\nlast");
        docs.write("empty", "");
        docs.write("n.json", "{\"a\": 1.50}");
        std::fs::create_dir(docs.inside().join("sub")).unwrap();
        docs.write("sub/ж.txt", "x\n");
        assert_eq!(docs.text("read", "a.txt").await, "200 one\ntwo \"2\"\r\n\nlast");
        assert_eq!(docs.text("lines", "a.txt").await, r#"200 ["one","two \"2\"","","last"]"#);
        assert_eq!(docs.text("count_lines", "a.txt").await, "200 4");
        assert_eq!(docs.text("read", "empty").await, "200 \"\"");
        assert_eq!(docs.text("lines", "empty").await, "200 []");
        assert_eq!(docs.text("count_lines", "empty").await, "200 0");
        assert_eq!(docs.text("count_lines", "sub/ж.txt").await, "200 1");
        assert_eq!(docs.text("json", "n.json").await, "200 {\"a\": 1.50}");
        let listed = r#"200 [{"name":"a.txt","kind":"file","size":18},{"name":"empty","kind":"file","size":0},{"name":"n.json","kind":"file","size":11},{"name":"sub","kind":"folder"}]"#;
        assert_eq!(docs.text("list", "").await, listed);
        assert_eq!(docs.text("list", "sub").await, r#"200 [{"name":"ж.txt","kind":"file","size":2}]"#);
    });
}

#[test]
fn nothing_leads_outside() {
    run(async {
        let docs = Folder::new("");
        docs.write("a.txt", "inside");
        let inside = docs.inside();
        symlink("a.txt", inside.join("good")).unwrap();
        symlink("../secret", inside.join("up")).unwrap();
        symlink(docs.dir.path().join("secret"), inside.join("absolute")).unwrap();
        symlink("..", inside.join("parent")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        assert_eq!(docs.text("read", "good").await, "200 inside");
        for path in ["../secret", "up", "absolute", "parent/secret", "sub/../../secret", "/etc/passwd", "../in/a.txt"] {
            for method in ["read", "lines", "count_lines", "json"] {
                let said = docs.text(method, path).await;
                assert!(said.starts_with("403 ") || said.starts_with("404 "), "{method} {path}: {said}");
                assert!(!said.contains("not for you"), "{path}");
            }
        }
        for path in ["..", "parent", "/"] {
            assert!(docs.text("list", path).await.starts_with("403 "), "{path}");
        }
        assert!(docs.text("read", "loop").await.starts_with("40"), "{}", docs.text("read", "loop").await);
    });
}

#[test]
fn unreadable_values_have_one_clear_error() {
    run(async {
        let docs = Folder::new("max_answer = '1KB'");
        docs.write("large", "x".repeat(1001));
        docs.write("line", format!("a\n{}", "y".repeat(1001)));
        docs.write("latin", b"caf\xe9");
        docs.write("a.txt", "");
        std::fs::create_dir(docs.inside().join("sub")).unwrap();
        let pipe = docs.inside().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for (method, path, says) in [
            ("read", "none", "404 {\"message\":\"none: No such file"),
            ("read", "sub", "400 {\"message\":\"sub is not a file"),
            ("read", "pipe", "400 {\"message\":\"pipe is not a file"),
            ("list", "a.txt", "400 "),
            ("read", "a.txt/b", "400 "),
            ("read", "", "40"),
        ] {
            let said = docs.text(method, path).await;
            assert!(said.starts_with(says), "{method} {path}: {said}");
        }
        for (method, path, kind) in [
            ("read", "large", ErrorKind::TooLarge),
            ("lines", "large", ErrorKind::TooLarge),
            ("lines", "line", ErrorKind::TooLarge),
            ("read", "latin", ErrorKind::Decode),
            ("lines", "latin", ErrorKind::Decode),
        ] {
            let error = docs.call(method, path).await.unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.to_string().contains(path), "{error}");
        }
        assert_eq!(docs.text("count_lines", "large").await, "200 1", "counting has no bound");
        // A missing folder is an upstream that cannot be reached.
        std::fs::remove_dir_all(docs.inside()).unwrap();
        assert_eq!(docs.call("read", "a.txt").await.unwrap_err().kind, ErrorKind::Connect);
    });
}

#[test]
fn a_worker_is_not_held_by_a_large_file() {
    run(async {
        let docs = Folder::new("");
        let file = std::fs::File::create(docs.inside().join("holes")).unwrap();
        file.set_len(4 << 30).unwrap();
        // A dropped read is stopped, and its thread serves the next call.
        for _ in 0..8 {
            let call = docs.call("count_lines", "holes");
            tokio::time::timeout(Duration::from_millis(5), call).await.unwrap_err();
        }
        docs.write("small", "a\n");
        assert_eq!(docs.text("count_lines", "small").await, "200 1");
    });
}
