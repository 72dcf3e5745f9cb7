//! Basic authentication (RFC 7617): names and passwords, of which the file knows slow hashes only.
//!
//! To compare a password with its hash takes tens of milliseconds of computing on purpose. One thread does that for all workers, and a
//! bounded number of requests waits for it. What was right is remembered for a while, as a hash with a key of this process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use arcstr::ArcStr;
use quick_cache::sync::Cache;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::identity::Identity;

/// Requests that wait for the thread. Further ones are refused: a client that guesses must not make others wait for long.
const MAX_WAITING: usize = 32;

/// How long a right password is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Longest name and password. Of a longer password bcrypt ignores the rest, which this never does.
const MAX_PASSWORD: usize = 72;

/// The users of one `[auth.NAME]`.
pub(crate) struct Passwords {
    users: HashMap<Box<str>, User>,
    /// Compared with the passwords of unknown users, so that they take as long as those of known ones.
    decoy: Arc<str>,
    key: hmac::Key,
    right: Option<Cache<[u8; 32], Instant>>,
}

struct User {
    hash: Arc<str>,
    identity: Arc<Identity>,
}

/// What is known about a name and a password at once.
pub(crate) enum Known {
    Right(Arc<Identity>),
    /// The thread decides.
    Ask(Question),
    /// Too many requests wait for the thread.
    Busy,
    /// They do not have the form of a name and a password.
    Malformed,
}

/// A comparison that the thread makes.
pub(crate) struct Question {
    answer: oneshot::Receiver<bool>,
    identity: Option<Arc<Identity>>,
    tag: [u8; 32],
}

struct Job {
    password: String,
    hash: Arc<str>,
    answer: oneshot::Sender<bool>,
}

impl Passwords {
    pub fn load(file: &Path, max_cached: usize) -> Result<Passwords, String> {
        let name = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| format!("{name} cannot be read: {error}"))?;
        let users = read(&text).map_err(|(line, why)| format!("{name}:{line}: {why}"))?;
        let cost = users.values().filter_map(|user| user.hash.get(4..6)).max().unwrap_or("10");
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system has no random numbers".to_owned())?;
        // A well-formed hash that belongs to no password that is known.
        let decoy = format!("$2b${cost}$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZabcde");
        Ok(Passwords { users, decoy: decoy.into(), key, right: (max_cached > 0).then(|| Cache::new(max_cached)) })
    }

    /// Looks at what a request sends, `NAME:PASSWORD` in base64.
    pub fn check(&self, credentials: &str, now: Instant) -> Known {
        use base64::Engine;
        let decoded = base64::engine::general_purpose::STANDARD.decode(credentials).ok();
        let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else { return Known::Malformed };
        let Some((name, password)) = text.split_once(':') else { return Known::Malformed };
        if password.len() >= MAX_PASSWORD || password.contains('\0') {
            return Known::Malformed;
        }
        let user = self.users.get(name);
        let hash = user.map_or(&self.decoy, |user| &user.hash);
        let tag = self.tag(&text, hash);
        if let Some(user) = user
            && self.right.as_ref().and_then(|right| right.get(&tag)).is_some_and(|until| now < until)
        {
            return Known::Right(user.identity.clone());
        }
        let (sender, answer) = oneshot::channel();
        let job = Job { password: password.to_owned(), hash: hash.clone(), answer: sender };
        match jobs().try_send(job) {
            Ok(()) => Known::Ask(Question { answer, identity: user.map(|user| user.identity.clone()), tag }),
            Err(_) => Known::Busy,
        }
    }

    /// The thread's answer: who it is, if the password is right. `None` at the deadline.
    pub async fn answer(&self, question: Question, deadline: Instant) -> Option<Option<Arc<Identity>>> {
        let Question { answer, identity, tag } = question;
        let right = tokio::time::timeout_at(deadline, answer).await.ok()?.ok()?;
        let identity = identity.filter(|_| right);
        if let Some(cache) = self.right.as_ref().filter(|_| identity.is_some()) {
            cache.insert(tag, Instant::now() + REMEMBERED);
        }
        Some(identity)
    }

    fn tag(&self, text: &str, hash: &str) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [hash, "\0", text] {
            context.update(part.as_bytes());
        }
        context.sign().as_ref().try_into().unwrap_or_default()
    }
}

/// Reads lines `NAME:HASH` as `htpasswd -B` writes them.
fn read(text: &str) -> Result<HashMap<Box<str>, User>, (usize, String)> {
    let mut users = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| (at + 1, why.to_owned());
        let (name, hash) = line.split_once(':').ok_or_else(|| wrong("write NAME:HASH, as htpasswd -B does"))?;
        if name.is_empty() {
            return Err(wrong("the user has no name"));
        }
        if hash.parse::<bcrypt::HashParts>().is_err() {
            return Err(wrong("the hash is not one of bcrypt; make it with htpasswd -B"));
        }
        let identity = Arc::new(Identity { principal: Some(ArcStr::from(name)), claims: None });
        if users.insert(name.into(), User { hash: hash.into(), identity }).is_some() {
            return Err(wrong("the same user is in the file twice"));
        }
    }
    Ok(users)
}

/// The thread that compares, started when it is first needed. It ends with the process.
fn jobs() -> &'static SyncSender<Job> {
    static JOBS: OnceLock<SyncSender<Job>> = OnceLock::new();
    JOBS.get_or_init(|| {
        let (sender, jobs) = sync_channel(MAX_WAITING);
        // Without the thread the channel is closed, and every request is refused as if it were busy.
        if let Err(error) = thread::Builder::new().name("fanin-passwords".to_owned()).spawn(move || run(&jobs)) {
            tracing::error!("the thread for passwords cannot be started: {error}");
        }
        sender
    })
}

fn run(jobs: &Receiver<Job>) {
    while let Ok(Job { password, hash, answer }) = jobs.recv() {
        // A request that has ended needs no answer.
        if !answer.is_closed() {
            let _ = answer.send(bcrypt::non_truncating_verify(&password, &hash).unwrap_or(false));
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn passwords() -> Passwords {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let hash = bcrypt::hash("open sesame", 4).expect("a hash");
        std::fs::write(file.path(), format!("# staff\nann:{hash}\n")).expect("written");
        Passwords::load(file.path(), 10).unwrap_or_else(|why| panic!("{why}"))
    }

    async fn outcome(passwords: &Passwords, text: &str) -> &'static str {
        let deadline = Instant::now() + Duration::from_secs(60);
        match passwords.check(&STANDARD.encode(text), Instant::now()) {
            Known::Right(_) => "remembered",
            Known::Malformed => "malformed",
            Known::Busy => "busy",
            Known::Ask(question) => match passwords.answer(question, deadline).await {
                Some(Some(_)) => "right",
                Some(None) => "wrong",
                None => "late",
            },
        }
    }

    #[tokio::test]
    async fn right_passwords_are_remembered_and_wrong_ones_are_not() {
        let passwords = passwords();
        assert_eq!(outcome(&passwords, "ann:open sesame").await, "right");
        assert_eq!(outcome(&passwords, "ann:open sesame").await, "remembered");
        for text in ["ann:open sesam", "ann:", "eve:open sesame", "Ann:open sesame"] {
            assert_eq!(outcome(&passwords, text).await, "wrong", "{text}");
            assert_eq!(outcome(&passwords, text).await, "wrong", "{text}");
        }
        for text in ["ann", "", &format!("ann:{}", "x".repeat(72)), "ann:a\0b"] {
            assert_eq!(outcome(&passwords, text).await, "malformed", "{text}");
        }
        assert!(matches!(passwords.check("no base64!", Instant::now()), Known::Malformed));
        let later = Instant::now() + REMEMBERED;
        assert!(matches!(passwords.check(&STANDARD.encode("ann:open sesame"), later), Known::Ask(_)));
    }

    #[test]
    fn the_decoy_is_a_hash_like_the_others() {
        let passwords = passwords();
        assert_eq!(passwords.decoy.parse::<bcrypt::HashParts>().expect("a hash").get_cost(), 4);
        assert!(!bcrypt::non_truncating_verify("open sesame", &passwords.decoy).expect("comparable"));
    }

    #[test]
    fn mistakes_of_the_file_have_their_line() {
        let hash = bcrypt::hash("a", 4).expect("a hash");
        for (text, line, why) in [
            ("ann".to_owned(), 1, "NAME:HASH"),
            (format!("\n:{hash}"), 2, "no name"),
            ("ann:secret".to_owned(), 1, "htpasswd -B"),
            ("ann:$apr1$abc$def".to_owned(), 1, "htpasswd -B"),
            (format!("ann:{hash}\nann:{hash}"), 2, "twice"),
        ] {
            let (at, error) = read(&text).err().expect("wrong");
            assert!(at == line && error.contains(why) && !error.contains("secret"), "{text}: {at} {error}");
        }
    }
}
