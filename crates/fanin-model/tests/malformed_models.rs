//! Model files that are cut off, contradict themselves or are something else: refused with a message, never loaded.

use fanin_model::LoadError;
use fanin_model::engine::trees::Trees;

const TEXT: &str = include_str!("data/one.txt");
const JSON: &str = include_str!("data/three.json");
const UBJ: &[u8] = include_bytes!("data/three.ubj");

/// What a model may take here.
const ROOM: usize = 1 << 20;

fn lightgbm(text: &[u8]) -> Result<Trees, LoadError> {
    Trees::lightgbm(text, ROOM)
}

fn xgboost(bytes: &[u8]) -> Result<Trees, LoadError> {
    Trees::xgboost(bytes, ROOM)
}

fn told(result: Result<Trees, LoadError>) -> String {
    result.err().map(|error| error.to_string()).expect("it is refused")
}

#[test]
fn a_lightgbm_file_cut_off_anywhere_is_refused() {
    let end = TEXT.find("end of trees").expect("it is there");
    for length in 0..end + "end of trees".len() {
        let error = told(lightgbm(&TEXT.as_bytes()[..length]));
        assert!(!error.is_empty());
    }
    assert_eq!(told(lightgbm(&TEXT.as_bytes()[..end])), "model: has no line `end of trees`; the file is cut off");
    assert!(lightgbm(&TEXT.as_bytes()[..end + "end of trees".len()]).is_ok());
}

#[test]
fn an_xgboost_file_cut_off_anywhere_is_refused() {
    for length in (0..JSON.trim_end().len()).step_by(7) {
        told(xgboost(&JSON.as_bytes()[..length]));
    }
    for length in 0..UBJ.len() {
        told(xgboost(&UBJ[..length]));
    }
}

#[test]
fn bytes_that_were_changed_never_panic() {
    let mut state = 9_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..3000 {
        let mut text = TEXT.as_bytes().to_vec();
        let mut ubj = UBJ.to_vec();
        for _ in 0..=next() % 3 {
            let at = next() % text.len();
            text[at] = b"0123456789-=. \nxe"[next() % 17];
            let at = next() % ubj.len();
            ubj[at] = next() as u8;
        }
        let _ = lightgbm(&text);
        let _ = xgboost(&ubj);
    }
}

#[test]
fn what_contradicts_itself_is_named_with_its_place() {
    let changed = |from: &str, to: &str| {
        assert!(TEXT.contains(from), "{from}");
        told(lightgbm(TEXT.replacen(from, to, 1).as_bytes()))
    };
    assert_eq!(
        changed("objective=binary sigmoid:1", "objective=my_own"),
        "head: objective `my_own`; this engine does not support it, so the model is refused"
    );
    assert_eq!(
        changed("version=v4", "version=v9"),
        "head: version `v9` of the format (v2, v3 and v4 are known); this engine does not support it, so the model is \
         refused"
    );
    assert_eq!(
        changed("is_linear=0", "is_linear=1"),
        "tree 0: its leaves are linear models (linear_tree); this engine does not support it, so the model is refused"
    );
    assert_eq!(changed("max_feature_idx=3", "max_feature_idx=1"), "tree 0: node 2 asks feature 2 of 2");
    assert_eq!(
        changed("leaf_value=", "leaf_value=1.5 "),
        "tree 0: leaf_value has 6 values, 5 are expected; the file may be cut off"
    );
    assert_eq!(changed("left_child=", "left_child=x"), "tree 0: left_child: `x1` is not a number that it may be");
    assert_eq!(changed("num_leaves=5\n", "num_leaves=5\nnum_leaves=5\n"), "tree 0: `num_leaves` is there twice");
    let endless: String = (0..2000).map(|line| format!("x{line}=\n")).collect();
    let told_of_lines = changed("num_leaves=5\n", &format!("num_leaves=5\n{endless}"));
    assert_eq!(told_of_lines, "tree 0: has more than 1000 lines, as no part of a model does");
    let sets = format!("num_cat={}\ncat_boundaries=\ncat_threshold=\n", usize::MAX);
    assert_eq!(changed("num_cat=0\n", &sets), format!("tree 0: num_cat is {}", usize::MAX));

    let changed = |from: &str, to: &str| {
        assert!(JSON.contains(from), "{from}");
        told(xgboost(JSON.replacen(from, to, 1).as_bytes()))
    };
    assert_eq!(
        changed("binary:logistic", "reg:magic"),
        "learner.objective.name: objective `reg:magic`; this engine does not support it, so the model is refused"
    );
    assert_eq!(
        changed("\"name\":\"gbtree\"", "\"name\":\"gblinear\""),
        "learner.gradient_booster: booster `gblinear`; this engine does not support it, so the model is refused"
    );
    assert_eq!(
        changed("\"num_trees\":\"3\"", "\"num_trees\":\"4\""),
        "learner.gradient_booster.model.trees: 3 trees are there, num_trees is 4"
    );
    assert!(changed("\"left_children\":[1,", "\"left_children\":[0,").contains("trees[0]: node 0 is reached twice"));
}

/// One category of a high number takes two megabytes as a set of bits, and a dozen bytes in the file.
#[test]
fn sets_of_categories_take_no_more_room_than_there_is() {
    let categorical = JSON
        .replacen(r#""split_type":[0,"#, r#""split_type":[1,"#, 1)
        .replacen(r#""categories":[]"#, r#""categories":[16777215]"#, 1)
        .replacen(r#""categories_nodes":[]"#, r#""categories_nodes":[0]"#, 1)
        .replacen(r#""categories_segments":[]"#, r#""categories_segments":[0]"#, 1)
        .replacen(r#""categories_sizes":[]"#, r#""categories_sizes":[1]"#, 1);
    assert!(Trees::xgboost(categorical.as_bytes(), 4 << 20).is_ok());
    let error = told(Trees::xgboost(categorical.as_bytes(), 1 << 20));
    assert!(error.starts_with("the model's sets of categories, beside the other models: "), "{error}");
    assert!(error.ends_with("1048576 are allowed (models.memory)"), "{error}");
    // The same set for as many nodes as one likes.
    let many = |what: &str| vec![what; 10_000].join(",");
    let bomb = categorical
        .replacen(r#""categories_nodes":[0]"#, &format!(r#""categories_nodes":[{}]"#, many("0")), 1)
        .replacen(r#""categories_segments":[0]"#, &format!(r#""categories_segments":[{}]"#, many("0")), 1)
        .replacen(r#""categories_sizes":[1]"#, &format!(r#""categories_sizes":[{}]"#, many("1")), 1);
    assert!(told(Trees::xgboost(bomb.as_bytes(), 64 << 20)).contains("67108864 are allowed"));
}

#[test]
fn other_files_are_refused() {
    assert_eq!(told(lightgbm(b"hello")), "model: does not begin with `tree`, as LightGBM's text format does");
    assert_eq!(told(lightgbm(b"tree\n\xff")), "model: is not text: byte 5 is not UTF-8");
    assert_eq!(told(xgboost(b"binf")), "model: begins neither as XGBoost's JSON nor as its UBJSON");
    assert_eq!(told(xgboost(b"{\"a\": 1}")), "model: `version` is missing");
}
