//! Objects made from schemas: for each kind, what its CRD accepts, with every optional field there or not.

use serde_json::{Map, Number, Value, json};

/// A small generator (splitmix64), so that a seed gives the same object on every machine.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

/// An object of a kind, given the schema of its version.
pub fn object(dice: &mut Dice, api_version: &str, kind: &str, schema: &Value) -> Value {
    let mut out = value(dice, schema, 0);
    out["apiVersion"] = json!(api_version);
    out["kind"] = json!(kind);
    out["metadata"] = metadata(dice);
    out
}

fn metadata(dice: &mut Dice) -> Value {
    let mut out = json!({"name": word(dice)});
    if dice.one_in(2) {
        out["namespace"] = json!(word(dice));
        out["uid"] = json!(word(dice));
        out["creationTimestamp"] = json!("2026-01-02T03:04:05Z");
    }
    if dice.one_in(2) {
        out["labels"] = json!({word(dice): word(dice)});
    }
    if dice.one_in(2) {
        out["annotations"] = json!({word(dice): word(dice), word(dice): "{\"json\": [1]}"});
    }
    out
}

fn word(dice: &mut Dice) -> String {
    ["a", "b7", "gpu-a100", "rack-1", "rack-2", "x.y/z", "ü~1"][dice.roll(7) as usize].to_owned()
}

pub fn value(dice: &mut Dice, schema: &Value, depth: usize) -> Value {
    if schema["nullable"] == true && dice.one_in(4) {
        return Value::Null;
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[dice.roll(values.len() as u64) as usize].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        let quantities = [json!(1), json!("500m"), json!("1.50Gi"), json!(0), json!("25%"), json!("1e3")];
        return quantities[dice.roll(6) as usize].clone();
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return json!({"spec": {"containers": [{"name": word(dice), "new": {"field": [null, 1.5]}}]}});
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" if schema["format"] == "date-time" => json!("2026-11-15T09:32:00.120Z"),
        "string" => json!(word(dice)),
        "boolean" => json!(dice.one_in(2)),
        "integer" => {
            let low = schema["minimum"].as_i64().unwrap_or(-3);
            let high = schema["maximum"].as_i64().unwrap_or(1000).max(low);
            json!(low + dice.roll((high - low + 1) as u64) as i64)
        }
        "number" => {
            Value::Number(if dice.one_in(2) { Number::from(2) } else { Number::from_f64(0.25).unwrap() })
        }
        "array" => {
            let low = schema["minItems"].as_u64().unwrap_or(0);
            let n = low + dice.roll(3);
            (0..n).map(|_| value(dice, &schema["items"], depth + 1)).collect()
        }
        "object" => fields(dice, schema, depth),
        other => panic!("a schema of type {other:?}: {schema}"),
    }
}

fn fields(dice: &mut Dice, schema: &Value, depth: usize) -> Value {
    let mut out = Map::new();
    if schema.get("additionalProperties").is_some() {
        for _ in 0..dice.roll(3) {
            out.insert(word(dice), value(dice, &schema["additionalProperties"], depth + 1));
        }
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        // Deep objects have fewer fields, so that large kinds stay small enough to read in a failure.
        if required.contains(&name.as_str()) || dice.one_in(if depth > 3 { 3 } else { 2 }) {
            out.insert(name.clone(), value(dice, property, depth + 1));
        }
    }
    if schema.get("properties").is_some() && dice.one_in(8) {
        out.insert("fromTheFuture".to_owned(), json!({"kept": [word(dice), null]}));
    }
    Value::Object(out)
}

/// `apiVersion`, kind and schema of every version of every CRD in a list.
pub fn schemas(crds: &[Value]) -> Vec<(String, String, Value)> {
    let mut out = Vec::new();
    for crd in crds {
        let group = crd["spec"]["group"].as_str().unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let api_version = format!("{group}/{}", version["name"].as_str().unwrap());
            out.push((api_version, kind.to_owned(), version["schema"]["openAPIV3Schema"].clone()));
        }
    }
    out
}

/// Replaces a few values of an object, anywhere but in `apiVersion` and `kind`, by something that does not belong there.
pub fn damage(dice: &mut Dice, object: &mut Value) {
    for (_, value) in
        object.as_object_mut().unwrap().iter_mut().filter(|(k, _)| *k != "apiVersion" && *k != "kind")
    {
        damage_value(dice, value);
    }
}

fn damage_value(dice: &mut Dice, value: &mut Value) {
    if dice.one_in(12) {
        let wrong = [
            json!(null),
            json!(-1),
            json!(1.5),
            json!("x"),
            json!([]),
            json!([{}]),
            json!({}),
            json!({"a": [1]}),
        ];
        *value = wrong[dice.roll(8) as usize].clone();
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| damage_value(dice, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| damage_value(dice, field)),
        _ => {}
    }
}
