//! Laws of what is generated, over many seeds.

#[cfg(test)]
mod laws;
