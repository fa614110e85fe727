//! Muster's own engine: the PodGang is what it reads, so there is nothing to write.

use std::sync::Arc;

use muster_runtime::object::Resource;

use super::{Backend, Emission, EmitError, GangApi, Marks, Place, World};
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
        Marks::default()
    }

    fn emit(&self, _: &PodGang, _: &[Arc<Kept>], _: &World<'_>) -> Result<Emission, EmitError> {
        Ok(Emission::default())
    }
}
