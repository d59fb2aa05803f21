//! Fuzzes validation, comparison and walking of values of any type.

pub(crate) fn run(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else { return };
    let Some((class, value)) = rest.split_at_checked(usize::from(length)) else { return };
    let Ok(class) = std::str::from_utf8(class) else { return };
    if let Ok((ty, _)) = model::marshal::parse_class(class) {
        let (a, b) = value.split_at(value.len() / 2);
        let _ = model::compare::compare(&ty, a, b);
        let _ = model::validate::validate(&ty, value);
    }
}
