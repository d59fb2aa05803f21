//! Several fuzz targets in one program: linking takes longer than compiling them.
//!
//! A program's `main.rs` lists its targets, each a module with a function `run`; `FUZZ_TARGET` names the one that
//! this run is about.

/// Makes a libFuzzer program of modules of those names.
#[macro_export]
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        static CHOSEN: std::sync::LazyLock<fn(&[u8])> = std::sync::LazyLock::new(|| {
            $crate::chosen(&[$((stringify!($name), $name::run as fn(&[u8]))),*])
        });

        libfuzzer_sys::fuzz_target!(|data: &[u8]| CHOSEN(data));
    };
}

/// The target that `FUZZ_TARGET` names.
///
/// # Panics
/// If it names none of `targets`.
pub fn chosen(targets: &[(&str, fn(&[u8]))]) -> fn(&[u8]) {
    let names: Vec<_> = targets.iter().map(|(name, _)| *name).collect();
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    match targets.iter().find(|(name, _)| *name == wanted) {
        Some((_, run)) => *run,
        None => panic!("FUZZ_TARGET is '{wanted}'; this program has {}", names.join(", ")),
    }
}
