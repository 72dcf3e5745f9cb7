//! A real browser without a window: Chromium.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A cold start on a busy machine takes some ten seconds.
const LONGEST: Duration = Duration::from_secs(120);

/// A browser that shows one page. It ends when the page has loaded, or is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    profile: PathBuf,
}

impl Browser {
    /// Opens a page.
    ///
    /// # Panics
    /// If Chromium is not installed.
    pub fn open(url: &str) -> Browser {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("fanin-browser-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let profile = std::env::temp_dir().join(name);
        let child = Command::new("chromium")
            // The sandbox needs rights that tests do not have, and the pages are our own.
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"])
            .args(["--disable-background-networking", "--disable-dev-shm-usage", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromium: {error}; run .ci/setup browser"));
        Browser { child, profile }
    }

    /// The page's document when it has loaded: scripts, images and frames, too. A page whose script goes on after that keeps an image
    /// waiting until it has ended.
    ///
    /// # Panics
    /// If it does not load.
    pub fn document(mut self) -> String {
        let mut output = self.child.stdout.take().expect("piped, and taken once");
        let reader = std::thread::spawn(move || {
            let mut document = String::new();
            output.read_to_string(&mut document).map(|_| document)
        });
        let start = Instant::now();
        while self.child.try_wait().expect("asked").is_none() {
            assert!(start.elapsed() < LONGEST, "the page does not load");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        reader.join().expect("it does not panic").expect("text")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
