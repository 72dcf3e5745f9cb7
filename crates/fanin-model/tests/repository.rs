//! Versions come, go and are refused while the model is asked.

mod common;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Repository, ask, data, expected, says};
use fanin_config::{ModelSettings, Versions};
use fanin_model::{InferError, Models};

fn reason(models: &Models, model: &str, version: &str) -> String {
    let index = models.index();
    let entry = index.iter().find(|entry| &*entry.model == model && entry.version == version);
    entry.unwrap_or_else(|| panic!("{index:?}")).reason.clone()
}

#[tokio::test]
async fn the_newest_version_that_loads_is_served() {
    let repository = Repository::with_spam();
    let models = repository.start();
    assert_eq!(says(&models, "spam").await, ("1".to_owned(), expected("one")));
    repository.put("spam", 2, "model.txt", &data("two.txt"));
    models.refresh().await;
    assert_eq!(says(&models, "spam").await, ("2".to_owned(), expected("two")));
    // By number, 10 is above 2.
    repository.put("spam", 10, "model.txt", &data("one.txt"));
    models.refresh().await;
    assert_eq!(says(&models, "spam").await.0, "10");
    repository.remove("spam", 10);
    models.refresh().await;
    assert_eq!(says(&models, "spam").await, ("2".to_owned(), expected("two")));
    assert_eq!(models.memory(), models.get("spam").expect("there").ready()[0].memory());
}

/// Waits until the model answers as this version, with nobody telling the repository to look.
async fn becomes(models: &Models, version: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while says(models, "spam").await.0 != version {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

#[tokio::test]
async fn the_folder_alone_tells_what_is_served() {
    let repository = Repository::with_spam();
    let models = repository.start();
    assert_eq!(says(&models, "spam").await.0, "1");
    repository.put("spam", 2, "model.txt", &data("two.txt"));
    assert!(becomes(&models, "2").await, "{:?}", models.index());
    assert_eq!(says(&models, "spam").await, ("2".to_owned(), expected("two")));
    repository.remove("spam", 2);
    assert!(becomes(&models, "1").await, "{:?}", models.index());
    assert_eq!(says(&models, "spam").await, ("1".to_owned(), expected("one")));
}

#[tokio::test]
async fn a_broken_version_is_refused_and_the_old_one_serves_on() {
    let repository = Repository::with_spam();
    let models = repository.start();
    let good = data("two.txt");
    let mut one_more = b"tree\n".to_vec();
    one_more.resize(300_000, b'x');
    let broken: [(&str, &[u8], &str); 9] = [
        ("model.txt", &good[..2000], "the file is cut off"),
        ("model.txt", b"", "model.txt: is empty"),
        ("model.txt", b"hello", "model.txt: is none of: LightGBM's text"),
        ("model.txt", &one_more, "has no line `end of trees`"),
        ("model.txt.gz", b"\x1f\x8b\x08\0", "is compressed (gzip); decompress it first"),
        ("model.zip", b"PK\x03\x04....", "is compressed (zip)"),
        ("model.json", b"{\"learner\": ", "model.json"),
        ("weights.txt", b"tree\n", "has no model file"),
        ("model.onnx", b"\x08\x07", "ONNX"),
    ];
    for (version, (file, bytes, told)) in (2..).zip(broken) {
        repository.put("spam", version, file, bytes);
        models.refresh().await;
        assert_eq!(says(&models, "spam").await, ("1".to_owned(), expected("one")), "{file}");
        let reason = reason(&models, "spam", &version.to_string());
        assert!(reason.contains(told), "{file}: {reason}");
        let error = ask(&models, "spam", &version.to_string()).await.expect_err("it is not there");
        assert!(matches!(error, InferError::Unavailable(_)), "{error}");
    }
    // Its file is mended: it is looked at again.
    repository.put("spam", 2, "model.txt", &good);
    models.refresh().await;
    assert_eq!(says(&models, "spam").await, ("2".to_owned(), expected("two")));
}

#[tokio::test]
async fn files_that_are_replaced_half_way_do_not_harm_what_runs() {
    let repository = Repository::with_spam();
    let models = repository.start();
    let file = repository.version("spam", 1).join("model.txt");
    let two = data("two.txt");
    fs::write(&file, &two[..2000]).expect("written");
    models.refresh().await;
    assert_eq!(says(&models, "spam").await, ("1".to_owned(), expected("one")));
    let index = models.index();
    assert!(index[0].ready && index[0].reason.contains("cut off"), "{index:?}");
    fs::write(&file, &two).expect("written");
    models.refresh().await;
    assert_eq!(says(&models, "spam").await, ("1".to_owned(), expected("two")));
    assert_eq!(models.index()[0].reason, "");
    fs::write(repository.version("spam", 1).join("model.json"), data("three.json")).expect("written");
    models.refresh().await;
    assert!(reason(&models, "spam", "1").contains("more than one model file: model.json and model.txt"));
    assert_eq!(says(&models, "spam").await.1, expected("two"));
}

#[tokio::test]
async fn policies_say_which_versions_are_served() {
    let repository = Repository::with_spam();
    for version in [2, 3, 4] {
        repository.put("spam", version, "model.txt", &data("two.txt"));
    }
    repository.put("spam", 5, "model.txt", b"broken");
    repository.put("other", 1, "model.ubj", &data("three.ubj"));
    repository.put("other", 2, "model.json", &data("three.json"));
    let mut config = repository.config();
    config.versions = Versions::Latest(2);
    let pinned = ModelSettings { versions: Some(Versions::These(vec![1, 7])), ..ModelSettings::default() };
    config.settings.insert("other".to_owned(), pinned);
    let models = Models::start(&config).expect("it starts");
    let ready = |models: &Models, name: &str| -> Vec<String> {
        let ready = models.get(name).expect("there").ready();
        ready.iter().map(|version| version.text().to_string()).collect()
    };
    // A broken one is not one of the two.
    assert_eq!(ready(&models, "spam"), ["4", "3"]);
    assert_eq!(ready(&models, "other"), ["1"]);
    assert_eq!(reason(&models, "other", "7"), "it is pinned, but not in the folder");
    let error = ask(&models, "spam", "1").await.expect_err("it is not served");
    assert_eq!(error, InferError::NotFound("model `spam` has no version 1 loaded".to_owned()));
    assert_eq!(ask(&models, "spam", "3").await.expect("it is").version.text().as_ref(), "3");
    // A reload of the configuration changes the policy.
    config.versions = Versions::Latest(1);
    models.configure(&config);
    models.refresh().await;
    assert_eq!(ready(&models, "spam"), ["4"]);
}

#[tokio::test]
async fn a_sample_that_is_not_answered_refuses_the_version() {
    let repository = Repository::with_spam();
    let models = repository.start();
    for (version, name) in [(2, "two"), (3, "one")] {
        fs::create_dir_all(repository.version("spam", version)).expect("made");
        fs::write(repository.version("spam", version).join("sample.json"), data("two.sample.json")).expect("written");
        repository.put("spam", version, "model.txt", &data(&format!("{name}.txt")));
    }
    models.refresh().await;
    assert_eq!(says(&models, "spam").await.0, "2");
    let reason = reason(&models, "spam", "3");
    assert!(reason.starts_with("sample.json: output `output` at 0 is 0.644"), "{reason}");
}

#[tokio::test]
async fn another_signature_is_refused_unless_it_is_meant() {
    let repository = Repository::with_spam();
    let models = repository.start();
    repository.put("spam", 2, "model.ubj", &data("three.ubj"));
    models.refresh().await;
    assert_eq!(says(&models, "spam").await.0, "1");
    let why = reason(&models, "spam", "2");
    assert!(why.starts_with("takes `input` FP32[-1, 4] and gives"), "{why}");
    assert!(why.ends_with("if that is intended, set models.settings.spam.new_signature = true"), "{why}");
    let mut config = repository.config();
    let settings = ModelSettings { new_signature: true, ..ModelSettings::default() };
    config.settings.insert("spam".to_owned(), settings);
    models.configure(&config);
    models.load("spam").await.expect("it loads");
    let answer = ask(&models, "spam", "").await.expect("it answers");
    assert_eq!((answer.version.text().as_ref(), common::first(&answer) as f32), ("2", expected("three") as f32));
}

#[tokio::test]
async fn memory_and_files_are_bounded() {
    let repository = Repository::with_spam();
    let one = repository.start().get("spam").expect("there").ready()[0].memory();
    let mut config = repository.config();
    config.memory = data("one.txt").len() + one / 2;
    let models = Models::start(&config).expect("it starts");
    assert_eq!(says(&models, "spam").await.0, "1");
    // Beside the running one there is no room; it serves on.
    repository.put("spam", 2, "model.txt", &data("two.txt"));
    models.refresh().await;
    assert_eq!(says(&models, "spam").await.0, "1");
    let why = reason(&models, "spam", "2");
    assert!(why.contains("(models.memory)"), "{why}");
    config.memory = 1 << 30;
    config.max_file = 1000;
    models.configure(&config);
    let error = models.load("spam").await.expect_err("it is too large");
    assert!(error.to_string().contains("1000 are allowed (models.max_file)"), "{error}");
    drop(models);
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_by_name() {
    let repository = Repository::with_spam();
    let models = repository.start();
    models.unload("spam").await.expect("it is there");
    let error = ask(&models, "spam", "").await.expect_err("it is unloaded");
    assert_eq!(error, InferError::Unavailable("model `spam` has no version that is ready: it is unloaded".to_owned()));
    assert_eq!((models.memory(), models.is_ready()), (0, false));
    // The folder alone does not bring it back.
    repository.put("spam", 2, "model.txt", &data("two.txt"));
    models.refresh().await;
    assert!(!models.is_ready());
    models.load("spam").await.expect("it loads");
    assert_eq!(says(&models, "spam").await.0, "2");
    assert!(matches!(models.load("none").await, Err(InferError::NotFound(_))));
    assert!(matches!(models.unload("none").await, Err(InferError::NotFound(_))));
    // A model that comes with its folder, and goes with it.
    repository.put("more", 1, "model.json", &data("three.json"));
    models.refresh().await;
    assert_eq!(says(&models, "more").await.0, "1");
    fs::remove_dir_all(repository.dir.path().join("more")).expect("removed");
    models.refresh().await;
    assert!(matches!(ask(&models, "more", "").await, Err(InferError::NotFound(_))));
}

#[tokio::test]
async fn a_repository_that_is_gone_for_a_moment_unloads_nothing() {
    let repository = Repository::with_spam();
    let models = repository.start();
    let aside = repository.dir.path().with_extension("aside");
    fs::rename(repository.dir.path(), &aside).expect("moved");
    models.refresh().await;
    assert_eq!(says(&models, "spam").await.0, "1");
    fs::rename(&aside, repository.dir.path()).expect("moved back");
    models.refresh().await;
    assert_eq!(says(&models, "spam").await.0, "1");
    let error = Models::start(&fanin_config::Models::new("/nowhere/at/all")).expect_err("it can't be read");
    assert!(error.to_string().starts_with("/nowhere/at/all: cannot be read: "), "{error}");
}

/// While versions are swapped as fast as they can be, every answer is the one of the version that it names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_of_exactly_one_version() {
    let repository = Arc::new(Repository::with_spam());
    let models = repository.start();
    let ends = Arc::new(AtomicBool::new(false));
    let askers: Vec<_> = (0..2)
        .map(|_| {
            let (models, ends) = (models.clone(), ends.clone());
            tokio::spawn(async move {
                let mut asked = 0;
                while !ends.load(Ordering::Relaxed) {
                    let (version, output) = says(&models, "spam").await;
                    let odd = version.parse::<u64>().expect("a number") % 2 == 1;
                    assert_eq!(output, expected(if odd { "one" } else { "two" }), "version {version}");
                    asked += 1;
                    tokio::task::yield_now().await;
                }
                asked
            })
        })
        .collect();
    for version in 2..40 {
        let name = if version % 2 == 1 { "one.txt" } else { "two.txt" };
        repository.put("spam", version, "model.txt", &data(name));
        models.refresh().await;
        repository.remove("spam", version - 1);
    }
    ends.store(true, Ordering::Relaxed);
    for asker in askers {
        assert!(asker.await.expect("no answer was wrong") > 0);
    }
    models.refresh().await;
    // Nothing of the old versions is left.
    assert_eq!(models.memory(), models.get("spam").expect("there").ready()[0].memory());
}
