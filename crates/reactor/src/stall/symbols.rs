//! Names of functions from the program's table of symbols, for processes with little memory.
//!
//! Debug information also knows inlined functions and lines, but to read it takes 60 MiB for a program of
//! the size of `ceto`, whatever is looked up: a unit's abbreviations are decoded before anything else, and
//! those of thousands of units add up. The table is read piece by piece and nothing of it is kept.
//!
//! Format: System V ABI, chapter 4 ("Object Files"), with 64 bits, little endian.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;

use backtrace::SymbolName;

/// Lengths of the file's header, of a section's and of a symbol.
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// `e_type` of a program whose addresses are those in its file.
const TYPE_EXEC: u16 = 2;
/// `sh_type` of the table of symbols.
const SECTION_SYMBOLS: u32 = 2;
/// `STT_FUNC`, in the low half of `st_info`.
const SYMBOL_FUNCTION: u8 = 2;
/// Symbols that are read at a time.
const SYMBOLS_AT_ONCE: usize = 2048;
/// Longest name that is read; a longer one is cut.
const NAME_BYTES_MAX: usize = 4096;

/// The running program's table of symbols.
pub(super) struct Symbols {
    file: File,
    /// Address in memory of the address 0 of the file.
    base: u64,
    /// Offset and length of the symbols, and offset of their names.
    table: (u64, u64),
    names: u64,
}

impl Symbols {
    /// Opens the table of the running program.
    ///
    /// # Errors
    /// Those of reading, and `InvalidData` for a program without such a table.
    pub(super) fn open() -> io::Result<Self> {
        let file = File::open("/proc/self/exe")?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let section = |number: u64| {
            let mut section = [0; SECTION_BYTES];
            let at = u64_at(&header, 40).saturating_add(number * SECTION_BYTES as u64);
            file.read_exact_at(&mut section, at).map(|()| section)
        };
        for number in 0..u64::from(u16_at(&header, 60)) {
            let symbols = section(number)?;
            if u32_at(&symbols, 4) == SECTION_SYMBOLS {
                let names = u64_at(&section(u32_at(&symbols, 40).into())?, 24);
                let base = if u16_at(&header, 16) == TYPE_EXEC { 0 } else { base()? };
                return Ok(Self { base, table: (u64_at(&symbols, 24), u64_at(&symbols, 32)), names, file });
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// The functions that `addresses` are in; `None` for one of no function of the program's own.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn functions(&self, addresses: &[usize]) -> io::Result<Vec<Option<String>>> {
        let mut at_names: Vec<Option<u32>> = vec![None; addresses.len()];
        let mut piece = [0; SYMBOLS_AT_ONCE * SYMBOL_BYTES];
        let (offset, length) = self.table;
        let mut read = 0;
        while read + SYMBOL_BYTES as u64 <= length {
            let bytes = piece.len().min(usize::try_from(length - read).unwrap_or(usize::MAX));
            let whole = bytes - bytes % SYMBOL_BYTES;
            self.file.read_exact_at(&mut piece[..whole], offset + read)?;
            read += whole as u64;
            for symbol in piece[..whole].chunks_exact(SYMBOL_BYTES) {
                if symbol[4] & 0xf != SYMBOL_FUNCTION {
                    continue;
                }
                let (start, bytes) = (self.base.wrapping_add(u64_at(symbol, 8)), u64_at(symbol, 16));
                for (address, name) in addresses.iter().zip(&mut at_names) {
                    if (*address as u64).wrapping_sub(start) < bytes {
                        *name = Some(u32_at(symbol, 0));
                    }
                }
            }
        }
        at_names.into_iter().map(|name| name.map(|at| self.name(at)).transpose()).collect()
    }

    fn name(&self, at: u32) -> io::Result<String> {
        let mut bytes = [0; NAME_BYTES_MAX];
        let read = self.file.read_at(&mut bytes, self.names + u64::from(at))?;
        let name = bytes[..read].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(format!("{:#}", SymbolName::new(name)))
    }
}

/// The function of a shared library that an address is in, as far as the library exports it.
pub(super) fn of_library(address: usize) -> Option<String> {
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: the address is only compared, and the answer goes to a local.
    let known = unsafe { libc::dladdr(ptr::without_provenance(address), &raw mut found) } != 0;
    if !known || found.dli_sname.is_null() {
        return None;
    }
    // SAFETY: a name in the table of a library that is loaded; libraries of the process are never unloaded.
    let name = unsafe { CStr::from_ptr(found.dli_sname) };
    Some(name.to_string_lossy().into_owned())
}

/// Where the running program begins in memory.
fn base() -> io::Result<u64> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    // address-address permissions offset device inode path
    let begins = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (range, offset) = (fields.next()?, fields.nth(1)?);
        let is_program = line.ends_with(program.to_str()?) && offset.bytes().all(|digit| digit == b'0');
        is_program.then(|| u64::from_str_radix(range.split('-').next()?, 16).ok()).flatten()
    });
    begins.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn named_by_the_table() -> usize {
        named_by_the_table as *const () as usize
    }

    #[test]
    fn the_table_names_functions_of_the_program_and_no_others() {
        let symbols = Symbols::open().expect("a test has a table of symbols");
        let names = symbols.functions(&[named_by_the_table() + 1, 0, libc::getpid as *const () as usize]);
        let [own, none, library] =
            <[_; 3]>::try_from(names.expect("readable")).expect("as many as asked for");
        assert!(own.as_deref().is_some_and(|name| name.ends_with("tests::named_by_the_table")), "{own:?}");
        assert_eq!((none, library), (None, None));
        // The library has it by two names.
        let library = of_library(libc::getpid as *const () as usize);
        assert!(library.as_deref().is_some_and(|name| name.contains("getpid")), "{library:?}");
        assert_eq!(of_library(0), None);
    }
}
