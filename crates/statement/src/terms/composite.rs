//! Text that stands for a value of `CompositeType` or `DynamicCompositeType`: components between colons.
//!
//! A colon after a backslash belongs to its component, and so does a last `\` or `!` followed by a `!`. A
//! last component `!` or `_` ends the value as the bound after or before all values with this prefix. A
//! dynamic component begins with its type, by alias or by class: `s@text`. Rules as in Cassandra 5's
//! `AbstractCompositeType.fromString`; texts that make that function fail with an internal error are refused
//! here.

use model::CqlType;
use model::validate::validate;

use super::literal::append_text;
use crate::ddl::types::top_level;

/// Appends the value of the composite class `class`, which `CREATE TABLE` has checked, written as `text`.
///
/// # Errors
/// The message for the client, with Cassandra's text if Cassandra has one.
pub(super) fn append_composite(
    class: &CompositeClass<'_>,
    text: &str,
    now_ms: i64,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let start = out.len();
    let mut parts = text.split(':').peekable();
    let mut component = String::new();
    let mut index = 0;
    while let Some(part) = parts.next() {
        component.push_str(part);
        if part.ends_with('\\') && parts.peek().is_some() {
            component.pop();
            component.push(':');
            continue;
        }
        match component.as_str() {
            "!" | "_" => {
                if let Some(end) = out[start..].last_mut() {
                    *end = if component == "!" { 1 } else { 0xff };
                }
                return Ok(());
            }
            "" if text.is_empty() => return Ok(()),
            _ => {}
        }
        let (ty, value) = class.component(index, &component, out)?;
        let value = value.strip_suffix('!').unwrap_or(value);
        let mut bytes = Vec::new();
        append_text(value, &ty, now_ms, &mut bytes)?;
        validate(&ty, &bytes).map_err(|error| error.to_string())?;
        append_short(bytes.len(), out).ok_or_else(|| format!("Component {index} is too long"))?;
        out.extend_from_slice(&bytes);
        out.push(0);
        component.clear();
        index += 1;
    }
    Ok(())
}

/// A composite class by its parameters.
pub(super) enum CompositeClass<'a> {
    /// `CompositeType`: classes by position.
    Static(&'a str),
    /// `DynamicCompositeType`: classes by aliases of one character.
    Dynamic(&'a str),
}

impl<'a> CompositeClass<'a> {
    /// Reads a class name; `None` if it is not a composite's.
    pub(super) fn of(class: &'a str) -> Option<Self> {
        let class = class.strip_prefix(model::marshal::PACKAGE).unwrap_or(class);
        let (name, parameters) = class.strip_suffix(')')?.split_once('(')?;
        match name {
            "CompositeType" => Some(Self::Static(parameters)),
            "DynamicCompositeType" => Some(Self::Dynamic(parameters)),
            _ => None,
        }
    }

    /// The type of a component, and the part of its text that is the value. The bytes that name the type are
    /// appended.
    fn component<'t>(
        &self,
        index: usize,
        text: &'t str,
        out: &mut Vec<u8>,
    ) -> Result<(CqlType, &'t str), String> {
        match self {
            Self::Static(parameters) => {
                let class = top_level(parameters).nth(index).ok_or("Too many bytes for comparator")?;
                Ok((parse(class)?, text))
            }
            Self::Dynamic(aliases) => {
                let (name, value) = text.split_once('@').unwrap_or((text, ""));
                if value.contains('@') {
                    return Err(format!("Invalid component representation: {text}"));
                }
                let aliased = top_level(aliases)
                    .filter_map(|entry| entry.split_once("=>"))
                    .find(|(alias, _)| alias.trim() == name);
                if let (Some((_, class)), [alias]) = (aliased, name.as_bytes()) {
                    out.extend_from_slice(&[0x80, *alias]);
                    return Ok((parse(class)?, value));
                }
                let ty = parse(name)?;
                append_short(name.len(), out).ok_or_else(|| format!("Component {index} is too long"))?;
                out.extend_from_slice(name.as_bytes());
                Ok((ty, value))
            }
        }
    }
}

fn parse(class: &str) -> Result<CqlType, String> {
    match model::marshal::parse_class(class.trim()) {
        Ok((CqlType::Custom(name), _)) => Err(format!("Unable to find abstract-type class '{name}'")),
        Ok((ty, _)) => Ok(ty),
        Err(error) => Err(error.to_string()),
    }
}

/// Appends a length of 16 bits; `None` if it does not fit.
fn append_short(length: usize, out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIC: &str = "org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.AsciiType,\
                          org.apache.cassandra.db.marshal.Int32Type)";
    const DYNAMIC: &str = "org.apache.cassandra.db.marshal.DynamicCompositeType(\
                           s=>org.apache.cassandra.db.marshal.UTF8Type,i=>org.apache.cassandra.db.marshal.Int32Type)";

    fn value(class: &str, text: &str) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        append_composite(&CompositeClass::of(class).expect("a composite"), text, 0, &mut out).map(|()| out)
    }

    #[track_caller]
    fn check(class: &str, text: &str, expected: &[u8]) {
        assert_eq!(value(class, text).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn components_are_read_as_their_types_say() {
        check(STATIC, "", b"");
        check(STATIC, "abc", b"\0\x03abc\0");
        check(STATIC, "abc:123", b"\0\x03abc\0\0\x04\0\0\0\x7b\0");
        check(STATIC, ":1", b"\0\0\0\0\x04\0\0\0\x01\0");
        check(STATIC, r"a\:b:1", b"\0\x03a:b\0\0\x04\0\0\0\x01\0");
        check(STATIC, r"a\!", b"\0\x02a\\\0");
        check(STATIC, "abc:!", b"\0\x03abc\x01");
        check(STATIC, "abc:_", b"\0\x03abc\xff");
        check(DYNAMIC, "s@foo:i@32", b"\x80s\0\x03foo\0\x80i\0\x04\0\0\0\x20\0");
        check(DYNAMIC, "UTF8Type@foo", b"\0\x08UTF8Type\0\x03foo\0");
        check(DYNAMIC, "s", b"\x80s\0\0\0");
    }

    #[test]
    fn what_is_no_component_is_refused() {
        for (class, text, expected) in [
            (STATIC, "a:b", "Unable to make int from 'b'"),
            (STATIC, "a:1:2", "Too many bytes for comparator"),
            (DYNAMIC, "s@a@b", "Invalid component representation: s@a@b"),
            (DYNAMIC, "i@x", "Unable to make int from 'x'"),
        ] {
            assert_eq!(value(class, text), Err(expected.to_owned()), "{text}");
        }
        assert!(value(DYNAMIC, "x@a").is_err());
        assert!(value(STATIC, &"a".repeat(70_000)).is_err());
    }
}
