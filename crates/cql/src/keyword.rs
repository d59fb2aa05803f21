//! The keywords of the grammar, and the rules which of them may serve as names.
//!
//! The classes are those of Cassandra 5.0's `Parser.g` (`basic_unreserved_keyword`, `native_type`,
//! `unreserved_keyword`); the grammar names (`K_FROM`) appear in error messages, which drivers' users see.
//! Invariant: `BY_SPELLING` is sorted and lower case (a test checks it). The lexer and every parser file use
//! it.

/// How far a keyword may serve as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeywordClass {
    /// Any name, of types and functions too.
    Basic,
    /// A native type's name: a name everywhere but for types.
    Native,
    /// A name of columns, tables and keyspaces, but of no function; of types only `key`.
    ColumnOnly,
    /// No name at all, only in quotes.
    Reserved,
}

macro_rules! keywords {
    ($($variant:ident $grammar:literal $class:ident),* $(,)?) => {
        /// A keyword of Cassandra 5.0's grammar.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Keyword { $($variant),* }

        impl Keyword {
            /// The keyword's name in the grammar, as error messages show it.
            pub(crate) const fn grammar_name(self) -> &'static str {
                match self { $(Keyword::$variant => $grammar),* }
            }

            /// How far it may serve as a name.
            pub(crate) const fn class(self) -> KeywordClass {
                match self { $(Keyword::$variant => KeywordClass::$class),* }
            }
        }
    };
}

keywords! {
    Access "K_ACCESS" Basic,
    Add "K_ADD" Reserved,
    Aggregate "K_AGGREGATE" Basic,
    Aggregates "K_AGGREGATES" Basic,
    All "K_ALL" Basic,
    Allow "K_ALLOW" Reserved,
    Alter "K_ALTER" Reserved,
    And "K_AND" Reserved,
    Ann "K_ANN" Basic,
    Apply "K_APPLY" Reserved,
    As "K_AS" Basic,
    Asc "K_ASC" Reserved,
    Ascii "K_ASCII" Native,
    Authorize "K_AUTHORIZE" Reserved,
    Batch "K_BATCH" Reserved,
    Begin "K_BEGIN" Reserved,
    Bigint "K_BIGINT" Native,
    Blob "K_BLOB" Native,
    Boolean "K_BOOLEAN" Native,
    By "K_BY" Reserved,
    Called "K_CALLED" Basic,
    Cast "K_CAST" ColumnOnly,
    Cidrs "K_CIDRS" Basic,
    Cluster "K_CLUSTER" Basic,
    Clustering "K_CLUSTERING" Basic,
    ColumnFamily "K_COLUMNFAMILY" Reserved,
    Compact "K_COMPACT" Basic,
    Contains "K_CONTAINS" Basic,
    Count "K_COUNT" ColumnOnly,
    Counter "K_COUNTER" Native,
    Create "K_CREATE" Reserved,
    Custom "K_CUSTOM" Basic,
    Datacenters "K_DATACENTERS" Basic,
    Date "K_DATE" Native,
    Decimal "K_DECIMAL" Native,
    Default "K_DEFAULT" Basic,
    Delete "K_DELETE" Reserved,
    Desc "K_DESC" Reserved,
    Describe "K_DESCRIBE" Reserved,
    Distinct "K_DISTINCT" ColumnOnly,
    Double "K_DOUBLE" Native,
    Drop "K_DROP" Reserved,
    Duration "K_DURATION" Native,
    Entries "K_ENTRIES" Reserved,
    Execute "K_EXECUTE" Reserved,
    Exists "K_EXISTS" Basic,
    Filtering "K_FILTERING" Basic,
    Finalfunc "K_FINALFUNC" Basic,
    Float "K_FLOAT" Native,
    From "K_FROM" Reserved,
    Frozen "K_FROZEN" Basic,
    Full "K_FULL" Reserved,
    Function "K_FUNCTION" Basic,
    Functions "K_FUNCTIONS" Basic,
    Grant "K_GRANT" Reserved,
    Group "K_GROUP" Basic,
    Hashed "K_HASHED" Basic,
    Identity "K_IDENTITY" Basic,
    If "K_IF" Reserved,
    In "K_IN" Reserved,
    Index "K_INDEX" Reserved,
    Inet "K_INET" Native,
    Infinity "K_POSITIVE_INFINITY" Reserved,
    Initcond "K_INITCOND" Basic,
    Input "K_INPUT" Basic,
    Insert "K_INSERT" Reserved,
    Int "K_INT" Native,
    Internals "K_INTERNALS" Basic,
    Into "K_INTO" Reserved,
    Is "K_IS" Reserved,
    Json "K_JSON" ColumnOnly,
    Key "K_KEY" ColumnOnly,
    Keys "K_KEYS" Basic,
    Keyspace "K_KEYSPACE" Reserved,
    Keyspaces "K_KEYSPACES" Basic,
    Language "K_LANGUAGE" Basic,
    Like "K_LIKE" Basic,
    Limit "K_LIMIT" Reserved,
    List "K_LIST" Basic,
    Login "K_LOGIN" Basic,
    Map "K_MAP" Basic,
    Masked "K_MASKED" Basic,
    Materialized "K_MATERIALIZED" Reserved,
    Maxwritetime "K_MAXWRITETIME" ColumnOnly,
    Mbean "K_MBEAN" Basic,
    Mbeans "K_MBEANS" Basic,
    Modify "K_MODIFY" Reserved,
    Nan "K_POSITIVE_NAN" Reserved,
    Nologin "K_NOLOGIN" Basic,
    Norecursive "K_NORECURSIVE" Reserved,
    Nosuperuser "K_NOSUPERUSER" Basic,
    Not "K_NOT" Reserved,
    Null "K_NULL" Reserved,
    Of "K_OF" Reserved,
    On "K_ON" Reserved,
    Only "K_ONLY" Basic,
    Options "K_OPTIONS" Basic,
    Or "K_OR" Reserved,
    Order "K_ORDER" Reserved,
    Partition "K_PARTITION" Basic,
    Password "K_PASSWORD" Basic,
    Per "K_PER" Basic,
    Permission "K_PERMISSION" Basic,
    Permissions "K_PERMISSIONS" Basic,
    Primary "K_PRIMARY" Reserved,
    Rename "K_RENAME" Reserved,
    Replace "K_REPLACE" Basic,
    Returns "K_RETURNS" Basic,
    Revoke "K_REVOKE" Reserved,
    Role "K_ROLE" Basic,
    Roles "K_ROLES" Basic,
    Schema "K_SCHEMA" Reserved,
    Select "K_SELECT" Reserved,
    SelectMasked "K_SELECT_MASKED" Basic,
    Set "K_SET" Reserved,
    Sfunc "K_SFUNC" Basic,
    Smallint "K_SMALLINT" Native,
    Static "K_STATIC" Basic,
    Storage "K_STORAGE" Basic,
    Stype "K_STYPE" Basic,
    Superuser "K_SUPERUSER" Basic,
    Tables "K_TABLES" Basic,
    Text "K_TEXT" Native,
    Time "K_TIME" Native,
    Timestamp "K_TIMESTAMP" Native,
    Timeuuid "K_TIMEUUID" Native,
    Tinyint "K_TINYINT" Native,
    To "K_TO" Reserved,
    Token "K_TOKEN" Reserved,
    Trigger "K_TRIGGER" Basic,
    Truncate "K_TRUNCATE" Reserved,
    Ttl "K_TTL" ColumnOnly,
    Tuple "K_TUPLE" Basic,
    Type "K_TYPE" Basic,
    Types "K_TYPES" Basic,
    Unlogged "K_UNLOGGED" Reserved,
    Unmask "K_UNMASK" Basic,
    Unset "K_UNSET" Basic,
    Update "K_UPDATE" Reserved,
    Use "K_USE" Reserved,
    User "K_USER" Basic,
    Users "K_USERS" Basic,
    Using "K_USING" Reserved,
    Uuid "K_UUID" Native,
    Values "K_VALUES" Basic,
    Varchar "K_VARCHAR" Native,
    Varint "K_VARINT" Native,
    Vector "K_VECTOR" Basic,
    View "K_VIEW" Reserved,
    Where "K_WHERE" Reserved,
    With "K_WITH" Reserved,
    Writetime "K_WRITETIME" ColumnOnly,
}

impl Keyword {
    /// The keyword spelt `word`, in any case.
    pub(crate) fn of(word: &str) -> Option<Self> {
        let mut folded = [0; KEY_BYTES];
        folded.get_mut(..word.len())?.copy_from_slice(word.as_bytes());
        folded.make_ascii_lowercase();
        let index = KEYS.binary_search(&u128::from_be_bytes(folded)).ok()?;
        Some(BY_SPELLING[index].1)
    }
}

/// Every keyword, in lower case, sorted.
pub fn spellings() -> impl Iterator<Item = &'static str> {
    BY_SPELLING.iter().map(|(spelling, _)| *spelling)
}

/// Bytes of a [`key`]; no spelling is longer.
const KEY_BYTES: usize = size_of::<u128>();

/// The spellings of [`BY_SPELLING`] as numbers: comparing those is a tenth of the work of comparing texts.
static KEYS: [u128; BY_SPELLING.len()] = {
    let mut keys = [0; BY_SPELLING.len()];
    let mut index = 0;
    while index < keys.len() {
        keys[index] = key(BY_SPELLING[index].0);
        index += 1;
    }
    keys
};

/// A spelling as a number. Numbers are ordered as their spellings are.
const fn key(spelling: &str) -> u128 {
    let mut padded = [0; KEY_BYTES];
    padded.split_at_mut(spelling.len()).0.copy_from_slice(spelling.as_bytes());
    u128::from_be_bytes(padded)
}

/// Every spelling, sorted.
const BY_SPELLING: &[(&str, Keyword)] = &[
    ("access", Keyword::Access),
    ("add", Keyword::Add),
    ("aggregate", Keyword::Aggregate),
    ("aggregates", Keyword::Aggregates),
    ("all", Keyword::All),
    ("allow", Keyword::Allow),
    ("alter", Keyword::Alter),
    ("and", Keyword::And),
    ("ann", Keyword::Ann),
    ("apply", Keyword::Apply),
    ("as", Keyword::As),
    ("asc", Keyword::Asc),
    ("ascii", Keyword::Ascii),
    ("authorize", Keyword::Authorize),
    ("batch", Keyword::Batch),
    ("begin", Keyword::Begin),
    ("bigint", Keyword::Bigint),
    ("blob", Keyword::Blob),
    ("boolean", Keyword::Boolean),
    ("by", Keyword::By),
    ("called", Keyword::Called),
    ("cast", Keyword::Cast),
    ("cidrs", Keyword::Cidrs),
    ("cluster", Keyword::Cluster),
    ("clustering", Keyword::Clustering),
    ("columnfamilies", Keyword::Tables),
    ("columnfamily", Keyword::ColumnFamily),
    ("compact", Keyword::Compact),
    ("contains", Keyword::Contains),
    ("count", Keyword::Count),
    ("counter", Keyword::Counter),
    ("create", Keyword::Create),
    ("custom", Keyword::Custom),
    ("datacenters", Keyword::Datacenters),
    ("date", Keyword::Date),
    ("decimal", Keyword::Decimal),
    ("default", Keyword::Default),
    ("delete", Keyword::Delete),
    ("desc", Keyword::Desc),
    ("describe", Keyword::Describe),
    ("distinct", Keyword::Distinct),
    ("double", Keyword::Double),
    ("drop", Keyword::Drop),
    ("duration", Keyword::Duration),
    ("entries", Keyword::Entries),
    ("execute", Keyword::Execute),
    ("exists", Keyword::Exists),
    ("filtering", Keyword::Filtering),
    ("finalfunc", Keyword::Finalfunc),
    ("float", Keyword::Float),
    ("from", Keyword::From),
    ("frozen", Keyword::Frozen),
    ("full", Keyword::Full),
    ("function", Keyword::Function),
    ("functions", Keyword::Functions),
    ("grant", Keyword::Grant),
    ("group", Keyword::Group),
    ("hashed", Keyword::Hashed),
    ("identity", Keyword::Identity),
    ("if", Keyword::If),
    ("in", Keyword::In),
    ("index", Keyword::Index),
    ("inet", Keyword::Inet),
    ("infinity", Keyword::Infinity),
    ("initcond", Keyword::Initcond),
    ("input", Keyword::Input),
    ("insert", Keyword::Insert),
    ("int", Keyword::Int),
    ("internals", Keyword::Internals),
    ("into", Keyword::Into),
    ("is", Keyword::Is),
    ("json", Keyword::Json),
    ("key", Keyword::Key),
    ("keys", Keyword::Keys),
    ("keyspace", Keyword::Keyspace),
    ("keyspaces", Keyword::Keyspaces),
    ("language", Keyword::Language),
    ("like", Keyword::Like),
    ("limit", Keyword::Limit),
    ("list", Keyword::List),
    ("login", Keyword::Login),
    ("map", Keyword::Map),
    ("masked", Keyword::Masked),
    ("materialized", Keyword::Materialized),
    ("maxwritetime", Keyword::Maxwritetime),
    ("mbean", Keyword::Mbean),
    ("mbeans", Keyword::Mbeans),
    ("modify", Keyword::Modify),
    ("nan", Keyword::Nan),
    ("nologin", Keyword::Nologin),
    ("norecursive", Keyword::Norecursive),
    ("nosuperuser", Keyword::Nosuperuser),
    ("not", Keyword::Not),
    ("null", Keyword::Null),
    ("of", Keyword::Of),
    ("on", Keyword::On),
    ("only", Keyword::Only),
    ("options", Keyword::Options),
    ("or", Keyword::Or),
    ("order", Keyword::Order),
    ("partition", Keyword::Partition),
    ("password", Keyword::Password),
    ("per", Keyword::Per),
    ("permission", Keyword::Permission),
    ("permissions", Keyword::Permissions),
    ("primary", Keyword::Primary),
    ("rename", Keyword::Rename),
    ("replace", Keyword::Replace),
    ("returns", Keyword::Returns),
    ("revoke", Keyword::Revoke),
    ("role", Keyword::Role),
    ("roles", Keyword::Roles),
    ("schema", Keyword::Schema),
    ("select", Keyword::Select),
    ("select_masked", Keyword::SelectMasked),
    ("set", Keyword::Set),
    ("sfunc", Keyword::Sfunc),
    ("smallint", Keyword::Smallint),
    ("static", Keyword::Static),
    ("storage", Keyword::Storage),
    ("stype", Keyword::Stype),
    ("superuser", Keyword::Superuser),
    ("table", Keyword::ColumnFamily),
    ("tables", Keyword::Tables),
    ("text", Keyword::Text),
    ("time", Keyword::Time),
    ("timestamp", Keyword::Timestamp),
    ("timeuuid", Keyword::Timeuuid),
    ("tinyint", Keyword::Tinyint),
    ("to", Keyword::To),
    ("token", Keyword::Token),
    ("trigger", Keyword::Trigger),
    ("truncate", Keyword::Truncate),
    ("ttl", Keyword::Ttl),
    ("tuple", Keyword::Tuple),
    ("type", Keyword::Type),
    ("types", Keyword::Types),
    ("unlogged", Keyword::Unlogged),
    ("unmask", Keyword::Unmask),
    ("unset", Keyword::Unset),
    ("update", Keyword::Update),
    ("use", Keyword::Use),
    ("user", Keyword::User),
    ("users", Keyword::Users),
    ("using", Keyword::Using),
    ("uuid", Keyword::Uuid),
    ("values", Keyword::Values),
    ("varchar", Keyword::Varchar),
    ("varint", Keyword::Varint),
    ("vector", Keyword::Vector),
    ("view", Keyword::View),
    ("where", Keyword::Where),
    ("with", Keyword::With),
    ("writetime", Keyword::Writetime),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_sorted_and_folded() {
        assert!(BY_SPELLING.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (spelling, keyword) in BY_SPELLING {
            assert_eq!(spelling.to_ascii_lowercase(), *spelling);
            assert_eq!(Keyword::of(&spelling.to_ascii_uppercase()), Some(*keyword));
        }
    }

    #[test]
    fn reserved_words_are_the_public_list() {
        for (spelling, keyword) in BY_SPELLING {
            let reserved = keyword.class() == KeywordClass::Reserved;
            assert_eq!(reserved, crate::reserved::is_reserved(spelling), "{spelling}");
        }
    }
}
