//! Prints type names.

use std::fmt::{Display, Formatter, Result};

use super::{Quoted, enclosed};
use crate::ast::{NativeType, TypeName};

impl Display for NativeType {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(self.name())
    }
}

impl Display for TypeName {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            TypeName::Native(native) => write!(formatter, "{native}"),
            TypeName::List(element) => write!(formatter, "list<{element}>"),
            TypeName::Set(element) => write!(formatter, "set<{element}>"),
            TypeName::Map(key, value) => write!(formatter, "map<{key}, {value}>"),
            TypeName::Tuple(elements) => enclosed(formatter, "tuple<", elements, ">"),
            TypeName::Vector(element, dimension) => write!(formatter, "vector<{element}, {dimension}>"),
            TypeName::Frozen(inner) => write!(formatter, "frozen<{inner}>"),
            TypeName::User(name) => write!(formatter, "{name}"),
            TypeName::Custom(class) => write!(formatter, "{}", Quoted(class)),
        }
    }
}
