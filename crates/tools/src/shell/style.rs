//! Text with colors and with the width that a terminal gives it.
//!
//! Colors are those of cqlsh. Invariant: no control character of a value reaches the terminal; the only ones
//! written are the color codes here.

use unicode_width::UnicodeWidthChar;

/// A color, as the codes that switch it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Color(&'static str);

/// Null, errors, and names of partition keys.
pub(super) const RED: Color = Color("\x1b[0;1;31m");
/// Numbers, times and other scalars.
pub(super) const GREEN: Color = Color("\x1b[0;1;32m");
/// Text.
pub(super) const YELLOW: Color = Color("\x1b[0;1;33m");
/// Brackets, and the cluster's name.
pub(super) const BLUE: Color = Color("\x1b[0;1;34m");
/// Names of columns.
pub(super) const MAGENTA: Color = Color("\x1b[0;1;35m");
/// Names of clustering columns.
pub(super) const CYAN: Color = Color("\x1b[0;1;36m");
/// Names of static columns.
pub(super) const WHITE: Color = Color("\x1b[0;1;37m");
/// Blobs, and escapes inside of text.
pub(super) const DARK_MAGENTA: Color = Color("\x1b[0;35m");
const RESET: &str = "\x1b[0m";

/// A text in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    /// With the codes of its colors, if it has colors.
    pub(super) text: String,
    /// Columns of the terminal.
    pub(super) width: usize,
    has_color: bool,
}

impl Text {
    /// An empty text.
    pub(super) fn new(has_color: bool) -> Self {
        Self { text: String::new(), width: 0, has_color }
    }

    /// A text in one color.
    pub(super) fn of(has_color: bool, color: Color, text: &str) -> Self {
        let mut out = Self::new(has_color);
        out.push(color, text);
        out
    }

    /// Appends a text without control characters.
    pub(super) fn push(&mut self, color: Color, text: &str) {
        self.width += width(text);
        if self.has_color {
            self.text.push_str(color.0);
            self.text.push_str(text);
            self.text.push_str(RESET);
        } else {
            self.text.push_str(text);
        }
    }

    /// Appends a value's text: control characters are written as Python writes them, such as `\n` and
    /// `\x1b`. A backslash is doubled where no color tells an escape from a backslash.
    pub(super) fn push_escaped(&mut self, color: Color, text: &str) {
        let mut plain = String::new();
        for c in text.chars() {
            let escape = match c {
                '\n' => "\\n".to_owned(),
                '\r' => "\\r".to_owned(),
                '\t' => "\\t".to_owned(),
                '\\' if !self.has_color => {
                    plain.push_str("\\\\");
                    continue;
                }
                '\0'..='\x1f' | '\x7f'..='\u{a0}' => format!("\\x{:02x}", c as u32),
                // These change the direction of what follows, on the whole line.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => {
                    format!("\\u{:04x}", c as u32)
                }
                c => {
                    plain.push(c);
                    continue;
                }
            };
            if self.has_color {
                self.push_some(color, &mut plain);
                self.push(DARK_MAGENTA, &escape);
            } else {
                plain.push_str(&escape);
            }
        }
        self.push_some(color, &mut plain);
    }

    fn push_some(&mut self, color: Color, text: &mut String) {
        if !text.is_empty() {
            self.push(color, text);
            text.clear();
        }
    }

    /// Appends another text of the same kind.
    pub(super) fn append(&mut self, other: &Self) {
        self.width += other.width;
        self.text.push_str(&other.text);
    }

    /// The text with blanks in front of it, up to a width.
    pub(super) fn to_right(&self, width: usize) -> String {
        format!("{}{}", " ".repeat(width.saturating_sub(self.width)), self.text)
    }

    /// The text with blanks behind it, up to a width.
    pub(super) fn to_left(&self, width: usize) -> String {
        format!("{}{}", self.text, " ".repeat(width.saturating_sub(self.width)))
    }
}

/// Columns that a terminal needs for a text.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// A text of the server's as it may be printed.
pub(super) fn harmless(text: &str) -> String {
    let is_harmful = |c: char| matches!(c, '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}');
    if !text.contains(is_harmful) {
        return text.to_owned();
    }
    text.chars().map(|c| if is_harmful(c) { format!("\\x{:02x}", c as u32) } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out() {
        let mut plain = Text::new(false);
        plain.push_escaped(YELLOW, "a\\b\n\x1b[2J\u{202e}é漢");
        assert_eq!(plain.text, "a\\\\b\\n\\x1b[2J\\u202eé漢");
        assert_eq!(plain.width, 4 + 2 + 7 + 6 + 1 + 2);
        let mut colored = Text::new(true);
        colored.push_escaped(YELLOW, "a\\\t");
        assert_eq!(colored.text, "\x1b[0;1;33ma\\\x1b[0m\x1b[0;35m\\t\x1b[0m");
        assert_eq!(colored.width, 4);
        assert_eq!(harmless("ok\n\tfine\x1b]0;x\x07"), "ok\n\tfine\\x1b]0;x\\x07");
    }

    #[test]
    fn padding_goes_by_what_is_seen() {
        assert_eq!(Text::of(false, GREEN, "漢").to_right(4), "  漢");
        assert_eq!(Text::of(true, GREEN, "7").to_left(2), "\x1b[0;1;32m7\x1b[0m ");
    }
}
