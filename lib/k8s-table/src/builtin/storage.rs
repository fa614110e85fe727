//! Volumes, claims, and the kinds of storage.k8s.io.

use super::read::Object;
use super::{AGE, CREATED_AT, Known, NAME, Spec, boolean, integer, name_and_creation, text, wide};
use crate::Cell;

pub(super) const KINDS: &[Known] = &[
    Known {
        group: "",
        kind: "PersistentVolume",
        columns: &[
            NAME,
            text("Capacity"),
            text("Access Modes"),
            text("Reclaim Policy"),
            text("Status"),
            text("Claim"),
            text("StorageClass"),
            text("VolumeAttributesClass"),
            text("Reason"),
            AGE,
            wide("VolumeMode"),
        ],
        cells: persistent_volume,
    },
    Known {
        group: "",
        kind: "PersistentVolumeClaim",
        columns: &[
            NAME,
            text("Status"),
            text("Volume"),
            text("Capacity"),
            text("Access Modes"),
            text("StorageClass"),
            text("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ],
        cells: persistent_volume_claim,
    },
    Known {
        group: "storage.k8s.io",
        kind: "StorageClass",
        columns: &[
            NAME,
            text("Provisioner"),
            text("ReclaimPolicy"),
            text("VolumeBindingMode"),
            text("AllowVolumeExpansion"),
            AGE,
        ],
        cells: storage_class,
    },
    Known {
        group: "storage.k8s.io",
        kind: "VolumeAttributesClass",
        columns: &[NAME, text("DriverName"), AGE],
        cells: volume_attributes_class,
    },
    Known {
        group: "storage.k8s.io",
        kind: "VolumeAttachment",
        columns: &[
            NAME,
            Spec { name: "Attacher", type_: "string", format: "name", priority: 0 },
            text("PV"),
            text("Node"),
            boolean("Attached"),
            AGE,
        ],
        cells: volume_attachment,
    },
    Known {
        group: "storage.k8s.io",
        kind: "CSINode",
        columns: &[NAME, integer("Drivers"), AGE],
        cells: csi_node,
    },
    Known {
        group: "storage.k8s.io",
        kind: "CSIDriver",
        columns: &[
            NAME,
            boolean("AttachRequired"),
            boolean("PodInfoOnMount"),
            boolean("StorageCapacity"),
            text("TokenRequests"),
            boolean("RequiresRepublish"),
            text("Modes"),
            AGE,
        ],
        cells: csi_driver,
    },
    Known {
        group: "storage.k8s.io",
        kind: "CSIStorageCapacity",
        columns: &[NAME, CREATED_AT],
        cells: name_and_creation,
    },
];

fn phase(object: Object<'_>) -> Cell {
    if object.is_deleted() { "Terminating" } else { object.text_or("status.phase", "Pending") }.into()
}

/// The short names of the access modes, in their fixed order.
fn access_modes(object: Object<'_>, path: &str) -> Cell {
    let modes = object.texts(path);
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<_> =
        known.into_iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| short).collect();
    short.join(",").into()
}

/// The class by the old annotation, else by the field.
fn class(object: Object<'_>) -> Cell {
    let annotated = object.annotation("volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or(object.text("spec.storageClassName")).into()
}

fn persistent_volume(object: Object<'_>) -> Vec<Cell> {
    let claim = match object.get("spec.claimRef") {
        Some(_) => {
            format!("{}/{}", object.text("spec.claimRef.namespace"), object.text("spec.claimRef.name"))
        }
        None => String::new(),
    };
    vec![
        object.name(),
        object.quantity("spec.capacity.storage").into(),
        access_modes(object, "spec.accessModes"),
        object.text_or("spec.persistentVolumeReclaimPolicy", "Retain").into(),
        phase(object),
        claim.into(),
        class(object),
        object.cell_or("spec.volumeAttributesClassName", "<unset>"),
        object.cell("status.reason"),
        object.age(),
        object.cell_or("spec.volumeMode", "Filesystem"),
    ]
}

fn persistent_volume_claim(object: Object<'_>) -> Vec<Cell> {
    let is_bound = !object.text("spec.volumeName").is_empty();
    let (capacity, modes) = if is_bound {
        (object.quantity("status.capacity.storage").into(), access_modes(object, "status.accessModes"))
    } else {
        (Cell::from(""), Cell::from(""))
    };
    vec![
        object.name(),
        phase(object),
        object.cell("spec.volumeName"),
        capacity,
        modes,
        class(object),
        object.cell_or("spec.volumeAttributesClassName", "<unset>"),
        object.age(),
        object.cell_or("spec.volumeMode", "Filesystem"),
    ]
}

fn storage_class(object: Object<'_>) -> Vec<Cell> {
    let annotations =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_default = annotations.into_iter().any(|name| object.annotation(name) == Some("true"));
    let default = if is_default { " (default)" } else { "" };
    vec![
        format!("{}{default}", object.text("metadata.name")).into(),
        object.cell("provisioner"),
        object.cell_or("reclaimPolicy", "Delete"),
        object.cell_or("volumeBindingMode", "Immediate"),
        object.flag("allowVolumeExpansion").into(),
        object.age(),
    ]
}

fn volume_attributes_class(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.cell("driverName"), object.age()]
}

fn volume_attachment(object: Object<'_>) -> Vec<Cell> {
    vec![
        object.name(),
        object.cell("spec.attacher"),
        object.cell("spec.source.persistentVolumeName"),
        object.cell("spec.nodeName"),
        object.flag("status.attached").into(),
        object.age(),
    ]
}

fn csi_node(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.count_cell("spec.drivers"), object.age()]
}

fn csi_driver(object: Object<'_>) -> Vec<Cell> {
    let audiences = match object.get("spec.tokenRequests") {
        Some(_) => {
            object.list("spec.tokenRequests").map(|r| r.text("audience")).collect::<Vec<_>>().join(",")
        }
        None => "<unset>".into(),
    };
    // Without a mode, the driver serves volumes that outlive their pods.
    let modes = object.texts("spec.volumeLifecycleModes").join(",");
    vec![
        object.name(),
        object.flag_or("spec.attachRequired", true).into(),
        object.flag("spec.podInfoOnMount").into(),
        object.flag("spec.storageCapacity").into(),
        audiences.into(),
        object.flag("spec.requiresRepublish").into(),
        if modes.is_empty() { "Persistent".to_owned() } else { modes }.into(),
        object.age(),
    ]
}
