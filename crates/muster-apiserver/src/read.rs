//! Get and list. In: a kind, a key or a range, and the wanted form. Out: an answer.
//!
//! Stored text is spliced into the answer as it is whenever the client wants whole objects in the storage version: a list
//! of 10,000 pods is one copy, not 10,000 parses.

use crate::negotiate::Form;
use crate::query::Query;
use crate::registry::{Served, Source};
use crate::reply::Reply;
use crate::selector::{Fields, Labels};
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::store::{Compacted, Key, Page, Range, Revision, Stored};
use crate::strategy;
use crate::table::{self, Include};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Which objects of a kind a list, watch or collection delete is about.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Labels,
    /// Field selector.
    pub fields: Fields,
}

impl Filter {
    /// From a request; refuses field selectors that the kind does not offer.
    pub fn new(served: &Served, namespace: Option<&str>, query: &Query) -> Result<Filter, ApiError> {
        for r in &query.fields.0 {
            strategy::check_selectable(served, &r.field).map_err(ApiError::bad_request)?;
        }
        Ok(Filter {
            namespace: namespace.map(str::to_string),
            labels: query.labels.clone(),
            fields: query.fields.clone(),
        })
    }

    /// Whether it lets an object pass.
    pub fn passes(&self, object: &Stored) -> bool {
        if self.namespace.as_deref().is_some_and(|ns| ns != &*object.key.namespace) {
            return false;
        }
        self.labels.matches(|label| object.facts.label(label))
            && self.fields.matches(|field| match field {
                "metadata.name" => Some(&object.key.name),
                "metadata.namespace" => Some(&object.key.namespace),
                _ => object.facts.field(field),
            })
    }
}

/// Whether stored text can be handed out without parsing it.
pub fn is_plain(served: &Served, form: Form, stored: &Stored) -> bool {
    form.is_object() && served.is_stored_as_served(stored.revision)
}

/// The stored members of an object, from a place in its text on.
fn add_text(stored: &Stored, from: usize, form: Form, out: &mut String) {
    let text = &stored.text;
    let record = stored.facts.record.filter(|_| form == Form::Lean);
    let (begin, end) = record.map_or((0, 0), |(begin, end)| (begin as usize, end as usize));
    out.push_str(&text[from..text.len() - begin]);
    out.push_str(&text[text.len() - end..]);
}

/// `{"kind":..,"apiVersion":..,` followed by the stored members.
pub fn splice(served: &Served, stored: &Stored, form: Form, out: &mut String) {
    out.push_str("{\"kind\":\"");
    out.push_str(&served.kind);
    out.push_str("\",\"apiVersion\":\"");
    out.push_str(&served.api_version());
    out.push_str("\",");
    add_text(stored, 1, form, out);
}

/// Items of built-in lists carry no type of their own, those of custom ones do: as the real server has it.
pub fn strip_item_types(served: &Served, items: &mut [Value]) {
    if matches!(served.source, Source::Builtin(_)) {
        for map in items.iter_mut().filter_map(Value::as_object_mut) {
            map.remove("apiVersion");
            map.remove("kind");
        }
    }
}

/// Where a paged list goes on.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    revision: Option<Revision>,
    after: Key,
    /// How many follow.
    left: Option<usize>,
}

impl Token {
    fn print(&self) -> String {
        let body = json!({
            "v": "meta.k8s.io/v1", "rv": self.revision.map_or(-1, |r| i64::try_from(r).unwrap_or(-1)),
            "ns": &*self.after.namespace, "name": &*self.after.name, "left": self.left,
        });
        URL_SAFE_NO_PAD.encode(body.to_string())
    }

    fn parse(text: &str) -> Result<Token, ApiError> {
        let bad = |why: &str| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|e| bad(&e.to_string()))?;
        let body: Value = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
        let name = body["name"].as_str().ok_or_else(|| bad("incorrect encoding"))?;
        let rv = body["rv"].as_i64().ok_or_else(|| bad("incorrect encoding"))?;
        Ok(Token {
            revision: u64::try_from(rv).ok(),
            after: Key::new(body["ns"].as_str().unwrap_or_default(), name),
            left: body["left"].as_u64().and_then(|left| usize::try_from(left).ok()),
        })
    }
}

/// Reads a `resourceVersion` parameter.
pub fn parse_revision(text: &str) -> Result<Revision, ApiError> {
    text.parse::<u64>().map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
        ApiError::plain(k8s_schema::FieldError::invalid("resourceVersion", text, detail).to_string())
    })
}

impl ApiServer {
    /// Answers a get.
    pub(crate) async fn get(
        &self,
        served: &Served,
        key: &Key,
        query: &Query,
        form: Form,
    ) -> Result<Reply, ApiError> {
        if !matches!(query.resource_version.as_str(), "" | "0") {
            let asked = parse_revision(&query.resource_version)?;
            self.check_reached(asked)?;
        }
        let stored = self.must_find(served, key)?;
        if is_plain(served, form, &stored) {
            let mut text = String::with_capacity(stored.text.len() + 64);
            splice(served, &stored, form, &mut text);
            return Ok(Reply::text(200, text));
        }
        let object = self.read(&stored, served).await?;
        Ok(Reply::json(200, self.shape(served, object, form, query)))
    }

    /// The object, or the 404 that says it is not there.
    pub(crate) fn must_find(&self, served: &Served, key: &Key) -> Result<Stored, ApiError> {
        self.store()
            .get(&served.table, key)
            .ok_or_else(|| ApiError::not_found(&served.group_resource(), &key.name))
    }

    /// One object in the form the client wants.
    pub(crate) fn shape(&self, served: &Served, object: Value, form: Form, query: &Query) -> Value {
        match form {
            Form::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let include = Include::parse(&query.include_object);
                table::table(served, &[object], include, self.clock().now(), metadata, true)
            }
            Form::Metadata => table::partial(&object),
            Form::Object | Form::Lean | Form::Discovery(_) => object,
        }
    }

    fn check_reached(&self, asked: Revision) -> Result<(), ApiError> {
        let current = self.store().revision();
        if asked > current { Err(ApiError::too_large_revision(asked, current)) } else { Ok(()) }
    }

    /// Answers a list.
    pub(crate) async fn list(
        &self,
        served: &Served,
        filter: &Filter,
        query: &Query,
        form: Form,
    ) -> Result<Reply, ApiError> {
        let exact = query.resource_version_match == "Exact";
        if query.send_initial_events.is_some() {
            let error = k8s_schema::FieldError::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            );
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
        }
        check_match(query)?;
        let mut range =
            Range { namespace: filter.namespace.as_deref(), limit: query.limit, ..Range::default() };
        if !query.continue_token.is_empty() {
            let token = Token::parse(&query.continue_token)?;
            range.after = Some(token.after);
            range.at = token.revision;
            // Of another revision there may be more or fewer by now.
            range.left = token.left.filter(|_| token.revision.is_some());
        } else if !matches!(query.resource_version.as_str(), "" | "0") {
            let asked = parse_revision(&query.resource_version)
                .map_err(|e| ApiError::bad_request(format!("invalid resource version: {}", e.message)))?;
            self.check_reached(asked)?;
            // A page of a named version is of exactly that version, even if nobody says so.
            if exact || (query.limit > 0 && query.resource_version_match.is_empty()) {
                range.at = Some(asked);
            }
        }
        // Whoever takes any version gets everything.
        if query.resource_version == "0" && query.continue_token.is_empty() {
            range.limit = 0;
        }
        let mut page = self
            .store()
            .list(&served.table, &range, &mut |o| filter.passes(o))
            .map_err(|e| self.page_expired(&range, e))?;
        if page.next.is_some() && !self.is_more_in_reach(served, filter, query, &range, &page) {
            page.next = None;
        }
        let selective = !query.labels.0.is_empty() || !query.fields.0.is_empty();
        let metadata = if form.is_object() {
            list_metadata(served, &page, selective)
        } else {
            page_metadata(&page, selective)
        };
        let is_as_served = |stored: &Stored| served.is_stored_as_served(stored.revision);
        if form.is_object() && page.items.iter().all(is_as_served) {
            return Ok(Reply::text(200, plain_list(served, &page, &metadata, form)));
        }
        let mut objects = Vec::with_capacity(page.items.len());
        for stored in &page.items {
            objects.push(self.read(stored, served).await?);
        }
        Ok(Reply::json(
            200,
            match form {
                Form::Table => {
                    let include = Include::parse(&query.include_object);
                    table::table(served, &objects, include, self.clock().now(), metadata, true)
                }
                Form::Metadata => json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    // No items are no list, as the real server has it.
                    "items": (!objects.is_empty()).then(|| objects.iter().map(table::partial).collect::<Vec<_>>()),
                }),
                Form::Object | Form::Lean | Form::Discovery(_) => {
                    strip_item_types(served, &mut objects);
                    json!({
                        "kind": served.list_kind, "apiVersion": served.api_version(), "metadata": metadata,
                        "items": objects,
                    })
                }
            },
        ))
    }

    /// Whether more follows a page in what the real server looks through: all of the namespace, but a single object where its name is given,
    /// and the pods of a node where they are asked for, of which it has an index.
    fn is_more_in_reach(
        &self,
        served: &Served,
        filter: &Filter,
        query: &Query,
        range: &Range<'_>,
        page: &Page,
    ) -> bool {
        let exactly = |field: &str| filter.fields.0.iter().find(|r| r.equal && r.field == field);
        if query.continue_token.is_empty()
            && exactly("metadata.name").is_some()
            && filter.namespace.is_some() == served.namespaced
        {
            return false;
        }
        if let Some(node) = exactly("spec.nodeName").filter(|_| served.is("", "pods") && range.at.is_none()) {
            let rest = Range { after: page.next.clone(), limit: 1, left: None, ..range.clone() };
            let mut on_node = |o: &Stored| o.facts.field("spec.nodeName").unwrap_or_default() == node.value;
            return self
                .store()
                .list(&served.table, &rest, &mut on_node)
                .is_ok_and(|rest| !rest.items.is_empty());
        }
        true
    }

    fn page_expired(&self, range: &Range<'_>, _: Compacted) -> ApiError {
        match &range.after {
            Some(after) => {
                let fresh = Token { revision: None, after: after.clone(), left: None }.print();
                let mut error = ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                );
                error.continue_token = Some(fresh);
                error
            }
            None => ApiError::expired("The resourceVersion for the provided list is too old."),
        }
    }
}

fn check_match(query: &Query) -> Result<(), ApiError> {
    let forbid = |why: &str| {
        let error = k8s_schema::FieldError::forbidden("resourceVersionMatch", why);
        Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]))
    };
    match query.resource_version_match.as_str() {
        "" => Ok(()),
        "Exact" | "NotOlderThan" => {
            if query.resource_version.is_empty() {
                return forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !query.continue_token.is_empty() {
                return forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if query.resource_version_match == "Exact" && query.resource_version == "0" {
                return forbid("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            Ok(())
        }
        other => {
            let error = k8s_schema::FieldError::not_supported(
                "resourceVersionMatch",
                other,
                ["Exact", "NotOlderThan", ""],
            );
            Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]))
        }
    }
}

/// The metadata of a list of whole objects.
pub fn list_metadata(served: &Served, page: &Page, selective: bool) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    // Lists of custom objects always show the token, even when there is none.
    if matches!(served.source, Source::Custom(_)) {
        metadata["continue"] = "".into();
    }
    if let (Value::Object(all), Value::Object(more)) = (&mut metadata, page_metadata(page, selective)) {
        all.extend(more);
    }
    metadata
}

fn page_metadata(page: &Page, selective: bool) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        let token = Token { revision: Some(page.revision), after: next.clone(), left: Some(page.remaining) };
        metadata["continue"] = token.print().into();
        if !selective {
            metadata["remainingItemCount"] = page.remaining.into();
        }
    }
    metadata
}

fn plain_list(served: &Served, page: &Page, metadata: &Value, form: Form) -> String {
    let size: usize = page.items.iter().map(|i| i.text.len() + 64).sum();
    let mut out = String::with_capacity(size + 256);
    out.push_str(&format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        served.list_kind,
        served.api_version()
    ));
    // Items of built-in lists carry no type of their own, those of custom ones do: as the real server has it.
    let typed = matches!(served.source, Source::Custom(_));
    for (i, item) in page.items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if typed {
            splice(served, item, form, &mut out);
        } else {
            add_text(item, 0, form, &mut out);
        }
    }
    out.push_str("]}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tokens_round_trip(ns in "[a-z]{0,5}", name in "[a-z0-9.-]{1,9}", rv in proptest::option::of(0u64..1 << 40), left in proptest::option::of(0usize..1 << 20)) {
            let token = Token { revision: rv, after: Key::new(&ns, &name), left };
            prop_assert_eq!(Token::parse(&token.print()).unwrap(), token);
        }

        #[test]
        fn tokens_never_panic(text in "\\PC*") {
            let _ = Token::parse(&text);
        }
    }
}
