//! The programs of a real Kubernetes, built from Go modules that this repository pins; and Volcano's scheduler.
//!
//! In: `xtask/kube/<module>/go.mod` and `go.sum`, and a Go toolchain. Out: a folder in the cache with kube-apiserver,
//! kube-controller-manager, kube-scheduler, kubectl, etcd and kwok; in one of its own, vc-scheduler. Nothing is downloaded that the
//! sums do not name.
//! Invariant: a folder with a stamp is complete and was built from the pins that the stamp repeats.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The Kubernetes release that the end-to-end suite is compared with.
pub const KUBERNETES_VERSION: &str = "1.36.3";

/// A release of Kubernetes that a test can ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The one that the suite is compared with.
    #[default]
    V1_36,
    /// The one before, whose gang API is another. Nothing in the suite of every day needs it.
    V1_35,
}

impl Release {
    /// As `/version` says it.
    pub fn version(self) -> &'static str {
        match self {
            Release::V1_36 => KUBERNETES_VERSION,
            Release::V1_35 => "1.35.4",
        }
    }

    /// The version of its gang API.
    pub fn gang_api(self) -> &'static str {
        match self {
            Release::V1_36 => "v1alpha2",
            Release::V1_35 => "v1alpha1",
        }
    }

    /// The features that make it schedule gangs.
    pub fn gates(self) -> &'static str {
        match self {
            Release::V1_36 => {
                "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true,WorkloadAwarePreemption=true"
            }
            Release::V1_35 => "GenericWorkload=true,GangScheduling=true",
        }
    }

    /// The folder of its pins.
    fn module(self) -> &'static str {
        match self {
            Release::V1_36 => "kubernetes",
            Release::V1_35 => "kubernetes-1.35",
        }
    }
}
/// The etcd release that this Kubernetes is built against.
pub const ETCD_VERSION: &str = "3.6.8";
/// The KWOK release that plays the kubelets.
pub const KWOK_VERSION: &str = "0.7.0";

/// The Volcano release whose scheduler places the gangs that are made for it.
pub const VOLCANO_VERSION: &str = "1.15.1";
/// The release of Volcano's API types that it is built against: of 1.15 there is no module to be had.
pub const VOLCANO_API_VERSION: &str = "1.14.0";

/// One program: its name, the folder of its pins, its Go package.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
];

const STAMP: &str = "built";

/// A folder that holds all of them.
#[derive(Clone, Debug)]
pub struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// The programs, built now if the cache lacks them (some minutes on two cores), otherwise at once. Two callers at
    /// the same time build once.
    ///
    /// # Errors
    /// When the cache lacks them and there is no Go, or a build fails.
    pub fn ensure() -> Result<Programs> {
        Self::built(&format!("kube-{KUBERNETES_VERSION}"), &stamp()?, |dir| {
            for (n, (program, module, package)) in PROGRAMS.iter().enumerate() {
                eprintln!("kube: building {program} ({} of {})", n + 1, PROGRAMS.len());
                go_build(&pins_dir().join(module), package, &ldflags(module), dir, program)?;
            }
            Ok(())
        })
    }

    /// The programs of a release; what is not Kubernetes' own is the same for all.
    ///
    /// # Errors
    /// When the cache lacks them and there is no Go, or a build fails.
    pub fn ensure_release(release: Release) -> Result<Programs> {
        let all = Self::ensure()?;
        if release == Release::V1_36 {
            return Ok(all);
        }
        let module = release.module();
        let stamp = format!("{}\n{}", stamp()?, pins(module)?);
        Self::built(&format!("kube-{}", release.version()), &stamp, |dir| {
            for (program, of, package) in PROGRAMS {
                if of == "kubernetes" && program != "kubectl" {
                    eprintln!("kube: building {program} {}", release.version());
                    go_build(&pins_dir().join(module), package, &ldflags(module), dir, program)?;
                } else {
                    std::fs::copy(all.path(program), dir.join(program))?;
                }
            }
            Ok(())
        })
    }

    /// Volcano's scheduler, `vc-scheduler`, in the same way (three minutes on two cores).
    ///
    /// # Errors
    /// When the cache lacks it and there is no Go, or the build fails.
    pub fn ensure_volcano() -> Result<Programs> {
        Self::built(&format!("volcano-{VOLCANO_VERSION}"), &volcano_stamp()?, |dir| {
            eprintln!("kube: building vc-scheduler");
            let module = dir.join("module");
            lay_out_volcano(&module)?;
            go_build(&module, "volcano.sh/volcano/cmd/scheduler", &ldflags("volcano"), dir, "vc-scheduler")?;
            std::fs::remove_dir_all(&module).with_context(|| format!("remove {}", module.display()))
        })
    }

    /// A folder of the cache that `build` filled for this stamp, now or at some time before.
    fn built(name: &str, stamp: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<Programs> {
        let base = cache_dir()?.join(name);
        let programs = Programs { dir: base.join("bin") };
        if programs.is_built(stamp) {
            return Ok(programs);
        }
        go_version()?;
        std::fs::create_dir_all(&programs.dir)
            .with_context(|| format!("create {}", programs.dir.display()))?;
        let lock = File::create(base.join("lock"))?;
        lock.lock().context("wait for another build")?;
        if !programs.is_built(stamp) {
            let _ = std::fs::remove_file(programs.dir.join(STAMP));
            build(&programs.dir)?;
            std::fs::write(programs.dir.join(STAMP), stamp)?;
        }
        Ok(programs)
    }

    /// Where one of them is.
    pub fn path(&self, program: &str) -> PathBuf {
        self.dir.join(program)
    }

    /// The folder they are in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn is_built(&self, stamp: &str) -> bool {
        std::fs::read_to_string(self.dir.join(STAMP)).is_ok_and(|built| built == stamp)
    }
}

/// Builds a package of the module in `module` to `dir/program`.
fn go_build(module: &Path, package: &str, ldflags: &str, dir: &Path, program: &str) -> Result<()> {
    // Built beside its place and renamed, so that a broken build never leaves half a program.
    let unfinished = dir.join(format!("{program}.unfinished"));
    let status = Command::new("go")
        .current_dir(module)
        .args(["build", "-trimpath", "-ldflags", ldflags, "-o"])
        .arg(&unfinished)
        .arg(package)
        .env("GOWORK", "off")
        .status()
        .context("start go")?;
    anyhow::ensure!(status.success(), "go build {package}: {status}");
    std::fs::rename(&unfinished, dir.join(program))?;
    Ok(())
}

/// The pins of Volcano in a folder of their own, with its API types beside them and in them the one constant that came after the
/// release that can be had: the gate that pods of a queue may be held by.
fn lay_out_volcano(module: &Path) -> Result<()> {
    let pins = pins_dir().join("volcano");
    let out = Command::new("go")
        .current_dir(&pins)
        .args(["mod", "download", "-json", "volcano.sh/apis"])
        .env("GOWORK", "off")
        .output()
        .context("start go")?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    anyhow::ensure!(out.status.success(), "go mod download: {said}{}", String::from_utf8_lossy(&out.stderr));
    let said: serde_json::Value = serde_json::from_str(&said).context("go mod download answers in JSON")?;
    let types = said["Dir"].as_str().context("go mod download names a folder")?;
    if module.exists() {
        std::fs::remove_dir_all(module).with_context(|| format!("remove {}", module.display()))?;
    }
    copy_writable(Path::new(types), &module.join("apis"))?;
    let constant =
        "package v1beta1\n\nconst QueueAllocationGateKey = GroupName + \"/queue-allocation-gate\"\n";
    std::fs::write(module.join("apis/pkg/apis/scheduling/v1beta1/queue_allocation_gate.go"), constant)?;
    let pinned = std::fs::read_to_string(pins.join("go.mod"))?;
    let here = pinned.replace(&apis_pin(), "volcano.sh/apis => ./apis");
    anyhow::ensure!(here != pinned, "go.mod does not say {}", apis_pin());
    std::fs::write(module.join("go.mod"), here)?;
    std::fs::copy(pins.join("go.sum"), module.join("go.sum"))?;
    Ok(())
}

fn apis_pin() -> String {
    format!("volcano.sh/apis => volcano.sh/apis v{VOLCANO_API_VERSION}")
}

/// Go keeps what it downloads read-only.
fn copy_writable(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_writable(&entry.path(), &target)?;
        } else {
            std::fs::write(target, std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// `$MUSTER_CACHE`, else `$XDG_CACHE_HOME/muster`, else `~/.cache/muster`.
///
/// # Errors
/// When none of the variables is set.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("MUSTER_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("muster")))
        .or_else(|| Some(set("HOME")?.join(".cache/muster")))
        .context("no cache folder: set MUSTER_CACHE, XDG_CACHE_HOME or HOME")
}

/// The kubectl that scripts use: `$KUBECTL`, else the one on the path, else the built one.
///
/// # Errors
/// When there is none and none can be built.
pub fn find_kubectl() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("KUBECTL").filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|file| file.is_file());
    match on_path {
        Some(found) => Ok(found),
        None => Ok(Programs::ensure()?.path("kubectl")),
    }
}

/// The pins live with the chores that build them.
fn pins_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/kube")
}

/// What the programs were built from, as one text: the go.mod files name every version.
fn stamp() -> Result<String> {
    let mut text = format!("kubernetes {KUBERNETES_VERSION}\netcd {ETCD_VERSION}\nkwok {KWOK_VERSION}\n");
    for module in ["kubernetes", "etcd", "kwok"] {
        text.push_str(&pins(module)?);
    }
    Ok(text)
}

fn volcano_stamp() -> Result<String> {
    Ok(format!("volcano {VOLCANO_VERSION} on {VOLCANO_API_VERSION}\n{}", pins("volcano")?))
}

fn pins(module: &str) -> Result<String> {
    let file = pins_dir().join(module).join("go.mod");
    std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
}

/// A module build knows no git tag, so the version that `/version` answers is given to the linker.
fn ldflags(module: &str) -> String {
    let mut flags = "-s -w".to_owned();
    let release = [Release::V1_36, Release::V1_35].into_iter().find(|release| release.module() == module);
    if let Some(version) = release.map(Release::version) {
        let mut parts = version.split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let values = [
            ("gitVersion", format!("v{version}")),
            ("gitMajor", major.to_owned()),
            ("gitMinor", minor.to_owned()),
        ];
        for (name, value) in values {
            flags.push_str(&format!(" -X k8s.io/component-base/version.{name}={value}"));
        }
    }
    flags
}

fn go_version() -> Result<String> {
    let out = Command::new("go")
        .arg("version")
        .output()
        .context("no Go toolchain on the path to build Kubernetes with")?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pins_name_the_versions_that_the_constants_say() {
        let stamp = stamp().unwrap();
        for pin in [
            format!("k8s.io/kubernetes v{KUBERNETES_VERSION}"),
            format!("go.etcd.io/etcd/server/v3 v{ETCD_VERSION}"),
            format!("sigs.k8s.io/kwok v{KWOK_VERSION}"),
        ] {
            assert!(stamp.contains(&pin), "no go.mod has {pin}");
        }
        let before = Release::V1_35;
        let pin = format!("k8s.io/kubernetes v{}", before.version());
        assert!(pins(before.module()).unwrap().contains(&pin), "no go.mod has {pin}");
        let stamp = volcano_stamp().unwrap();
        for pin in [format!("volcano.sh/volcano v{VOLCANO_VERSION}"), apis_pin()] {
            assert!(stamp.contains(&pin), "no go.mod has {pin}");
        }
    }

    #[test]
    fn only_kubernetes_is_given_a_version() {
        let version = "k8s.io/component-base/version";
        let expected =
            format!("-s -w -X {version}.gitVersion=v1.36.3 -X {version}.gitMajor=1 -X {version}.gitMinor=36");
        assert_eq!(ldflags("kubernetes"), expected);
        assert_eq!(ldflags("etcd"), "-s -w");
    }
}
