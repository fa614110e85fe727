//! `muster reserve-gpu`: what runs in a reservation pod. It holds one GPU for pods that share it, and says which.
//!
//! In: the one device that the container was given, by what the device plug-in puts into its environment, or by the driver's own
//! files. Out: the annotation that the binder waits for, on its own pod; then it idles until it is told to end.

use crate::Exit;
use crate::up::{interrupted, runtime};
use anyhow::{Context, bail};
use muster_runtime::api::Patch;
use muster_runtime::{Api, Connect, connect};
use serde_json::json;
use std::path::Path;

/// The annotation that names the GPU.
const DEVICE: &str = "run.ai/reserve_for_gpu_index";
const DRIVER: &str = "/proc/driver/nvidia/gpus";

#[derive(clap::Args)]
#[command(
    after_help = "Example, in the pod that the binder makes:\n  POD_NAME=reservation-1 POD_NAMESPACE=kai-resource-reservation muster reserve-gpu"
)]
pub struct Args {
    /// The pod to write to
    #[arg(long, env = "POD_NAME")]
    pod: String,
    /// Its namespace
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// The devices that the container can use, as the device plug-in names them
    #[arg(long, env = "NVIDIA_VISIBLE_DEVICES", default_value = "", hide_env_values = true)]
    devices: String,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let device = match one_device(&args.devices)? {
        Some(device) => device,
        None => from_driver(Path::new(DRIVER))?,
    };
    runtime()?.block_on(async {
        let api = Api::new(connect(Connect::default()).await?, "muster-reserve-gpu");
        let path = format!("/api/v1/namespaces/{}/pods/{}", args.namespace, args.pod);
        let patch = json!({"metadata": {"annotations": {DEVICE: device}}});
        let written = api.patch_path(&path, Patch::Merge, &patch).await;
        written.with_context(|| {
            format!("cannot write annotation {DEVICE} to pod {}/{}", args.namespace, args.pod)
        })?;
        println!("holding {device}");
        interrupted().await;
        Ok(Exit::Done)
    })
}

/// The one device that a list names; `None` if the list says nothing.
fn one_device(list: &str) -> anyhow::Result<Option<String>> {
    let names: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    match names.as_slice() {
        [] | ["void" | "none"] => Ok(None),
        ["all"] => bail!(
            "NVIDIA_VISIBLE_DEVICES is all; a reservation needs exactly one GPU: request nvidia.com/gpu: 1"
        ),
        // As CDI names it: nvidia.com/gpu=GPU-...
        [one] => Ok(Some(one.rsplit('=').next().unwrap_or(one).to_owned())),
        many => bail!(
            "{} GPUs are visible ({list}); a reservation needs exactly one: request nvidia.com/gpu: 1",
            many.len()
        ),
    }
}

/// The one GPU that the driver shows.
fn from_driver(folder: &Path) -> anyhow::Result<String> {
    let said = || {
        format!(
            "no NVIDIA_VISIBLE_DEVICES, and {} cannot be read: is this a GPU container?",
            folder.display()
        )
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(said)? {
        let text = std::fs::read_to_string(entry?.path().join("information")).with_context(said)?;
        let uuid = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"));
        found.extend(uuid.map(|uuid| uuid.trim().to_owned()));
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!(
            "the driver shows {} GPUs; a reservation needs exactly one: request nvidia.com/gpu: 1",
            found.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, expected: &str) {
        let got = match one_device(list) {
            Ok(Some(device)) => device,
            Ok(None) => "unknown".to_owned(),
            Err(error) => error.to_string().split(';').next().unwrap_or_default().to_owned(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn exactly_one_device() {
        check("GPU-1234", "GPU-1234");
        check(" 3 ", "3");
        check("nvidia.com/gpu=GPU-1", "GPU-1");
        check("", "unknown");
        check("void", "unknown");
        check("all", "NVIDIA_VISIBLE_DEVICES is all");
        check("GPU-1,GPU-2", "2 GPUs are visible (GPU-1,GPU-2)");
    }

    #[test]
    fn the_driver_is_asked_last() {
        let folder = std::env::temp_dir().join(format!("muster-gpus-{}", std::process::id()));
        let gpu = folder.join("0000:3b:00.0");
        std::fs::create_dir_all(&gpu).unwrap();
        std::fs::write(gpu.join("information"), "Model: \t H100\nGPU UUID: \t GPU-77\n").unwrap();
        let found = from_driver(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.unwrap(), "GPU-77");
        assert!(from_driver(&folder).is_err());
    }
}
