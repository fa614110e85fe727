//! Kubernetes' own Jobs.

use serde_json::{Value, json};

use super::{Ended, Job};
use crate::keys;
use crate::object::{BatchJob, at, int, list, text};
use crate::podset::{Clash, Info, pod_set, restored, with};

/// Pods of an indexed Job carry their number here.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

impl BatchJob {
    fn parallelism(&self) -> i64 {
        int(self.spec(), &["parallelism"]).unwrap_or(1).max(0)
    }

    fn annotation(&self, name: &str) -> &str {
        self.metadata.annotation(name).unwrap_or_default()
    }

    /// Pods that run at a time; never more than are to be completed.
    fn width(&self) -> i64 {
        let completions = int(self.spec(), &["completions"]);
        completions.map_or(self.parallelism(), |completions| completions.min(self.parallelism())).max(0)
    }

    fn min_width(&self) -> Option<i64> {
        let min: i64 = self.annotation(keys::MIN_PARALLELISM).parse().ok()?;
        (min > 0 && min < self.width()).then_some(min)
    }

    fn completions_follow(&self) -> bool {
        self.annotation(keys::COMPLETIONS_FOLLOW) == "true"
    }

    fn is_indexed(&self) -> bool {
        text(self.spec(), &["completionMode"]) == "Indexed"
    }

    fn with_template(&self, template: Value, suspend: bool, width: Option<i64>) -> Value {
        let mut out = self.body.clone();
        out["spec"]["suspend"] = json!(suspend);
        out["spec"]["template"] = template;
        if let Some(width) = width {
            out["spec"]["parallelism"] = json!(width);
            if self.completions_follow() {
                out["spec"]["completions"] = json!(width);
            }
        }
        out
    }
}

impl Job for BatchJob {
    const FRAMEWORK: &'static str = "batch/job";

    fn body(&self) -> &Value {
        &self.body
    }

    fn is_suspended(&self) -> bool {
        at(self.spec(), &["suspend"]).as_bool().unwrap_or(false)
    }

    fn is_active(&self) -> bool {
        int(self.status(), &["active"]).unwrap_or(0) > 0
            || int(self.status(), &["terminating"]).unwrap_or(0) > 0
    }

    fn ended(&self) -> Option<Ended> {
        list(self.status(), &["conditions"]).iter().find_map(|c| {
            let success = match text(c, &["type"]) {
                "Complete" => true,
                "Failed" => false,
                _ => return None,
            };
            let message = || match text(c, &["message"]) {
                "" => "Job finished successfully".to_owned(),
                message => message.to_owned(),
            };
            (text(c, &["status"]) == "True").then(|| Ended { success, message: message() })
        })
    }

    fn pods_ready(&self) -> bool {
        let n = |field: &str| int(self.status(), &[field]).unwrap_or(0);
        n("succeeded") + n("ready") >= self.width()
    }

    fn pod_sets(&self) -> Vec<Value> {
        let template = at(self.spec(), &["template"]);
        vec![pod_set("main", self.width(), template, self.min_width(), Some(INDEX))]
    }

    fn reclaimable(&self) -> Vec<(String, i64)> {
        let (width, completions) = (self.parallelism(), int(self.spec(), &["completions"]));
        let done = int(self.status(), &["succeeded"]).unwrap_or(0);
        if width == 1 || done == 0 {
            return Vec::new();
        }
        let done = if self.is_indexed() {
            done.saturating_add(n_indexes(text(self.status(), &["failedIndexes"])))
        } else {
            done
        };
        let left = completions.unwrap_or(width).saturating_sub(done);
        if left >= self.width() { Vec::new() } else { vec![("main".into(), self.width() - left.max(0))] }
    }

    fn started(&self, infos: &[Info]) -> Result<Value, Clash> {
        let info = infos.first().ok_or_else(|| Clash::NoSet("main".into()))?;
        let template = with(at(self.spec(), &["template"]), info)?;
        let width = (self.min_width().is_some() && info.count < self.width()).then_some(info.count);
        Ok(self.with_template(template, false, width))
    }

    fn stopped(&self, sets: &[Value]) -> Value {
        let template = at(self.spec(), &["template"]);
        match sets.first() {
            None => self.with_template(template.clone(), true, None),
            Some(set) => {
                let width = self
                    .metadata
                    .annotations
                    .contains_key(keys::MIN_PARALLELISM)
                    .then(|| int(set, &["count"]))
                    .flatten();
                self.with_template(restored(template, at(set, &["template"])), true, width)
            }
        }
    }

    fn settle(&self) -> Option<Value> {
        // The API server lets a template be changed only while a Job has not begun.
        let begun = !at(self.status(), &["startTime"]).is_null();
        (self.is_suspended() && begun).then(|| json!({"startTime": null}))
    }
}

/// How many indexes a text such as `1,3-5` names.
fn n_indexes(text: &str) -> i64 {
    text.split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((from, to)) => {
                let (from, to): (i64, i64) = (from.parse().ok()?, to.parse().ok()?);
                Some(to.saturating_sub(from).saturating_add(1).max(0))
            }
            None => part.parse::<i64>().ok().map(|_| 1),
        })
        .fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_runtime::object::Meta;

    fn job(spec: Value, status: Value, annotations: &[(&str, &str)]) -> BatchJob {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let metadata = Meta { name: "j".into(), namespace: "ns".into(), annotations, ..Meta::default() };
        BatchJob { metadata, body: json!({"spec": spec, "status": status}) }
    }

    #[track_caller]
    fn check_count(spec: Value, annotations: &[(&str, &str)], expected: (i64, Option<i64>)) {
        let sets = job(spec, json!({}), annotations).pod_sets();
        assert_eq!((int(&sets[0], &["count"]).unwrap(), int(&sets[0], &["minCount"])), expected);
    }

    #[test]
    fn how_many_pods() {
        check_count(json!({}), &[], (1, None));
        check_count(json!({"parallelism": 3}), &[], (3, None));
        check_count(json!({"parallelism": 5, "completions": 2}), &[], (2, None));
        check_count(json!({"parallelism": 0}), &[], (0, None));
        check_count(json!({"parallelism": 20}), &[(keys::MIN_PARALLELISM, "5")], (20, Some(5)));
        check_count(json!({"parallelism": 4}), &[(keys::MIN_PARALLELISM, "4")], (4, None));
        check_count(json!({"parallelism": 4}), &[(keys::MIN_PARALLELISM, "x")], (4, None));
    }

    #[track_caller]
    fn check_reclaimable(spec: Value, status: Value, expected: i64) {
        let n = job(spec, status, &[]).reclaimable().first().map_or(0, |(_, n)| *n);
        assert_eq!(n, expected);
    }

    #[test]
    fn pods_that_are_done_for_good() {
        let spec = || json!({"parallelism": 3, "completions": 5});
        check_reclaimable(spec(), json!({}), 0);
        check_reclaimable(spec(), json!({"succeeded": 2}), 0);
        check_reclaimable(spec(), json!({"succeeded": 3}), 1);
        check_reclaimable(spec(), json!({"succeeded": 5}), 3);
        check_reclaimable(json!({"parallelism": 1, "completions": 5}), json!({"succeeded": 5}), 0);
        check_reclaimable(json!({"parallelism": 3}), json!({"succeeded": 1}), 1);
        let indexed = json!({"parallelism": 3, "completions": 5, "completionMode": "Indexed"});
        check_reclaimable(indexed, json!({"succeeded": 2, "failedIndexes": "0,2-3"}), 3);
    }

    #[test]
    fn partial_admission_and_back() {
        let spec = json!({"parallelism": 20, "completions": 20, "suspend": true, "template": {"spec": {"containers": []}}});
        let job = job(spec, json!({}), &[(keys::MIN_PARALLELISM, "5")]);
        let info = Info { name: "main".into(), count: 7, ..Info::default() };
        let started = job.started(&[info]).unwrap();
        assert_eq!(
            (&started["spec"]["parallelism"], &started["spec"]["completions"]),
            (&json!(7), &json!(20))
        );
        assert_eq!(started["spec"]["suspend"], false);
        let running = BatchJob { body: started, ..job.clone() };
        assert_eq!(running.stopped(&job.pod_sets())["spec"], job.body["spec"]);
    }

    #[test]
    fn ends() {
        let ended = |kind: &str, status: &str| {
            let status = json!({"conditions": [{"type": kind, "status": status, "message": "m"}]});
            job(json!({}), status, &[]).ended().map(|e| e.success)
        };
        assert_eq!(ended("Complete", "True"), Some(true));
        assert_eq!(ended("Failed", "True"), Some(false));
        assert_eq!(ended("Complete", "False"), None);
        assert_eq!(ended("Suspended", "True"), None);
    }
}
