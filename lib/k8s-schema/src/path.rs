//! Where we are in an object: a linked list on the stack, turned into text only when there is something to report.

use std::fmt::Write as _;

/// A place in an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    /// The object itself; printed as `<nil>` where a field name is needed.
    Root,
    /// A place that was already printed.
    Base(&'a str),
    /// A declared field.
    Child(&'a Path<'a>, &'a str),
    /// A key of a map.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(crate) fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Child(self, name)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// As field errors print it: `spec.labels[app].items[0]`.
    pub(crate) fn field(&self) -> String {
        let mut out = String::new();
        self.render(&mut out, &|out, segment| match segment {
            Segment::Child(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Segment::Key(key) => {
                out.push('[');
                out.push_str(key);
                out.push(']');
            }
        });
        if out.is_empty() { "<nil>".to_owned() } else { out }
    }

    /// As the schema validator prints it: map keys look like fields, and the root is empty.
    pub(crate) fn dotted(&self) -> String {
        let mut out = String::new();
        self.render(&mut out, &|out, segment| match segment {
            Segment::Child(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Segment::Key(key) => {
                out.push('.');
                out.push_str(key);
            }
        });
        out
    }

    fn render(&self, out: &mut String, push: &dyn Fn(&mut String, Segment<'_>)) {
        match self {
            Path::Root => {}
            Path::Base(text) => out.push_str(text),
            Path::Child(parent, name) => {
                parent.render(out, push);
                push(out, Segment::Child(name));
            }
            Path::Key(parent, key) => {
                parent.render(out, push);
                push(out, Segment::Key(key));
            }
            Path::Index(parent, index) => {
                parent.render(out, push);
                // Writing to a string cannot fail.
                let _ = write!(out, "[{index}]");
            }
        }
    }
}

enum Segment<'a> {
    Child(&'a str),
    Key(&'a str),
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn prints_both_forms() {
        let spec = Path::Root.child("spec");
        let labels = spec.child("labels");
        let app = labels.key("app");
        let first = app.index(0);
        assert_eq!(Path::Root.field(), "<nil>");
        assert_eq!(first.field(), "spec.labels[app][0]");
        assert_eq!(first.dotted(), "spec.labels.app[0]");
        assert_eq!(Path::Root.key("a").field(), "[a]");
        assert_eq!(Path::Root.key("a").dotted(), ".a");
    }
}
