//! Prints CREATE, ALTER and DROP of tables and materialised views.

use std::fmt::{Display, Formatter, Result};

use super::{clause, enclosed, optional, pairs, separated, when};
use crate::ast::{
    AlterMaterializedView, AlterTable, AlterTableChange, ColumnDefinition, ColumnMask, CopyOption,
    CreateMaterializedView, CreateTable, CreateTableLike, DropMaterializedView, DropTable, PrimaryKey,
    TableElement, TableOption,
};

impl Display for CreateTable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE TABLE ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{} ", self.name)?;
        enclosed(formatter, "(", &self.elements, ")")?;
        clause(formatter, " WITH ", &self.options)
    }
}

impl Display for TableElement {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            TableElement::Column(column) => write!(formatter, "{column}"),
            TableElement::PrimaryKey(key) => write!(formatter, "{key}"),
        }
    }
}

impl Display for ColumnDefinition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} {}", self.name, self.type_name)?;
        when(formatter, self.is_static, " STATIC")?;
        when(formatter, self.is_row_expiry, " TTL")?;
        optional(formatter, " ", self.mask.as_ref())?;
        when(formatter, self.is_primary_key, " PRIMARY KEY")
    }
}

impl Display for ColumnMask {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            ColumnMask::Default => formatter.write_str("MASKED WITH DEFAULT"),
            ColumnMask::Function(call) => write!(formatter, "MASKED WITH {call}"),
        }
    }
}

impl Display for PrimaryKey {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("PRIMARY KEY (")?;
        match self.partition.as_slice() {
            [column] => write!(formatter, "{column}")?,
            columns => enclosed(formatter, "(", columns, ")")?,
        }
        for column in &self.clustering {
            write!(formatter, ", {column}")?;
        }
        formatter.write_str(")")
    }
}

impl Display for TableOption {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            TableOption::Property(property) => write!(formatter, "{property}"),
            TableOption::CompactStorage => formatter.write_str("COMPACT STORAGE"),
            TableOption::ClusteringOrder(columns) => {
                enclosed(formatter, "CLUSTERING ORDER BY (", pairs(columns, " "), ")")
            }
        }
    }
}

impl Display for CreateTableLike {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE TABLE ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{} LIKE {}", self.name, self.source)?;
        clause(formatter, " WITH ", &self.options)
    }
}

impl Display for CopyOption {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            CopyOption::Property(property) => write!(formatter, "{property}"),
            CopyOption::Include(word) => write!(formatter, "{word}"),
        }
    }
}

impl Display for AlterTable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ALTER TABLE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{} {}", self.name, self.change)
    }
}

/// A column, or columns in parentheses when there are several.
fn one_or_more<T: Display>(formatter: &mut Formatter<'_>, items: &[T]) -> Result {
    match items {
        [item] => write!(formatter, "{item}"),
        items => enclosed(formatter, "(", items, ")"),
    }
}

impl Display for AlterTableChange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            AlterTableChange::ColumnType { column, type_name } => {
                write!(formatter, "ALTER {column} TYPE {type_name}")
            }
            AlterTableChange::ColumnMask { if_exists, column, mask } => {
                formatter.write_str("ALTER ")?;
                when(formatter, *if_exists, "IF EXISTS ")?;
                write!(formatter, "{column} ")?;
                match mask {
                    Some(mask) => write!(formatter, "{mask}"),
                    None => formatter.write_str("DROP MASKED"),
                }
            }
            AlterTableChange::Add { if_not_exists, columns } => {
                formatter.write_str("ADD ")?;
                when(formatter, *if_not_exists, "IF NOT EXISTS ")?;
                one_or_more(formatter, columns)
            }
            AlterTableChange::Drop { if_exists, columns, timestamp } => {
                formatter.write_str("DROP ")?;
                when(formatter, *if_exists, "IF EXISTS ")?;
                one_or_more(formatter, columns)?;
                optional(formatter, " USING TIMESTAMP ", timestamp.as_ref())
            }
            AlterTableChange::Rename { if_exists, columns } => {
                formatter.write_str("RENAME ")?;
                when(formatter, *if_exists, "IF EXISTS ")?;
                separated(formatter, pairs(columns, " TO "), " AND ")
            }
            AlterTableChange::DropCompactStorage => formatter.write_str("DROP COMPACT STORAGE"),
            AlterTableChange::Options(properties) => clause(formatter, "WITH ", properties),
            AlterTableChange::RowExpiry(Some(column)) => write!(formatter, "TTL {column}"),
            AlterTableChange::RowExpiry(None) => formatter.write_str("TTL NULL"),
        }
    }
}

impl Display for DropTable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP TABLE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)
    }
}

impl Display for CreateMaterializedView {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE MATERIALIZED VIEW ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{} AS SELECT {} FROM {}", self.name, self.selection, self.base_table)?;
        optional(formatter, " WHERE ", self.where_clause.as_ref())?;
        write!(formatter, " {}", self.primary_key)?;
        clause(formatter, " WITH ", &self.options)
    }
}

impl Display for AlterMaterializedView {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ALTER MATERIALIZED VIEW ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        clause(formatter, " WITH ", &self.properties)
    }
}

impl Display for DropMaterializedView {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP MATERIALIZED VIEW ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)
    }
}
