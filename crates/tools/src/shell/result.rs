//! Prints what the server answered: rows page by page, warnings, and the objects of DESCRIBE.
//!
//! Blank lines stand where cqlsh has them. Source: `print_result` and `describe_*` of cqlsh.

use model::CqlType;
use wire::client::{Column, ResponseBody, Rows};

use super::complete::table_of;
use super::error::ShellError;
use super::input::{Input, Line};
use super::run::Shell;
use super::schema::Kind;
use super::style::{CYAN, Color, MAGENTA, RED, Text, WHITE, harmless};
use super::table;
use super::value::Printer;

/// How the rows of a statement are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With their number below.
    Counted,
    /// The outcome of a conditional write.
    Bare,
}

impl Shell {
    /// Runs a statement of the server's and prints its answer.
    pub(super) async fn run_statement(
        &mut self,
        text: &str,
        input: &mut dyn Input,
    ) -> Result<(), ShellError> {
        let first =
            text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_ascii_uppercase();
        let form = if matches!(first.as_str(), "SELECT" | "LIST") { Form::Counted } else { Form::Bare };
        let table = table_of(text, self.session.keyspace.as_deref());
        let is_traced = self.session.is_traced;
        // The traces of reading traces would be of no use.
        self.session.is_traced &= table.as_ref().is_none_or(|(keyspace, _)| keyspace != "system_traces");
        let shown = self.show(text, form, table.as_ref(), input).await;
        self.session.is_traced = is_traced;
        shown
    }

    /// Prints all pages of an answer, then warnings and traces.
    async fn show(
        &mut self,
        text: &str,
        form: Form,
        table: Option<&(String, String)>,
        input: &mut dyn Input,
    ) -> Result<(), ShellError> {
        let is_terminal = input.is_terminal();
        let (mut warnings, mut traces): (Vec<String>, Vec<[u8; 16]>) = (Vec::new(), Vec::new());
        let mut state: Option<Vec<u8>> = None;
        let mut shown = 0;
        loop {
            let answer = self.session.query(text, state.as_deref()).await?;
            let response = answer.read()?;
            for warning in &response.warnings {
                let warning = harmless(warning);
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            traces.extend(response.tracing_id);
            let rows = match response.body {
                ResponseBody::Rows(rows) => rows,
                ResponseBody::SchemaChange(_) => {
                    self.schema.borrow_mut().forget();
                    break;
                }
                _ => break,
            };
            if state.is_none() {
                self.out.line("");
            }
            self.page(&rows, shown, is_terminal, table).await;
            shown += rows.row_count;
            state = rows.paging_state.map(<[u8]>::to_vec);
            if state.is_none() || !self.goes_on(input) {
                if form == Form::Counted {
                    if !is_terminal {
                        self.out.line("");
                    }
                    self.out.line(&format!("({shown} rows)"));
                }
                break;
            }
        }
        self.warn(&warnings);
        for trace in traces {
            self.show_trace(trace, is_terminal).await?;
        }
        Ok(())
    }

    /// Whether the next page is wanted: asks somebody who reads along.
    fn goes_on(&mut self, input: &mut dyn Input) -> bool {
        if !input.is_terminal() || !self.is_read_along || self.out.captured().is_some() {
            return self.out.failure().is_none();
        }
        self.out.flush();
        matches!(input.line("---MORE---", "", None), Line::Text(_))
    }

    /// Prints a page; `shown` rows came before it.
    async fn page(
        &mut self,
        rows: &Rows<'_>,
        shown: usize,
        is_terminal: bool,
        table: Option<&(String, String)>,
    ) {
        let columns = rows.columns.as_deref().unwrap_or_default();
        let names = self.names(columns, table).await;
        let printer = Printer::table(self.out.has_color());
        let types: Vec<&CqlType> = columns.iter().map(|column| &column.ty).collect();
        let values: Vec<Text> =
            rows.values().zip(types.iter().cycle()).map(|(value, ty)| printer.print(ty, value)).collect();
        let rows: Vec<Vec<Text>> = values.chunks(types.len().max(1)).map(<[Text]>::to_vec).collect();
        if rows.is_empty() && shown > 0 {
            return;
        }
        if self.is_expanded && !rows.is_empty() {
            for line in table::expanded(&names, &rows, shown + 1) {
                self.out.line(&line);
            }
            return;
        }
        for line in table::lines(&names, &rows, shown == 0 || is_terminal) {
            self.out.line(&line);
        }
        if is_terminal || rows.is_empty() {
            self.out.line("");
        }
    }

    /// The names of columns, in the colors of their kinds.
    async fn names(&mut self, columns: &[Column<'_>], table: Option<&(String, String)>) -> Vec<Text> {
        let has_color = self.out.has_color();
        if has_color {
            self.refresh_schema().await;
        }
        let schema = self.schema.borrow();
        let known = table.map_or(&[][..], |(keyspace, table)| schema.columns(keyspace, table));
        let color = |name: &str| -> Color {
            match known.iter().find(|column| column.name == name).map(|column| column.kind) {
                Some(Kind::PartitionKey) => RED,
                Some(Kind::Clustering) => CYAN,
                Some(Kind::Static) => WHITE,
                _ => MAGENTA,
            }
        };
        let text = |column: &Column<'_>| {
            let mut text = Text::new(has_color);
            text.push_escaped(color(column.name), column.name);
            text
        };
        columns.iter().map(text).collect()
    }

    fn warn(&mut self, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        self.out.line("");
        self.out.line("Warnings :");
        for warning in warnings {
            self.out.line(warning);
            self.out.line("");
        }
    }

    /// Sends a DESCRIBE and prints its answer; `what` is the word behind it, in upper case.
    pub(super) async fn describe(&mut self, text: &str, what: &str) -> Result<(), ShellError> {
        let (mut described, mut warnings): (Vec<Vec<String>>, Vec<String>) = (Vec::new(), Vec::new());
        let mut names: Vec<String> = Vec::new();
        let mut state: Option<Vec<u8>> = None;
        let consistency = std::mem::replace(&mut self.session.consistency, wire::Consistency::LocalOne);
        let failed = loop {
            let answer = match self.session.query(text, state.as_deref()).await {
                Ok(answer) => answer,
                Err(error) => break Some(error),
            };
            let response = answer.read()?;
            warnings.extend(response.warnings.iter().map(|warning| harmless(warning)));
            let ResponseBody::Rows(rows) = response.body else { break None };
            let columns = rows.columns.as_deref().unwrap_or_default();
            names = columns.iter().map(|column| column.name.to_owned()).collect();
            let cells: Vec<String> = rows
                .values()
                .zip(columns.iter().cycle())
                .map(|(value, column)| of_description(column, value))
                .collect();
            described.extend(cells.chunks(names.len().max(1)).map(<[String]>::to_vec));
            state = rows.paging_state.map(<[u8]>::to_vec);
            if state.is_none() {
                break None;
            }
        };
        self.session.consistency = consistency;
        if let Some(error) = failed {
            return Err(match error {
                ShellError::Server(error) if error.code == 0x2200 => ShellError::command(error.message),
                other => other,
            });
        }
        self.show_described(what, &names, &described);
        self.warn(&warnings);
        Ok(())
    }

    fn show_described(&mut self, what: &str, names: &[String], rows: &[Vec<String>]) {
        let cell = |row: &[String], name: &str| {
            let at = names.iter().position(|known| known == name);
            at.and_then(|at| row.get(at)).cloned().unwrap_or_default()
        };
        match what {
            "COLUMNFAMILIES" | "TABLES" | "TYPES" | "FUNCTIONS" | "AGGREGATES" => {
                for same in rows.chunk_by(|a, b| cell(a, "keyspace_name") == cell(b, "keyspace_name")) {
                    self.out.line("");
                    if self.session.keyspace.is_none() {
                        let keyspace = cell(&same[0], "keyspace_name");
                        self.out.line(&format!("Keyspace {keyspace}"));
                        self.out.line(&format!("---------{}", "-".repeat(keyspace.len())));
                    }
                    self.in_columns(same.iter().map(|row| cell(row, "name")).collect());
                }
                if !rows.is_empty() {
                    self.out.line("");
                }
            }
            "KEYSPACES" => {
                self.out.line("");
                self.in_columns(rows.iter().map(|row| cell(row, "name")).collect());
                self.out.line("");
            }
            "CLUSTER" => {
                for row in rows {
                    self.out.line("");
                    self.out.line(&format!("Cluster: {}", cell(row, "cluster")));
                    self.out.line(&format!("Partitioner: {}", cell(row, "partitioner")));
                    self.out.line(&format!("Snitch: {}", cell(row, "snitch")));
                    self.out.line("");
                    if names.iter().any(|name| name == "range_ownership") {
                        self.out.line("Range ownership:");
                        for line in cell(row, "range_ownership").lines() {
                            self.out.line(line);
                        }
                        self.out.line("");
                    }
                }
            }
            _ => {
                for row in rows {
                    self.out.line("");
                    self.out.line(&cell(row, "create_statement"));
                }
            }
        }
    }

    fn in_columns(&mut self, names: Vec<String>) {
        for line in table::columns(&names) {
            self.out.line(&line);
        }
    }
}

/// A value of a description: texts as they are, owners of ranges one a line.
fn of_description(column: &Column<'_>, value: Option<&[u8]>) -> String {
    let Some(value) = value else { return String::new() };
    match &column.ty {
        CqlType::Text | CqlType::Ascii => harmless(&String::from_utf8_lossy(value)),
        CqlType::Map { key, value: of, .. } => {
            let entries = model::collection::Entries::parse(value).into_iter().flatten().flatten();
            let printer = Printer::table(false);
            let line = |(name, owners): (&[u8], &[u8])| {
                let owners = printer.print(of, Some(owners)).text.replace('\'', "");
                format!(" {:>39}  {owners}", printer.print(key, Some(name)).text)
            };
            entries.map(line).collect::<Vec<_>>().join("\n")
        }
        ty => Printer::table(false).print(ty, Some(value)).text,
    }
}
