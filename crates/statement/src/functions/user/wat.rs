//! Support for an older form of `if` in WebAssembly's text format, used in ScyllaDB's documentation:
//! `(if (cond) (return …))`.
//!
//! Today's format requires the branches in `(then …)` and `(else …)`; this adds them. It knows only the
//! lists, strings and comments of the text, so an invalid module stays invalid. It makes one pass, without
//! recursion.

/// Longest text that is converted, and its deepest nesting: they bound the memory needed.
const TEXT_BYTES_MAX: usize = 1 << 20;
const NESTING_MAX: usize = 1_000;

/// The text with `then` and `else` added to every `if` that has bare branches; `None` if there is none.
pub(super) fn with_branches(text: &str) -> Option<String> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut inserts: Vec<(usize, &str)> = Vec::new();
    let mut open: Vec<List<'_>> = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b';' if bytes.get(at + 1) == Some(&b';') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
            }
            b'(' if bytes.get(at + 1) == Some(&b';') => at = comment_end(bytes, at),
            b'(' if open.len() == NESTING_MAX => return None,
            b'(' => {
                let word = text[at + 1..].trim_start();
                let end = word.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '"' | ';'));
                open.push(List { start: at, word: &word[..end.unwrap_or(word.len())], parts: Vec::new() });
                at += 1;
            }
            b')' => {
                at += 1;
                let list = open.pop()?;
                list.branches(&mut inserts);
                if let Some(outer) = open.last_mut().filter(|outer| outer.word == "if") {
                    outer.parts.push((list.start, at, list.word));
                }
            }
            _ => at += 1,
        }
    }
    if inserts.is_empty() {
        return None;
    }
    inserts.sort_unstable();
    let mut out =
        String::with_capacity(text.len() + inserts.iter().map(|(_, more)| more.len()).sum::<usize>());
    let mut copied = 0;
    for (at, more) in inserts {
        out.push_str(&text[copied..at]);
        out.push_str(more);
        copied = at;
    }
    out.push_str(&text[copied..]);
    Some(out)
}

/// A list that has not ended: its first word and, in an `if`, the ends and first words of the lists in it.
struct List<'t> {
    start: usize,
    word: &'t str,
    parts: Vec<(usize, usize, &'t str)>,
}

impl List<'_> {
    /// Encloses bare branches of an `if`: one or two lists after the condition.
    fn branches(&self, inserts: &mut Vec<(usize, &str)>) {
        if self.word != "if" || self.parts.iter().any(|(.., word)| matches!(*word, "then" | "else")) {
            return;
        }
        let is_code = |part: &&(usize, usize, &str)| !matches!(part.2, "param" | "result" | "type");
        let code: Vec<_> = self.parts.iter().filter(is_code).collect();
        if let [_, branches @ ..] = code.as_slice()
            && (1..=2).contains(&branches.len())
        {
            for ((start, end, _), word) in branches.iter().zip(["(then ", "(else "]) {
                inserts.extend([(*start, word), (*end, ")")]);
            }
        }
    }
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start + 2, 1);
    while depth > 0 {
        match bytes.get(at..at + 2) {
            Some(b"(;") => (at, depth) = (at + 2, depth + 1),
            Some(b";)") => (at, depth) = (at + 2, depth - 1),
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(with_branches(text).as_deref(), expected, "{text}");
    }

    #[test]
    fn bare_branches_get_lists_of_their_own() {
        check("(if (cond) (return (local.get 0)))", Some("(if (cond) (then (return (local.get 0))))"));
        check("(if (result i32) (c) (a) (b))", Some("(if (result i32) (c) (then (a)) (else (b)))"));
        check("(if $l (c) (if (d) (e)))", Some("(if $l (c) (then (if (d) (then (e)))))"));
        check(
            "(if (c (if (x) (y)))\n (a);; (b)\n)",
            Some("(if (c (if (x) (then (y))))\n (then (a));; (b)\n)"),
        );
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "(if (cond) (then (return)))",
            "(if (result i32) (c) (then (a)) (else (b)))",
            "(if (then (nop)))",
            "(if (a))",
            "(data \"(if (a) (b))\\\"(if (a) (b))\")",
            "(; (if (a) (b)) (; ;) (if (a) (b)) ;) ;; (if (a) (b))",
            "(func $if (a) (b))",
            "(if (a) (b",
            "(if (a) (b)))) (if",
            "\"\\",
            "(; (;",
            "(",
            ")",
            "",
            "é(if",
        ] {
            check(text, None);
        }
    }
}
