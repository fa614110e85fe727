//! Watches: order, resumption, selection, bookmarks and their end, on paused time.

use crate::api::{Api, MAPS, map};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_happens_in_order_and_resumes() {
    let api = Api::new();
    let first = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_string();
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    api.ok(&format!("POST {MAPS}"), map("b")).await;
    api.ok(&format!("PATCH {MAPS}/a"), json!({"data": {"k": "w"}})).await;
    api.ok(&format!("DELETE {MAPS}/b"), Value::Null).await;
    for expected in ["ADDED b", "MODIFIED a", "DELETED b"] {
        assert_eq!(events.next().await.unwrap(), expected);
    }
    let mut again = api.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(again.next().await.unwrap(), "ADDED b");
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_changes_nothing_is_no_event() {
    let api = Api::new();
    let made = api.ok(&format!("POST {MAPS}"), map("a")).await;
    let same = api.ok(&format!("PATCH {MAPS}/a"), json!({"data": {"k": "v"}})).await;
    assert_eq!(made["metadata"]["resourceVersion"], same["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selection() {
    let api = Api::new();
    let mut events = api.watch(&format!("{MAPS}?watch=1&labelSelector=on%3Dyes&resourceVersion=1")).await;
    api.ok(&format!("POST {MAPS}"), map("a")).await;
    api.ok(&format!("PATCH {MAPS}/a"), json!({"metadata": {"labels": {"on": "yes"}}})).await;
    api.ok(&format!("PATCH {MAPS}/a"), json!({"data": {"k": "w"}})).await;
    let left = api.ok(&format!("PATCH {MAPS}/a"), json!({"metadata": {"labels": {"on": "no"}}})).await;
    assert_eq!(events.next().await.unwrap(), "ADDED a");
    assert_eq!(events.next().await.unwrap(), "MODIFIED a");
    let gone = events.next_event().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
    assert_eq!(gone["object"]["metadata"]["labels"]["on"], "yes");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_sends_bookmarks_and_ends_on_time() {
    let api = Api::new();
    let mut events = api
        .watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=1"))
        .await;
    assert_eq!(events.next_event().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(events.next_event().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(events.next_event().await, None);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_marked_bookmark() {
    let api = Api::new();
    api.ok(&format!("POST {MAPS}"), map("a")).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(events.next().await.unwrap(), "ADDED a");
    let bookmark = events.next_event().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone_is_a_410() {
    let api = Api::new();
    // Each write keeps half a mebibyte in the history; 128 of them go past its bound of 32 MiB, and 256 past its floor.
    let text = "x".repeat(512 << 10);
    api.ok(&format!("POST {MAPS}"), map("a")).await;
    for i in 0..300 {
        api.ok(&format!("PATCH {MAPS}/a"), json!({"data": {"k": format!("{i}{text}")}})).await;
    }
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion=2")).await;
    let error = events.next_event().await.unwrap();
    assert_eq!((error["type"].as_str(), error["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
    assert_eq!(events.next_event().await, None);
}

#[tokio::test(start_paused = true)]
async fn pages_are_of_one_revision() {
    let api = Api::new();
    for name in ["a", "b", "c", "d", "e"] {
        api.ok(&format!("POST {MAPS}"), map(name)).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_string()).collect()
    };
    let first = api.ok(&format!("GET {MAPS}?limit=2"), Value::Null).await;
    assert_eq!(
        (names(&first), first["metadata"]["remainingItemCount"].as_u64()),
        (vec!["a".into(), "b".into()], Some(3))
    );
    api.ok(&format!("DELETE {MAPS}/c"), Value::Null).await;
    api.ok(&format!("POST {MAPS}"), map("f")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = api.ok(&format!("GET {MAPS}?limit=9&continue={token}"), Value::Null).await;
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}
