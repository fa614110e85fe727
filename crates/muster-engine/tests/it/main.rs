//! The laws of the engine: what must be true of its decisions whatever the cluster is.
//!
//! `cfg(test)` on each module tells clippy that its helper functions may unwrap, too.

#[cfg(test)]
mod again;
#[cfg(test)]
mod converge;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lives;
#[cfg(test)]
mod mixed;
#[cfg(test)]
mod moments;
#[cfg(test)]
mod moved;
mod opened;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod small;
#[cfg(test)]
mod still;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod volcano;
#[cfg(test)]
mod world;
