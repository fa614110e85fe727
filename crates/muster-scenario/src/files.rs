//! Which files there are, and what is in them. The only place of this crate that reads from disk.

use std::io;
use std::path::{Path, PathBuf};

/// A file that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {path}")]
    Read { path: String, source: io::Error },
    #[error("{path} is nested too deeply")]
    TooDeep { path: String },
}

/// Folders within folders, at most; a link that leads back up has to end somewhere.
const MOST_DEPTH: usize = 32;

/// A file to look for scenarios in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    /// Named by the caller, and not come upon in a folder.
    pub named: bool,
}

/// Scenario files of paths: files as they are, folders searched for `*.jsonl`, `*.json`, `*.yaml` and `*.yml`, in order of name.
pub fn scenario_files(paths: &[PathBuf]) -> Result<Vec<Found>, FileError> {
    walk(paths, &["jsonl", "json", "yaml", "yml"])
}

/// Manifest files of paths, likewise.
pub fn object_files(paths: &[PathBuf]) -> Result<Vec<Found>, FileError> {
    walk(paths, &["json", "yaml", "yml"])
}

fn walk(paths: &[PathBuf], endings: &[&str]) -> Result<Vec<Found>, FileError> {
    let mut found = Vec::new();
    for path in paths {
        let about = std::fs::metadata(path).map_err(|source| unreadable(path, source))?;
        if about.is_dir() {
            walk_folder(path, endings, 0, &mut found)?;
        } else {
            found.push(Found { path: path.clone(), named: true });
        }
    }
    Ok(found)
}

fn walk_folder(
    folder: &Path,
    endings: &[&str],
    depth: usize,
    found: &mut Vec<Found>,
) -> Result<(), FileError> {
    if depth > MOST_DEPTH {
        return Err(FileError::TooDeep { path: folder.display().to_string() });
    }
    let read = std::fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let mut entries = read.map_err(|source| unreadable(folder, source))?;
    // The order of a folder is the file system's own, and differs from machine to machine.
    entries.sort_by_key(|e| e.file_name());
    for entry in entries {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let about = std::fs::metadata(&path).map_err(|source| unreadable(&path, source))?;
        if hidden {
            continue;
        }
        if about.is_dir() {
            walk_folder(&path, endings, depth + 1, found)?;
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e)) {
            found.push(Found { path, named: false });
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "files are what this module is for")]
pub fn read_text(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|source| unreadable(path, source))
}

impl FileError {
    /// The whole story in one line, with its cause.
    pub fn in_full(&self) -> String {
        match self {
            Self::Read { source, .. } => format!("{self}: {source}"),
            Self::TooDeep { .. } => self.to_string(),
        }
    }
}

fn unreadable(path: &Path, source: io::Error) -> FileError {
    FileError::Read { path: path.display().to_string(), source }
}
