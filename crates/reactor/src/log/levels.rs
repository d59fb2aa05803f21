//! Which lines of the log are written: a level for all modules, and levels of single modules.
//!
//! A module's level holds for the modules inside of it, unless one of them has its own. A line that is left
//! out costs one load while no module has a level that writes more.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Level;

/// The level of modules that have none of their own.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
/// The highest of all levels: no module writes lines above it.
static HIGHEST: AtomicU8 = AtomicU8::new(Level::Info as u8);
/// Modules with levels of their own.
static MODULES: RwLock<Vec<(String, Level)>> = RwLock::new(Vec::new());

/// Writes lines of `level` and below from now on, except of modules with levels of their own.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    find_highest(&read());
}

/// Writes lines of `level` and below from now on, of all modules.
pub fn set_all(level: Level) {
    change().clear();
    set_level(level);
}

/// Writes lines of `level` and below of a module, such as `storage::flush`, and of those inside of it.
pub fn set_level_of(module: &str, level: Level) {
    let mut modules = change();
    modules.retain(|(name, _)| name != module);
    modules.push((module.to_owned(), level));
    // The innermost module is found first.
    modules.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    find_highest(&modules);
}

/// The level of a module; of all that have none of their own if `module` is `None`.
pub fn level_of(module: Option<&str>) -> Level {
    let of_all = level(LEVEL.load(Ordering::Relaxed));
    module.and_then(|module| own(&read(), module)).unwrap_or(of_all)
}

/// Whether some module writes lines of `level`.
#[inline]
pub fn enabled(level: Level) -> bool {
    level as u8 <= HIGHEST.load(Ordering::Relaxed)
}

/// Whether the module writes lines of `level`.
pub(super) fn enabled_in(module: &str, level: Level) -> bool {
    level <= level_of(Some(module))
}

/// The level of the innermost module around `module` that has one.
fn own(modules: &[(String, Level)], module: &str) -> Option<Level> {
    let is_in = |name: &str| {
        module.strip_prefix(name).is_some_and(|inner| inner.is_empty() || inner.starts_with("::"))
    };
    modules.iter().find(|(name, _)| is_in(name)).map(|(_, level)| *level)
}

fn find_highest(modules: &[(String, Level)]) {
    let of_modules = modules.iter().map(|(_, level)| *level as u8);
    let highest = of_modules.chain([LEVEL.load(Ordering::Relaxed)]).max();
    HIGHEST.store(highest.unwrap_or(Level::Debug as u8), Ordering::Relaxed);
}

fn level(number: u8) -> Level {
    [Level::Error, Level::Warn, Level::Info]
        .into_iter()
        .find(|level| *level as u8 == number)
        .unwrap_or(Level::Debug)
}

fn read() -> RwLockReadGuard<'static, Vec<(String, Level)>> {
    MODULES.read().unwrap_or_else(PoisonError::into_inner)
}

fn change() -> RwLockWriteGuard<'static, Vec<(String, Level)>> {
    MODULES.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_the_level_of_the_innermost_one_around_it_that_has_one() {
        // No other test of the process depends on the levels.
        set_all(Level::Info);
        set_level_of("storage", Level::Warn);
        set_level_of("storage::flush", Level::Debug);
        for (module, expected) in [
            ("storage", Level::Warn),
            ("storage::cache::learn", Level::Warn),
            ("storage::flush", Level::Debug),
            ("storage::flush::output", Level::Debug),
            ("storage::flushing", Level::Warn),
            ("storages", Level::Info),
            ("query", Level::Info),
        ] {
            assert_eq!(level_of(Some(module)), expected, "{module}");
            assert_eq!(enabled_in(module, Level::Debug), expected == Level::Debug, "{module}");
        }
        assert!(enabled(Level::Debug) && level_of(None) == Level::Info);
        set_level_of("storage::flush", Level::Error);
        assert!(!enabled(Level::Debug) && !enabled_in("storage::flush", Level::Warn));
        set_level(Level::Debug);
        assert_eq!((level_of(Some("storage")), level_of(Some("query"))), (Level::Warn, Level::Debug));
        set_all(Level::Info);
        assert_eq!((level_of(Some("storage")), enabled(Level::Debug)), (Level::Info, false));
    }
}
