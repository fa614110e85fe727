//! Logs: for people by default, as JSON for machines.
//!
//! In: the form, and how much is wanted. Out: every `tracing` event of the process on stderr. Must stay true: stdout is for
//! data, never for logs; `MUSTER_LOG` wins over a verbosity, so that one module can be looked at closely.

use tracing_subscriber::EnvFilter;

/// What chooses single modules, in the syntax of `tracing`: `info,muster_scheduler=debug`.
pub const VARIABLE: &str = "MUSTER_LOG";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logs {
    pub json: bool,
    /// 0 says what happens, 1 also why, 2 every detail of ours, 3 everything.
    pub verbosity: u8,
}

#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error(
        "{VARIABLE}={text} cannot be read; write a level, or modules with levels, such as info,muster_scheduler=debug"
    )]
    Filter { text: String, source: tracing_subscriber::filter::ParseError },
    #[error("logs were already set up in this process")]
    Twice,
}

/// Sets up the logs of this process, once.
pub fn start(logs: Logs) -> Result<(), LogsError> {
    let variable = std::env::var(VARIABLE).ok();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(logs.verbosity, variable.as_deref())?)
        .with_writer(std::io::stderr);
    let started = if logs.json {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
        builder.compact().with_ansi(colours && std::env::var_os("NO_COLOR").is_none()).try_init()
    };
    started.map_err(|_| LogsError::Twice)
}

fn filter(verbosity: u8, variable: Option<&str>) -> Result<EnvFilter, LogsError> {
    let text = match variable.map(str::trim) {
        Some(text) if !text.is_empty() => text,
        _ => match verbosity {
            0 => "info",
            1 => "info,muster=debug",
            2 => "info,muster=trace",
            _ => "trace",
        },
    };
    EnvFilter::try_new(text).map_err(|source| LogsError::Filter { text: text.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(verbosity: u8, variable: Option<&str>, expected: &str) {
        let said = match filter(verbosity, variable) {
            Ok(filter) => filter.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn what_is_logged() {
        check(0, None, "info");
        check(1, None, "muster=debug,info");
        check(9, Some(" "), "trace");
        check(9, Some("warn,muster_scheduler=debug"), "muster_scheduler=debug,warn");
        let unreadable = "MUSTER_LOG=muster=loud cannot be read; write a level, or modules with levels, \
                          such as info,muster_scheduler=debug";
        check(0, Some("muster=loud"), unreadable);
    }

    #[test]
    fn names_of_all_our_rooms_begin_alike() {
        // A filter by `muster` holds for `muster_runtime::lease` and the like.
        use tracing_subscriber::layer::SubscriberExt;
        let subscriber = tracing_subscriber::registry().with(filter(1, None).unwrap());
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::enabled!(target: "muster_runtime::lease", tracing::Level::DEBUG));
            assert!(!tracing::enabled!(target: "kube_client", tracing::Level::DEBUG));
        });
    }
}
