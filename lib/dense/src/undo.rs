//! Hot path: a log of changes that can be taken back, newest first.
//!
//! The log does not know what it protects. The owner of the data records, before each change, an entry that says
//! how to undo it; rolling back hands those entries to a closure. A trial then costs what it changed, never the size
//! of the whole. Rolling back to a mark restores exactly the state at that mark, provided that every change in
//! between was recorded.

/// A stack of undo entries with marks in it.
///
/// Marks nest like brackets: settling a mark (by roll back or commit) settles those taken after it too. While no mark
/// is open nothing could be rolled back, so nothing is kept.
///
/// ```
/// use dense::UndoLog;
///
/// let mut total = 10;
/// let mut log = UndoLog::new();
/// let outer = log.mark();
/// log.record(total);
/// total += 5;
///
/// let inner = log.mark();
/// log.record(total);
/// total *= 100;
/// log.roll_back_to(inner, |old| total = old);
/// assert_eq!(total, 15);
///
/// log.commit(outer);
/// assert_eq!(total, 15);
/// assert!(log.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct UndoLog<E> {
    entries: Vec<E>,
    /// The open marks: the serial number of each, and how many entries there were when it was taken.
    open: Vec<(u64, usize)>,
    next_serial: u64,
}

/// A point in an [`UndoLog`] to roll back to. Only the log that gave it out understands it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a mark stays open until it is rolled back to or committed"]
pub struct Mark {
    depth: usize,
    serial: u64,
}

impl<E> UndoLog<E> {
    /// Empty, with no open mark.
    pub const fn new() -> Self {
        UndoLog { entries: Vec::new(), open: Vec::new(), next_serial: 0 }
    }

    /// Opens a mark at the present state.
    pub fn mark(&mut self) -> Mark {
        let mark = Mark { depth: self.open.len(), serial: self.next_serial };
        self.next_serial += 1;
        self.open.push((mark.serial, self.entries.len()));
        mark
    }

    /// Whether a mark is open. When none is, there is no need to make up entries.
    #[inline]
    pub fn is_recording(&self) -> bool {
        !self.open.is_empty()
    }

    /// Notes how to undo the change that is about to be made. Dropped when no mark is open.
    #[inline]
    pub fn record(&mut self, entry: E) {
        if self.is_recording() {
            self.entries.push(entry);
        }
    }

    /// Undoes every change since the mark, newest first, and settles the mark.
    ///
    /// # Panics
    ///
    /// When the mark was settled already along with an older one, or is of another log.
    pub fn roll_back_to(&mut self, mark: Mark, undo: impl FnMut(E)) {
        self.rewind(&mark, undo);
        self.open.truncate(mark.depth);
    }

    /// Undoes every change since the mark, newest first, and leaves the mark open for another try. Marks taken
    /// after it are settled.
    ///
    /// # Panics
    ///
    /// As [`roll_back_to`](Self::roll_back_to).
    pub fn rewind(&mut self, mark: &Mark, mut undo: impl FnMut(E)) {
        let n_kept = self.position(mark);
        self.open.truncate(mark.depth + 1);
        while self.entries.len() > n_kept {
            if let Some(entry) = self.entries.pop() {
                undo(entry);
            }
        }
    }

    /// Accepts every change since the mark and settles the mark. An older open mark can still undo them.
    ///
    /// # Panics
    ///
    /// As [`roll_back_to`](Self::roll_back_to).
    pub fn commit(&mut self, mark: Mark) {
        self.position(&mark);
        self.open.truncate(mark.depth);
        if self.open.is_empty() {
            self.entries.clear();
        }
    }

    /// The entries since the mark, oldest first: what a trial changed.
    ///
    /// # Panics
    ///
    /// As [`roll_back_to`](Self::roll_back_to).
    pub fn since(&self, mark: &Mark) -> &[E] {
        &self.entries[self.position(mark)..]
    }

    /// How many entries are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries there were at the mark.
    fn position(&self, mark: &Mark) -> usize {
        let open = self.open.get(mark.depth).filter(|(serial, _)| *serial == mark.serial);
        open.expect("the mark is open in this log").1
    }
}

impl<E> Default for UndoLog<E> {
    fn default() -> Self {
        UndoLog::new()
    }
}
