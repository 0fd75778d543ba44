//! The keys that the reader knows, as a tree: what [`Section`] was asked for while it read one small file in which nothing
//! is missing that leads to more keys. So what is read is what `derbent schema` tells, and no key stands in two places.
//!
//! Ranges and words come along; what only code can check (URLs, certificates, keys that exclude each other) does not.

use super::{Config, Node, Problems, Section, Spot, yaml};
use serde_json::{Map, Number, Value, json};

/// One value: the forms it may have and the keys below it.
#[derive(Debug, Clone, Default)]
pub struct Outline {
    /// JSON Schemas of a value that is no section.
    forms: Vec<Value>,
    /// In the order asked for.
    keys: Vec<(String, Outline)>,
    required: Vec<String>,
    /// It may be `off` too.
    off: bool,
    /// Below any name.
    each: Option<Box<Outline>>,
    /// Of a list.
    item: Option<Box<Outline>>,
    /// The key that names the policy, where one is chosen here.
    slot: Option<&'static str>,
}

/// What fits a slot: names, and the keys of each.
pub type Rows = Vec<(&'static str, Outline)>;

/// Leads to every section, list and name; sections that are always read need not be here.
const EVERYTHING: &str = r#"
include: []
admin: {}
listeners: { "*": { tls: { certificates: [{}] } } }
routes: { "*": { match: { headers: [{}], query: [{}] }, split: [{}], transforms: [{}] } }
clusters:
  "*": { load_balancing: {}, destinations: { "*": {} }, health: { available: {}, active: {}, passive: { detectors: [{}] } }, session_affinity: {} }
services: { "*": {} }
"#;

impl Outline {
    /// A whole file.
    pub fn of_file() -> Outline {
        let mut problems = Problems::outlining();
        if let Some(root) = yaml::read(&"".into(), EVERYTHING, &mut problems) {
            Config::read(&root, &mut problems);
        }
        problems.into_outline()
    }

    /// What `read` asks for.
    pub fn of_section<T>(read: impl FnOnce(&mut Section<'_>) -> T) -> Outline {
        let mut problems = Problems::outlining();
        let at = Spot { file: "".into(), line: 1, column: 1, path: String::new() };
        read(&mut Section::of_map(&Node::empty_map(at), &mut problems));
        problems.into_outline()
    }

    /// The value at a key path such as `routes.*.match.headers[0].name`.
    pub(super) fn at(&mut self, path: &str) -> &mut Outline {
        path.split('.').filter(|step| !step.is_empty()).fold(self, |outline, step| {
            let (key, item) = step.split_once('[').map_or((step, false), |(key, _)| (key, true));
            let value = match key {
                "*" => outline.each.get_or_insert_default(),
                key => outline.key(key),
            };
            if item { value.item.get_or_insert_default() } else { value }
        })
    }

    fn key(&mut self, key: &str) -> &mut Outline {
        let found = self.keys.iter().position(|(known, _)| known == key);
        let index = found.unwrap_or_else(|| {
            self.keys.push((key.to_owned(), Outline::default()));
            self.keys.len() - 1
        });
        &mut self.keys[index].1
    }

    /// Unless a more exact form was added already.
    pub(super) fn add_form(&mut self, form: impl FnOnce() -> Value) {
        if self.forms.is_empty() {
            self.forms.push(form());
        }
    }

    pub(super) fn add_off(&mut self) {
        self.off = true;
    }

    pub(super) fn require(&mut self, key: &str) {
        self.required.push(key.to_owned());
    }

    pub(super) fn set_slot(&mut self, key: &'static str) {
        self.slot = Some(key);
    }

    /// A JSON Schema of draft 2020-12; `rows` tells what fits the slot at a key.
    pub fn schema(&self, rows: &dyn Fn(&str) -> Rows) -> Value {
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Derbent configuration",
        });
        // With `include` a file may leave to another what every configuration needs.
        let whole = Outline { required: Vec::new(), ..self.clone() };
        for part in [whole.value("", rows), json!({ "$defs": definitions() })] {
            if let (Value::Object(schema), Value::Object(part)) = (&mut schema, part) {
                schema.extend(part);
            }
        }
        schema
    }

    fn value(&self, key: &str, rows: &dyn Fn(&str) -> Rows) -> Value {
        let mut forms = self.forms.clone();
        forms.extend(self.off.then(|| json!({ "const": "off" })));
        match self.slot {
            Some(slot) => forms.extend(self.policies(slot, &rows(key), rows)),
            None if !self.keys.is_empty() => forms.push(self.section(rows)),
            None => {}
        }
        if let Some(each) = &self.each {
            forms.push(json!({ "type": ["object", "null"], "additionalProperties": each.value("", rows) }));
        }
        if let Some(item) = &self.item {
            forms.push(json!({ "type": "array", "items": item.value(key, rows) }));
        }
        match forms.len() {
            1 => forms.remove(0),
            _ => json!({ "anyOf": forms }),
        }
    }

    fn section(&self, rows: &dyn Fn(&str) -> Rows) -> Value {
        let properties: Map<String, Value> =
            self.keys.iter().map(|(key, value)| (key.clone(), value.value(key, rows))).collect();
        let mut section =
            json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false });
        if !self.required.is_empty() {
            section["type"] = json!("object");
            section["required"] = json!(self.required);
        }
        section
    }

    /// The name alone, or a section for each policy that has its own keys too.
    fn policies(&self, slot: &str, fitting: &Rows, rows: &dyn Fn(&str) -> Rows) -> Vec<Value> {
        let names: Vec<&str> = fitting.iter().map(|(name, _)| *name).collect();
        let section = |(name, own): &(&str, Outline)| {
            let mut policy = Outline { slot: None, ..self.clone() };
            policy.key(slot).forms = vec![or_variable(json!({ "const": name }))];
            for (key, value) in &own.keys {
                *policy.key(key) = value.clone();
            }
            policy.required.extend(own.required.iter().cloned());
            policy.section(rows)
        };
        std::iter::once(one_of(names.into_iter())).chain(fitting.iter().map(section)).collect()
    }
}

pub(super) fn text() -> Value {
    json!({ "$ref": "#/$defs/text" })
}

/// One text or a list of them.
pub(super) fn texts() -> Value {
    json!({ "anyOf": [text(), { "type": "array", "items": text() }] })
}

/// A form that is told by the name of its definition, and `description` of what it may be.
pub(super) fn unit(definition: &str, description: String) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}"), "description": description })
}

/// A scalar that only code can judge, and `what` it is.
pub(super) fn described(what: &str) -> Value {
    json!({ "type": ["string", "number", "boolean"], "description": what })
}

/// One of these; those that are numbers may be written without quotes.
pub(super) fn one_of<'w>(words: impl Iterator<Item = &'w str>) -> Value {
    let as_numbers = |word: &'w str| [Some(json!(word)), word.parse::<Number>().ok().map(Value::Number)];
    or_variable(json!({ "enum": words.flat_map(as_numbers).flatten().collect::<Value>() }))
}

/// `form`, or an environment variable in its place.
pub(super) fn or_variable(form: Value) -> Value {
    json!({ "anyOf": [form, { "$ref": "#/$defs/variable" }] })
}

fn definitions() -> Value {
    json!({
        "text": { "type": ["string", "number", "boolean"] },
        "variable": { "type": "string", "pattern": "\\$\\{", "description": "${NAME} or ${NAME:-default}" },
        "duration": {
            "type": "string",
            "pattern": "^([0-9.]+(h|m|s|ms))+$|^[0-9]+:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?$|\\$\\{",
            "examples": ["250ms", "5s", "1m30s"],
        },
        "size": {
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^[0-9]+([KMG]i?B|B)?$|\\$\\{" },
            ],
            "examples": ["64KiB", "10MiB"],
        },
        "share": {
            "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "string", "pattern": "^[0-9.]+%?$|\\$\\{" },
            ],
            "examples": ["5%", 0.05],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key paths of all that leads nowhere.
    fn unknown(outline: &Outline, path: &str, found: &mut Vec<String>) {
        let leaf = outline.keys.is_empty() && outline.each.is_none() && outline.item.is_none();
        if leaf && outline.forms.is_empty() && !outline.off && outline.slot.is_none() {
            found.push(path.to_owned());
        }
        outline.keys.iter().for_each(|(key, value)| unknown(value, &format!("{path}.{key}"), found));
        outline.each.iter().for_each(|each| unknown(each, &format!("{path}.*"), found));
        outline.item.iter().for_each(|item| unknown(item, &format!("{path}[0]"), found));
    }

    #[test]
    fn given_the_outline_of_a_file_when_looked_through_then_every_key_has_a_form_or_keys_below() {
        let mut found = Vec::new();
        unknown(&Outline::of_file(), "", &mut found);
        assert!(found.is_empty(), "EVERYTHING does not lead into {found:?}");
    }

    #[test]
    fn given_a_section_when_outlined_then_its_keys_ranges_and_what_it_needs() {
        let outline = Outline::of_section(|section| {
            section.require("count", "a number");
            section.integer("count", 1..=9);
            section.section("inner", |inner| inner.word("kind", &[("A", ()), ("B", ())]));
        });
        let variable = json!({ "$ref": "#/$defs/variable" });
        let kind = json!({ "anyOf": [{ "enum": ["A", "B"] }, variable] });
        assert_eq!(
            outline.value("", &|_| Rows::new()),
            json!({
                "type": "object",
                "properties": {
                    "count": { "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 9 }, variable] },
                    "inner": {
                        "type": ["object", "null"],
                        "properties": { "kind": kind },
                        "additionalProperties": false,
                    },
                },
                "additionalProperties": false,
                "required": ["count"],
            })
        );
    }
}
