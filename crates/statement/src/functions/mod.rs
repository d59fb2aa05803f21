//! Native functions: their names, the choice of the overload for a call, and their computation.
//!
//! Names and signatures are Cassandra 5's, in both spellings (`to_timestamp`, `totimestamp`). A [`Function`]
//! is one resolved overload; plans in `terms` and `prepare::selection` contain them.

pub mod aggregate;
pub mod blob;
mod calendar;
pub mod cast;
mod collection;
mod decimal;
pub mod effort;
mod elementary;
mod factory;
mod java_digits;
pub mod json;
mod mask;
mod math;
mod number;
pub mod number_text;
mod operation;
mod resolve;
mod time;
pub mod user;
mod vector;

use std::rc::Rc;

use cql::ast::ArithmeticOperator;
use model::schema::{AggregateDefinition, FunctionDefinition};
use model::token::murmur3_token;
use model::type_parser::quote_identifier;
use model::{CqlType, Table, partition_key};

use crate::StatementError;
use crate::ambient::Ambient;
use crate::terms::literal::Assignment;

pub use aggregate::{Accumulator, AggregateKind};
pub use aggregate::{append_optional, read_optional};
pub use cast::cast_name;
pub use operation::{NEGATION, operator_name};
pub use resolve::{CallArguments, CallSite, resolve};

/// A resolved overload.
#[derive(Debug, Clone)]
pub struct Function {
    name: String,
    kind: Kind,
    arguments: Vec<CqlType>,
    result: CqlType,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    NowTimeuuid,
    NowTimestamp,
    NowDate,
    NowTime,
    RandomUuid,
    Token,
    MinTimeuuid,
    MaxTimeuuid,
    ToDate,
    ToTimestamp,
    ToUnixTimestamp,
    ToBlob,
    FromBlob,
    Cast,
    Operation(ArithmeticOperator),
    Negate,
    Math(math::Math),
    Floor,
    ToJson,
    FromJson,
    MaskNull,
    MaskDefault,
    MaskReplace,
    MaskHash,
    MaskPart(mask::Part),
    MapKeys,
    MapValues,
    CollectionCount,
    CollectionAggregate(AggregateKind),
    Similarity(vector::Similarity),
    /// A user-defined function.
    User(Rc<user::UserFunction>),
    /// The definition of a user-defined function, for choosing between overloads; never called.
    Definition(Rc<FunctionDefinition>),
    /// The signature of a user-defined aggregate, for choosing between overloads; never called.
    Signature(Rc<AggregateDefinition>),
}

impl Function {
    fn new(name: &str, kind: Kind, arguments: &[CqlType], result: CqlType) -> Self {
        Self { name: name.to_owned(), kind, arguments: arguments.to_vec(), result }
    }

    /// `cast(from as to)`; `None` if there is no such conversion.
    pub fn cast(from: &CqlType, to: &CqlType) -> Option<Self> {
        cast::exists(from, to)
            .then(|| Self::new(&format!("cast_as_{to}"), Kind::Cast, std::slice::from_ref(from), to.clone()))
    }

    /// The cast of a value of type `from`: if its own type has none, the cast of a type to which the value
    /// can be assigned.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if there is no such cast, or more than one.
    pub fn cast_of(from: &CqlType, text: &str, to: &CqlType) -> Result<Self, StatementError> {
        if let Some(exact) = Self::cast(from, to) {
            return Ok(exact);
        }
        let mut compatible = cast::overloads(&format!("cast_as_{to}"));
        compatible.retain(|cast| type_assignment(from, &cast.arguments[0]).is_assignable());
        match compatible.as_slice() {
            [] => Err(Self::no_cast(text, to)),
            [only] => Ok(only.clone()),
            several => Err(StatementError::Invalid(format!(
                "Ambiguous call to function system.cast_as_{to} (can be matched by following signatures: {}): use type \
                 casts to disambiguate",
                several.iter().map(Self::signature).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// The error for an impossible cast: in Cassandra's words, with the list of casts to `to`.
    pub fn no_cast(text: &str, to: &CqlType) -> StatementError {
        use CqlType as T;
        let native = [
            T::Ascii,
            T::Bigint,
            T::Blob,
            T::Boolean,
            T::Counter,
            T::Date,
            T::Decimal,
            T::Double,
            T::Duration,
            T::Float,
            T::Inet,
            T::Int,
            T::Smallint,
            T::Text,
            T::Time,
            T::Timestamp,
            T::Timeuuid,
            T::Tinyint,
            T::Uuid,
            T::Varint,
        ];
        let casts: Vec<Self> =
            native.iter().filter(|from| *from != to).filter_map(|from| Self::cast(from, to)).collect();
        let name = format!("system.cast_as_{to}");
        StatementError::Invalid(match casts.as_slice() {
            [] => format!("{text} cannot be cast to {to}"),
            [only] => format!(
                "Type error: {text} cannot be passed as argument 0 of function {name} of type {}",
                only.arguments[0]
            ),
            _ => format!(
                "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
                casts.iter().map(Self::signature).collect::<Vec<_>>().join(", ")
            ),
        })
    }

    /// The error text for an argument that is left unset.
    #[cold]
    pub fn unset_argument(&self) -> String {
        format!("Invalid unset value for argument in call to function {}", self.name)
    }

    /// The name without the keyspace.
    pub fn short_name(&self) -> &str {
        &self.name
    }

    /// The name of the result column of a call: `system.now()`, `cast(v as int)`.
    pub fn column_name(&self, arguments: &[String]) -> String {
        match &self.kind {
            Kind::Cast => format!("cast({} as {})", arguments.join(", "), self.result),
            Kind::Operation(operator) => arguments.join(&format!(" {} ", operator.symbol())),
            Kind::Negate => format!("-{}", arguments.join(", ")),
            _ => format!("{}({})", self.full_name(), arguments.join(", ")),
        }
    }

    /// The types of the arguments.
    pub fn arguments(&self) -> &[CqlType] {
        &self.arguments
    }

    /// The type of the result.
    pub fn result(&self) -> &CqlType {
        &self.result
    }

    /// The user-defined function, if it is one. Such a call may take long, and is made by
    /// [`user::calls::Calls`].
    pub fn user(&self) -> Option<&Rc<user::UserFunction>> {
        if let Kind::User(function) = &self.kind { Some(function) } else { None }
    }

    /// Whether equal arguments always give equal results, so that a call may be evaluated when it is
    /// prepared.
    pub fn is_pure(&self) -> bool {
        !matches!(
            self.kind,
            Kind::NowTimeuuid
                | Kind::NowTimestamp
                | Kind::NowDate
                | Kind::NowTime
                | Kind::RandomUuid
                // It is unknown whether a user-defined function is pure, and a call may take long.
                | Kind::User(_)
                | Kind::Definition(_)
                | Kind::Signature(_)
        )
    }

    /// Computes the result of a native function; null arguments give null.
    ///
    /// # Errors
    /// [`StatementError::Invalid`] if the arguments have their types but are outside of the function's
    /// domain,
    /// [`StatementError::FunctionFailure`] if the computation failed.
    pub fn call(
        &self,
        arguments: &[Option<&[u8]>],
        ambient: &Ambient,
    ) -> Result<Option<Vec<u8>>, StatementError> {
        ambient.count_call();
        match &self.kind {
            Kind::NowTimeuuid => return Ok(Some(ambient.timeuuid().as_bytes().to_vec())),
            Kind::NowTimestamp => return Ok(Some(ambient.now_ms().to_be_bytes().to_vec())),
            Kind::NowDate => return Ok(Some(time::now_date(ambient.now_ms()))),
            Kind::NowTime => return Ok(Some(time::now_time(ambient.now_ms()))),
            Kind::RandomUuid => return Ok(Some(ambient.random_uuid().as_bytes().to_vec())),
            Kind::Token => return self.token(arguments),
            Kind::Operation(operator) => return self.operate(*operator, arguments, ambient),
            Kind::User(_) => {
                return Err(StatementError::Internal(format!(
                    "{} was called out of its turn",
                    self.full_name()
                )));
            }
            Kind::ToJson => {
                let value = arguments.first().copied().flatten();
                let work = value.map_or(0, |value| effort::of_text(&self.arguments[0], value));
                ambient.charge(work).map_err(StatementError::Invalid)?;
                let text = json::to_json(&self.arguments[0], value)?;
                ambient.charge(effort::of_json_bytes(text.len())).map_err(StatementError::Invalid)?;
                return Ok(Some(text));
            }
            Kind::MaskNull => return Ok(None),
            Kind::MaskDefault => return Ok(Some(mask::default_value(&self.result))),
            // A wrong algorithm is an error even if the value is null.
            Kind::MaskHash if arguments.first().is_some_and(Option::is_none) => {
                return mask::hash(&[], arguments.get(1).copied().flatten()).map(|_| None);
            }
            Kind::MaskReplace => {
                return Ok(arguments.get(1).copied().flatten().map(<[u8]>::to_vec));
            }
            _ => {}
        }
        match arguments.first().copied().flatten() {
            Some(first) => self.call_with(first, &arguments[1..], ambient),
            None => Ok(None),
        }
    }

    /// Computes functions that give null if their first argument is null.
    fn call_with(
        &self,
        first: &[u8],
        rest: &[Option<&[u8]>],
        ambient: &Ambient,
    ) -> Result<Option<Vec<u8>>, StatementError> {
        let ty = &self.arguments[0];
        let more = |at: usize| rest.get(at).copied().flatten();
        match &self.kind {
            Kind::MinTimeuuid | Kind::MaxTimeuuid => {
                Ok(time::bound_timeuuid(first, self.kind == Kind::MaxTimeuuid))
            }
            Kind::ToDate | Kind::ToTimestamp | Kind::ToUnixTimestamp => {
                Ok(time::convert(ty, &self.result, first))
            }
            Kind::Floor => time::floor(ty, first, rest),
            Kind::ToBlob => Ok(Some(first.to_vec())),
            Kind::FromBlob => blob::from_blob(&self.name, &self.result, first).map(Some),
            Kind::FromJson => json::from_json(&self.name, &self.result, first, ambient.now_ms()),
            Kind::Negate => operation::negate(ty, first),
            // Cassandra answers an argument outside of a function's domain with a server error; here it is
            // the client's error.
            Kind::Math(math) => {
                ambient.charge(math.work(ty, first)).map_err(StatementError::Invalid)?;
                math::compute(*math, ty, first).map_err(StatementError::Invalid)
            }
            Kind::MaskHash => mask::hash(first, more(0)).map(Some),
            Kind::MaskPart(part) => {
                let number =
                    |at| more(at).and_then(|value| value.try_into().ok()).map_or(0, i32::from_be_bytes);
                mask::partial(&self.name, *part, first, [number(0), number(1)], more(2)).map(Some)
            }
            Kind::MapKeys | Kind::MapValues => {
                collection::of_map(ty, first, self.kind == Kind::MapKeys).map(Some)
            }
            Kind::CollectionCount => collection::count(ty, first).map(Some),
            Kind::CollectionAggregate(kind) => collection::aggregate(*kind, ty, first),
            Kind::Similarity(similarity) => match more(0) {
                Some(second) => vector::score(&self.name, *similarity, first, second).map(Some),
                None => Ok(None),
            },
            _ => {
                if *ty != self.result {
                    ambient.charge(effort::of_conversion(ty, first)).map_err(StatementError::Invalid)?;
                }
                cast::convert(ty, &self.result, first)
            }
        }
    }

    fn token(&self, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, StatementError> {
        let mut key = Vec::new();
        for argument in arguments {
            let Some(value) = argument else { return Ok(None) };
            partition_key::append_component(&mut key, arguments.len(), value)
                .map_err(|e| StatementError::Invalid(e.to_string()))?;
        }
        Ok(Some(murmur3_token(&key).0.to_be_bytes().to_vec()))
    }

    fn operate(
        &self,
        operator: ArithmeticOperator,
        arguments: &[Option<&[u8]>],
        ambient: &Ambient,
    ) -> Result<Option<Vec<u8>>, StatementError> {
        let ([Some(left), Some(right)], [left_type, right_type]) = (arguments, self.arguments.as_slice())
        else {
            return Ok(None);
        };
        let (types, values) = ([left_type, right_type], [*left, *right]);
        let admitted = ambient.charge(effort::of_operation(operator, types, &self.result, values));
        let done = admitted.and_then(|()| operation::operate(operator, types, &self.result, left, right));
        done.map_err(|problem| {
            self.failure(format!(
                "the operation '{left_type} {} {right_type}' failed: {problem}",
                operator.symbol()
            ))
        })
    }

    fn failure(&self, message: String) -> StatementError {
        StatementError::FunctionFailure {
            keyspace: "system".to_owned(),
            function: self.name.clone(),
            arguments: self.arguments.iter().map(ToString::to_string).collect(),
            message,
        }
    }

    /// Whether the overload was made for the argument types of one call; see `factory`.
    pub(crate) fn is_made_for_its_arguments(&self) -> bool {
        !matches!(self.kind, Kind::User(_) | Kind::Definition(_)) && factory::exists(&self.name)
    }

    /// The function's name in messages.
    pub fn shown(&self) -> String {
        match &self.kind {
            Kind::Operation(operator) => format!("operation {}", operator.symbol()),
            _ => format!("function {}", self.full_name()),
        }
    }

    /// The name with the keyspace.
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace(), self.name)
    }

    /// The keyspace of the function: `system` for native ones.
    pub fn keyspace(&self) -> &str {
        match &self.kind {
            Kind::User(function) => function.keyspace(),
            Kind::Definition(definition) => &definition.keyspace,
            Kind::Signature(aggregate) => &aggregate.keyspace,
            _ => "system",
        }
    }

    fn signature(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        // Signatures are CQL, so names are quoted if necessary; other messages do not quote them.
        format!(
            "{}.{} : ({}) -> {}",
            quote_identifier(self.keyspace()),
            quote_identifier(&self.name),
            arguments.join(", "),
            self.result
        )
    }
}

/// The scalar overloads of a name; `table` determines the arguments of `token`.
fn candidates(name: &str, table: Option<&Table>) -> Vec<Function> {
    use CqlType as T;
    let one = |kind, arguments: &[T], result| vec![Function::new(name, kind, arguments, result)];
    let of_times = |kind: Kind, result: T, from: &[T]| -> Vec<Function> {
        from.iter()
            .map(|from| Function::new(name, Kind::clone(&kind), std::slice::from_ref(from), result.clone()))
            .collect()
    };
    match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => one(Kind::NowTimeuuid, &[], T::Timeuuid),
        "current_timestamp" | "currenttimestamp" => one(Kind::NowTimestamp, &[], T::Timestamp),
        "current_date" | "currentdate" => one(Kind::NowDate, &[], T::Date),
        "current_time" | "currenttime" => one(Kind::NowTime, &[], T::Time),
        "uuid" => one(Kind::RandomUuid, &[], T::Uuid),
        "token" => match table {
            Some(table) => {
                let key: Vec<T> = table.partition_key().iter().map(|column| column.ty.clone()).collect();
                one(Kind::Token, &key, T::Bigint)
            }
            None => Vec::new(),
        },
        "min_timeuuid" | "mintimeuuid" => one(Kind::MinTimeuuid, &[T::Timestamp], T::Timeuuid),
        "max_timeuuid" | "maxtimeuuid" => one(Kind::MaxTimeuuid, &[T::Timestamp], T::Timeuuid),
        "to_date" | "todate" => of_times(Kind::ToDate, T::Date, &[T::Timeuuid, T::Timestamp]),
        "to_timestamp" | "totimestamp" => of_times(Kind::ToTimestamp, T::Timestamp, &[T::Timeuuid, T::Date]),
        "to_unix_timestamp" | "tounixtimestamp" => {
            of_times(Kind::ToUnixTimestamp, T::Bigint, &[T::Timeuuid, T::Timestamp, T::Date])
        }
        // ScyllaDB still has these, Cassandra 5 does not.
        "dateof" => one(Kind::ToTimestamp, &[T::Timeuuid], T::Timestamp),
        "unixtimestampof" => one(Kind::ToUnixTimestamp, &[T::Timeuuid], T::Bigint),
        "floor" => {
            let floor = |ty: T, result: T, start: Option<T>| {
                let arguments: Vec<T> = [ty, T::Duration].into_iter().chain(start).collect();
                Function::new(name, Kind::Floor, &arguments, result)
            };
            vec![
                floor(T::Timestamp, T::Timestamp, None),
                floor(T::Timestamp, T::Timestamp, Some(T::Timestamp)),
                floor(T::Timeuuid, T::Timestamp, None),
                floor(T::Timeuuid, T::Timestamp, Some(T::Timestamp)),
                floor(T::Date, T::Date, None),
                floor(T::Date, T::Date, Some(T::Date)),
                floor(T::Time, T::Time, None),
            ]
        }
        _ => match blob::conversion(name) {
            Some(blob::Conversion::ToBlob(ty)) => one(Kind::ToBlob, &[ty], T::Blob),
            Some(blob::Conversion::FromBlob(ty)) => one(Kind::FromBlob, &[T::Blob], ty),
            None => {
                let mut all = operation::overloads(name);
                all.extend(math::overloads(name));
                all.extend(cast::overloads(name));
                all
            }
        },
    }
}

/// Whether values of type `have` may be used as values of type `want` (Cassandra's `isValueCompatibleWith`).
pub fn type_assignment(have: &CqlType, want: &CqlType) -> Assignment {
    use CqlType as T;
    if have == want || have.clone().freeze() == want.clone().freeze() {
        return Assignment::Exact;
    }
    // Sets and keys of maps keep their order only if both types have the same order.
    let ordered_alike = |want: &T, have: &T| {
        want == have || matches!((want, have), (T::Text, T::Ascii) | (T::Blob, T::Text | T::Ascii))
    };
    let stands_for = |want: &T, have: &T| type_assignment(have, want).is_assignable();
    let inside = match (want, have) {
        (T::List { element: want, .. }, T::List { element: have, .. }) => stands_for(want, have),
        (T::Set { element: want, .. }, T::Set { element: have, .. }) => ordered_alike(want, have),
        (T::Map { key, value, .. }, T::Map { key: have_key, value: have_value, .. }) => {
            ordered_alike(key, have_key) && stands_for(value, have_value)
        }
        (T::Tuple(want), T::Tuple(have)) if have.len() <= want.len() => {
            want.iter().zip(have).all(|(want, have)| stands_for(want, have))
        }
        _ => false,
    };
    let compatible = inside
        || matches!(
            (want, have),
            (T::Blob, _)
                | (T::Text, T::Ascii)
                | (T::Uuid, T::Timeuuid)
                | (T::Bigint, T::Timestamp)
                | (T::Varint, T::Int | T::Bigint | T::Timestamp)
                | (T::Timestamp | T::Time, T::Bigint)
                | (T::Date, T::Int)
        );
    if compatible { Assignment::Weak } else { Assignment::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_name_the_same_function() {
        for (new, old) in
            [("to_timestamp", "totimestamp"), ("current_date", "currentdate"), ("int_as_blob", "intasblob")]
        {
            let shapes = |name| {
                candidates(name, None)
                    .into_iter()
                    .map(|f| (f.kind, f.arguments, f.result))
                    .collect::<Vec<_>>()
            };
            assert_eq!(shapes(new), shapes(old), "{new}");
            assert!(!shapes(new).is_empty());
        }
        assert!(candidates("no_such", None).is_empty());
    }
}
