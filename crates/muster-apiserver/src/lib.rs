//! The embedded API server: a library first, a socket second
