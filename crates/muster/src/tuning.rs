//! Flags of `muster run` that concern one service and that few installations need. They have KAI's names, and what KAI's Config has a field for the
//! operator passes on by them.
//!
//! In: flags. Out: the options of a service, changed where a flag says so. Must stay true: a flag that was not given changes nothing.

use muster_runtime::object::Strings;
use std::time::Duration;

/// `--flag` alone means yes, as in KAI; `--flag=false` means no.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings of one service")]
pub struct Tuning {
    /// Admission: whether pods may ask for a part of a GPU [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gpu_sharing_enabled: Option<bool>,
    /// Admission: keep pods from choosing devices by NVIDIA_VISIBLE_DEVICES [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    block_nvidia_visible_devices: Option<bool>,
    /// Admission: tell pods that share a GPU their limit of memory as HAMi-core reads it [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hami_core_enabled: Option<bool>,
    /// Admission: warn of a queue that promises more than its parent has [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_quota_validation: Option<bool>,
    /// Admission: only look at pods that name a queue [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    only_pods_with_queue: Option<bool>,
    /// Admission: the runtime class of pods that share a GPU and name none; empty for none [default: nvidia]
    #[arg(long, value_name = "NAME")]
    gpu_fraction_runtime_class_name: Option<String>,
    /// Admission and grouper: only pods with all these labels
    #[arg(long, value_name = "K=V,K=V", value_delimiter = ',', value_parser = label)]
    pod_label_selector: Vec<(String, String)>,
    /// Admission and grouper: only namespaces with all these labels
    #[arg(long, value_name = "K=V,K=V", value_delimiter = ',', value_parser = label)]
    namespace_label_selector: Vec<(String, String)>,
    /// Grouper: whether the pods of a Knative revision are one gang [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    knative_gang_schedule: Option<bool>,
    /// Grouper: whether pods stay in groups that older versions of KAI made for each pod of a job [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    search_legacy_pg: Option<bool>,
    /// Grouper: the ConfigMap with priorities by kind of workload
    #[arg(long, value_name = "NAME", requires = "default_priorities_configmap_namespace")]
    default_priorities_configmap_name: Option<String>,
    /// Grouper: and its namespace
    #[arg(long, value_name = "NAME", requires = "default_priorities_configmap_name")]
    default_priorities_configmap_namespace: Option<String>,
    /// Grouper and binder: how many pods and bind requests are worked on at a time [default: 32 and 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_concurrent_reconciles: Option<u16>,
    /// Binder: how many bind requests are worked on at a time, whatever was said of the grouper [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_concurrent_binds: Option<u16>,
    /// Binder: how long a volume may take to be bound [default: 120]
    #[arg(long, value_name = "SECONDS")]
    volume_binding_timeout_seconds: Option<u32>,
    /// Binder: name devices as CDI names them [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cdi_enabled: Option<bool>,
    /// Binder: the label `app` of pods that hold shared GPUs [default: kai-resource-reservation]
    #[arg(long, value_name = "VALUE")]
    reservation_app_label: Option<String>,
    /// Binder: their runtime class
    #[arg(long, value_name = "NAME")]
    reservation_runtime_class_name: Option<String>,
    /// Binder: how long such a pod may take to say which GPU it holds [default: 40]
    #[arg(long, value_name = "SECONDS")]
    reservation_timeout_seconds: Option<u32>,
    /// Scale adjuster: the service account of pods that ask autoscalers for GPUs [default: default]
    #[arg(long, value_name = "NAME")]
    scale_service_account: Option<String>,
    /// Scale adjuster: what part of a GPU a request for GPU memory counts as [default: 0.1]
    #[arg(long, value_name = "PART", value_parser = thousandths)]
    gpu_memory_to_fraction_ratio: Option<i64>,
}

impl Tuning {
    pub fn admission(&self, settings: &mut muster_webhook::Settings) {
        set(&mut settings.gpu_sharing, self.gpu_sharing_enabled);
        set(&mut settings.device_access, self.block_nvidia_visible_devices);
        set(&mut settings.hami_core, self.hami_core_enabled);
        set(&mut settings.quota_validation, self.enable_quota_validation);
        set(&mut settings.fraction_runtime_class, self.gpu_fraction_runtime_class_name.clone());
    }

    /// What is sent to admission at all.
    pub fn registration(&self, registration: &mut muster_webhook::Registration) {
        set(&mut registration.only_with_queue, self.only_pods_with_queue);
        registration.pod_labels.extend(self.pod_label_selector.iter().cloned());
        registration.namespace_labels.extend(self.namespace_label_selector.iter().cloned());
    }

    pub fn grouper(&self, options: &mut muster_grouper::Options) {
        set(&mut options.knative_gang, self.knative_gang_schedule);
        set(&mut options.search_legacy_pod_groups, self.search_legacy_pg);
        set(&mut options.workers, self.max_concurrent_reconciles.map(usize::from));
        options.pod_labels = labels(&self.pod_label_selector);
        options.namespace_labels = labels(&self.namespace_label_selector);
        if let (Some(namespace), Some(name)) =
            (&self.default_priorities_configmap_namespace, &self.default_priorities_configmap_name)
        {
            options.default_priorities = Some((namespace.clone(), name.clone()));
        }
    }

    pub fn binder(&self, options: &mut muster_binder::Options) {
        let seconds = |n: u32| Duration::from_secs(n.into());
        let concurrency = self.max_concurrent_binds.or(self.max_concurrent_reconciles);
        set(&mut options.concurrency, concurrency.map(usize::from));
        set(&mut options.volume_wait, self.volume_binding_timeout_seconds.map(seconds));
        let reservation = &mut options.reservation;
        set(&mut reservation.cdi, self.cdi_enabled);
        set(&mut reservation.app_label, self.reservation_app_label.clone());
        set(&mut reservation.wait, self.reservation_timeout_seconds.map(seconds));
        if let Some(class) = &self.reservation_runtime_class_name {
            reservation.runtime_class = Some(class.clone()).filter(|class| !class.is_empty());
        }
    }

    pub fn scale(&self, options: &mut muster_controllers::scale::Options) {
        set(&mut options.service_account, self.scale_service_account.clone());
        set(&mut options.memory_share, self.gpu_memory_to_fraction_ratio);
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

fn labels(pairs: &[(String, String)]) -> Strings {
    pairs.iter().cloned().collect()
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("not a label; say key=value".to_owned()),
    }
}

fn thousandths(text: &str) -> Result<i64, String> {
    let part: f64 = text.parse().map_err(|_| "not a number; say 0.1 for a tenth".to_owned())?;
    if !(0.001..=1.0).contains(&part) {
        return Err("not a part of a GPU; say a number from 0.001 to 1".to_owned());
    }
    Ok((part * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        tuning: Tuning,
    }

    /// The options of all services after some flags.
    fn tuned(flags: &[&str]) -> String {
        let line = Line::try_parse_from(["run"].iter().chain(flags)).unwrap();
        let mut admission = muster_webhook::Options::local(0, true);
        let mut grouper = muster_grouper::Options::default();
        let mut binder = muster_binder::Options::default();
        let mut scale = muster_controllers::scale::Options::default();
        line.tuning.admission(&mut admission.settings);
        line.tuning.registration(&mut admission.registration);
        line.tuning.grouper(&mut grouper);
        line.tuning.binder(&mut binder);
        line.tuning.scale(&mut scale);
        format!(
            "{:#?}\n{:#?}\n{grouper:#?}\n{binder:#?}\n{scale:#?}",
            admission.settings, admission.registration
        )
    }

    /// A flag changes what it says, and nothing else.
    #[track_caller]
    fn check(flag: &str, lines: &[&str]) {
        let (without, with) = (tuned(&[]), tuned(&flag.split(' ').collect::<Vec<_>>()));
        let new: Vec<&str> = with.lines().map(str::trim).collect();
        let old: Vec<&str> = without.lines().map(str::trim).collect();
        for line in lines {
            let times = |all: &[&str]| all.iter().filter(|one| *one == line).count();
            assert!(times(&new) > times(&old), "{flag}: {line}\n{with}");
        }
        if new.len() == old.len() {
            let differ = new.iter().zip(&old).filter(|(new, old)| new != old).count();
            assert_eq!(differ, lines.len(), "{flag}\n{with}");
        }
    }

    #[test]
    fn each_flag_changes_what_it_says() {
        check("--gpu-sharing-enabled=false", &["gpu_sharing: false,"]);
        check("--block-nvidia-visible-devices", &["device_access: true,"]);
        check("--hami-core-enabled=true", &["hami_core: true,"]);
        check("--enable-quota-validation", &["quota_validation: true,"]);
        check("--only-pods-with-queue", &["only_with_queue: true,"]);
        check("--gpu-fraction-runtime-class-name=own", &["fraction_runtime_class: \"own\","]);
        check("--pod-label-selector=a=b,c=", &["\"a\": \"b\",", "\"c\": \"\","]);
        check("--namespace-label-selector=team=x", &["\"team\": \"x\","]);
        check("--knative-gang-schedule=false", &["knative_gang: false,"]);
        check(
            "--default-priorities-configmap-name=m --default-priorities-configmap-namespace=n",
            &["\"n\",", "\"m\","],
        );
        check("--search-legacy-pg", &["search_legacy_pod_groups: true,"]);
        check("--max-concurrent-reconciles=7", &["workers: 7,", "concurrency: 7,"]);
        check("--max-concurrent-binds=7", &["concurrency: 7,"]);
        check("--max-concurrent-binds=7 --max-concurrent-reconciles=8", &["workers: 8,", "concurrency: 7,"]);
        check("--volume-binding-timeout-seconds=7", &["volume_wait: 7s,"]);
        check("--cdi-enabled", &["cdi: true,"]);
        check("--reservation-app-label=own", &["app_label: \"own\","]);
        check("--reservation-runtime-class-name=own", &["\"own\","]);
        check("--reservation-timeout-seconds=7", &["wait: 7s,"]);
        check("--scale-service-account=own", &["service_account: \"own\","]);
        check("--gpu-memory-to-fraction-ratio=0.25", &["memory_share: 250,"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for flag in [
            "--pod-label-selector=team",
            "--pod-label-selector==x",
            "--gpu-memory-to-fraction-ratio=2",
            "--gpu-memory-to-fraction-ratio=half",
            "--max-concurrent-binds=0",
            "--default-priorities-configmap-name=m",
            "--gpu-sharing-enabled=maybe",
        ] {
            assert!(Line::try_parse_from(["run", flag]).is_err(), "{flag}");
        }
    }
}
