//! Statements that change the schema, and USE and DESCRIBE.
//!
//! Each node keeps the written parts, in order; `query` checks whether options exist and keys make sense.
//! Invariant: vectors described as "at least one" are never empty if they came from text.

use crate::ast::{
    Constant, Direction, FunctionCall, Ident, QualifiedName, Selection, Term, TypeName, WhereClause,
};

/// `name = value` in a WITH clause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Property {
    /// The option's name.
    pub name: Ident,
    /// Its value.
    pub value: PropertyValue,
}

/// The value of a [`Property`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PropertyValue {
    /// A literal.
    Constant(Constant),
    /// A bare keyword, as written, e.g. `caching = all`.
    Keyword(String),
    /// `{'key': value, …}`, possibly empty; keys are unique (by text).
    Map(Vec<(Constant, PropertyItem)>),
}

/// The value of one entry of a [`PropertyValue::Map`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PropertyItem {
    /// A literal.
    Constant(Constant),
    /// `['rack1', 'rack2']` (ScyllaDB's rack lists), possibly empty.
    List(Vec<Constant>),
}

/// `USE keyspace`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Use {
    /// The keyspace the session switches to.
    pub keyspace: Ident,
}

/// `CREATE KEYSPACE [IF NOT EXISTS] name WITH …`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateKeyspace {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The keyspace.
    pub name: Ident,
    /// WITH, at least one; names are unique.
    pub properties: Vec<Property>,
}

/// `ALTER KEYSPACE [IF EXISTS] name WITH …`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterKeyspace {
    /// IF EXISTS
    pub if_exists: bool,
    /// The keyspace.
    pub name: Ident,
    /// WITH, at least one; names are unique.
    pub properties: Vec<Property>,
}

/// `DROP KEYSPACE [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropKeyspace {
    /// IF EXISTS
    pub if_exists: bool,
    /// The keyspace.
    pub name: Ident,
}

/// `CREATE TABLE [IF NOT EXISTS] name (elements) [WITH options]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateTable {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The table.
    pub name: QualifiedName,
    /// Columns and PRIMARY KEY clauses in the order written, at least one.
    pub elements: Vec<TableElement>,
    /// WITH, possibly empty.
    pub options: Vec<TableOption>,
}

impl CreateTable {
    /// The columns, in the order written.
    pub fn columns(&self) -> impl Iterator<Item = &ColumnDefinition> {
        self.elements.iter().filter_map(|element| match element {
            TableElement::Column(column) => Some(column),
            TableElement::PrimaryKey(_) => None,
        })
    }

    /// The PRIMARY KEY clauses, including those on a column (`a int PRIMARY KEY`), in the order written. A
    /// valid table has exactly one; the grammar does not require it.
    pub fn primary_keys(&self) -> impl Iterator<Item = PrimaryKey> {
        self.elements.iter().filter_map(|element| match element {
            TableElement::Column(column) if column.is_primary_key => {
                Some(PrimaryKey { partition: vec![column.name.clone()], clustering: Vec::new() })
            }
            TableElement::Column(_) => None,
            TableElement::PrimaryKey(key) => Some(key.clone()),
        })
    }
}

/// One item between the parentheses of CREATE TABLE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TableElement {
    /// A column.
    Column(ColumnDefinition),
    /// `PRIMARY KEY (…)`
    PrimaryKey(PrimaryKey),
}

/// `name type [STATIC] [TTL] [MASKED WITH …] [PRIMARY KEY]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnDefinition {
    /// The column.
    pub name: Ident,
    /// Its type.
    pub type_name: TypeName,
    /// STATIC
    pub is_static: bool,
    /// `TTL` (ScyllaDB): the column holds the row's expiry time.
    pub is_row_expiry: bool,
    /// MASKED WITH
    pub mask: Option<ColumnMask>,
    /// PRIMARY KEY on the column itself; always false in ALTER TABLE.
    pub is_primary_key: bool,
}

/// `PRIMARY KEY ((partition, …), clustering, …)`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrimaryKey {
    /// The partition key's columns, at least one.
    pub partition: Vec<Ident>,
    /// The clustering columns, possibly none.
    pub clustering: Vec<Ident>,
}

/// `MASKED WITH …`: the replacement that a reader without the UNMASK permission sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ColumnMask {
    /// `MASKED WITH DEFAULT`
    Default,
    /// `MASKED WITH function(arguments)`; the masked column is the implied first argument.
    Function(FunctionCall),
}

/// One item of the WITH clause of a table or view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TableOption {
    /// `name = value`
    Property(Property),
    /// `COMPACT STORAGE`
    CompactStorage,
    /// `CLUSTERING ORDER BY (column ASC|DESC, …)`, at least one.
    ClusteringOrder(Vec<(Ident, Direction)>),
}

/// `CREATE TABLE [IF NOT EXISTS] name LIKE source [WITH options]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateTableLike {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The new table.
    pub name: QualifiedName,
    /// The table whose columns are copied.
    pub source: QualifiedName,
    /// WITH, possibly empty.
    pub options: Vec<CopyOption>,
}

/// One item of the WITH clause of CREATE TABLE LIKE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CopyOption {
    /// `name = value`: overrides the source's option.
    Property(Property),
    /// A bare word that asks for more to be copied, e.g. `INDEXES`.
    Include(Ident),
}

/// `ALTER TABLE [IF EXISTS] name change`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterTable {
    /// IF EXISTS
    pub if_exists: bool,
    /// The table.
    pub name: QualifiedName,
    /// The change.
    pub change: AlterTableChange,
}

/// The changes of an ALTER TABLE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlterTableChange {
    /// `ALTER column TYPE type` (refused by the schema since Cassandra 3.10, but it parses)
    ColumnType {
        /// The column.
        column: Ident,
        /// The new type.
        type_name: TypeName,
    },
    /// `ALTER [IF EXISTS] column MASKED WITH …` or `… DROP MASKED`
    ColumnMask {
        /// IF EXISTS
        if_exists: bool,
        /// The column.
        column: Ident,
        /// The new mask; `None` for DROP MASKED.
        mask: Option<ColumnMask>,
    },
    /// `ADD [IF NOT EXISTS] column type …` or `ADD (…, …)`
    Add {
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// The new columns, at least one.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP [IF EXISTS] column` or `DROP (…, …)`
    Drop {
        /// IF EXISTS
        if_exists: bool,
        /// The columns, at least one.
        columns: Vec<Ident>,
        /// `USING TIMESTAMP n`: microseconds, as written (digits, optional minus).
        timestamp: Option<String>,
    },
    /// `RENAME [IF EXISTS] a TO b AND …`
    Rename {
        /// IF EXISTS
        if_exists: bool,
        /// From and to, at least one pair.
        columns: Vec<(Ident, Ident)>,
    },
    /// `DROP COMPACT STORAGE`
    DropCompactStorage,
    /// `WITH …`, at least one; names are unique.
    Options(Vec<Property>),
    /// `TTL column` or `TTL NULL` (ScyllaDB): which column holds the row's expiry time.
    RowExpiry(Option<Ident>),
}

/// `DROP TABLE [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropTable {
    /// IF EXISTS
    pub if_exists: bool,
    /// The table.
    pub name: QualifiedName,
}

/// `CREATE TYPE [IF NOT EXISTS] name (field type, …)`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateType {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// Its fields, at least one.
    pub fields: Vec<(Ident, TypeName)>,
}

/// `ALTER TYPE [IF EXISTS] name change`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterType {
    /// IF EXISTS
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// The change.
    pub change: AlterTypeChange,
}

/// The changes of an ALTER TYPE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AlterTypeChange {
    /// `ALTER field TYPE type`
    FieldType {
        /// The field.
        field: Ident,
        /// The new type.
        type_name: TypeName,
    },
    /// `ADD [IF NOT EXISTS] field type`
    Add {
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// The new field.
        field: Ident,
        /// Its type.
        type_name: TypeName,
    },
    /// `RENAME [IF EXISTS] a TO b AND …`
    Rename {
        /// IF EXISTS
        if_exists: bool,
        /// From and to, at least one pair.
        fields: Vec<(Ident, Ident)>,
    },
}

/// `DROP TYPE [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropType {
    /// IF EXISTS
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
}

/// `CREATE [CUSTOM] INDEX [IF NOT EXISTS] [name] ON table (targets) [USING 'class'] [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateIndex {
    /// CUSTOM
    pub custom: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The index's name; `None` requests a generated one.
    pub name: Option<Ident>,
    /// The table.
    pub table: QualifiedName,
    /// The indexed expressions, possibly none (some custom indexes).
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`
    pub class: Option<String>,
    /// WITH, possibly empty; names are unique.
    pub properties: Vec<Property>,
}

/// One thing an index covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IndexTarget {
    /// `column`
    Column(Ident),
    /// `VALUES(column)`
    Values(Ident),
    /// `KEYS(column)`
    Keys(Ident),
    /// `ENTRIES(column)`
    Entries(Ident),
    /// `FULL(column)`
    Full(Ident),
    /// `(a, b)` (ScyllaDB): the base table's partition key in front, which makes the index local; at least
    /// one.
    PartitionKey(Vec<Ident>),
}

/// `DROP INDEX [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropIndex {
    /// IF EXISTS
    pub if_exists: bool,
    /// The index.
    pub name: QualifiedName,
}

/// `CREATE MATERIALIZED VIEW [IF NOT EXISTS] name AS SELECT … PRIMARY KEY (…) [WITH …]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateMaterializedView {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// The selected columns of the base table.
    pub selection: Selection,
    /// The base table.
    pub base_table: QualifiedName,
    /// WHERE; usually `c IS NOT NULL` for each key column.
    pub where_clause: Option<WhereClause>,
    /// The view's own key.
    pub primary_key: PrimaryKey,
    /// WITH, possibly empty.
    pub options: Vec<TableOption>,
}

/// `ALTER MATERIALIZED VIEW [IF EXISTS] name WITH …`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AlterMaterializedView {
    /// IF EXISTS
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// WITH, at least one; names are unique.
    pub properties: Vec<Property>,
}

/// `DROP MATERIALIZED VIEW [IF EXISTS] name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropMaterializedView {
    /// IF EXISTS
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
}

/// `CREATE [OR REPLACE] FUNCTION …`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateFunction {
    /// OR REPLACE
    pub or_replace: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The function.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<(Ident, TypeName)>,
    /// `CALLED ON NULL INPUT` (true) or `RETURNS NULL ON NULL INPUT` (false)
    pub called_on_null_input: bool,
    /// The type it returns.
    pub returns: TypeName,
    /// LANGUAGE, lower case.
    pub language: Ident,
    /// The source text.
    pub body: String,
}

/// `DROP FUNCTION [IF EXISTS] name[(types)]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropFunction {
    /// IF EXISTS
    pub if_exists: bool,
    /// The function.
    pub name: QualifiedName,
    /// Selects the overload; `None` if the text has no parentheses.
    pub argument_types: Option<Vec<TypeName>>,
}

/// `CREATE [OR REPLACE] AGGREGATE …`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateAggregate {
    /// OR REPLACE
    pub or_replace: bool,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The aggregate.
    pub name: QualifiedName,
    /// Its argument types.
    pub argument_types: Vec<TypeName>,
    /// SFUNC
    pub state_function: Ident,
    /// STYPE
    pub state_type: TypeName,
    /// REDUCEFUNC (ScyllaDB): joins two partial states.
    pub reduce_function: Option<Ident>,
    /// FINALFUNC
    pub final_function: Option<Ident>,
    /// INITCOND
    pub initial_condition: Option<Term>,
}

/// `DROP AGGREGATE [IF EXISTS] name[(types)]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropAggregate {
    /// IF EXISTS
    pub if_exists: bool,
    /// The aggregate.
    pub name: QualifiedName,
    /// Selects the overload; `None` if the text has no parentheses.
    pub argument_types: Option<Vec<TypeName>>,
}

/// `CREATE TRIGGER [IF NOT EXISTS] name ON table USING 'class'`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CreateTrigger {
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// The trigger.
    pub name: Ident,
    /// The table.
    pub table: QualifiedName,
    /// The class.
    pub class: String,
}

/// `DROP TRIGGER [IF EXISTS] name ON table`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DropTrigger {
    /// IF EXISTS
    pub if_exists: bool,
    /// The trigger.
    pub name: Ident,
    /// The table.
    pub table: QualifiedName,
}

/// `DESCRIBE target [WITH INTERNALS [AND PASSWORDS]]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Describe {
    /// The target to describe.
    pub target: DescribeTarget,
    /// WITH INTERNALS
    pub internals: bool,
    /// AND PASSWORDS (ScyllaDB): hashes of role passwords too.
    pub passwords: bool,
}

/// The targets of DESCRIBE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DescribeTarget {
    /// `CLUSTER`
    Cluster,
    /// `[FULL] SCHEMA`
    Schema {
        /// FULL: system keyspaces too.
        full: bool,
    },
    /// `KEYSPACES`
    Keyspaces,
    /// `[ONLY] KEYSPACE [name]`
    Keyspace {
        /// ONLY: without its contents.
        only: bool,
        /// The keyspace; `None`: the session's.
        name: Option<Ident>,
    },
    /// `TABLES`
    Tables,
    /// `TABLE name`
    Table(QualifiedName),
    /// `INDEX name`
    Index(QualifiedName),
    /// `MATERIALIZED VIEW name`
    MaterializedView(QualifiedName),
    /// `TYPES`
    Types,
    /// `TYPE name`
    Type(QualifiedName),
    /// `FUNCTIONS`
    Functions,
    /// `FUNCTION name`
    Function(QualifiedName),
    /// `AGGREGATES`
    Aggregates,
    /// `AGGREGATE name`
    Aggregate(QualifiedName),
    /// `[keyspace.]name`: a keyspace, table, view or index, whichever exists.
    Anything(QualifiedName),
}
