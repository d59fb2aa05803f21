//! Fuzzes marshal class names and CQL type texts.

pub(crate) fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = model::marshal::parse_class(text);
        let _ = model::type_parser::parse_type(text, &|_| None);
    }
}
