//! Values of each type, held to those of Cassandra's generators.

use super::*;

/// The factor by which cassandra-stress spreads the seeds of a sequence with its default settings.
const MULTIPLIER: i64 = 10_000_000_000_000_001;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sized(kind: Kind, name: &str, size: &str) -> Generator {
    let size = Some(Factory::parse(size).unwrap());
    Generator::new(kind, None, name, &Spread { size, ..Spread::default() })
}

fn first(generator: &mut Generator, seed: i64) -> Vec<u8> {
    let mut out = Vec::new();
    generator.set_seed(seed);
    generator.append(&mut out);
    out
}

/// Keys and columns as computed by the original's algorithm in Java, with commons-math 3.2 and Cassandra's
/// murmur hash.
#[test]
fn keys_and_columns_are_those_of_the_original() {
    let mut key = sized(Kind::HexBytes, "randomstrkey", "fixed(10)");
    let mut c0 = sized(Kind::Bytes, "randomstrC0", "fixed(34)");
    let mut c4 = sized(Kind::Bytes, "randomstrC4", "fixed(34)");
    let mut check = |number: i64, expected: [&str; 3]| {
        let bytes = first(&mut key, number.wrapping_mul(MULTIPLIER));
        assert_eq!(bytes, expected[0].as_bytes(), "{number}");
        let seed = key.child_seed(&bytes, 0);
        assert_eq!(hex(&first(&mut c0, seed)), expected[1], "{number}");
        assert_eq!(hex(&first(&mut c4, seed)), expected[2], "{number}");
    };
    check(
        1,
        [
            "708PK46680",
            "041c6a27dc0dcdfd65fec10f8598138934413aa47badd9942cd9987024c746219625",
            "ebd5f4254c7fcb5e2238874e926b08ac41d5876532fdd3601407f6115ceeb6f981b8",
        ],
    );
    check(
        2,
        [
            "N3O6LLK750",
            "17d84aa86b9125e87c0a8e6cf52d317e4ca8c1f5ff93f7fe29edad468b7c16f2a1fb",
            "08044b0c44f3868954400446a430e32eb09ae09d294550105fb35a9a69cf26528a5e",
        ],
    );
    check(
        4_060_000_001,
        [
            "279L29M651",
            "473abbe760428b9418ef4a79026b1a30cdeb973c506630c846c545e548ee5c93a848",
            "5ee3188457f8400529f614345a4d733e94ec7a33ea990abc93c2a7f5639c79a40646",
        ],
    );
    let mut long_key = sized(Kind::HexBytes, "randomstrkey", "fixed(20)");
    assert_eq!(first(&mut long_key, 7 * MULTIPLIER), b"100N41K3K00000001PN9");
}

/// Keys that cassandra-stress 3 named in its messages; it took seeds as they are, without spreading them.
#[test]
fn keys_that_the_original_printed_come_from_their_seeds() {
    let mut key = sized(Kind::HexBytes, "randomstrkey", "fixed(10)");
    assert_eq!(first(&mut key, 787_490), b"33P0670P20");
    assert_eq!(first(&mut key, 760_110), b"ON7MKPP361");
}

#[test]
fn sizes_are_drawn_and_long_values_go_through_the_reseeding() {
    let mut column = sized(Kind::Bytes, "randomstrC0", "uniform(250..400)");
    let value = hex(&first(&mut column, 99));
    assert_eq!(value.len(), 2 * 320);
    assert!(value.starts_with("2639b6c581bff35e518395078dc3551a64b0dd14628775fd446e77094d464245"));
    assert!(value.ends_with("783ff4ac735d88878ed5f512a717a8c382a9439c8b591c6a63e4e10729539054"));
    let mut name = Generator::new(Kind::Text, None, "seed for stressname", &Spread::default());
    assert_eq!(first(&mut name, 12_345), b"\"Q\x19\x1fqt_/");
}

#[test]
fn every_kind_gives_a_value_of_its_type() {
    let check = |ty: CqlType, length: std::ops::RangeInclusive<usize>| {
        let (kind, element) = Kind::of(&ty).unwrap();
        let mut generator = Generator::new(kind, element, "column", &Spread::default());
        for seed in [-1, 0, 1, i64::MAX, i64::MIN] {
            let value = first(&mut generator, seed);
            assert!(length.contains(&value.len()), "{ty:?}: {}", value.len());
            assert_eq!(value, first(&mut generator, seed), "{ty:?}");
            assert!(model::validate::validate(&ty, &value).is_ok(), "{ty:?}: {value:?}");
        }
    };
    check(CqlType::Text, 4..=8);
    check(CqlType::Bigint, 8..=8);
    check(CqlType::Blob, 4..=8);
    check(CqlType::Boolean, 1..=1);
    check(CqlType::Decimal, 5..=12);
    check(CqlType::Double, 8..=8);
    check(CqlType::Float, 4..=4);
    check(CqlType::Inet, 4..=4);
    check(CqlType::Int, 4..=4);
    check(CqlType::Varint, 1..=8);
    check(CqlType::Timestamp, 8..=8);
    check(CqlType::Uuid, 16..=16);
    check(CqlType::Timeuuid, 16..=16);
    check(CqlType::Tinyint, 1..=1);
    check(CqlType::Smallint, 2..=2);
    check(CqlType::Date, 4..=4);
}

#[test]
fn whole_numbers_of_any_length_come_back() {
    for number in [0, 1, -1, 127, 128, -128, -129, 255, 65_535, i64::MAX, i64::MIN] {
        let mut bytes = Vec::new();
        append_var_int(&mut bytes, number);
        assert_eq!(read_var_int(&bytes), number);
        assert!(bytes.len() == 1 || !matches!((bytes[0], bytes[1] >> 7), (0, 0) | (0xff, 1)), "{bytes:?}");
    }
}
