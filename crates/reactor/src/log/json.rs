//! A line of the log as an object of JSON, for programs that collect logs.
//!
//! `{"time": ..., "level": ..., "shard": N, "area": ..., "text": ..., "fields": {"key": "value", ...}}`, on
//! one line. `shard` and `fields` are left out if there are none. All values but the shard are strings.

use std::fmt::{self, Write};

use super::{Level, Place, Timestamp};

/// Appends the line.
pub(super) fn format_line(
    line: &mut String,
    level: Level,
    place: &Place,
    area: &str,
    text: fmt::Arguments<'_>,
    fields: &[(&str, &dyn fmt::Display)],
) {
    // Writing to a string cannot fail.
    let (time, name) = (Timestamp(place.wall_us), level.name().trim_end());
    let _ = write!(line, "{{\"time\":\"{time}\",\"level\":\"{name}\"");
    if let Some(shard) = place.shard {
        let _ = write!(line, ",\"shard\":{shard}");
    }
    line.push_str(",\"area\":");
    string(line, &area);
    line.push_str(",\"text\":");
    string(line, &text);
    for (n, (key, value)) in fields.iter().enumerate() {
        line.push_str(if n == 0 { ",\"fields\":{" } else { "," });
        string(line, key);
        line.push(':');
        string(line, value);
    }
    line.push_str(if fields.is_empty() { "}" } else { "}}" });
}

/// Appends a text as a string of JSON.
fn string(line: &mut String, text: &dyn fmt::Display) {
    line.push('"');
    let _ = write!(Escaping(line), "{text}");
    line.push('"');
}

/// Escapes what a string of JSON cannot have as it is.
struct Escaping<'l>(&'l mut String);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(letter);
                }
                '\n' => self.0.push_str("\\n"),
                letter if letter.is_control() => write!(self.0, "\\u{:04x}", u32::from(letter))?,
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shard: Option<usize>, fields: &[(&str, &dyn fmt::Display)], expected: &str) {
        let mut line = String::new();
        let place = Place { wall_us: 951_782_400_000_001, shard };
        format_line(&mut line, Level::Warn, &place, "a::b", format_args!("x \"{}\"\n\\\u{1}", 7), fields);
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_is_an_object_with_strings_that_are_escaped() {
        let head = r#"{"time":"2000-02-29T00:00:00.000001Z","level":"WARN""#;
        let text = r#""area":"a::b","text":"x \"7\"\n\\\u0001""#;
        check(None, &[], &format!("{head},{text}}}"));
        check(
            Some(3),
            &[("n", &7), ("k", &"a\tb")],
            &format!(r#"{head},"shard":3,{text},"fields":{{"n":"7","k":"a\u0009b"}}}}"#),
        );
    }
}
