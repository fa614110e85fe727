//! What is said about files that do not read as a fleet.

use super::{FILE, Fleet};

#[track_caller]
fn check(text: &str, expected: &str) {
    let error = Fleet::parse("f.yaml", text, 0).expect_err("this must be refused").to_string();
    let error = error.replace(FILE.example, "EXAMPLE");
    assert_eq!(error, format!("f.yaml: {expected}"));
}

#[test]
fn one_sentence_with_line_field_and_fix() {
    check("", "the file is empty; EXAMPLE");
    check("# only words\n\n", "the file is empty; EXAMPLE");
    check(
        "nodes: 4",
        "line 1: unknown field `nodes`, expected one of groups; take it out, or correct its name",
    );
    check(
        "groups: [{count: 1, gpu: {model: x}}]",
        "line 1: unknown field `model`, expected one of product, memory, resource; take it out, or correct its name",
    );
    let required = "line 2: missing field `count`; `groups` and each group's `count` are required";
    check("groups:\n- name: a\n", required);
    let number = "this is not a number from 0 up, or too large a one; write a number such as 8";
    check("groups:\n- name: a\n  count: many\n", &format!("line 3: count: {number}"));
    check("groups:\n- count: -1\n", &format!("line 2: count: {number}"));
    check("groups:\n- count: 1\n  gpus: 99999999999\n", &format!("line 3: gpus: {number}"));
    check("groups: 4", "line 1: groups: this is not a list; EXAMPLE");
    check("groups: [1]", "line 1: this is not a mapping; EXAMPLE");
    check(
        "groups:\n- count: 1\n  labels: [a]\n",
        "line 3: labels: this is not a mapping; write `key: value` pairs, like `{team: research}`",
    );
    check("groups:\n- count: 1\n  count: 2\n", "line 3: `count` is there twice; keep one of them");
    check("just words", "line 1: this is not a mapping; EXAMPLE");
    check("groups: [", "line 1: groups: this is not YAML: unclosed bracket '['; EXAMPLE");
    check(
        "groups:\n- count: 1\n  spot: perhaps\n",
        "line 3: spot: this is neither true nor false; write true or false",
    );
}

#[test]
fn checks_name_the_line_too() {
    let two = "groups:\n- name: a\n  count: 1\n- name: b\n  count: 1\n";
    let with = |more: &str| format!("{two}  {more}\n");
    check(&with("gpus: 5000"), "line 6: groups[1].gpus: 5000 per node is absurd; ask for at most 1024");
    check(
        &with("topology:\n    zone: a\n    nodesPerRack: 0"),
        "line 8: groups[1].topology.nodesPerRack: 0 leaves no place for a node; write 1 or more",
    );
    check(
        &two.replace("name: b", "name: a"),
        "line 4: groups[1].name: \"a\" is used twice; name each group differently",
    );
    check(
        &with("cpu: lots"),
        "line 6: groups[1].cpu: \"lots\" is not a quantity; write a quantity such as 96, 500m or 768Gi",
    );
    let many = Fleet::simple(usize::MAX, 0).unwrap_err().to_string();
    assert_eq!(many, format!("--nodes: {} nodes are too many; ask for at most 100000 in all", usize::MAX));
    let gpus = Fleet::simple(1, 9999).unwrap_err().to_string();
    assert_eq!(gpus, "--gpus: 9999 per node is absurd; ask for at most 1024");
}

#[test]
fn hostile_files_get_one_short_line() {
    for text in [
        "\u{0}\u{1}",
        "groups:\n\t- count: 1",
        "groups: [{count: 1, ünï: 2}]",
        &"[".repeat(5000),
        &"a".repeat(100_000),
    ] {
        let error = Fleet::parse("f.yaml", text, 0).expect_err("this must be refused").to_string();
        assert!(!error.contains('\n') && error.len() < 1000, "{error}");
    }
}
