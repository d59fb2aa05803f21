//! Functions over types that cannot be listed: collections, vectors, any type. An overload is made for each
//! call from the types of its arguments.
//!
//! Each parameter infers a type from the argument, the receiver or another parameter, then checks it. Names,
//! rules and messages are those of Cassandra 5's `FunctionFactory` and `FunctionParameter`.

use model::CqlType;

use super::resolve::CallArguments;
use super::vector::Similarity;
use super::{AggregateKind, Function, Kind, mask, number};
use crate::StatementError;

/// The types that a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Parameter {
    /// Any type. An argument without a type gets the receiver's if `from_receiver`.
    Any {
        from_receiver: bool,
    },
    /// The type of the first parameter, before its own.
    AsFirst,
    Text,
    TextOrAscii,
    Int,
    Collection,
    SetOrList,
    NumericSetOrList,
    Map,
    FloatVector,
}

/// How a function is made from the types of its arguments.
#[derive(Debug, Clone, Copy)]
enum Shape {
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
    Similarity(Similarity),
}

/// The shape, the parameters, and how many of these are mandatory.
type Signature = (Shape, &'static [Parameter], usize);

fn signature(name: &str) -> Option<Signature> {
    use Parameter as P;
    const ANY: &[Parameter] = &[P::Any { from_receiver: false }];
    const PART: &[Parameter] = &[P::TextOrAscii, P::Int, P::Int, P::Text];
    const VECTORS: &[Parameter] = &[P::FloatVector, P::FloatVector];
    Some(match name {
        "to_json" | "tojson" => (Shape::ToJson, ANY, 1),
        "from_json" | "fromjson" => (Shape::FromJson, &[P::Text], 1),
        "mask_null" => (Shape::MaskNull, ANY, 1),
        "mask_default" => (Shape::MaskDefault, ANY, 1),
        "mask_replace" => (Shape::MaskReplace, &[P::Any { from_receiver: true }, P::AsFirst], 2),
        "mask_hash" => (Shape::MaskHash, &[P::Any { from_receiver: false }, P::Text], 1),
        "mask_inner" => (Shape::MaskPart(mask::Part::Inner), PART, 3),
        "mask_outer" => (Shape::MaskPart(mask::Part::Outer), PART, 3),
        "map_keys" => (Shape::MapKeys, &[P::Map], 1),
        "map_values" => (Shape::MapValues, &[P::Map], 1),
        "collection_count" => (Shape::CollectionCount, &[P::Collection], 1),
        "collection_min" => (Shape::CollectionAggregate(AggregateKind::Min), &[P::SetOrList], 1),
        "collection_max" => (Shape::CollectionAggregate(AggregateKind::Max), &[P::SetOrList], 1),
        "collection_sum" => (Shape::CollectionAggregate(AggregateKind::Sum), &[P::NumericSetOrList], 1),
        "collection_avg" => (Shape::CollectionAggregate(AggregateKind::Average), &[P::NumericSetOrList], 1),
        "similarity_cosine" => (Shape::Similarity(Similarity::Cosine), VECTORS, 2),
        "similarity_euclidean" => (Shape::Similarity(Similarity::Euclidean), VECTORS, 2),
        "similarity_dot_product" => (Shape::Similarity(Similarity::DotProduct), VECTORS, 2),
        _ => return None,
    })
}

/// Whether overloads of a name are made for each call.
pub(super) fn exists(name: &str) -> bool {
    signature(name).is_some()
}

/// The overload for these arguments; `None` if no function of this kind has the name.
///
/// # Errors
/// [`StatementError::Invalid`] if there are too few or too many arguments, or if one has no known type or a
/// wrong
/// one.
pub(super) fn make(
    name: &str,
    receiver: Option<&CqlType>,
    arguments: &dyn CallArguments,
) -> Result<Option<Function>, StatementError> {
    let Some((shape, parameters, mandatory)) = signature(name) else { return Ok(None) };
    let shown = || show(name, parameters, mandatory);
    if arguments.count() < mandatory || arguments.count() > parameters.len() {
        return Err(StatementError::Invalid(format!("Invalid number of arguments for function {}", shown())));
    }
    let parameters = &parameters[..arguments.count()];
    let alone: Vec<Option<CqlType>> =
        parameters.iter().enumerate().map(|(at, p)| p.infer(at, arguments, receiver, None)).collect();
    let mut types = Vec::with_capacity(parameters.len());
    for (at, parameter) in parameters.iter().enumerate() {
        let ty = parameter.infer(at, arguments, receiver, Some(&alone)).ok_or_else(|| {
            StatementError::Invalid(format!(
                "Cannot infer type of argument {} in call to function {}: use type casts to disambiguate",
                arguments.text(at),
                shown()
            ))
        })?;
        parameter.check(name, &arguments.text(at), &ty)?;
        types.push(ty.freeze());
    }
    let is_inferred = arguments.compatible_type(0).is_none();
    function(name, shape, types, receiver, is_inferred).map(Some)
}

fn function(
    name: &str,
    shape: Shape,
    mut types: Vec<CqlType>,
    receiver: Option<&CqlType>,
    is_inferred: bool,
) -> Result<Function, StatementError> {
    let first = types[0].clone();
    let frozen = true;
    let (kind, result) = match (shape, &first) {
        (Shape::ToJson, _) => (Kind::ToJson, CqlType::Text),
        (Shape::FromJson, _) => match receiver {
            Some(receiver) => {
                types = vec![CqlType::Text];
                (Kind::FromJson, receiver.clone())
            }
            None => {
                return Err(StatementError::Invalid(format!(
                    "{name}() cannot be used in the selection clause of a SELECT statement"
                )));
            }
        },
        (Shape::MaskNull, _) => (Kind::MaskNull, first),
        (Shape::MaskDefault, _) => (Kind::MaskDefault, first),
        // An argument whose type was inferred from the receiver is frozen or not as the receiver is.
        (Shape::MaskReplace, _) => match receiver {
            Some(receiver) if is_inferred && receiver.clone().freeze() == first => {
                (Kind::MaskReplace, receiver.clone())
            }
            _ => (Kind::MaskReplace, first),
        },
        (Shape::MaskHash, _) => (Kind::MaskHash, CqlType::Blob),
        (Shape::MaskPart(part), _) => (Kind::MaskPart(part), first),
        (Shape::MapKeys, CqlType::Map { key, .. }) => {
            (Kind::MapKeys, CqlType::Set { element: key.clone(), frozen })
        }
        (Shape::MapValues, CqlType::Map { value, .. }) => {
            (Kind::MapValues, CqlType::List { element: value.clone(), frozen })
        }
        (Shape::CollectionCount, _) => (Kind::CollectionCount, CqlType::Int),
        (Shape::CollectionAggregate(kind), CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
            let result = kind.result(element).unwrap_or_else(|| (**element).clone());
            (Kind::CollectionAggregate(kind), result)
        }
        (Shape::Similarity(similarity), _) => {
            if types.iter().any(|ty| *ty != types[0]) {
                return Err(StatementError::invalid("All arguments must have the same vector dimensions"));
            }
            (Kind::Similarity(similarity), CqlType::Float)
        }
        (Shape::MapKeys | Shape::MapValues | Shape::CollectionAggregate(_), other) => {
            return Err(StatementError::Invalid(format!(
                "Function system.{name} does not take a value of type {other}"
            )));
        }
    };
    Ok(Function::new(name, kind, &types, result))
}

impl Parameter {
    fn infer(
        self,
        at: usize,
        arguments: &dyn CallArguments,
        receiver: Option<&CqlType>,
        others: Option<&[Option<CqlType>]>,
    ) -> Option<CqlType> {
        let known = || arguments.compatible_type(at);
        match self {
            Self::Any { from_receiver } => known().or_else(|| receiver.filter(|_| from_receiver).cloned()),
            Self::AsFirst => match others.and_then(|others| others[0].clone()) {
                Some(first) => Some(first),
                None => Self::Any { from_receiver: true }.infer(at, arguments, receiver, None),
            },
            Self::Text | Self::TextOrAscii => known().or(Some(CqlType::Text)),
            Self::Int => known().or(Some(CqlType::Int)),
            Self::Collection | Self::SetOrList | Self::NumericSetOrList | Self::Map => known(),
            Self::FloatVector => {
                let literal = arguments
                    .list_length(at)
                    .map(|dimension| CqlType::Vector { element: Box::new(CqlType::Float), dimension });
                literal
                    .or_else(known)
                    .or_else(|| receiver.cloned())
                    .or_else(|| others.and_then(|others| others.get(1 - at)?.clone()))
            }
        }
    }

    fn check(self, name: &str, argument: &str, ty: &CqlType) -> Result<(), StatementError> {
        let one_of = |wanted: &[CqlType]| {
            wanted.iter().any(|wanted| super::type_assignment(ty, wanted).is_assignable())
        };
        let (fits, requires) = match self {
            Self::Any { .. } | Self::AsFirst => return Ok(()),
            Self::Text => (one_of(&[CqlType::Text]), "an argument of type text"),
            Self::TextOrAscii => {
                (one_of(&[CqlType::Text, CqlType::Ascii]), "an argument of type [text|varchar|ascii]")
            }
            Self::Int => (one_of(&[CqlType::Int]), "an argument of type int"),
            Self::Collection => (ty.is_collection(), "a collection argument"),
            Self::SetOrList => {
                (matches!(ty, CqlType::List { .. } | CqlType::Set { .. }), "a set or list argument")
            }
            Self::NumericSetOrList => {
                let numeric = match ty {
                    CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                        number::is_number(element)
                    }
                    _ => false,
                };
                (numeric, "a numeric set/list argument")
            }
            Self::Map => (matches!(ty, CqlType::Map { .. }), "a map argument"),
            Self::FloatVector => {
                let floats = matches!(ty, CqlType::Vector { element, .. } if **element == CqlType::Float);
                (floats, "a float vector argument")
            }
        };
        if fits {
            return Ok(());
        }
        Err(StatementError::Invalid(format!(
            "Function system.{name} requires {requires}, but found argument {argument} of type {ty}"
        )))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any { .. } | Self::AsFirst => "any",
            Self::Text => "text",
            Self::TextOrAscii => "[text|varchar|ascii]",
            Self::Int => "int",
            Self::Collection => "collection",
            Self::SetOrList | Self::NumericSetOrList => "numeric_set_or_list",
            Self::Map => "map",
            Self::FloatVector => "vector<float, n>",
        }
    }
}

fn show(name: &str, parameters: &[Parameter], mandatory: usize) -> String {
    let parameters: Vec<String> = parameters
        .iter()
        .enumerate()
        .map(|(at, parameter)| match at < mandatory {
            true => parameter.name().to_owned(),
            false => format!("[{}]", parameter.name()),
        })
        .collect();
    format!("system.{name}({})", parameters.join(", "))
}
