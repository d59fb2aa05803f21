//! Prints keyspaces, types, indexes, functions, aggregates, triggers, USE and DESCRIBE.

use std::fmt::{Display, Formatter, Result};

use super::{Quoted, clause, enclosed, optional, pairs, separated, when};
use crate::ast::{
    AlterKeyspace, AlterType, AlterTypeChange, CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace,
    CreateTrigger, CreateType, Describe, DescribeTarget, DropAggregate, DropFunction, DropIndex,
    DropKeyspace, DropTrigger, DropType, IndexTarget, Property, PropertyItem, PropertyValue, TypeName, Use,
};

impl Display for Property {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} = {}", self.name, self.value)
    }
}

impl Display for PropertyValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            PropertyValue::Constant(constant) => write!(formatter, "{constant}"),
            PropertyValue::Keyword(word) => formatter.write_str(word),
            PropertyValue::Map(entries) => enclosed(formatter, "{", pairs(entries, ": "), "}"),
        }
    }
}

impl Display for PropertyItem {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            PropertyItem::Constant(constant) => write!(formatter, "{constant}"),
            PropertyItem::List(constants) => enclosed(formatter, "[", constants, "]"),
        }
    }
}

impl Display for Use {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "USE {}", self.keyspace)
    }
}

impl Display for CreateKeyspace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE KEYSPACE ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        clause(formatter, " WITH ", &self.properties)
    }
}

impl Display for AlterKeyspace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ALTER KEYSPACE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        clause(formatter, " WITH ", &self.properties)
    }
}

impl Display for DropKeyspace {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP KEYSPACE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)
    }
}

impl Display for CreateType {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE TYPE ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{} ", self.name)?;
        enclosed(formatter, "(", pairs(&self.fields, " "), ")")
    }
}

impl Display for AlterType {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("ALTER TYPE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{} ", self.name)?;
        match &self.change {
            AlterTypeChange::FieldType { field, type_name } => {
                write!(formatter, "ALTER {field} TYPE {type_name}")
            }
            AlterTypeChange::Add { if_not_exists, field, type_name } => {
                formatter.write_str("ADD ")?;
                when(formatter, *if_not_exists, "IF NOT EXISTS ")?;
                write!(formatter, "{field} {type_name}")
            }
            AlterTypeChange::Rename { if_exists, fields } => {
                formatter.write_str("RENAME ")?;
                when(formatter, *if_exists, "IF EXISTS ")?;
                separated(formatter, pairs(fields, " TO "), " AND ")
            }
        }
    }
}

impl Display for DropType {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP TYPE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)
    }
}

impl Display for CreateIndex {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE ")?;
        when(formatter, self.custom, "CUSTOM ")?;
        formatter.write_str("INDEX ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        if let Some(name) = &self.name {
            write!(formatter, "{name} ")?;
        }
        write!(formatter, "ON {} ", self.table)?;
        enclosed(formatter, "(", &self.targets, ")")?;
        optional(formatter, " USING ", self.class.as_deref().map(Quoted))?;
        clause(formatter, " WITH ", &self.properties)
    }
}

impl Display for IndexTarget {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            IndexTarget::Column(column) => write!(formatter, "{column}"),
            IndexTarget::Values(column) => write!(formatter, "VALUES({column})"),
            IndexTarget::Keys(column) => write!(formatter, "KEYS({column})"),
            IndexTarget::Entries(column) => write!(formatter, "ENTRIES({column})"),
            IndexTarget::Full(column) => write!(formatter, "FULL({column})"),
            IndexTarget::PartitionKey(columns) => enclosed(formatter, "(", columns, ")"),
        }
    }
}

impl Display for DropIndex {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP INDEX ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)
    }
}

impl Display for CreateFunction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE ")?;
        when(formatter, self.or_replace, "OR REPLACE ")?;
        formatter.write_str("FUNCTION ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        enclosed(formatter, "(", pairs(&self.arguments, " "), ")")?;
        formatter.write_str(if self.called_on_null_input { " CALLED" } else { " RETURNS NULL" })?;
        write!(formatter, " ON NULL INPUT RETURNS {}", self.returns)?;
        // The grammar wants a bare word here.
        write!(formatter, " LANGUAGE {} AS {}", self.language.name, Quoted(&self.body))
    }
}

/// `(types)`, or nothing when no overload was named.
fn overload(formatter: &mut Formatter<'_>, types: Option<&Vec<TypeName>>) -> Result {
    match types {
        Some(types) => enclosed(formatter, "(", types, ")"),
        None => Ok(()),
    }
}

impl Display for DropFunction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP FUNCTION ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        overload(formatter, self.argument_types.as_ref())
    }
}

impl Display for CreateAggregate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE ")?;
        when(formatter, self.or_replace, "OR REPLACE ")?;
        formatter.write_str("AGGREGATE ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        enclosed(formatter, "(", &self.argument_types, ")")?;
        write!(formatter, " SFUNC {} STYPE {}", self.state_function, self.state_type)?;
        optional(formatter, " REDUCEFUNC ", self.reduce_function.as_ref())?;
        optional(formatter, " FINALFUNC ", self.final_function.as_ref())?;
        optional(formatter, " INITCOND ", self.initial_condition.as_ref())
    }
}

impl Display for DropAggregate {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP AGGREGATE ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{}", self.name)?;
        overload(formatter, self.argument_types.as_ref())
    }
}

impl Display for CreateTrigger {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("CREATE TRIGGER ")?;
        when(formatter, self.if_not_exists, "IF NOT EXISTS ")?;
        write!(formatter, "{} ON {} USING {}", self.name, self.table, Quoted(&self.class))
    }
}

impl Display for DropTrigger {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str("DROP TRIGGER ")?;
        when(formatter, self.if_exists, "IF EXISTS ")?;
        write!(formatter, "{} ON {}", self.name, self.table)
    }
}

impl Display for Describe {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "DESCRIBE {}", self.target)?;
        when(formatter, self.internals, " WITH INTERNALS")?;
        when(formatter, self.passwords, " AND PASSWORDS")
    }
}

impl Display for DescribeTarget {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            DescribeTarget::Cluster => formatter.write_str("CLUSTER"),
            DescribeTarget::Schema { full: true } => formatter.write_str("FULL SCHEMA"),
            DescribeTarget::Schema { full: false } => formatter.write_str("SCHEMA"),
            DescribeTarget::Keyspaces => formatter.write_str("KEYSPACES"),
            DescribeTarget::Keyspace { only, name } => {
                when(formatter, *only, "ONLY ")?;
                formatter.write_str("KEYSPACE")?;
                optional(formatter, " ", name.as_ref())
            }
            DescribeTarget::Tables => formatter.write_str("TABLES"),
            DescribeTarget::Table(name) => write!(formatter, "TABLE {name}"),
            DescribeTarget::Index(name) => write!(formatter, "INDEX {name}"),
            DescribeTarget::MaterializedView(name) => write!(formatter, "MATERIALIZED VIEW {name}"),
            DescribeTarget::Types => formatter.write_str("TYPES"),
            DescribeTarget::Type(name) => write!(formatter, "TYPE {name}"),
            DescribeTarget::Functions => formatter.write_str("FUNCTIONS"),
            DescribeTarget::Function(name) => write!(formatter, "FUNCTION {name}"),
            DescribeTarget::Aggregates => formatter.write_str("AGGREGATES"),
            DescribeTarget::Aggregate(name) => write!(formatter, "AGGREGATE {name}"),
            DescribeTarget::Anything(name) => write!(formatter, "{name}"),
        }
    }
}
