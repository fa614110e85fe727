//! Turns messages into JSON, led by the tables.
//!
//! In: the bytes of a message and its table. Out: the JSON value that Go prints for it.
//!
//! A message is read in two steps: its fields are first sorted into one slot for each field of the table, then each
//! slot is written in the order of the table. Fields that the table does not know are passed over, as Go does. A field
//! that is there twice counts as protobuf has it: the last scalar holds, messages are merged, lists grow.

use serde_json::{Map, Value};

use crate::ProtoError;
use crate::special;
use crate::table::{Field, Message, MessageId, Shape, Tables, Type};
use crate::wire::{Fields, Payload, varint};

pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";

pub(crate) struct Decoder<'t> {
    tables: &'t Tables,
    bytes: usize,
    /// What may still be built, see [`Decoder::spend`].
    budget: usize,
}

/// The field that is being read, for the refusals.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    message: &'static str,
    field: &'static str,
}

/// What the wire held for one field of the table.
enum Slot<'b> {
    Absent,
    Number(u64),
    Numbers(Vec<u64>),
    Part(&'b [u8]),
    Parts(Vec<&'b [u8]>),
}

/// What the wire held around an object.
#[derive(Default)]
struct Envelope<'b> {
    api_version: &'b str,
    kind: &'b str,
    raw: Vec<&'b [u8]>,
    content_encoding: &'b str,
    content_type: &'b str,
}

impl<'t> Decoder<'t> {
    pub(crate) fn new(tables: &'t Tables, bytes: usize) -> Self {
        // An object of one field costs ten and takes at least four bytes of protobuf with its field, an entry of a map
        // costs one or two and takes eight bytes. The constant is for what takes no bytes at all: the fields that JSON
        // prints although they are absent.
        Decoder { tables, bytes, budget: bytes.saturating_mul(4).saturating_add(1 << 16) }
    }

    pub(crate) fn envelope(&mut self, body: &[u8], depth: usize) -> Result<Value, ProtoError> {
        let envelope = Envelope::read(body.strip_prefix(MAGIC).ok_or(ProtoError::NotProtobuf)?)?;
        if envelope.kind.is_empty() {
            return Err(ProtoError::NoKind);
        }
        if !envelope.content_encoding.is_empty() {
            return Err(ProtoError::ContentEncoding(excerpt(envelope.content_encoding)));
        }
        let mut object = Map::new();
        match envelope.content_type {
            "" | MEDIA_TYPE => {
                let id = self.tables.kind(envelope.api_version, envelope.kind).ok_or_else(|| {
                    ProtoError::UnknownKind {
                        api_version: excerpt(envelope.api_version),
                        kind: excerpt(envelope.kind),
                    }
                })?;
                self.message_into(id, &envelope.raw, depth, &mut object)?;
            }
            "application/json" => {
                let place = Place { message: "Unknown", field: "raw" };
                match json(place, envelope.raw.last().copied().unwrap_or_default())? {
                    Value::Object(fields) => object = fields,
                    _ => return Err(place.no_json("the object is not a JSON object")),
                }
            }
            other => return Err(ProtoError::ContentType(excerpt(other))),
        }
        object.insert("apiVersion".to_owned(), envelope.api_version.into());
        object.insert("kind".to_owned(), envelope.kind.into());
        Ok(Value::Object(object))
    }

    /// Reads a message that lies in `parts` (they are merged; none is the empty message) into `into`.
    fn message_into(
        &mut self,
        id: MessageId,
        parts: &[&[u8]],
        depth: usize,
        into: &mut Map<String, Value>,
    ) -> Result<(), ProtoError> {
        let depth = depth.checked_sub(1).ok_or(ProtoError::TooDeep)?;
        let tables = self.tables;
        let message = tables.message(id);
        for (field, slot) in message.fields.iter().zip(slots(message, parts)?) {
            match (field.shape, field.of) {
                (Shape::Inline, Type::Message(id)) => self.message_into(id, slot.parts(), depth, into)?,
                _ => {
                    if let Some(value) = self.field(message, field, &slot, depth)? {
                        into.insert(field.name.to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    }

    /// The JSON form of a union: the first of its fields that is there.
    fn union(&mut self, message: &Message, parts: &[&[u8]], depth: usize) -> Result<Value, ProtoError> {
        let depth = depth.checked_sub(1).ok_or(ProtoError::TooDeep)?;
        for (field, slot) in message.fields.iter().zip(slots(message, parts)?) {
            if let Some(value) = self.field(message, field, &slot, depth)? {
                return Ok(value);
            }
        }
        Ok(Value::Null)
    }

    /// What JSON prints for a field; `None` when it leaves the field out.
    fn field(
        &mut self,
        message: &Message,
        field: &Field,
        slot: &Slot<'_>,
        depth: usize,
    ) -> Result<Option<Value>, ProtoError> {
        let place = Place { message: message.name, field: field.name };
        let value = match field.shape {
            Shape::Plain | Shape::Inline => {
                let value = self.value(place, field.of, slot, depth)?;
                return Ok(Some(value).filter(|value| !(field.omit_empty && is_empty(value))));
            }
            Shape::Pointer => match slot {
                Slot::Absent => None,
                slot => Some(self.value(place, field.of, slot, depth)?),
            },
            Shape::List => self.list(place, field.of, slot, depth)?,
            Shape::Map => self.map(place, field.of, slot.parts(), depth)?,
        };
        match value {
            None if field.omit_empty => Ok(None),
            None => {
                self.spend(1)?;
                Ok(Some(Value::Null))
            }
            value => Ok(value),
        }
    }

    fn list(
        &mut self,
        place: Place,
        of: Type,
        slot: &Slot<'_>,
        depth: usize,
    ) -> Result<Option<Value>, ProtoError> {
        let mut items = Vec::new();
        for &number in slot.numbers() {
            items.push(self.value(place, of, &Slot::Number(number), depth)?);
        }
        for part in slot.parts() {
            items.push(self.value(place, of, &Slot::Part(part), depth)?);
        }
        Ok(if items.is_empty() { None } else { Some(Value::Array(items)) })
    }

    fn map(
        &mut self,
        place: Place,
        of: Type,
        entries: &[&[u8]],
        depth: usize,
    ) -> Result<Option<Value>, ProtoError> {
        let mut map = Map::new();
        for entry in entries {
            let mut key = "";
            let mut value = Slot::Absent;
            let mut fields = Fields::new(entry);
            while let Some((number, payload)) = fields.next()? {
                match (number, payload) {
                    (1, Payload::Bytes(bytes)) => key = utf8(place, bytes)?,
                    (1, _) => return Err(place.wire_type()),
                    (2, payload) => value.take(place, of, Shape::Plain, payload)?,
                    _ => {}
                }
            }
            // Bytes and lists of strings are never nil in a map.
            let value = match value {
                Slot::Absent if matches!(of, Type::Bytes | Type::Strings) => Slot::Part(b""),
                value => value,
            };
            let value = self.value(place, of, &value, depth)?;
            map.insert(key.to_owned(), value);
        }
        if map.is_empty() {
            return Ok(None);
        }
        self.spend(OBJECT)?;
        Ok(Some(Value::Object(map)))
    }

    /// One value; an absent one is Go's zero value.
    fn value(&mut self, place: Place, of: Type, slot: &Slot<'_>, depth: usize) -> Result<Value, ProtoError> {
        self.spend(1)?;
        let number = slot.numbers().last().copied().unwrap_or_default();
        let parts = slot.parts();
        match of {
            Type::String => Ok(utf8(place, parts.last().copied().unwrap_or_default())?.into()),
            Type::Bool => Ok((number != 0).into()),
            Type::Int32 => Ok((number as i32).into()),
            Type::Int64 => Ok((number as i64).into()),
            Type::Double => special::double(place, f64::from_bits(number)),
            Type::Bytes => Ok(parts.last().map_or(Value::Null, |bytes| special::base64(bytes))),
            Type::Time => special::time(place, parts.last().copied().unwrap_or_default()),
            Type::MicroTime => special::micro_time(place, parts.last().copied().unwrap_or_default()),
            Type::Duration => special::duration(place, parts),
            Type::Quantity => special::quantity(place, parts),
            Type::IntOrString => special::int_or_string(place, parts),
            Type::Strings => self.strings(place, parts),
            Type::Json => match special::wrapped(place, parts)? {
                b"" => Ok(Value::Null),
                text => json(place, text),
            },
            Type::Raw => match special::wrapped(place, parts)? {
                b"" => Ok(Value::Null),
                raw if raw.starts_with(MAGIC) => {
                    self.envelope(raw, depth.checked_sub(1).ok_or(ProtoError::TooDeep)?)
                }
                text => json(place, text),
            },
            Type::Message(id) => {
                let tables = self.tables;
                let message = tables.message(id);
                if message.union {
                    return self.union(message, parts, depth);
                }
                let mut object = Map::new();
                self.message_into(id, parts, depth, &mut object)?;
                if !object.is_empty() {
                    self.spend(OBJECT)?;
                }
                Ok(Value::Object(object))
            }
        }
    }

    fn strings(&mut self, place: Place, parts: &[&[u8]]) -> Result<Value, ProtoError> {
        if parts.is_empty() {
            return Ok(Value::Null);
        }
        let mut items = Vec::new();
        special::each(parts, |number, payload| {
            if number == 1 {
                self.spend(1)?;
                items.push(utf8(place, place.bytes(payload)?)?.into());
            }
            Ok(())
        })?;
        Ok(Value::Array(items))
    }

    /// Counts a value against the budget. Lists of empty messages take two bytes an item but hundreds in memory, so a
    /// body must not be allowed as many values as it can name.
    fn spend(&mut self, values: usize) -> Result<(), ProtoError> {
        self.budget = self.budget.checked_sub(values).ok_or(ProtoError::TooLarge { bytes: self.bytes })?;
        Ok(())
    }
}

/// What an object that is not empty costs beside its fields: its map takes memory for several at once.
const OBJECT: usize = 8;

impl<'b> Envelope<'b> {
    fn read(bytes: &'b [u8]) -> Result<Self, ProtoError> {
        let mut envelope = Envelope::default();
        let mut fields = Fields::new(bytes);
        while let Some((number, payload)) = fields.next()? {
            let place = |field| Place { message: "Unknown", field };
            match number {
                1 => envelope.read_type(place("typeMeta").bytes(payload)?)?,
                2 => envelope.raw.push(place("raw").bytes(payload)?),
                3 => envelope.content_encoding = place("contentEncoding").string(payload)?,
                4 => envelope.content_type = place("contentType").string(payload)?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'b [u8]) -> Result<(), ProtoError> {
        let mut fields = Fields::new(bytes);
        while let Some((number, payload)) = fields.next()? {
            let place = |field| Place { message: "TypeMeta", field };
            match number {
                1 => self.api_version = place("apiVersion").string(payload)?,
                2 => self.kind = place("kind").string(payload)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Place {
    #[cfg(test)]
    pub(crate) fn new(message: &'static str, field: &'static str) -> Self {
        Place { message, field }
    }

    pub(crate) fn bytes<'b>(self, payload: Payload<'b>) -> Result<&'b [u8], ProtoError> {
        match payload {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wire_type()),
        }
    }

    pub(crate) fn string<'b>(self, payload: Payload<'b>) -> Result<&'b str, ProtoError> {
        utf8(self, self.bytes(payload)?)
    }

    pub(crate) fn varint(self, payload: Payload<'_>) -> Result<u64, ProtoError> {
        match payload {
            Payload::Varint(number) => Ok(number),
            _ => Err(self.wire_type()),
        }
    }

    pub(crate) fn no_json(self, why: &'static str) -> ProtoError {
        ProtoError::NoJson { message: self.message, field: self.field, why }
    }

    fn wire_type(self) -> ProtoError {
        ProtoError::WireType { message: self.message, field: self.field }
    }
}

impl<'b> Slot<'b> {
    /// Adds what the wire holds for the field.
    fn take(&mut self, place: Place, of: Type, shape: Shape, payload: Payload<'b>) -> Result<(), ProtoError> {
        match (of, payload) {
            (Type::Bool | Type::Int32 | Type::Int64, Payload::Varint(number))
            | (Type::Double, Payload::Fixed64(number)) => match (shape, self) {
                (Shape::List, Slot::Numbers(numbers)) => numbers.push(number),
                (Shape::List, slot) => *slot = Slot::Numbers(vec![number]),
                (_, slot) => *slot = Slot::Number(number),
            },
            // A list of numbers may be packed into one payload.
            (Type::Bool | Type::Int32 | Type::Int64, Payload::Bytes(mut packed)) if shape == Shape::List => {
                while !packed.is_empty() {
                    let (number, rest) = varint(packed)?;
                    self.take(place, of, shape, Payload::Varint(number))?;
                    packed = rest;
                }
            }
            (Type::Bool | Type::Int32 | Type::Int64 | Type::Double, _) => return Err(place.wire_type()),
            (_, Payload::Bytes(part)) => match self {
                Slot::Parts(parts) => parts.push(part),
                Slot::Part(first) => *self = Slot::Parts(vec![first, part]),
                slot => *slot = Slot::Part(part),
            },
            _ => return Err(place.wire_type()),
        }
        Ok(())
    }

    fn parts(&self) -> &[&'b [u8]] {
        match self {
            Slot::Part(part) => std::slice::from_ref(part),
            Slot::Parts(parts) => parts,
            _ => &[],
        }
    }

    fn numbers(&self) -> &[u64] {
        match self {
            Slot::Number(number) => std::slice::from_ref(number),
            Slot::Numbers(numbers) => numbers,
            _ => &[],
        }
    }
}

/// Sorts what the wire holds by the fields of the table.
fn slots<'b>(message: &Message, parts: &[&'b [u8]]) -> Result<Vec<Slot<'b>>, ProtoError> {
    let mut slots: Vec<Slot<'b>> = message.fields.iter().map(|_| Slot::Absent).collect();
    for part in parts {
        let mut wire = Fields::new(part);
        while let Some((number, payload)) = wire.next()? {
            let known = message.fields.iter().zip(&mut slots).find(|(field, _)| field.number == number);
            if let Some((field, slot)) = known {
                let place = Place { message: message.name, field: field.name };
                slot.take(place, field.of, field.shape, payload)?;
            }
        }
    }
    Ok(slots)
}

/// Whether Go's `omitempty` (for times: `omitzero`) leaves the value out. It never leaves out an object: the tables
/// have the mark on no plain message.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn utf8(place: Place, bytes: &[u8]) -> Result<&str, ProtoError> {
    str::from_utf8(bytes).map_err(|_| ProtoError::BadUtf8 { message: place.message, field: place.field })
}

fn json(place: Place, text: &[u8]) -> Result<Value, ProtoError> {
    serde_json::from_slice(text).map_err(|source| ProtoError::BadJson {
        message: place.message,
        field: place.field,
        source,
    })
}

/// The start of a text from the wire, for an error message.
fn excerpt(text: &str) -> String {
    text.chars().take(100).collect()
}
