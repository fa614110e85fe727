//! The table of requests (`data/requests.yaml`) and what runs it.
//!
//! In: the table and a server. Out: for each request what came back. The order matters, and so one request that fails
//! does not end the run: the later ones then show what follows from it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_testkit::{Http, Request, Response, WatchEnd};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::normal::normal;

/// How long a request with `until` is repeated.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a watch may be silent. Longer than the `timeoutSeconds` of the watches in the table, so that an end by
/// timeout is the server's.
const QUIET: Duration = Duration::from_secs(8);

/// One request of the table. The head of the file says what the fields mean.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The name, unique in the table.
    pub what: String,
    /// `METHOD PATH`
    pub send: String,
    /// The status that the real server answers.
    pub want: u16,
    #[serde(default)]
    body: Option<Value>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    accept: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    anonymous: bool,
    #[serde(default)]
    save: BTreeMap<String, String>,
    #[serde(default)]
    until: BTreeMap<String, Value>,
    #[serde(default)]
    events: Option<usize>,
    #[serde(default)]
    loose: bool,
}

/// What one request got.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The request as it was sent.
    pub request: Request,
    /// The status code; 0 when the connection failed.
    pub status: u16,
    /// The headers that a client reads.
    pub headers: BTreeMap<String, Vec<String>>,
    /// The body: JSON as it is, YAML as the value it stands for, other text as a string; of a watch, its events and how
    /// it ended.
    pub body: Value,
}

impl Step {
    /// Status, headers and body of what this request got in one value, made comparable.
    pub fn comparable(&self, outcome: &Outcome, run: &str) -> Value {
        let mut value =
            normal(&json!({"status": outcome.status, "headers": outcome.headers, "body": outcome.body}), run);
        if self.loose {
            for pointer in ["/body/message", "/body/details/causes/0/message"] {
                if let Some(message) = value.pointer_mut(pointer) {
                    *message = "<loose>".into();
                }
            }
        }
        value
    }
}

/// The table.
///
/// # Errors
/// When the file is not what its head says, or two requests share a name.
pub fn table() -> Result<Vec<Step>> {
    let steps: Vec<Step> =
        serde_saphyr::from_str(include_str!("../data/requests.yaml")).context("data/requests.yaml")?;
    let mut names: Vec<&str> = steps.iter().map(|step| step.what.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        anyhow::bail!("two requests are named {}", twice[0]);
    }
    Ok(steps)
}

/// Sends every request in order. `run` is the namespace that the run makes.
pub async fn run(steps: &[Step], http: &Http, run: &str) -> Vec<Outcome> {
    let mut saved = BTreeMap::new();
    let mut outcomes = Vec::with_capacity(steps.len());
    for step in steps {
        let request = step.request(run, &saved);
        let outcome = step.perform(request, http).await;
        for (name, pointer) in &step.save {
            if let Some(value) = outcome.body.pointer(pointer) {
                saved.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
        outcomes.push(outcome);
    }
    outcomes
}

/// Writes one file per request: what was sent and what came back, unchanged.
///
/// # Errors
/// When a file cannot be written.
pub fn dump(dir: &Path, steps: &[Step], outcomes: &[Outcome]) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    for (n, (step, outcome)) in steps.iter().zip(outcomes).enumerate() {
        let request = &outcome.request;
        let headers: BTreeMap<_, _> = request.headers.iter().cloned().collect();
        let text = json!({
            "request": {
                "send": format!("{} {}", request.method, request.path), "headers": headers,
                "body": serde_json::from_slice::<Value>(&request.body)
                    .unwrap_or_else(|_| String::from_utf8_lossy(&request.body).into_owned().into()),
            },
            "status": outcome.status, "headers": outcome.headers, "body": outcome.body,
        });
        let file = dir.join(format!("{n:03}-{}.json", step.what));
        std::fs::write(&file, serde_json::to_string_pretty(&text)?)
            .with_context(|| file.display().to_string())?;
    }
    Ok(())
}

impl Step {
    fn request(&self, run: &str, saved: &BTreeMap<String, String>) -> Request {
        let fill = |text: &str| {
            let mut text = text.replace("$NS", run).replace("$LONG", &"a".repeat(254));
            for (name, value) in saved {
                text = text.replace(&format!("${{{name}}}"), value);
            }
            text
        };
        let sent = fill(&self.send);
        let (method, path) = sent.split_once(' ').unwrap_or(("GET", &sent));
        let mut request = Request::new(method, path)
            .header("accept", self.accept.as_deref().unwrap_or("application/json"))
            // The name of the field manager comes from it.
            .header("user-agent", "muster-e2e");
        let body = self.text.clone().or_else(|| self.body.as_ref().map(Value::to_string));
        if let Some(body) = body {
            request = request.header("content-type", self.r#type.as_deref().unwrap_or("application/json"));
            request.body = fill(&body).into_bytes();
        }
        for (name, value) in &self.headers {
            request = request.header(name, &fill(value));
        }
        request.anonymous = self.anonymous;
        request
    }

    async fn perform(&self, request: Request, http: &Http) -> Outcome {
        let start = Instant::now();
        loop {
            let outcome = match self.events {
                Some(enough) => http.watch(&request, enough, QUIET).await.map(|(response, events, end)| {
                    let mut outcome = outcome(&request, &response);
                    if response.status == 200 {
                        outcome.body = json!({"events": events, "end": said(end)});
                    }
                    outcome
                }),
                None => http.send(&request).await.map(|response| outcome(&request, &response)),
            };
            let outcome = outcome.unwrap_or_else(|error| Outcome {
                request: request.clone(),
                status: 0,
                headers: BTreeMap::new(),
                body: format!("{error:#}").into(),
            });
            let reached =
                self.until.iter().all(|(pointer, value)| outcome.body.pointer(pointer) == Some(value));
            if reached || start.elapsed() >= PATIENCE {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

pub(crate) fn outcome(request: &Request, response: &Response) -> Outcome {
    let headers = ["content-type", "warning", "retry-after", "allow", "www-authenticate"]
        .into_iter()
        .map(|name| (name.to_owned(), response.header(name)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let text = String::from_utf8_lossy(&response.body);
    let is_yaml = response.header("content-type").iter().any(|kind| kind.starts_with("application/yaml"));
    let body = match serde_json::from_slice(&response.body) {
        Ok(json) => json,
        Err(_) if is_yaml => serde_saphyr::from_str(&text).unwrap_or_else(|_| text.into_owned().into()),
        Err(_) => text.into_owned().into(),
    };
    Outcome { request: request.clone(), status: response.status, headers, body }
}

fn said(end: WatchEnd) -> &'static str {
    match end {
        WatchEnd::Enough => "enough events",
        WatchEnd::Closed => "closed by the server",
        WatchEnd::Timeout => "no event in time",
    }
}
