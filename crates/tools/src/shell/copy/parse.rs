//! Values of CSV fields as bytes: the inverse of the printer for files, which also reads what cqlsh writes.
//!
//! Inside collections, tuples and user types, texts stand between single quotes, as in CQL; names of fields
//! and dates do not. Source: `ImportConversion` of cqlsh.

use model::CqlType;
use model::collection::{append_element, append_vector_element};
use model::types::UserType;
use statement::terms::{assemble_collection, literal};

/// The words for null and for booleans.
#[derive(Debug, Clone)]
pub(super) struct Words {
    pub(super) null: String,
    pub(super) booleans: [String; 2],
}

impl Words {
    /// The value of a field; null is `None`.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn value(&self, ty: &CqlType, text: &str, is_quoted: bool) -> Result<Option<Vec<u8>>, String> {
        let has_own_empty = matches!(ty, CqlType::Ascii | CqlType::Text);
        if !is_quoted && text == self.null || text.is_empty() && !has_own_empty {
            return Ok(None);
        }
        // Quotes of a file that quotes every field say nothing of null.
        if is_quoted && text == self.null && !has_own_empty {
            return Ok(None);
        }
        let mut out = Vec::new();
        self.append(ty, text, &mut out)?;
        Ok(Some(out))
    }

    fn append(&self, ty: &CqlType, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
        match ty {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                let parts = split(text, ',')?.into_iter().map(|part| self.element(element, part));
                out.extend(assemble_collection(ty, parts.collect::<Result<Vec<_>, _>>()?));
            }
            CqlType::Map { key, value, .. } => {
                let mut parts = Vec::new();
                for entry in split(text, ',')? {
                    let (name, part) = pair(entry)?;
                    parts.push(self.element(key, name)?);
                    parts.push(self.element(value, part)?);
                }
                out.extend(assemble_collection(ty, parts));
            }
            CqlType::Vector { element, dimension } => {
                let parts = split(text, ',')?;
                if parts.len() != *dimension as usize {
                    return Err(format!("{} elements for a vector of {dimension}", parts.len()));
                }
                for part in parts {
                    let value = self.element(element, part)?;
                    if element.fixed_value_length().is_some_and(|length| length != value.len()) {
                        return Err(format!("'{part}' is no element of {ty}"));
                    }
                    append_vector_element(out, element, &value);
                }
            }
            CqlType::Tuple(types) => {
                let parts = split(text, ',')?;
                if parts.len() > types.len() {
                    return Err(format!("{} components for {ty}", parts.len()));
                }
                for (part, ty) in parts.into_iter().zip(types) {
                    append_element(out, self.component(ty, part)?.as_deref());
                }
            }
            CqlType::Udt(udt) => self.append_fields(udt, text, out)?,
            CqlType::Boolean => {
                let at = self.booleans.iter().position(|word| word.eq_ignore_ascii_case(text.trim()));
                let at = at.ok_or_else(|| {
                    format!("'{text}' is neither {} nor {}", self.booleans[0], self.booleans[1])
                })?;
                out.push(u8::from(at == 0));
            }
            CqlType::Blob | CqlType::Custom(_) => {
                let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
                let bytes = digits.and_then(model::hex::parse);
                out.extend(bytes.ok_or_else(|| {
                    format!("'{text}' is no blob: hexadecimal digits behind 0x are expected")
                })?);
            }
            // Blanks count in a text, and nowhere else.
            CqlType::Ascii | CqlType::Text => literal::append_text(text, ty, 0, out)?,
            scalar => literal::append_text(text.trim(), scalar, 0, out)?,
        }
        Ok(())
    }

    fn append_fields(&self, udt: &UserType, text: &str, out: &mut Vec<u8>) -> Result<(), String> {
        let mut given = Vec::new();
        for entry in split(text, ',')? {
            let (name, part) = pair(entry)?;
            let name = unquoted(name.trim()).unwrap_or_else(|| name.trim().to_owned());
            if !udt.fields.iter().any(|(field, _)| *field == name) {
                return Err(format!("the type {} has no field '{name}'", udt.name));
            }
            given.push((name, part));
        }
        for (field, ty) in &udt.fields {
            let part = given.iter().rfind(|(name, _)| name == field);
            let value = part.map(|(_, part)| self.component(ty, part)).transpose()?.flatten();
            append_element(out, value.as_deref());
        }
        Ok(())
    }

    /// A value inside of a tuple or user type, which may be null.
    fn component(&self, ty: &CqlType, part: &str) -> Result<Option<Vec<u8>>, String> {
        let part = part.trim();
        let is_null =
            part.is_empty() || part == self.null || part.eq_ignore_ascii_case("null") || part == "None";
        if is_null { Ok(None) } else { self.element(ty, part).map(Some) }
    }

    /// A value inside of another one.
    fn element(&self, ty: &CqlType, part: &str) -> Result<Vec<u8>, String> {
        let part = part.trim();
        let text = unquoted(part);
        let is_text = matches!(ty, CqlType::Ascii | CqlType::Text);
        if part.is_empty() && !is_text {
            return Err("null is not supported inside collections".to_owned());
        }
        let mut out = Vec::new();
        self.append(ty, text.as_deref().unwrap_or(part), &mut out)?;
        Ok(out)
    }
}

/// The text between single quotes; `None` if there are none.
fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    Some(inner.replace("''", "'"))
}

/// The parts of a text in brackets, whichever they are: cut at `separator` where no string and no bracket is
/// open.
fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let text = text.trim();
    let brackets = [('[', ']'), ('{', '}'), ('(', ')')];
    let inner = brackets.iter().find_map(|(open, close)| text.strip_prefix(*open)?.strip_suffix(*close));
    let inner = inner.ok_or_else(|| format!("'{text}' does not begin and end with matching brackets"))?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = Vec::new();
    let mut rest = inner;
    while let Some(at) = outside(rest, |at, c| (c == separator).then_some(at)) {
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len_utf8()..];
    }
    parts.push(rest);
    Ok(parts)
}

/// Key and value. The colon between them has a blank behind it, unless no colon has: a time has colons too.
fn pair(entry: &str) -> Result<(&str, &str), String> {
    let with_blank = outside(entry, |at, c| (c == ':' && entry[at + 1..].starts_with(' ')).then_some(at));
    let at = with_blank.or_else(|| outside(entry, |at, c| (c == ':').then_some(at)));
    let at = at.ok_or_else(|| format!("'{}' is no pair with a colon between", entry.trim()))?;
    Ok((&entry[..at], &entry[at + 1..]))
}

/// The first result of `found` for a character outside of strings and brackets.
fn outside<T>(text: &str, found: impl Fn(usize, char) -> Option<T>) -> Option<T> {
    let (mut level, mut is_quoted) = (0i32, false);
    for (at, c) in text.char_indices() {
        match c {
            '\'' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '[' | '{' | '(' => level += 1,
            ']' | '}' | ')' => level -= 1,
            c if level == 0 => {
                if let Some(result) = found(at, c) {
                    return Some(result);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use model::validate::validate;

    use super::super::super::value::Printer;
    use super::*;

    fn words() -> Words {
        Words { null: String::new(), booleans: ["True".to_owned(), "False".to_owned()] }
    }

    /// Parses a text, and prints it again.
    fn check(ty: &CqlType, text: &str, again: &str) {
        let value =
            words().value(ty, text, true).unwrap_or_else(|error| panic!("{ty} {text}: {error}")).unwrap();
        validate(ty, &value).unwrap_or_else(|error| panic!("{ty} {text}: {error}"));
        let Words { null, booleans } = words();
        assert_eq!(Printer::file(null, booleans).print(ty, Some(&value)).text, again, "{ty}");
    }

    fn boxed(ty: CqlType) -> Box<CqlType> {
        Box::new(ty)
    }

    #[test]
    fn each_type_reads_back() {
        for (ty, text) in [
            (CqlType::Ascii, "a\\b 'c'"),
            (CqlType::Text, "漢\n"),
            (CqlType::Bigint, "-9223372036854775808"),
            (CqlType::Blob, "0xcafe"),
            (CqlType::Boolean, "False"),
            (CqlType::Counter, "5"),
            (CqlType::Date, "1969-12-31"),
            (CqlType::Date, "4294967295"),
            (CqlType::Decimal, "-1.50"),
            (CqlType::Decimal, "1E+3"),
            (CqlType::Double, "0.1"),
            (CqlType::Double, "5e-324"),
            (CqlType::Double, "-Infinity"),
            (CqlType::Duration, "1y2mo3d4h5ns"),
            (CqlType::Float, "3.4028235e38"),
            (CqlType::Float, "NaN"),
            (CqlType::Inet, "::1"),
            (CqlType::Int, "-1"),
            (CqlType::Smallint, "7"),
            (CqlType::Time, "23:59:59.123456789"),
            (CqlType::Timestamp, "1969-12-31 23:59:59.001+0000"),
            (CqlType::Timestamp, "-9223372036854775808"),
            (CqlType::Timeuuid, "50554d6e-29bb-11e5-b345-feff819cdc9f"),
            (CqlType::Tinyint, "-128"),
            (CqlType::Uuid, "00000000-0000-0000-0000-00000000000a"),
            (CqlType::Varint, "123456789012345678901234567890"),
        ] {
            check(&ty, text, text);
        }
        check(&CqlType::Timestamp, "2011-02-03 04:05:06.789000+0000", "2011-02-03 04:05:06.789+0000");
        check(&CqlType::Blob, "0x", "0x");
    }

    #[test]
    fn values_inside_of_values_read_back() {
        let texts = CqlType::Set { element: boxed(CqlType::Text), frozen: true };
        check(&texts, "{'it''s, ''so''', '[}', '', 'a\\n'}", "{'', '[}', 'a\\n', 'it''s, ''so'''}");
        check(&texts, "{}", "{}");
        let times = CqlType::Map { key: boxed(CqlType::Time), value: boxed(CqlType::Date), frozen: true };
        check(&times, "{12:00:00.000000000: 2020-01-02}", "{12:00:00.000000000: 2020-01-02}");
        let nested = CqlType::List { element: Box::new(texts), frozen: true };
        check(&nested, "[{'a,b'}, {}]", "[{'a,b'}, {}]");
        let tuple = CqlType::Tuple(vec![CqlType::Int, CqlType::Text, CqlType::Timestamp]);
        check(&tuple, "(7, , '1970-01-01 00:00:00.000+0000')", "(7, , '1970-01-01 00:00:00.000+0000')");
        check(&tuple, "(None, 'null', null)", "(, 'null', )");
        let fields = vec![("Zip".to_owned(), CqlType::Int), ("a:b".to_owned(), CqlType::Inet)];
        let udt = UserType { keyspace: "k".to_owned(), name: "t".to_owned(), fields, frozen: true };
        let udt = CqlType::Udt(Box::new(udt));
        check(&udt, "{'a:b': '::1', Zip: 1}", "{Zip: 1, 'a:b': '::1'}");
        check(
            &CqlType::Vector { element: boxed(CqlType::Float), dimension: 2 },
            "[0.5, -1.5]",
            "[0.5, -1.5]",
        );
        check(&CqlType::Vector { element: boxed(CqlType::Text), dimension: 2 }, "['a', '']", "['a', '']");
    }

    #[test]
    fn null_is_told_from_empty() {
        let value = |ty: CqlType, text: &str, is_quoted| words().value(&ty, text, is_quoted).unwrap();
        assert_eq!(value(CqlType::Text, "", false), None);
        assert_eq!(value(CqlType::Text, "", true), Some(Vec::new()));
        assert_eq!(value(CqlType::Int, "", true), None);
        let words = Words { null: "none".to_owned(), ..words() };
        assert_eq!(words.value(&CqlType::Text, "none", false), Ok(None));
        assert_eq!(words.value(&CqlType::Text, "none", true), Ok(Some(b"none".to_vec())));
        assert_eq!(words.value(&CqlType::Text, "", false), Ok(Some(Vec::new())));
        assert_eq!(words.value(&CqlType::Int, "none", true), Ok(None));
    }

    #[test]
    fn mistakes_are_told() {
        let element = || boxed(CqlType::Int);
        let list = || CqlType::List { element: element(), frozen: true };
        for (ty, text) in [
            (CqlType::Int, "one"),
            (CqlType::Boolean, "maybe"),
            (CqlType::Blob, "cafe"),
            (CqlType::Blob, "0xf"),
            (CqlType::Ascii, "é"),
            (list(), "1, 2"),
            (list(), "[1, ]"),
            (list(), "[1, x]"),
            (list(), "["),
            (CqlType::Vector { element: element(), dimension: 2 }, "[1]"),
            (CqlType::Vector { element: boxed(CqlType::Timestamp), dimension: 1 }, "['']"),
            (CqlType::Map { key: element(), value: element(), frozen: true }, "{1}"),
            (CqlType::Tuple(vec![CqlType::Int]), "(1, 2)"),
        ] {
            let found = words().value(&ty, text, false);
            assert!(found.is_err(), "{ty} {text}: {found:?}");
        }
    }
}
