//! `#[derive(Api)]`: how a struct of a Kubernetes API is read, written and described.
//!
//! In: a struct with named fields, its doc comments, and `#[api(..)]` and `#[kind(..)]` attributes. Out:
//! `Serialize`, `Deserialize` and `muster_api::schema::Describe`; for a struct with `#[kind(..)]` also
//! `muster_api::schema::Kind` and `kube::core::Resource`.
//!
//! What must stay true:
//! - wire names are the field names in camelCase unless `rename` says otherwise;
//! - an absent `Option` is not written, and an unknown field lands in `rest: Rest` and is written back;
//! - a field is required in the schema exactly when its type is not an `Option`. Reading is lenient, as Go's
//!   clients are: a required field that is absent or null reads as its default, because one bad object in a
//!   list must not hide the others. The API server refuses such an object by its schema; this code does not
//!   repeat that check;
//! - the schema is static data, so that a thousand fields cost little to compile.
//!
//! On a field, or on the struct itself where it makes sense:
//!
//! | attribute | schema |
//! |---|---|
//! | `rename = "GOGC"` | the wire name |
//! | `default = 1`, `default = "x"`, `default = true`, `default_json = "{}"` | `default` |
//! | `range(0..=100)`, `range(1..)`, `above(0)` | `minimum`, `maximum`, `exclusiveMinimum` |
//! | `len(1..=64)` | `minLength`, `minItems` or `minProperties`, and their maxima, by the type |
//! | `pattern = EXPR`, `dns_label`, `dns_subdomain`, `label_key` | `pattern` (the last three with `maxLength`) |
//! | `one_of("A", "B")` | `enum` of a plain string |
//! | `list(atomic)`, `list(set)`, `list(map("name"))`, `map(atomic)` | list and map types |
//! | `items(..)` | the same attributes for the elements of a list or the values of a map |
//! | `rule("cel", "message", reason = "..", path = "..")` | `x-kubernetes-validations` |
//! | `optional_old_rule(..)` | the same, with `optionalOldSelf`: it also runs when the object is created |
//! | `nullable`, `unformatted`, `untyped` | `nullable: true` (type `Option<Option<T>>`); no `format`; no `type` |
//!
//! `#[kind(group = "..", version = "..", plural = "..", short("a"), status, column("Name", ".path" as
//! integer, wide))]`: see `muster_api::schema::KindInfo` for what each part means.

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, Ident, Lit, LitInt, LitStr, Path, Result, Token, Type,
    parenthesized,
};

#[proc_macro_derive(Api, attributes(api, kind))]
pub fn derive_api(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// One field as the derive sees it.
struct Field {
    ident: Ident,
    wire: String,
    ty: Type,
    doc: String,
    marks: Vec<Tokens>,
}

impl Field {
    fn optional(&self) -> bool {
        outer_name(&self.ty).as_deref() == Some("Option")
    }

    /// `Option<Option<T>>`: absent and null are told apart.
    fn nullable(&self) -> bool {
        self.optional() && inner_type(&self.ty).is_some_and(|t| outer_name(&t).as_deref() == Some("Option"))
    }
}

fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(Span::call_site(), "Api is for structs; use string_enum! for enums"));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new(Span::call_site(), "Api needs named fields"));
    };
    let name = &input.ident;
    let mut fields = Vec::new();
    let mut rest = false;
    for field in &named.named {
        let Some(ident) = field.ident.clone() else { continue };
        if ident == "rest" {
            rest = true;
            continue;
        }
        let target = Target::of(&field.ty);
        let attrs = parse_api(&field.attrs, target)?;
        let plain = ident.to_string();
        let wire = attrs.rename.unwrap_or_else(|| camel_case(plain.trim_start_matches("r#")));
        fields.push(Field {
            ident,
            wire,
            ty: field.ty.clone(),
            doc: doc_of(&field.attrs),
            marks: attrs.marks,
        });
    }
    if !rest {
        return Err(Error::new(name.span(), "every API struct keeps unknown fields: add `pub rest: Rest`"));
    }
    let struct_attrs = parse_api(&input.attrs, Target::Object)?;
    let kind = input.attrs.iter().find(|a| a.path().is_ident("kind"));
    let kind = kind.map(|a| a.parse_args::<KindAttr>()).transpose()?;

    let serialize = serialize(name, &fields, kind.is_some());
    let deserialize = deserialize(name, &fields, kind.is_some());
    let describe = describe(name, &fields, &doc_of(&input.attrs), &struct_attrs.marks, kind.is_some());
    let kind = kind.map(|k| k.expand(name, &fields)).unwrap_or_default();
    Ok(quote! { #serialize #deserialize #describe #kind })
}

fn serialize(name: &Ident, fields: &[Field], is_kind: bool) -> Tokens {
    let head = is_kind.then(|| {
        quote! {
            serde::ser::SerializeMap::serialize_entry(
                &mut map, "apiVersion", &crate::schema::api_version(&<Self as crate::schema::Kind>::INFO))?;
            serde::ser::SerializeMap::serialize_entry(
                &mut map, "kind", <Self as crate::schema::Kind>::INFO.kind)?;
        }
    });
    let entries = fields.iter().map(|f| {
        let (ident, wire) = (&f.ident, &f.wire);
        if f.optional() {
            quote! { if let Some(value) = &self.#ident { serde::ser::SerializeMap::serialize_entry(&mut map, #wire, value)?; } }
        } else {
            quote! { serde::ser::SerializeMap::serialize_entry(&mut map, #wire, &self.#ident)?; }
        }
    });
    quote! {
        impl serde::Serialize for #name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(serializer, None)?;
                #head
                #(#entries)*
                for (key, value) in &self.rest {
                    serde::ser::SerializeMap::serialize_entry(&mut map, key, value)?;
                }
                serde::ser::SerializeMap::end(map)
            }
        }
    }
}

fn deserialize(name: &Ident, fields: &[Field], is_kind: bool) -> Tokens {
    let label = name.to_string();
    let head = is_kind.then(|| {
        quote! {
            "apiVersion" => crate::schema::expect_api_version(
                &<#name as crate::schema::Kind>::INFO, serde::de::MapAccess::next_value(&mut map)?)?,
            "kind" => crate::schema::expect_kind(
                &<#name as crate::schema::Kind>::INFO, serde::de::MapAccess::next_value(&mut map)?)?,
        }
    });
    let arms = fields.iter().map(|f| {
        let (ident, wire) = (&f.ident, &f.wire);
        if f.nullable() {
            quote! { #wire => value.#ident = Some(serde::de::MapAccess::next_value(&mut map)?), }
        } else if f.optional() {
            quote! { #wire => value.#ident = serde::de::MapAccess::next_value(&mut map)?, }
        } else {
            quote! {
                #wire => value.#ident = serde::de::MapAccess::next_value::<Option<_>>(&mut map)?.unwrap_or_default(),
            }
        }
    });
    quote! {
        impl<'de> serde::Deserialize<'de> for #name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl<'de> serde::de::Visitor<'de> for Reader {
                    type Value = #name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a ", #label))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<#name, A::Error> {
                        let mut value = #name::default();
                        while let Some(key) = serde::de::MapAccess::next_key::<String>(&mut map)? {
                            match key.as_str() {
                                #head
                                #(#arms)*
                                _ => {
                                    let other = serde::de::MapAccess::next_value(&mut map)?;
                                    value.rest.insert(key, other);
                                }
                            }
                        }
                        Ok(value)
                    }
                }
                serde::Deserializer::deserialize_map(deserializer, Reader)
            }
        }
    }
}

fn describe(name: &Ident, fields: &[Field], doc: &str, marks: &[Tokens], is_kind: bool) -> Tokens {
    let fields = fields.iter().map(|f| {
        let (wire, doc, ty, marks) = (&f.wire, &f.doc, &f.ty, &f.marks);
        // The server owns the schema of a kind's own metadata: it is never required and has no properties.
        let required = !(f.optional() || is_kind && wire == "metadata");
        quote! {
            crate::schema::Property {
                name: #wire, doc: #doc, required: #required,
                shape: &<#ty as crate::schema::Describe>::SHAPE,
                marks: &[#(crate::schema::Mark::#marks),*],
            }
        }
    });
    quote! {
        impl crate::schema::Describe for #name {
            const SHAPE: crate::schema::Shape = crate::schema::Shape::Object {
                doc: #doc,
                properties: &[#(#fields),*],
                marks: &[#(crate::schema::Mark::#marks),*],
            };
        }
    }
}

/// What the length of a value counts.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    Text,
    List,
    Map,
    Object,
}

impl Target {
    fn of(ty: &Type) -> Target {
        match outer_name(ty).as_deref() {
            Some("Option" | "Box") => inner_type(ty).map_or(Target::Text, |t| Target::of(&t)),
            Some("Vec") => Target::List,
            Some("BTreeMap" | "ResourceList" | "Labels") => Target::Map,
            _ => Target::Text,
        }
    }
}

fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(p) => p.path.segments.last(),
        _ => None,
    }
}

fn outer_name(ty: &Type) -> Option<String> {
    last_segment(ty).map(|s| s.ident.to_string())
}

fn inner_type(ty: &Type) -> Option<Type> {
    match &last_segment(ty)?.arguments {
        syn::PathArguments::AngleBracketed(args) => match args.args.last()? {
            syn::GenericArgument::Type(inner) => Some(inner.clone()),
            _ => None,
        },
        _ => None,
    }
}

#[derive(Default)]
struct ApiAttr {
    rename: Option<String>,
    marks: Vec<Tokens>,
}

fn parse_api(attrs: &[Attribute], target: Target) -> Result<ApiAttr> {
    let mut out = ApiAttr::default();
    for attr in attrs.iter().filter(|a| a.path().is_ident("api")) {
        attr.parse_args_with(|input: ParseStream<'_>| parse_marks(input, target, &mut out))?;
    }
    Ok(out)
}

fn parse_marks(input: ParseStream<'_>, target: Target, out: &mut ApiAttr) -> Result<()> {
    while !input.is_empty() {
        parse_mark(input, target, out)?;
        if input.is_empty() {
            break;
        }
        input.parse::<Token![,]>()?;
    }
    Ok(())
}

fn parse_mark(input: ParseStream<'_>, target: Target, out: &mut ApiAttr) -> Result<()> {
    let word: Ident = input.parse()?;
    let marks = &mut out.marks;
    match word.to_string().as_str() {
        "rename" => {
            input.parse::<Token![=]>()?;
            out.rename = Some(input.parse::<LitStr>()?.value());
        }
        "default" => {
            input.parse::<Token![=]>()?;
            let json = json_of(&input.parse::<Lit>()?)?;
            marks.push(quote!(Default(#json)));
        }
        "default_json" => {
            input.parse::<Token![=]>()?;
            let json: LitStr = input.parse()?;
            marks.push(quote!(Default(#json)));
        }
        "range" => {
            let (low, high) = parse_range(input)?;
            marks.extend(low.map(|n| quote!(Minimum(#n))));
            marks.extend(high.map(|n| quote!(Maximum(#n))));
        }
        "above" => {
            let inner;
            parenthesized!(inner in input);
            let low: LitInt = inner.parse()?;
            marks.push(quote!(Minimum(#low)));
            marks.push(quote!(ExclusiveMinimum));
        }
        "len" => {
            let (low, high) = parse_range(input)?;
            let (min, max) = match target {
                Target::Text => (quote!(MinLength), quote!(MaxLength)),
                Target::List => (quote!(MinItems), quote!(MaxItems)),
                Target::Map | Target::Object => (quote!(MinProperties), quote!(MaxProperties)),
            };
            marks.extend(low.map(|n| quote!(#min(#n))));
            marks.extend(high.map(|n| quote!(#max(#n))));
        }
        "pattern" => {
            input.parse::<Token![=]>()?;
            if input.peek(LitStr) {
                let text: LitStr = input.parse()?;
                marks.push(quote!(Pattern(#text)));
            } else {
                let path: Path = input.parse()?;
                marks.push(quote!(Pattern(#path)));
            }
        }
        "dns_label" => {
            marks.push(quote!(Pattern(crate::schema::DNS_LABEL)));
            marks.push(quote!(MaxLength(63)));
        }
        "dns_subdomain" => {
            marks.push(quote!(Pattern(crate::schema::DNS_SUBDOMAIN)));
            marks.push(quote!(MaxLength(253)));
        }
        "label_key" => {
            marks.push(quote!(Pattern(crate::schema::LABEL_KEY)));
            marks.push(quote!(MaxLength(316)));
        }
        "one_of" => {
            let values = parse_strings(input)?;
            marks.push(quote!(OneOf(&[#(#values),*])));
        }
        "list" => {
            let inner;
            parenthesized!(inner in input);
            let how: Ident = inner.parse()?;
            if how == "map" {
                let keys = parse_strings(&inner)?;
                marks.push(quote!(ListMap(&[#(#keys),*])));
            } else {
                let how = how.to_string();
                marks.push(quote!(ListType(#how)));
            }
        }
        "map" => {
            let inner;
            parenthesized!(inner in input);
            let how = inner.parse::<Ident>()?.to_string();
            marks.push(quote!(MapType(#how)));
        }
        "items" => {
            let inner;
            parenthesized!(inner in input);
            let mut nested = ApiAttr::default();
            parse_marks(&inner, Target::Text, &mut nested)?;
            let nested = nested.marks;
            marks.push(quote!(Items(&[#(crate::schema::Mark::#nested),*])));
        }
        "rule" => marks.push(parse_rule(input, false)?),
        "optional_old_rule" => marks.push(parse_rule(input, true)?),
        "nullable" => marks.push(quote!(Nullable)),
        "unformatted" => marks.push(quote!(Unformatted)),
        "untyped" => marks.push(quote!(Untyped)),
        other => return Err(Error::new(word.span(), format!("unknown api attribute `{other}`"))),
    }
    Ok(())
}

fn parse_rule(input: ParseStream<'_>, optional_old_self: bool) -> Result<Tokens> {
    let inner;
    parenthesized!(inner in input);
    let rule: LitStr = inner.parse()?;
    inner.parse::<Token![,]>()?;
    let message: LitStr = inner.parse()?;
    let (mut reason, mut path) = (quote!(None), quote!(None));
    while inner.peek(Token![,]) {
        inner.parse::<Token![,]>()?;
        if inner.is_empty() {
            break;
        }
        let word: Ident = inner.parse()?;
        match word.to_string().as_str() {
            "reason" | "path" => {
                inner.parse::<Token![=]>()?;
                let text: LitStr = inner.parse()?;
                if word == "reason" {
                    reason = quote!(Some(#text));
                } else {
                    path = quote!(Some(#text));
                }
            }
            other => return Err(Error::new(word.span(), format!("unknown part of a rule `{other}`"))),
        }
    }
    Ok(quote!(Rule(&crate::schema::Rule {
        rule: #rule, message: #message, reason: #reason, field_path: #path, optional_old_self: #optional_old_self,
    })))
}

fn parse_range(input: ParseStream<'_>) -> Result<(Option<Tokens>, Option<Tokens>)> {
    fn bound(input: ParseStream<'_>) -> Result<Option<Tokens>> {
        if input.peek(Token![-]) {
            input.parse::<Token![-]>()?;
            let n: LitInt = input.parse()?;
            return Ok(Some(quote!(-#n)));
        }
        if input.peek(LitInt) {
            let n: LitInt = input.parse()?;
            return Ok(Some(quote!(#n)));
        }
        Ok(None)
    }
    let inner;
    parenthesized!(inner in input);
    let low = bound(&inner)?;
    if inner.peek(Token![..=]) {
        inner.parse::<Token![..=]>()?;
    } else {
        inner.parse::<Token![..]>()?;
    }
    let high = bound(&inner)?;
    Ok((low, high))
}

fn parse_strings(input: ParseStream<'_>) -> Result<Vec<LitStr>> {
    let inner;
    parenthesized!(inner in input);
    let mut out = Vec::new();
    while !inner.is_empty() {
        out.push(inner.parse()?);
        if !inner.is_empty() {
            inner.parse::<Token![,]>()?;
        }
    }
    Ok(out)
}

/// A literal as JSON text.
fn json_of(lit: &Lit) -> Result<String> {
    match lit {
        Lit::Int(n) => Ok(n.base10_digits().to_owned()),
        Lit::Float(n) => Ok(n.base10_digits().to_owned()),
        Lit::Bool(b) => Ok(b.value.to_string()),
        Lit::Str(s) => Ok(format!("{:?}", s.value())),
        other => Err(Error::new(other.span(), "a default is a number, a boolean or a string")),
    }
}

/// The parts of `#[kind(..)]`, already as tokens of a `KindInfo`.
struct KindAttr {
    group: LitStr,
    version: LitStr,
    kind: Option<LitStr>,
    plural: LitStr,
    singular: Option<LitStr>,
    short: Vec<LitStr>,
    categories: Vec<LitStr>,
    cluster: bool,
    status: bool,
    scale: Tokens,
    columns: Vec<Tokens>,
    selectable: Vec<LitStr>,
    storage: bool,
    deprecated: Tokens,
    approved: Tokens,
}

impl Parse for KindAttr {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut group, mut version, mut plural) = (None, None, None);
        let mut out = KindAttr {
            group: LitStr::new("", Span::call_site()),
            version: LitStr::new("", Span::call_site()),
            kind: None,
            plural: LitStr::new("", Span::call_site()),
            singular: None,
            short: Vec::new(),
            categories: Vec::new(),
            cluster: false,
            status: false,
            scale: quote!(None),
            columns: Vec::new(),
            selectable: Vec::new(),
            storage: true,
            deprecated: quote!(None),
            approved: quote!(None),
        };
        let text = |input: ParseStream<'_>| -> Result<LitStr> {
            input.parse::<Token![=]>()?;
            input.parse()
        };
        while !input.is_empty() {
            let word: Ident = input.parse()?;
            match word.to_string().as_str() {
                "group" => group = Some(text(input)?),
                "version" => version = Some(text(input)?),
                "plural" => plural = Some(text(input)?),
                "kind" => out.kind = Some(text(input)?),
                "singular" => out.singular = Some(text(input)?),
                "short" => out.short = parse_strings(input)?,
                "categories" => out.categories = parse_strings(input)?,
                "selectable" => out.selectable = parse_strings(input)?,
                "cluster" => out.cluster = true,
                "status" => out.status = true,
                "not_stored" => out.storage = false,
                "deprecated" => {
                    let warning = text(input)?;
                    out.deprecated = quote!(Some(#warning));
                }
                "approved" => {
                    let link = text(input)?;
                    out.approved = quote!(Some(#link));
                }
                "scale" => {
                    let paths = parse_strings(input)?;
                    let [spec, status, selector] = paths.as_slice() else {
                        return Err(Error::new(word.span(), "scale(spec path, status path, selector path)"));
                    };
                    out.scale = quote!(Some(crate::schema::Scale { spec: #spec, status: #status, selector: #selector }));
                }
                "column" => out.columns.push(parse_column(input)?),
                other => return Err(Error::new(word.span(), format!("unknown part of a kind `{other}`"))),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let missing = |what| Error::new(Span::call_site(), format!("kind needs `{what}`"));
        out.group = group.ok_or_else(|| missing("group"))?;
        out.version = version.ok_or_else(|| missing("version"))?;
        out.plural = plural.ok_or_else(|| missing("plural"))?;
        Ok(out)
    }
}

fn parse_column(input: ParseStream<'_>) -> Result<Tokens> {
    let inner;
    parenthesized!(inner in input);
    let name: LitStr = inner.parse()?;
    inner.parse::<Token![,]>()?;
    let path: LitStr = inner.parse()?;
    inner.parse::<Token![as]>()?;
    let kind = inner.parse::<Ident>()?.to_string();
    let mut wide = false;
    if inner.peek(Token![,]) {
        inner.parse::<Token![,]>()?;
        wide = inner.parse::<Ident>()? == "wide";
    }
    Ok(quote!(crate::schema::Column { name: #name, kind: #kind, path: #path, wide: #wide }))
}

impl KindAttr {
    fn expand(&self, name: &Ident, fields: &[Field]) -> Tokens {
        let KindAttr {
            group, version, plural, short, categories, status, scale, columns, selectable, ..
        } = self;
        let KindAttr { storage, deprecated, approved, .. } = self;
        let kind = self.kind.clone().unwrap_or_else(|| LitStr::new(&name.to_string(), name.span()));
        let singular =
            self.singular.clone().unwrap_or_else(|| LitStr::new(&kind.value().to_lowercase(), name.span()));
        let namespaced = !self.cluster;
        let scope = if self.cluster {
            format_ident!("ClusterResourceScope")
        } else {
            format_ident!("NamespaceResourceScope")
        };
        let accessors =
            fields.iter().filter(|f| f.optional() && (f.wire == "spec" || f.wire == "status")).map(|f| {
                let (ident, ty) = (&f.ident, inner_type(&f.ty));
                let doc = format!("The {}, or an empty one where the object has none.", f.wire);
                quote! {
                    #[doc = #doc]
                    pub fn #ident(&self) -> &#ty {
                        static EMPTY: std::sync::LazyLock<#ty> = std::sync::LazyLock::new(Default::default);
                        self.#ident.as_ref().unwrap_or(&EMPTY)
                    }
                }
            });
        quote! {
            impl crate::schema::Kind for #name {
                const INFO: crate::schema::KindInfo = crate::schema::KindInfo {
                    group: #group, version: #version, kind: #kind, plural: #plural, singular: #singular,
                    short_names: &[#(#short),*], categories: &[#(#categories),*], namespaced: #namespaced,
                    storage: #storage, deprecated: #deprecated, approved: #approved,
                    status: #status, scale: #scale, columns: &[#(#columns),*], selectable: &[#(#selectable),*],
                    shape: &<#name as crate::schema::Describe>::SHAPE,
                    reread: |object| serde_json::to_value(serde_json::from_value::<#name>(object)?),
                };
            }
            impl kube::core::Resource for #name {
                type DynamicType = ();
                type Scope = kube::core::#scope;
                fn kind(_: &()) -> std::borrow::Cow<'_, str> { #kind.into() }
                fn group(_: &()) -> std::borrow::Cow<'_, str> { #group.into() }
                fn version(_: &()) -> std::borrow::Cow<'_, str> { #version.into() }
                fn plural(_: &()) -> std::borrow::Cow<'_, str> { #plural.into() }
                fn meta(&self) -> &kube::core::ObjectMeta { &self.metadata }
                fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta { &mut self.metadata }
            }
            impl #name { #(#accessors)* }
        }
    }
}

/// The doc comment as one line per paragraph, the form in which `kubectl explain` wraps it itself.
fn doc_of(attrs: &[Attribute]) -> String {
    let mut out = String::new();
    for attr in attrs.iter().filter(|a| a.path().is_ident("doc")) {
        let syn::Meta::NameValue(pair) = &attr.meta else { continue };
        let syn::Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { continue };
        let line = text.value();
        let line = line.trim();
        if line.is_empty() {
            out.push('\n');
        } else {
            if !out.is_empty() && !out.ends_with('\n') {
                out.push(' ');
            }
            out.push_str(line);
        }
    }
    out.trim().to_owned()
}

fn camel_case(snake: &str) -> String {
    let mut out = String::with_capacity(snake.len());
    let mut upper = false;
    for c in snake.chars() {
        if c == '_' {
            upper = true;
        } else if upper {
            out.extend(c.to_uppercase());
            upper = false;
        } else {
            out.push(c);
        }
    }
    out
}
