//! `muster convert` as a person runs it.

use crate::Home;

const SET: &str = "apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: ml, labels: {kai.scheduler/queue: team}}
spec:
  replicas: 1
  template:
    cliques:
    - name: workers
      spec:
        replicas: 4
        minAvailable: 3
        podSpec: {restartPolicy: Never, containers: [{name: c, image: i}]}
";

#[test]
fn a_set_is_written_as_others() {
    let home = Home::new("convert");
    let file = home.0.join("set.yaml");
    std::fs::write(&file, SET).unwrap();
    let file = file.to_str().unwrap();
    let (exit, out, err) = home.run(&["convert", "-f", file, "--to", "volcano-job"]);
    assert_eq!((exit, err.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("apiVersion: batch.volcano.sh/v1alpha1") && out.contains("minAvailable: 3"),
        "{out}"
    );

    let (exit, out, err) = home.run(&["convert", "-f", file, "--to", "jobset", "-o", "json"]);
    assert_eq!(exit, 0, "{err}");
    assert_eq!(err, "warning: PodCliqueSet ml: role workers: needs all 4 pods, and not 3 of them\n");
    let made: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");

    let (exit, out, err) = home.run(&["convert", "-f", file, "--to", "jobset", "--strict"]);
    assert_eq!((exit, out.as_str()), (1, ""));
    assert!(err.contains("hint: without --strict"), "{err}");
    let (exit, _, err) = home.run(&["convert", "-f", "nowhere.yaml", "--to", "kai"]);
    assert!(exit == 1 && err.contains("nowhere.yaml"), "{err}");
}
