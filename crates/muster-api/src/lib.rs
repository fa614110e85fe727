//! The types of every API group that Muster speaks, and the CRDs generated from them
