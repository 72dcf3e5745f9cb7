//! Files that change while connections are open.

use crate::clients::{metric, metrics};
use crate::common::Serving;
use crate::files::Service;
use crate::openssl::{Open, get};

#[test]
fn new_certificates_do_not_disturb_open_connections() {
    let service = Service::new("", "");
    let serving = Serving::start(service.dir());
    let mut open = [Open::new(&service, &serving, "-tls1_3"), Open::new(&service, &serving, "-tls1_2")];
    let mut all_answer =
        || open.iter_mut().for_each(|open| assert!(open.get("/").starts_with("HTTP/1.1 200"), "answered"));
    all_answer();
    let has = |host: &str| get(&service, &serving, "/", &format!("-verify_hostname {host} -verify_return_error"));
    has("localhost").is_answered();

    // Both files change, one after the other: a key that does not match yet is no reason to stop serving.
    service.server("server", &["renewed.example"]);
    serving.logged("reloaded");
    has("renewed.example").is_answered();
    has("localhost").has("hostname mismatch");
    all_answer();

    // What cannot be used changes nothing.
    service.write("server-key.pem", "no key");
    let text = serving.lines_until("server.tls.key: ").join("\n");
    assert!(text.contains("not reloaded; the old configuration stays in force"), "{text}");
    has("renewed.example").is_answered();
    all_answer();
    let page = metrics(&serving);
    assert!(metric(&page, "fanin_reloads_total{result=\"failed\"}") >= 1.0, "{page}");
}

#[test]
fn files_outside_of_the_folder_are_watched_as_well() {
    let (service, other) = (Service::new("", ""), Service::new("", ""));
    // As certbot has it: links to the newest files, which it replaces.
    let link = |number: u32| {
        for (file, name) in [("server", "cert"), ("server-key", "key")] {
            std::fs::copy(service.path(&format!("{file}.pem")), other.path(&format!("{name}{number}")))
                .expect("copied");
            let temporary = other.path("temporary");
            std::os::unix::fs::symlink(other.path(&format!("{name}{number}")), &temporary).expect("linked");
            std::fs::rename(temporary, other.path(name)).expect("replaced");
        }
    };
    link(1);
    let folder = other.dir().display();
    service.write(
        "fanin.toml",
        &format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"off\"\n[server.tls]\ncert = \"{folder}/cert\"\nkey = \"{folder}/key\"\n\
             [[routes]]\npath = \"/\"\nflow = \"page.star:page\"\n"
        ),
    );
    let serving = Serving::start(service.dir());
    get(&service, &serving, "/", "-verify_hostname localhost -verify_return_error").is_answered();
    // Not in the folder of fanin.toml under names that are watched.
    service.server("server", &["renewed.example"]);
    serving.logged("reloaded");
    link(2);
    serving.logged("reloaded");
    get(&service, &serving, "/", "-verify_hostname renewed.example -verify_return_error").is_answered();
}
