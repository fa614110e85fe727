//! Muster's own engine: the PodGang is what it reads, so there is nothing to write.
//!
//! Pods say by Grove's own labels which gang and which group of it they are of; that no grouper may put them into another is all
//! that is added.

use std::sync::Arc;

use muster_runtime::object::Resource;

use super::{Backend, Emission, EmitError, GangApi, Marks, Place, World};
use crate::keys;
use crate::mirror::Kept;
use crate::object::PodGang;
use crate::settings::BackendName;

pub struct Muster;

impl Backend for Muster {
    fn name(&self) -> BackendName {
        BackendName::Muster
    }

    fn resources(&self, _: GangApi) -> Vec<Resource> {
        Vec::new()
    }

    fn marks(&self, _: &Place<'_>) -> Marks {
        Marks { labels: Vec::new(), annotations: vec![(keys::kai::SKIP, "true".to_owned())] }
    }

    fn emit(&self, _: &PodGang, _: &[Arc<Kept>], _: &World<'_>) -> Result<Emission, EmitError> {
        Ok(Emission::default())
    }
}
