//! Harness for tests: in-process and real API servers, eventually()
