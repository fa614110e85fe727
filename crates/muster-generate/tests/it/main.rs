//! Laws of what is generated, over many seeds.

mod laws;
