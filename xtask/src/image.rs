//! `cargo xtask image`: an image of the `muster` binary, without Docker.
//!
//! In: a binary. Out: a tar archive with an OCI image layout: one layer with the binary at `/usr/local/bin/muster` and, when it is
//! linked to shared libraries, these libraries and their loader where the binary looks for them. Must stay true: the same
//! binary gives the same bytes; the program runs as user 65532, and every file is root's and written by nobody.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  cargo xtask dist\n  cargo xtask image --binary target/dist/muster --out target/muster-image.tar\n\nThe archive is read by `podman load`, `docker load`, `skopeo copy oci-archive:..` and `ctr -n k8s.io images import`."
)]
pub struct Args {
    /// The program to put in
    #[arg(long, default_value = "target/dist/muster")]
    binary: PathBuf,
    /// The archive to write
    #[arg(long, default_value = "target/muster-image.tar")]
    out: PathBuf,
    /// The name that the archive gives the image, in full where a registry is part of it
    #[arg(long, default_value = concat!("muster:", env!("CARGO_PKG_VERSION")))]
    name: String,
}

pub fn run(args: Args) -> Result<()> {
    let info = image(&args.binary, &args.out, &args.name)?;
    eprintln!(
        "{}  {} MiB, {}, {} shared libraries",
        args.out.display(),
        info.size >> 20,
        info.architecture,
        info.libraries
    );
    println!("{}@{}", args.name, info.digest);
    Ok(())
}

/// What was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// The digest of the manifest: what the image is known by.
    pub digest: String,
    pub architecture: &'static str,
    /// How many shared libraries came along, with their loader.
    pub libraries: usize,
    /// The archive's size in bytes.
    pub size: u64,
}

/// Builds the image under a name.
pub fn image(binary: &Path, out: &Path, name: &str) -> Result<ImageInfo> {
    let program = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let architecture = architecture(&program).with_context(|| binary.display().to_string())?;
    let libraries = libraries(binary)?;

    let mut layer = Tar::default();
    layer.file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n")?;
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/:/\nmuster:x:65532:65532:muster:/tmp:/\n")?;
    layer.file("etc/group", 0o644, b"root:x:0:\nmuster:x:65532:\n")?;
    layer.folder("tmp", 0o1777)?;
    layer.file("usr/local/bin/muster", 0o755, &program)?;
    for library in &libraries {
        let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
        let inside = library.to_str().context("a library's path is no text")?.trim_start_matches('/');
        layer.file(inside, 0o755, &bytes)?;
    }
    let layer = layer.finish();

    let config = json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": "65532:65532",
            "Entrypoint": ["/usr/local/bin/muster"],
            "WorkingDir": "/",
            "Env": ["PATH=/usr/local/bin"],
            "Labels": {
                "org.opencontainers.image.title": "muster",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image"}],
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor(MANIFEST, &manifest);
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    entry["annotations"] =
        json!({"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});

    let mut archive = Tar::default();
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    archive.file("index.json", 0o644, index.to_string().as_bytes())?;
    // What older readers look for.
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", digest(bytes).trim_start_matches("sha256:"));
    let old = json!([{"Config": blob(&config), "RepoTags": [name], "Layers": [blob(&layer)]}]);
    archive.file("manifest.json", 0o644, old.to_string().as_bytes())?;
    for bytes in [&manifest, &config, &layer] {
        archive.file(&blob(bytes), 0o644, bytes)?;
    }
    let archive = archive.finish();
    fs::write(out, &archive).with_context(|| format!("cannot write {}", out.display()))?;
    Ok(ImageInfo {
        digest: digest(&manifest),
        architecture,
        libraries: libraries.len(),
        size: archive.len() as u64,
    })
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

fn digest(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The architecture, in the words of images, from the head of an ELF file.
fn architecture(program: &[u8]) -> Result<&'static str> {
    if !program.starts_with(b"\x7fELF") {
        bail!("not a Linux program");
    }
    match program.get(18..20) {
        Some([62, 0]) => Ok("amd64"),
        Some([183, 0]) => Ok("arm64"),
        Some([243, 0]) => Ok("riscv64"),
        machine => bail!("a program for an unknown machine: {machine:?}"),
    }
}

/// The shared libraries that a program needs, with the loader; none for a static one.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let binary = std::path::absolute(binary)?;
    let output = Command::new("ldd").arg(&binary).env("LC_ALL", "C").output().context("cannot run ldd")?;
    let talk =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if talk.contains("not a dynamic executable") || talk.contains("statically linked") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        bail!("ldd {} failed: {}", binary.display(), talk.trim());
    }
    libraries_in(&talk)
}

/// Reads what ldd prints: `name => path (address)`, or `path (address)` for the loader.
fn libraries_in(talk: &str) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for line in talk.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place.starts_with("not found") {
            bail!("{name} is not found");
        }
        let place = place.split(" (").next().unwrap_or_default();
        // The kernel's own library has a name and no place.
        if place.starts_with('/') {
            out.push(PathBuf::from(place));
        }
    }
    out.sort();
    out.dedup();
    Ok(out)
}

/// A tar archive in the making: the ustar format, every file of user 0 and of the first second of 1970.
#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
    folders: Vec<String>,
}

impl Tar {
    /// Adds a file, and its folders where they are new.
    fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder, 0o755)?;
        }
        self.head(path, mode, b'0', bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        self.pad();
        Ok(())
    }

    fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        if self.folders.iter().any(|known| known == path) {
            return Ok(());
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent, 0o755)?;
        }
        self.folders.push(path.to_owned());
        self.head(&format!("{path}/"), mode, b'5', 0)
    }

    fn head(&mut self, path: &str, mode: u32, kind: u8, size: usize) -> Result<()> {
        // What fits into eleven octal digits.
        if path.len() > 100 || size >= 1 << 33 {
            bail!("{path} does not fit into a tar archive");
        }
        let mut head = [0_u8; 512];
        let mut put = |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, path);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{size:011o}"));
        put(136, "00000000000");
        // The sum counts its own field as spaces.
        put(148, "        ");
        put(257, "ustar\0");
        put(263, "00");
        head[156] = kind;
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&head);
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }

    /// Two empty blocks end an archive.
    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ldd(talk: &str, expected: &[&str]) {
        let found = libraries_in(talk).unwrap();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn reads_ldd() {
        check_ldd(
            "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x00007f)\n",
            &["/lib/x/libc.so.6", "/lib64/ld.so.2"],
        );
        check_ldd("\tlinux-vdso.so.1 =>  (0x00007ffd)\n", &[]);
        assert!(libraries_in("\tlibx.so.1 => not found\n").is_err());
    }

    #[test]
    fn refuses_what_is_no_program() {
        assert!(architecture(b"#!/bin/sh").is_err());
        assert!(architecture(b"\x7fELF").is_err());
    }

    /// What another program says the digest of a file is.
    fn sha256sum(path: &Path) -> String {
        let output = Command::new("sha256sum").arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
    }

    fn unpack(archive: &Path, into: &Path) {
        fs::create_dir_all(into).unwrap();
        let status = Command::new("tar").arg("-xpf").arg(archive).arg("-C").arg(into).status().unwrap();
        assert!(status.success());
    }

    fn json_at(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Unpacked by tar and summed by sha256sum, every descriptor is true, and the program runs on nothing but the layer.
    #[test]
    fn an_image_holds_a_program_that_runs() {
        let dir = std::env::temp_dir().join(format!("muster-image-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let program = fs::canonicalize("/bin/true").unwrap();
        let (first, second) = (dir.join("a.tar"), dir.join("b.tar"));
        let info = image(&program, &first, "muster:test").unwrap();
        assert_eq!(image(&program, &second, "muster:test").unwrap(), info);
        assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap(), "the same program, the same bytes");

        let layout = dir.join("layout");
        unpack(&first, &layout);
        assert_eq!(json_at(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
        let blob = |descriptor: &Value| {
            let hex = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let path = layout.join("blobs/sha256").join(hex);
            assert_eq!(sha256sum(&path), hex);
            assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"].as_u64().unwrap());
            path
        };
        let index = json_at(&layout.join("index.json"));
        assert_eq!(index["manifests"][0]["digest"], info.digest.as_str());
        let manifest = json_at(&blob(&index["manifests"][0]));
        let config = json_at(&blob(&manifest["config"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);

        let root = dir.join("root");
        unpack(&layer, &root);
        let inside = root.join("usr/local/bin/muster");
        assert_eq!(fs::read(&inside).unwrap(), fs::read(&program).unwrap());
        let libraries = libraries(&program).unwrap();
        assert_eq!(libraries.len(), info.libraries);
        if let Some(loader) = libraries.iter().find(|l| l.to_string_lossy().contains("ld-")) {
            let place = |path: &Path| root.join(path.strip_prefix("/").unwrap());
            let folders: Vec<String> =
                libraries.iter().map(|l| place(l).parent().unwrap().display().to_string()).collect();
            let status = Command::new(place(loader))
                .args(["--inhibit-cache", "--library-path", &folders.join(":")])
                .arg(&inside)
                .status()
                .unwrap();
            assert!(status.success());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
