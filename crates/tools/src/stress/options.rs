//! The syntax of cassandra-stress' options: groups of suboptions; the first group that takes all parameters
//! counts.
//!
//! `-rate threads=4 fixed=100/s` is the option `-rate` with two parameters; an option may be written in
//! several ways (threads, or a range of threads), and each way is a [`Group`]. Usage and errors read as those
//! of the original, because people and scripts know them.

use super::StressError;
use super::distribution::{Factory, RatioFactory};

/// The pattern of a simple suboption's value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    /// The pattern in messages.
    pub(super) text: &'static str,
    /// Whether a value matches.
    pub(super) accepts: fn(&str) -> bool,
}

/// Nothing may follow.
pub(super) const NOTHING: Pattern = Pattern { text: "", accepts: str::is_empty };
/// Anything may follow.
pub(super) const ANYTHING: Pattern = Pattern { text: ".*", accepts: |_| true };
/// Something must follow.
pub(super) const SOMETHING: Pattern = Pattern { text: ".+", accepts: |text| !text.is_empty() };
/// A whole number.
pub(super) const DIGITS: Pattern = Pattern { text: "[0-9]+", accepts: is_digits };

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The kinds of suboption.
#[derive(Debug, Clone)]
enum Kind {
    Simple(Pattern),
    Distribution,
    Ratio,
    /// Suboptions in parentheses, and other `key=value` pairs if allowed.
    Multi {
        inner: Vec<Opt>,
        extra: Option<Vec<(String, String)>>,
    },
}

/// One suboption.
#[derive(Debug, Clone)]
pub(super) struct Opt {
    prefix: &'static str,
    /// Spellings of other versions of the tool.
    also: &'static [&'static str],
    kind: Kind,
    default: Option<&'static str>,
    description: &'static str,
    required: bool,
    value: Option<String>,
}

/// A suboption with a value of a pattern.
pub(super) fn simple(
    prefix: &'static str,
    pattern: Pattern,
    default: Option<&'static str>,
    description: &'static str,
) -> Opt {
    Opt { prefix, also: &[], kind: Kind::Simple(pattern), default, description, required: false, value: None }
}

/// A suboption without a value.
pub(super) fn flag(prefix: &'static str, description: &'static str) -> Opt {
    simple(prefix, NOTHING, None, description)
}

/// A suboption that is a distribution.
pub(super) fn distribution(
    prefix: &'static str,
    default: Option<&'static str>,
    description: &'static str,
) -> Opt {
    Opt { kind: Kind::Distribution, ..simple(prefix, ANYTHING, default, description) }
}

/// A suboption that is a ratio.
pub(super) fn ratio(prefix: &'static str, default: Option<&'static str>, description: &'static str) -> Opt {
    Opt { kind: Kind::Ratio, ..simple(prefix, ANYTHING, default, description) }
}

/// A suboption with its own suboptions in parentheses; with `collects`, other pairs are kept.
pub(super) fn multi(name: &'static str, inner: Vec<Opt>, collects: bool, description: &'static str) -> Opt {
    let extra = collects.then(Vec::new);
    Opt { kind: Kind::Multi { inner, extra }, ..simple(name, ANYTHING, None, description) }
}

impl Opt {
    pub(super) fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(super) fn also(mut self, spellings: &'static [&'static str]) -> Self {
        self.also = spellings;
        self
    }

    fn accept(&mut self, parameter: &str) -> Result<bool, StressError> {
        match &mut self.kind {
            Kind::Simple(pattern) => {
                let rest = std::iter::once(&self.prefix)
                    .chain(self.also)
                    .find_map(|prefix| strip_prefix_ignoring_case(parameter, prefix));
                let Some(rest) = rest else { return Ok(false) };
                if self.value.is_some() {
                    let message = format!("Suboption {} has been specified more than once", self.prefix);
                    return Err(StressError::Usage(message));
                }
                if !(pattern.accepts)(rest) {
                    let message = format!("Invalid value {rest}; must match pattern {}", pattern.text);
                    return Err(StressError::Usage(message));
                }
                self.value = Some(rest.to_owned());
                Ok(true)
            }
            Kind::Distribution | Kind::Ratio => {
                let is_ratio = matches!(self.kind, Kind::Ratio);
                match strip_prefix_ignoring_case(parameter, self.prefix) {
                    Some(rest) if !is_ratio || rest.contains('/') => {
                        self.value = Some(rest.to_owned());
                        Ok(true)
                    }
                    _ => Ok(false),
                }
            }
            Kind::Multi { inner, extra } => {
                let inside = strip_prefix_ignoring_case(parameter, self.prefix)
                    .and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
                let Some(inside) = inside else { return Ok(false) };
                for part in inside.split(',') {
                    let invalid = |what: &str| {
                        StressError::Usage(format!("Invalid {} specification: {what}", self.prefix))
                    };
                    if part.is_empty() {
                        return Err(invalid(parameter));
                    }
                    let mut taken = false;
                    for option in inner.iter_mut() {
                        taken = taken || option.accept(part)?;
                    }
                    if !taken {
                        let extra = extra.as_mut().ok_or_else(|| invalid(part))?;
                        let (key, value) = part
                            .split_once('=')
                            .filter(|(key, value)| {
                                !key.is_empty() && !value.is_empty() && !value.contains('=')
                            })
                            .ok_or_else(|| invalid(part))?;
                        if extra.iter().any(|(known, _)| known == key) {
                            return Err(StressError::Usage(format!("{key} set twice")));
                        }
                        extra.push((key.to_owned(), value.to_owned()));
                    }
                }
                self.value = Some(inside.to_owned());
                Ok(true)
            }
        }
    }

    fn is_happy(&self) -> bool {
        !self.required || self.value.is_some()
    }

    fn short_display(&self) -> String {
        match &self.kind {
            Kind::Simple(_) => {
                let question = if self.prefix.ends_with(['=', '<', '>']) { "?" } else { "" };
                let text = format!("{}{question}", self.prefix);
                if self.required { text } else { format!("[{text}]") }
            }
            Kind::Distribution | Kind::Ratio => {
                let text = format!("{}DIST(?)", self.prefix);
                if self.default.is_some() { format!("[{text}]") } else { text }
            }
            Kind::Multi { .. } if self.is_happy() => format!("[{}(?)]", self.prefix),
            Kind::Multi { .. } => format!("{}(?)", self.prefix),
        }
    }

    fn long_display(&self) -> Option<String> {
        match &self.kind {
            Kind::Simple(pattern) => {
                if self.description.is_empty() && self.default.is_none() && pattern.text.is_empty() {
                    return None;
                }
                let question = if self.prefix.ends_with(['=', '<', '>']) { "?" } else { "" };
                let default = self.default.map(|text| format!(" (default={text})")).unwrap_or_default();
                Some(format!("{:<40} {}", format!("{}{question}{default}", self.prefix), self.description))
            }
            Kind::Distribution | Kind::Ratio => {
                Some(format!("{}: {}", self.short_display(), self.description))
            }
            Kind::Multi { inner, extra } => {
                let mut parts: String = inner.iter().map(Self::short_display).collect();
                if extra.is_some() {
                    parts.push_str("[<option 1..N>=?]");
                }
                Some(format!("{}({parts}): {}", self.prefix, self.description))
            }
        }
    }

    fn more_lines(&self) -> Vec<String> {
        match &self.kind {
            Kind::Simple(_) => Vec::new(),
            Kind::Distribution => law_lines("", ""),
            Kind::Ratio => law_lines("/divisor", " ratio"),
            Kind::Multi { inner, .. } => inner.iter().filter_map(Self::long_display).collect(),
        }
    }
}

fn law_lines(divisor: &str, ratio: &str) -> Vec<String> {
    let line = |law: &str, text: String| format!("{:<36} {text}", format!("{law}{divisor}"));
    let mut lines = vec![
        line(
            "EXP(min..max)",
            format!("An exponential{ratio} distribution over the range [min..max]{divisor}"),
        ),
        line(
            "EXTREME(min..max,shape)",
            format!("An extreme value (Weibull){ratio} distribution over the range [min..max]{divisor}"),
        ),
        line(
            "QEXTREME(min..max,shape,quantas)",
            format!(
                "An extreme value{ratio}, split into quantas, within which the chance of selection is uniform"
            ),
        ),
        line(
            "GAUSSIAN(min..max,stdvrng)",
            format!(
                "A gaussian/normal{ratio} distribution, where mean=(min+max)/2, and stdev is (mean-min)/stdvrng"
            ),
        ),
        line(
            "GAUSSIAN(min..max,mean,stdev)",
            format!("A gaussian/normal{ratio} distribution, with explicitly defined mean and stdev"),
        ),
        line(
            "UNIFORM(min..max)",
            format!("A uniform{ratio} distribution over the range [min, max]{divisor}"),
        ),
        line("FIXED(val)", format!("A fixed{ratio} distribution, always returning the same value")),
    ];
    lines.push(
        "Preceding the name with ~ will invert the distribution, e.g. ~exp(1..10) will yield 10 most, instead of \
         least, often"
            .to_owned(),
    );
    lines.push("Aliases: extr, qextr, gauss, normal, norm, weibull".to_owned());
    lines
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// One way to write an option.
#[derive(Debug, Clone)]
pub(super) struct Group {
    options: Vec<Opt>,
    accepted: usize,
}

impl Group {
    pub(super) fn new(options: Vec<Opt>) -> Self {
        Self { options, accepted: 0 }
    }

    fn accept(&mut self, parameter: &str) -> Result<bool, StressError> {
        for option in &mut self.options {
            if option.accept(parameter)? {
                self.accepted += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_happy(&self) -> bool {
        self.options.iter().all(Opt::is_happy)
    }

    fn option(&self, prefix: &str) -> &Opt {
        let option = self.options.iter().find(|option| option.prefix == prefix);
        option.unwrap_or_else(|| panic!("no suboption {prefix} is declared"))
    }

    /// The value of a simple suboption: as given, or its default.
    pub(super) fn value(&self, prefix: &str) -> Option<&str> {
        let option = self.option(prefix);
        option.value.as_deref().or(option.default)
    }

    /// Whether this group has such a suboption.
    pub(super) fn declares(&self, prefix: &str) -> bool {
        self.options.iter().any(|option| option.prefix == prefix)
    }

    /// Whether the user gave it.
    pub(super) fn is_set(&self, prefix: &str) -> bool {
        self.option(prefix).value.is_some()
    }

    /// A value whose pattern is a whole number.
    ///
    /// # Errors
    /// [`StressError::Usage`] if it is too large.
    pub(super) fn integer<T: std::str::FromStr>(&self, prefix: &str) -> Result<T, StressError> {
        let text = self.value(prefix).unwrap_or("0");
        text.parse().map_err(|_| StressError::Usage(format!("For input string: \"{text}\"")))
    }

    /// A distribution.
    ///
    /// # Errors
    /// [`StressError::Usage`] if it is invalid.
    pub(super) fn distribution(&self, prefix: &str) -> Result<Option<Factory>, StressError> {
        self.value(prefix).map(Factory::parse).transpose()
    }

    /// A ratio.
    ///
    /// # Errors
    /// [`StressError::Usage`] if it is invalid.
    pub(super) fn ratio(&self, prefix: &str) -> Result<Option<RatioFactory>, StressError> {
        self.value(prefix).map(RatioFactory::parse).transpose()
    }

    /// The suboptions in the parentheses, as a group of their own, and the other pairs.
    pub(super) fn multi(&self, prefix: &str) -> (Self, Vec<(String, String)>) {
        match &self.option(prefix).kind {
            Kind::Multi { inner, extra } => (Self::new(inner.clone()), extra.clone().unwrap_or_default()),
            _ => panic!("suboption {prefix} has no parentheses"),
        }
    }
}

/// Offers every parameter to every group; returns the first group that took all of them and lacks none.
///
/// # Errors
/// [`StressError::Usage`] for a parameter that no group takes.
pub(super) fn select(parameters: &[String], mut groups: Vec<Group>) -> Result<Option<Group>, StressError> {
    for parameter in parameters {
        let mut accepted = false;
        for group in &mut groups {
            accepted |= group.accept(parameter)?;
        }
        if !accepted {
            return Err(StressError::Usage(format!("Invalid parameter {parameter}")));
        }
    }
    Ok(groups.into_iter().find(|group| group.is_happy() && group.accepted == parameters.len()))
}

/// How an option is used: each way, then every suboption once.
pub(super) fn usage(name: &str, groups: &[Group]) -> String {
    let mut text = String::from("\n");
    for (number, group) in groups.iter().enumerate() {
        if number > 0 {
            text.push_str(" OR \n");
        }
        text.push_str(&format!("Usage: {name}"));
        for option in &group.options {
            text.push(' ');
            text.push_str(&option.short_display());
        }
        text.push('\n');
    }
    text.push('\n');
    let mut shown: Vec<&str> = Vec::new();
    for option in groups.iter().flat_map(|group| &group.options) {
        if shown.contains(&option.prefix) {
            continue;
        }
        shown.push(option.prefix);
        let Some(line) = option.long_display() else { continue };
        text.push_str(&format!("  {line}\n"));
        for line in option.more_lines() {
            text.push_str(&format!("      {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
