//! A tab of a real browser that a test drives: Chromium by its DevTools protocol, over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// A cold start on a busy machine takes some ten seconds.
const LONGEST: Duration = Duration::from_secs(120);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A browser with one tab. It ends when it is dropped.
#[derive(Debug)]
pub struct Tab {
    child: Child,
    profile: PathBuf,
    commands: ChildStdin,
    messages: Receiver<Value>,
    sent: u64,
    session: Option<String>,
    errors: Vec<String>,
}

impl Tab {
    /// Starts a browser and opens a page in it.
    ///
    /// # Panics
    /// If Chromium is not installed.
    pub fn open(url: &str) -> Tab {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        assert!(
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .any(|dir| dir.join("chromium").exists()),
            "there is no chromium; run .ci/setup browser"
        );
        let name = format!("fanin-tab-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let profile = std::env::temp_dir().join(name);
        // The protocol's pipes are the descriptors 3 and 4; a shell puts them there. The sandbox needs rights that tests do not have, and
        // the pages are our own.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-extensions \
                      --disable-background-networking --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe \
                      --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(&profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let commands = child.stdin.take().expect("piped, and taken once");
        let output = BufReader::new(child.stdout.take().expect("piped, and taken once"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            output.split(0).map_while(Result::ok).try_for_each(|text| match serde_json::from_slice(&text) {
                Ok(message) => sender.send(message),
                Err(_) => Ok(()),
            })
        });
        let mut tab = Tab { child, profile, commands, messages, sent: 0, session: None, errors: Vec::new() };
        let target = tab.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = tab.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Accessibility"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.navigate(url);
        tab
    }

    /// Shows another page.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn navigate(&mut self, url: &str) {
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Sends a command of the protocol and waits for its result.
    ///
    /// # Panics
    /// If it fails, or the browser does not answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).expect("the browser runs");
        loop {
            let mut message = self.messages.recv_timeout(LONGEST).unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    /// Keeps what the page reports as an error.
    fn note(&mut self, message: &Value) {
        let about = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(about["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if about["type"] == "error" || about["type"] == "warning" => {
                self.errors.push(about["args"].to_string());
            }
            Some("Log.entryAdded") if about["entry"]["level"] == "error" => {
                self.errors.push(about["entry"].to_string());
            }
            _ => {}
        }
    }

    /// What the page has reported as errors since they were taken last: exceptions, the console, failed requests, violations of its policy.
    pub fn take_errors(&mut self) -> Vec<String> {
        // All that was reported before this answer has been read then.
        self.evaluate("0");
        std::mem::take(&mut self.errors)
    }

    /// The value of an expression in the page. A promise is awaited.
    ///
    /// # Panics
    /// If it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true in the page.
    ///
    /// # Panics
    /// If it does not become true.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            if start.elapsed() > LONGEST {
                let text = self.evaluate("document.body ? document.body.innerText : ''");
                panic!(
                    "never true: {expression}\nerrors: {:?}\nthe page:\n{}",
                    self.errors,
                    text.as_str().unwrap_or("")
                );
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Presses a key: a character, or a name such as `Tab`, `Enter`, `ArrowLeft`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            " " => 32,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => key.bytes().next().map_or(0, |byte| i32::from(byte.to_ascii_uppercase())),
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if key == "Enter" {
            down["text"] = json!("\r");
        } else if key.chars().count() == 1 {
            down["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// Types text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the size of the window, in CSS pixels; a phone has two pixels for each.
    pub fn resize(&mut self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone }),
        );
    }

    /// Prefers dark pages, or light ones.
    pub fn prefer_dark(&mut self, dark: bool) {
        let scheme = json!({ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
    }

    /// Role and name of everything that a screen reader finds.
    pub fn accessible(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().expect("a list");
        let text = |value: &Value| value["value"].as_str().unwrap_or("").to_owned();
        nodes
            .iter()
            .filter(|node| node["ignored"] != true)
            .map(|node| (text(&node["role"]), text(&node["name"])))
            .collect()
    }

    /// Writes a picture of what is visible, or of the whole page.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn screenshot(&mut self, path: &Path, whole: bool) {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": whole }));
        let picture = STANDARD.decode(answer["data"].as_str().expect("text")).expect("base64");
        std::fs::write(path, picture).expect("written");
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
