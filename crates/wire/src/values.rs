//! Bound values and the protocol's maps, read in place from a request.
//!
//! A list is walked once when its request is decoded, so every length in it is known to fit; iterating it
//! later cannot fail and costs no memory. `request` builds these, the statement executor consumes them.

use crate::protocol_error::ProtocolError;
use crate::reader::Reader;
use crate::version::ProtocolVersion;

/// One bound value (native_protocol_v5.spec §3 `[value]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// Null: as an assignment it deletes.
    Null,
    /// Not set: as an assignment it changes nothing. Never in version 3.
    Unset,
    /// The serialised value.
    Bytes(&'a [u8]),
}

impl<'a> ValueRef<'a> {
    /// The serialised value; `None` for null and for unset.
    pub const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Null | Self::Unset => None,
        }
    }
}

/// The values of a statement, in the order sent.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    version: ProtocolVersion,
    count: u16,
    named: bool,
    encoded: &'a [u8],
}

impl<'a> Values<'a> {
    /// No values at all.
    pub const fn empty(version: ProtocolVersion) -> Self {
        Self { version, count: 0, named: false, encoded: &[] }
    }

    /// Values by position from how a request carries them: their number, then each with its length.
    ///
    /// # Errors
    /// [`ProtocolError`] where the bytes end before.
    pub fn decode(encoded: &'a [u8], version: ProtocolVersion) -> Result<Self, ProtocolError> {
        Self::read(&mut Reader::new(encoded), version, false)
    }

    #[inline]
    pub(crate) fn read(
        reader: &mut Reader<'a>,
        version: ProtocolVersion,
        named: bool,
    ) -> Result<Self, ProtocolError> {
        let count = reader.short()?;
        if !named && let Some(encoded) = reader.skip_bytes(count) {
            return Ok(Self { version, count, named, encoded });
        }
        let encoded = reader.span(|reader| {
            for _ in 0..count {
                if named {
                    reader.string()?;
                }
                reader.value(version)?;
            }
            Ok(())
        })?;
        Ok(Self { version, count, named: named && count > 0, encoded })
    }

    /// As [`Values::read`]; each value is given to `take` on the way, unless values come with names.
    #[inline]
    pub(crate) fn read_each(
        reader: &mut Reader<'a>,
        version: ProtocolVersion,
        named: bool,
        mut take: impl FnMut(ValueRef<'a>),
    ) -> Result<Self, ProtocolError> {
        if named {
            return Self::read(reader, version, named);
        }
        let count = reader.short()?;
        let encoded = reader.span(|reader| {
            for _ in 0..count {
                take(reader.value(version)?);
            }
            Ok(())
        })?;
        Ok(Self { version, count, named, encoded })
    }

    /// How many values there are.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether each value comes with the name of its bind marker.
    pub const fn is_named(&self) -> bool {
        self.named
    }

    /// The values in the order sent, each with its name when [`Self::is_named`] (`""` otherwise).
    pub fn iter(&self) -> ValuesIter<'a> {
        ValuesIter {
            reader: Reader::new(self.encoded),
            version: self.version,
            named: self.named,
            remaining: self.count,
        }
    }

    /// Gives the values to `take` in the order sent, without names.
    #[inline]
    pub fn for_each(&self, mut take: impl FnMut(ValueRef<'a>)) {
        if self.named {
            self.iter().for_each(|(_, value)| take(value));
            return;
        }
        // Known to be whole: a value without a name is its length and its bytes.
        let mut rest = self.encoded;
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let (value, behind) = match usize::try_from(length) {
                Ok(length) => match behind.split_at_checked(length) {
                    Some((bytes, behind)) => (ValueRef::Bytes(bytes), behind),
                    None => return,
                },
                Err(_) if length == -2 && self.version >= ProtocolVersion::V4 => (ValueRef::Unset, behind),
                Err(_) => (ValueRef::Null, behind),
            };
            take(value);
            rest = behind;
        }
    }

    /// The value bound to the marker `name`; names are compared as sent, the last of two equal names wins.
    pub fn by_name(&self, name: &str) -> Option<ValueRef<'a>> {
        if !self.named {
            return None;
        }
        self.iter().filter(|(candidate, _)| *candidate == name).last().map(|(_, value)| value)
    }
}

/// Iterates [`Values`].
#[derive(Debug, Clone)]
pub struct ValuesIter<'a> {
    reader: Reader<'a>,
    version: ProtocolVersion,
    named: bool,
    remaining: u16,
}

impl<'a> Iterator for ValuesIter<'a> {
    type Item = (&'a str, ValueRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The walk when the request was decoded proved that the reads below succeed.
        self.remaining = self.remaining.checked_sub(1)?;
        let name = if self.named { self.reader.string().ok()? } else { "" };
        Some((name, self.reader.value(self.version).ok()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.remaining), Some(usize::from(self.remaining)))
    }
}

impl ExactSizeIterator for ValuesIter<'_> {}

/// `[string map]`: pairs of strings.
#[derive(Debug, Clone, Copy)]
pub struct StringMap<'a> {
    count: u16,
    encoded: &'a [u8],
}

impl<'a> StringMap<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        let count = reader.short()?;
        let encoded = reader.span(|reader| {
            for _ in 0..count {
                reader.string()?;
                reader.string()?;
            }
            Ok(())
        })?;
        Ok(Self { count, encoded })
    }

    /// How many pairs were sent.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The pairs in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        (0..self.count).map_while(move |_| Some((reader.string().ok()?, reader.string().ok()?)))
    }

    /// The value of `key`, ASCII case ignored as Cassandra does for STARTUP; the last of equal keys wins.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.iter()
            .filter(|(candidate, _)| candidate.eq_ignore_ascii_case(key))
            .last()
            .map(|(_, value)| value)
    }
}

/// `[bytes map]`: the custom payload of a request or response.
#[derive(Debug, Clone, Copy)]
pub struct BytesMap<'a> {
    count: u16,
    encoded: &'a [u8],
}

impl<'a> BytesMap<'a> {
    /// A map without entries.
    pub const EMPTY: Self = Self { count: 0, encoded: &[] };

    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        let count = reader.short()?;
        let encoded = reader.span(|reader| {
            for _ in 0..count {
                reader.string()?;
                reader.bytes()?;
            }
            Ok(())
        })?;
        Ok(Self { count, encoded })
    }

    /// How many entries were sent.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries in the order sent; `None` is null.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let mut reader = Reader::new(self.encoded);
        (0..self.count).map_while(move |_| Some((reader.string().ok()?, reader.bytes().ok()?)))
    }
}
