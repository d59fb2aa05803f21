//! Serialised values as cqlsh prints them, in tables and in files of `COPY`.
//!
//! The two differ: a table has escapes for control characters, rounded numbers and colors; a file has each
//! value in full, so that it reads back equal. Bytes that are no value of their type are printed in
//! hexadecimal. Source: `formatting.py` of cqlsh.

use model::CqlType;
use model::collection::{Components, Elements, Entries, VectorElements};
use statement::functions::cast;
use statement::terms::time;

use super::number::rounded;
use super::style::{BLUE, DARK_MAGENTA, GREEN, RED, Text, YELLOW};

/// Digits of floating-point numbers in tables.
const TABLE_DIGITS: usize = 5;
/// Days from 1970-01-01 to the first and the last day that Python's calendar has.
const CALENDAR_DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;
const DATE_BIAS: i64 = 1 << 31;

/// How values are printed.
#[derive(Debug, Clone)]
pub(super) struct Printer {
    /// Whether for a table; otherwise for a file.
    is_table: bool,
    has_color: bool,
    /// The text of null.
    null: String,
    /// The texts of true and false.
    booleans: [String; 2],
}

impl Printer {
    /// A printer for tables.
    pub(super) fn table(has_color: bool) -> Self {
        let booleans = ["True".to_owned(), "False".to_owned()];
        Self { is_table: true, has_color, null: "null".to_owned(), booleans }
    }

    /// A printer for files.
    pub(super) fn file(null: String, booleans: [String; 2]) -> Self {
        Self { is_table: false, has_color: false, null, booleans }
    }

    /// A value, or null.
    pub(super) fn print(&self, ty: &CqlType, value: Option<&[u8]>) -> Text {
        let mut out = Text::new(self.has_color);
        match value {
            Some(value) => self.append(ty, value, false, &mut out),
            None => out.push(RED, &self.null),
        }
        out
    }

    fn append(&self, ty: &CqlType, value: &[u8], is_inside: bool, out: &mut Text) {
        let has_own_empty = matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_));
        if value.is_empty() && !has_own_empty {
            return;
        }
        if self.try_append(ty, value, is_inside, out).is_none() {
            out.push(RED, &model::hex::blob(value));
        }
    }

    /// Appends a value; `None`, and nothing appended, if the bytes are no such value.
    fn try_append(&self, ty: &CqlType, value: &[u8], is_inside: bool, out: &mut Text) -> Option<()> {
        match ty {
            CqlType::Ascii | CqlType::Text => self.text(std::str::from_utf8(value).ok()?, is_inside, out),
            CqlType::Blob | CqlType::Custom(_) => out.push(DARK_MAGENTA, &model::hex::blob(value)),
            CqlType::List { element, .. } => {
                self.sequence(element, Elements::parse(value).ok()?.map(Result::ok), ["[", "]"], out)?;
            }
            CqlType::Set { element, .. } => {
                self.sequence(element, Elements::parse(value).ok()?.map(Result::ok), ["{", "}"], out)?;
            }
            CqlType::Vector { element, dimension } => {
                let elements = VectorElements::new(element, *dimension, value).map(Result::ok);
                self.sequence(element, elements, ["[", "]"], out)?;
            }
            CqlType::Map { key, value: of, .. } => {
                let mut inner = Text::new(self.has_color);
                inner.push(BLUE, "{");
                for (at, entry) in Entries::parse(value).ok()?.enumerate() {
                    let (name, part) = entry.ok()?;
                    self.separate(at, &mut inner);
                    self.append(key, name, true, &mut inner);
                    inner.push(BLUE, ": ");
                    self.append(of, part, true, &mut inner);
                }
                inner.push(BLUE, "}");
                out.append(&inner);
            }
            CqlType::Tuple(types) => self.tuple(types, value, out)?,
            CqlType::Udt(udt) => self.fields(&udt.fields, value, out)?,
            scalar => {
                let text = self.scalar(scalar, value)?;
                let is_quoted = is_inside && matches!(scalar, CqlType::Timestamp | CqlType::Inet);
                out.push(GREEN, &if is_quoted { format!("'{text}'") } else { text });
            }
        }
        Some(())
    }

    fn text(&self, text: &str, is_inside: bool, out: &mut Text) {
        let quoted = if is_inside { format!("'{}'", text.replace('\'', "''")) } else { text.to_owned() };
        if self.is_table {
            out.push_escaped(YELLOW, &quoted);
        } else {
            out.push(YELLOW, &quoted);
        }
    }

    fn separate(&self, at: usize, out: &mut Text) {
        if at > 0 {
            out.push(BLUE, ", ");
        }
    }

    fn sequence<'v>(
        &self,
        ty: &CqlType,
        parts: impl Iterator<Item = Option<&'v [u8]>>,
        around: [&str; 2],
        out: &mut Text,
    ) -> Option<()> {
        let mut inner = Text::new(self.has_color);
        inner.push(BLUE, around[0]);
        for (at, part) in parts.enumerate() {
            self.separate(at, &mut inner);
            self.append(ty, part?, true, &mut inner);
        }
        inner.push(BLUE, around[1]);
        out.append(&inner);
        Some(())
    }

    fn tuple(&self, types: &[CqlType], value: &[u8], out: &mut Text) -> Option<()> {
        let mut parts = Components::new(value);
        let mut inner = Text::new(self.has_color);
        inner.push(BLUE, "(");
        for (at, ty) in types.iter().enumerate() {
            self.separate(at, &mut inner);
            self.component(ty, parts.next().transpose().ok()?.flatten(), &mut inner);
        }
        inner.push(BLUE, ")");
        out.append(&inner);
        Some(())
    }

    fn fields(&self, fields: &[(String, CqlType)], value: &[u8], out: &mut Text) -> Option<()> {
        let mut parts = Components::new(value);
        let mut inner = Text::new(self.has_color);
        inner.push(BLUE, "{");
        for (at, (name, ty)) in fields.iter().enumerate() {
            self.separate(at, &mut inner);
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            self.text(name, !self.is_table && !is_plain, &mut inner);
            inner.push(BLUE, ": ");
            self.component(ty, parts.next().transpose().ok()?.flatten(), &mut inner);
        }
        inner.push(BLUE, "}");
        out.append(&inner);
        Some(())
    }

    fn component(&self, ty: &CqlType, part: Option<&[u8]>, out: &mut Text) {
        match part {
            Some(part) => self.append(ty, part, true, out),
            None => out.push(RED, &self.null),
        }
    }

    fn scalar(&self, ty: &CqlType, value: &[u8]) -> Option<String> {
        Some(match ty {
            CqlType::Boolean => self.booleans[usize::from(value == [0])].clone(),
            CqlType::Counter => i64::from_be_bytes(value.try_into().ok()?).to_string(),
            CqlType::Double => {
                let number = f64::from_be_bytes(value.try_into().ok()?);
                if self.is_table {
                    rounded(number, TABLE_DIGITS)
                } else {
                    in_full(number, format!("{number:?}"))
                }
            }
            CqlType::Float => {
                let number = f32::from_be_bytes(value.try_into().ok()?);
                let wide = f64::from(number);
                if self.is_table { rounded(wide, TABLE_DIGITS) } else { in_full(wide, format!("{number:?}")) }
            }
            CqlType::Inet => match value.len() {
                4 => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).to_string(),
                _ => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).to_string(),
            },
            CqlType::Date => {
                let biased = u32::from_be_bytes(value.try_into().ok()?);
                let days = i64::from(biased) - DATE_BIAS;
                match () {
                    () if CALENDAR_DAYS.contains(&days) => time::date_text(biased),
                    () if self.is_table => days.to_string(),
                    // As CQL reads a number: days since the first.
                    () => biased.to_string(),
                }
            }
            CqlType::Timestamp => {
                let milliseconds = i64::from_be_bytes(value.try_into().ok()?);
                if !CALENDAR_DAYS.contains(&milliseconds.div_euclid(time::MILLISECONDS_PER_DAY)) {
                    return Some(milliseconds.to_string());
                }
                let text = time::timestamp_text(milliseconds).replacen('T', " ", 1);
                format!("{}{}", text.trim_end_matches('Z'), if self.is_table { "000+0000" } else { "+0000" })
            }
            other => cast::text(other, value).ok()?,
        })
    }
}

/// A number that reads back equal, with its special values as CQL spells them.
fn in_full(number: f64, text: String) -> String {
    if number.is_finite() { text } else { rounded(number, TABLE_DIGITS) }
}

#[cfg(test)]
mod tests;
