//! `cargo xtask image`: an image of the `muster` binary, without Docker.
//!
//! In: a binary. Out: a tar archive with an OCI image layout: one layer with the binary at `/usr/local/bin/muster` and, when it is
//! linked to shared libraries, these libraries and their loader where the binary looks for them. Must stay true: the same
//! binary gives the same bytes; the program runs as user 65532, and every file is root's and written by nobody; an image that would lack
//! a library is not written.

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
    let libraries = libraries(binary, &program, architecture)?;

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
    if program.get(4..6) != Some(&[2, 1]) {
        bail!("a program of 32 bits, or of another order of bytes");
    }
    match program.get(18..20) {
        Some([62, 0]) => Ok("amd64"),
        Some([183, 0]) => Ok("arm64"),
        Some([243, 0]) => Ok("riscv64"),
        machine => bail!("a program for an unknown machine: {machine:?}"),
    }
}

/// The shared libraries that a program needs, with the loader; none for a static one.
fn libraries(binary: &Path, program: &[u8], architecture: &str) -> Result<Vec<PathBuf>> {
    let linked = linked(program).with_context(|| format!("{} is cut off", binary.display()))?;
    if linked.is_empty() {
        return Ok(Vec::new());
    }
    // The words of images for the machines that Rust calls by these names.
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    // What is found here is for this machine; ldd says of a program for another one that it is not dynamic.
    if architecture != here {
        bail!(
            "{} is a program for {architecture} and linked to {}, and only the libraries of {here} are here; link it statically \
             (a target of musl), or make its image on such a machine",
            binary.display(),
            linked.join(", ")
        );
    }
    let binary = std::path::absolute(binary)?;
    let output = Command::new("ldd").arg(&binary).env("LC_ALL", "C").output().context("cannot run ldd")?;
    let talk =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("ldd {} failed: {}", binary.display(), talk.trim());
    }
    libraries_in(&talk)
}

/// What a program names of others: its loader, and the libraries it needs; nothing for a static one. `None`: it says that there is more
/// to it than there is. Only files of 64 bits and the usual order of bytes; `architecture` knows no others.
fn linked(program: &[u8]) -> Option<Vec<String>> {
    const LOAD: u64 = 1;
    const DYNAMIC: u64 = 2;
    const INTERPRETER: u64 = 3;
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    let number = |at: usize, width: usize| {
        let bytes = program.get(at..at.checked_add(width)?)?;
        Some(bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte)))
    };
    let text = |at: usize| {
        let rest = program.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    let place = |number: u64| usize::try_from(number).ok();
    let (table, size, n_parts) = (place(number(32, 8)?)?, place(number(54, 2)?)?, place(number(56, 2)?)?);
    // Of each part: what it is, where it is in the file and in memory, how long it is.
    let mut parts = Vec::with_capacity(n_parts);
    for part in 0..n_parts {
        let at = table.checked_add(part.checked_mul(size)?)?;
        parts.push((number(at, 4)?, number(at + 8, 8)?, number(at + 16, 8)?, number(at + 32, 8)?));
    }
    let mut out = Vec::new();
    for (_, from, ..) in parts.iter().filter(|part| part.0 == INTERPRETER) {
        out.push(text(place(*from)?)?);
    }
    for (_, from, _, length) in parts.iter().filter(|part| part.0 == DYNAMIC) {
        let mut entries = Vec::new();
        for entry in 0..place(*length)? / 16 {
            let at = place(*from)?.checked_add(entry * 16)?;
            entries.push((number(at, 8)?, number(at + 8, 8)?));
        }
        let needed: Vec<u64> =
            entries.iter().filter(|entry| entry.0 == NEEDED).map(|entry| entry.1).collect();
        if needed.is_empty() {
            continue;
        }
        // The names lie at an address, which some part has in the file.
        let address = entries.iter().find(|entry| entry.0 == STRINGS)?.1;
        let holds =
            |part: &&(u64, u64, u64, u64)| part.0 == LOAD && part.2 <= address && address - part.2 < part.3;
        let (_, from, start, _) = parts.iter().find(holds)?;
        let strings = from.checked_add(address - start)?;
        for name in needed {
            out.push(text(place(strings.checked_add(name)?)?)?);
        }
    }
    Some(out)
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
        let mut program = made_up(243, "", &[]);
        assert_eq!(architecture(&program).unwrap(), "riscv64");
        program[4] = 1;
        assert!(architecture(&program).is_err(), "the same number is that of 32 bits");
    }

    /// A program for a machine with one part of each kind that is given: the loader's name, and the libraries.
    fn made_up(machine: u8, loader: &str, needed: &[&str]) -> Vec<u8> {
        const STRINGS_AT: u64 = 0x400;
        const MEMORY: u64 = 0x10_0000;
        let mut out = vec![0_u8; 0x800];
        out[..6].copy_from_slice(b"\x7fELF\x02\x01");
        out[18] = machine;
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &64_u64.to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        let mut parts: Vec<(u32, u64, u64, u64)> = vec![(1, 0, MEMORY, 0x800)];
        if !loader.is_empty() {
            put(0x300, loader.as_bytes());
            parts.push((3, 0x300, MEMORY + 0x300, loader.len() as u64 + 1));
        }
        if !needed.is_empty() {
            let (mut at, mut name) = (0x200, 1);
            let mut entry = |tag: u64, value: u64| {
                put(at, &tag.to_le_bytes());
                put(at + 8, &value.to_le_bytes());
                at += 16;
            };
            entry(5, MEMORY + STRINGS_AT);
            for library in needed {
                entry(1, name);
                name += library.len() as u64 + 1;
            }
            parts.push((2, 0x200, MEMORY + 0x200, 16 * (needed.len() as u64 + 2)));
            let mut at = STRINGS_AT as usize + 1;
            for library in needed {
                put(at, library.as_bytes());
                at += library.len() + 1;
            }
        }
        put(56, &(parts.len() as u16).to_le_bytes());
        for (i, (kind, from, address, length)) in parts.into_iter().enumerate() {
            let at = 64 + i * 56;
            put(at, &kind.to_le_bytes());
            put(at + 8, &from.to_le_bytes());
            put(at + 16, &address.to_le_bytes());
            put(at + 32, &length.to_le_bytes());
        }
        out
    }

    #[track_caller]
    fn check_linked(loader: &str, needed: &[&str], expected: &[&str]) {
        let program = made_up(183, loader, needed);
        assert_eq!(linked(&program).unwrap(), expected);
        // Whatever is cut off, it is no panic; and a table that is cut off is said.
        (0..program.len()).for_each(|end| drop(linked(&program[..end])));
        assert_eq!(linked(&program[..70]), None);
    }

    #[test]
    fn programs_say_what_they_are_linked_to() {
        check_linked("", &[], &[]);
        check_linked("/lib/ld.so.1", &[], &["/lib/ld.so.1"]);
        check_linked("/lib/ld.so.1", &["libc.so.6", "libm.so"], &["/lib/ld.so.1", "libc.so.6", "libm.so"]);
    }

    /// An image for another machine is made where nothing of that machine is needed, and refused where it is.
    #[test]
    fn libraries_of_another_machine_are_not_here() {
        let dir = std::env::temp_dir().join(format!("muster-foreign-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (program, out) = (dir.join("muster"), dir.join("image.tar"));
        fs::write(&program, made_up(243, "/lib/ld.so.1", &["libc.so.6"])).unwrap();
        let why = image(&program, &out, "muster:test").unwrap_err().to_string();
        assert!(why.contains("riscv64") && why.contains("libc.so.6") && !out.exists(), "{why}");
        fs::write(&program, made_up(243, "", &[])).unwrap();
        let info = image(&program, &out, "muster:test").unwrap();
        assert_eq!((info.architecture, info.libraries), ("riscv64", 0));
        fs::remove_dir_all(&dir).unwrap();
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
        let libraries = libraries(&program, &fs::read(&program).unwrap(), info.architecture).unwrap();
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
