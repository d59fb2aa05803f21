//! Parses marshal class names, by recursive descent over the grammar in `marshal`.
//!
//! The text comes from disk and from clients: nesting is bounded, nothing is assumed about the text, and an
//! error names its place. Commas and blanks separate loosely, as in Cassandra 5.0's `TypeParser`.

use super::{MarshalError, MarshalProblem, PACKAGE, SCALARS, VECTOR_DIMENSION_MAX, excerpt};
use crate::hex;
use crate::type_parser::NESTING_MAX;
use crate::types::{CqlType, UserType};

/// A position in the text of a class name.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Whether parts of vectors are frozen only if the text marks them.
    exact: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, exact: false }
    }

    /// A reader of text that marks the frozenness of every part of a vector.
    pub(super) fn exact(text: &'a str) -> Self {
        Self { exact: true, ..Self::new(text) }
    }

    /// The whole text as one type, and whether it is reversed.
    pub(super) fn class(mut self) -> Result<(CqlType, bool), MarshalError> {
        let parsed = self.parse(0)?;
        self.end()?;
        Ok(parsed)
    }

    /// The whole text as the columns of a partition key.
    pub(super) fn key_class(mut self) -> Result<Vec<CqlType>, MarshalError> {
        self.skip_blanks();
        let start = self.at;
        let class = self.word();
        if class.strip_prefix(PACKAGE).unwrap_or(class) != "CompositeType" {
            self.at = start;
            return Ok(vec![self.class()?.0]);
        }
        let columns = self.parameters(0)?;
        if columns.is_empty() {
            return Err(self.expected("at least one component"));
        }
        self.end()?;
        Ok(columns)
    }

    fn parse(&mut self, depth: usize) -> Result<(CqlType, bool), MarshalError> {
        if depth >= NESTING_MAX {
            return Err(self.error(MarshalProblem::TooDeep));
        }
        self.skip_blanks();
        let start = self.at;
        let class = self.word();
        if class.is_empty() {
            return Err(self.expected("a class name"));
        }
        let short = class.strip_prefix(PACKAGE).unwrap_or(class);
        if let Some((_, scalar)) = SCALARS.iter().find(|(name, _)| *name == short) {
            return Ok((scalar.clone(), false));
        }
        let ty = match short {
            "ReversedType" => return Ok((self.only_parameter(depth)?, true)),
            "FrozenType" => self.only_parameter(depth)?.freeze(),
            "ListType" => {
                CqlType::List { element: Box::new(self.only_parameter(depth)?.freeze()), frozen: false }
            }
            "SetType" => {
                CqlType::Set { element: Box::new(self.only_parameter(depth)?.freeze()), frozen: false }
            }
            "MapType" => {
                let [key, value] = <[CqlType; 2]>::try_from(self.parameters(depth)?)
                    .map_err(|_| self.expected("a key type and a value type"))?;
                CqlType::Map { key: Box::new(key.freeze()), value: Box::new(value.freeze()), frozen: false }
            }
            "TupleType" => CqlType::Tuple(self.parameters(depth)?.into_iter().map(CqlType::freeze).collect()),
            "UserType" => self.user_type(depth)?,
            "VectorType" => self.vector(depth)?,
            _ => self.custom(start)?,
        };
        Ok((ty, false))
    }

    fn parameters(&mut self, depth: usize) -> Result<Vec<CqlType>, MarshalError> {
        self.punctuation('(')?;
        let mut types = Vec::new();
        loop {
            self.skip_blanks_and_commas();
            if self.accept(')') {
                return Ok(types);
            }
            // Order matters for clustering columns only, which are not inside other types.
            types.push(self.parse(depth + 1)?.0);
        }
    }

    fn only_parameter(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        let mut types = self.parameters(depth)?;
        match (types.pop(), types.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err(self.expected("exactly one type")),
        }
    }

    fn user_type(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.punctuation('(')?;
        self.skip_blanks_and_commas();
        let keyspace = self.word().to_owned();
        self.skip_blanks_and_commas();
        let name = self.hex_name()?;
        let mut fields = Vec::new();
        loop {
            self.skip_blanks_and_commas();
            if self.accept(')') {
                return Ok(CqlType::Udt(Box::new(UserType { keyspace, name, fields, frozen: false })));
            }
            let field = self.hex_name()?;
            self.punctuation(':')?;
            fields.push((field, self.parse(depth + 1)?.0));
        }
    }

    fn vector(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.punctuation('(')?;
        let (element, _) = self.parse(depth + 1)?;
        if element.fixed_value_length() == Some(0) {
            return Err(self.expected("an element type whose values have bytes"));
        }
        self.skip_blanks_and_commas();
        let at = self.at;
        let dimension = match self.word().parse() {
            Ok(dimension @ 1..=VECTOR_DIMENSION_MAX) => dimension,
            _ => {
                self.at = at;
                return Err(self.expected("a vector dimension above zero"));
            }
        };
        self.punctuation(')')?;
        let element = if self.exact { element } else { element.freeze() };
        Ok(CqlType::Vector { element: Box::new(element), dimension })
    }

    /// Skips the parameters of an unknown class and keeps its text.
    fn custom(&mut self, start: usize) -> Result<CqlType, MarshalError> {
        let end = self.at;
        self.skip_blanks();
        if self.rest().starts_with('(') {
            let mut open = 0_usize;
            loop {
                match self.rest().as_bytes().first() {
                    Some(b'(') => open += 1,
                    Some(b')') => open -= 1,
                    Some(_) => {}
                    None => return Err(self.expected("`)`")),
                }
                self.at += self.rest().chars().next().map_or(0, char::len_utf8);
                if open == 0 {
                    break;
                }
            }
        } else {
            self.at = end;
        }
        let class = &self.text[start..self.at];
        let package = if self.text[start..end].contains('.') { "" } else { PACKAGE };
        Ok(CqlType::Custom(format!("{package}{class}")))
    }

    fn hex_name(&mut self) -> Result<String, MarshalError> {
        let at = self.at;
        let digits = self.word();
        let bytes = hex::parse(digits).filter(|bytes| !bytes.is_empty());
        let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        name.ok_or_else(|| {
            self.at = at;
            self.error(MarshalProblem::Hex)
        })
    }

    fn word(&mut self) -> &'a str {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+._&".contains(byte);
        let length = self.rest().bytes().take_while(is_word).count();
        let word = &self.rest()[..length];
        self.at += length;
        word
    }

    fn punctuation(&mut self, wanted: char) -> Result<(), MarshalError> {
        self.skip_blanks();
        if self.accept(wanted) {
            return Ok(());
        }
        Err(self.expected(match wanted {
            '(' => "`(`",
            ')' => "`)`",
            _ => "`:`",
        }))
    }

    fn accept(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n')).count();
    }

    fn skip_blanks_and_commas(&mut self) {
        self.at += self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b',')).count();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn end(&mut self) -> Result<(), MarshalError> {
        self.skip_blanks();
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }

    fn expected(&self, what: &'static str) -> MarshalError {
        self.error(MarshalProblem::Expected(what))
    }

    fn error(&self, problem: MarshalProblem) -> MarshalError {
        MarshalError { text: excerpt(self.text), at: self.at, problem }
    }
}
