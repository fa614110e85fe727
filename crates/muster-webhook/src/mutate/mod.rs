//! What is added to objects as they come. In: what is asked, the settings, the world. Out: a verdict with the object as it is to be.

pub mod kueue;
pub mod pod;
pub mod set;
pub mod volcano;
