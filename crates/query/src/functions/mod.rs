//! Native functions: which exist, which overload a call means, and what each computes.
//!
//! Names and signatures are Cassandra 5's, in both spellings (`to_timestamp`, `totimestamp`). A [`Function`] is one
//! resolved overload; `terms` and `prepare::selection` hold them in their plans.

pub mod aggregate;
pub mod blob;
pub mod cast;
pub mod json;
pub mod number_text;
mod time;

use model::token::murmur3_token;
use model::{CqlType, Table, partition_key};

use crate::QueryError;
use crate::ambient::Ambient;
use crate::terms::literal::Assignment;

pub use aggregate::{Accumulator, AggregateKind};

/// One resolved overload.
#[derive(Debug, Clone)]
pub struct Function {
    name: String,
    kind: Kind,
    arguments: Vec<CqlType>,
    result: CqlType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
}

impl Function {
    fn new(name: &str, kind: Kind, arguments: &[CqlType], result: CqlType) -> Self {
        Self { name: name.to_owned(), kind, arguments: arguments.to_vec(), result }
    }

    /// `cast(from as to)`; `None` where there is no such conversion.
    pub fn cast(from: &CqlType, to: &CqlType) -> Option<Self> {
        cast::exists(from, to)
            .then(|| Self::new(&format!("cast_as_{to}"), Kind::Cast, std::slice::from_ref(from), to.clone()))
    }

    /// Name without keyspace.
    pub fn short_name(&self) -> &str {
        &self.name
    }

    /// Name of the result column of a call: `system.now()`, `cast(v as int)`.
    pub fn column_name(&self, arguments: &[String]) -> String {
        match self.kind {
            Kind::Cast => format!("cast({} as {})", arguments.join(", "), self.result),
            _ => format!("system.{}({})", self.name, arguments.join(", ")),
        }
    }

    /// Types of the arguments.
    pub fn arguments(&self) -> &[CqlType] {
        &self.arguments
    }

    /// Type of the result.
    pub fn result(&self) -> &CqlType {
        &self.result
    }

    /// Whether equal arguments always give equal results, so that a call may be folded when it is prepared.
    pub fn is_pure(&self) -> bool {
        !matches!(
            self.kind,
            Kind::NowTimeuuid | Kind::NowTimestamp | Kind::NowDate | Kind::NowTime | Kind::RandomUuid
        )
    }

    /// Computes the result; null arguments give null.
    ///
    /// # Errors
    /// [`QueryError::Invalid`] where the arguments are values of their types but not of the function's domain.
    pub fn call(
        &self,
        arguments: &[Option<&[u8]>],
        ambient: &Ambient,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        match self.kind {
            Kind::NowTimeuuid => return Ok(Some(ambient.timeuuid().as_bytes().to_vec())),
            Kind::NowTimestamp => return Ok(Some(ambient.now_ms().to_be_bytes().to_vec())),
            Kind::NowDate => return Ok(Some(time::now_date(ambient.now_ms()))),
            Kind::NowTime => return Ok(Some(time::now_time(ambient.now_ms()))),
            Kind::RandomUuid => return Ok(Some(ambient.random_uuid().as_bytes().to_vec())),
            Kind::Token => return self.token(arguments),
            _ => {}
        }
        let Some(argument) = arguments.first().copied().flatten() else { return Ok(None) };
        let ty = &self.arguments[0];
        match self.kind {
            Kind::MinTimeuuid | Kind::MaxTimeuuid => {
                Ok(time::bound_timeuuid(argument, self.kind == Kind::MaxTimeuuid))
            }
            Kind::ToDate | Kind::ToTimestamp | Kind::ToUnixTimestamp => {
                Ok(time::convert(ty, &self.result, argument))
            }
            Kind::ToBlob => Ok(Some(argument.to_vec())),
            Kind::FromBlob => blob::from_blob(&self.name, &self.result, argument).map(Some),
            _ => cast::convert(ty, &self.result, argument),
        }
    }

    fn token(&self, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, QueryError> {
        let mut key = Vec::new();
        for argument in arguments {
            let Some(value) = argument else { return Ok(None) };
            partition_key::append_component(&mut key, arguments.len(), value)
                .map_err(|e| QueryError::Invalid(e.to_string()))?;
        }
        Ok(Some(murmur3_token(&key).0.to_be_bytes().to_vec()))
    }

    fn signature(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        format!("system.{} : ({}) -> {}", self.name, arguments.join(", "), self.result)
    }
}

/// Scalar overloads of a name; `table` is the one `token` is about.
fn candidates(name: &str, table: Option<&Table>) -> Vec<Function> {
    use CqlType as T;
    let one = |kind, arguments: &[T], result| vec![Function::new(name, kind, arguments, result)];
    let of_times = |kind, result: T, from: &[T]| -> Vec<Function> {
        from.iter()
            .map(|from| Function::new(name, kind, std::slice::from_ref(from), result.clone()))
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
        _ => match blob::conversion(name) {
            Some(blob::Conversion::ToBlob(ty)) => one(Kind::ToBlob, &[ty], T::Blob),
            Some(blob::Conversion::FromBlob(ty)) => one(Kind::FromBlob, &[T::Blob], ty),
            None => Vec::new(),
        },
    }
}

/// The overload a call means; `None` where no function has the name.
///
/// `fits` says how well argument `n` fits a type, `text` shows it in messages.
///
/// # Errors
/// [`QueryError::Invalid`] where no overload, or more than one, takes the arguments.
pub fn resolve(
    name: &str,
    table: Option<&Table>,
    argument_count: usize,
    receiver: Option<&CqlType>,
    fits: &dyn Fn(usize, &CqlType) -> Assignment,
    text: &dyn Fn(usize) -> String,
) -> Result<Option<Function>, QueryError> {
    let mut candidates = candidates(name, table);
    if candidates.len() == 1 {
        let function = candidates.remove(0);
        if function.arguments.len() != argument_count {
            return Err(QueryError::Invalid(format!(
                "Invalid number of arguments in call to function system.{name}: {} required but {argument_count} provided",
                function.arguments.len()
            )));
        }
        for (at, ty) in function.arguments.iter().enumerate() {
            if !fits(at, ty).is_assignable() {
                return Err(QueryError::Invalid(format!(
                    "Type error: {} cannot be passed as argument {at} of function system.{name} of type {ty}",
                    text(at)
                )));
            }
        }
        return Ok(Some(function));
    }
    if candidates.is_empty() {
        return Ok(None);
    }
    let all: Vec<String> = candidates.iter().map(Function::signature).collect();
    let mut compatible = Vec::new();
    for candidate in candidates {
        if receiver.is_some_and(|receiver| !type_assignment(&candidate.result, receiver).is_assignable())
            || candidate.arguments.len() != argument_count
        {
            continue;
        }
        let fit = candidate.arguments.iter().enumerate().map(|(at, ty)| fits(at, ty)).min();
        match fit.unwrap_or(Assignment::Exact) {
            Assignment::Exact => return Ok(Some(candidate)),
            Assignment::Weak => compatible.push(candidate),
            Assignment::No => {}
        }
    }
    if compatible.len() > 1 {
        let signatures: Vec<String> = compatible.iter().map(Function::signature).collect();
        return Err(QueryError::Invalid(format!(
            "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to disambiguate",
            signatures.join(", ")
        )));
    }
    compatible.pop().map(Some).ok_or_else(|| {
        QueryError::Invalid(format!(
            "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
            all.join(", ")
        ))
    })
}

/// Whether values of `have` may stand where `want` is asked for (Cassandra's `isValueCompatibleWith`).
pub fn type_assignment(have: &CqlType, want: &CqlType) -> Assignment {
    use CqlType as T;
    if have == want || have.clone().freeze() == want.clone().freeze() {
        return Assignment::Exact;
    }
    let compatible = matches!(
        (want, have),
        (T::Blob, _)
            | (T::Text, T::Ascii)
            | (T::Uuid, T::Timeuuid)
            | (T::Bigint | T::Counter, T::Timestamp)
            | (T::Bigint, T::Counter)
            | (T::Counter, T::Bigint)
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

    #[test]
    fn overloads_are_chosen_by_argument() {
        let pick = |ty: CqlType| {
            resolve("totimestamp", None, 1, None, &|_, want| type_assignment(&ty, want), &|_| String::new())
        };
        let chosen = pick(CqlType::Date).unwrap().unwrap();
        assert_eq!(chosen.arguments(), [CqlType::Date]);
        assert_eq!(
            pick(CqlType::Text).unwrap_err().to_string(),
            "Invalid call to function totimestamp, none of its type signatures match (known type signatures: \
             system.totimestamp : (timeuuid) -> timestamp, system.totimestamp : (date) -> timestamp)"
        );
    }
}
