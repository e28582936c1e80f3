//! Protobuf's wire format, by the rules of its upb implementation, as protobuf 7 has it: what upb
//! rejects is malformed here.
//!
//! Source: `upb/wire/reader.h` and `upb/wire/decode.c`.

/// The bytes are not valid protobuf. Where and why is for the caller to say: protobuf itself says
/// no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

pub type Result<T> = std::result::Result<T, Malformed>;

pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const LEN: u8 = 2;
pub const START_GROUP: u8 = 3;
pub const END_GROUP: u8 = 4;
pub const FIXED32: u8 = 5;

/// How deep messages and groups may nest.
pub const MAX_DEPTH: u32 = 100;

/// A field's number and wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub field: u32,
    pub wire_type: u8,
}

impl Tag {
    /// Whether this is the length-delimited field of this number.
    pub fn is_len(self, field: u32) -> bool {
        self == Tag { field, wire_type: LEN }
    }
}

/// Reads one message's bytes from front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    fn varint_of(&mut self, max_bytes: usize) -> Result<u64> {
        let mut value = 0u64;
        for (index, &byte) in self.bytes.iter().take(max_bytes).enumerate() {
            // In the tenth byte all bits but the lowest fall off, as in upb.
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.bytes = &self.bytes[index + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub fn varint(&mut self) -> Result<u64> {
        self.varint_of(10)
    }

    pub fn tag(&mut self) -> Result<Tag> {
        let tag = self.any_tag()?;
        if tag.field == 0 { Err(Malformed) } else { Ok(tag) }
    }

    /// A tag whose field's number may be 0.
    fn any_tag(&mut self) -> Result<Tag> {
        let value = u32::try_from(self.varint_of(5)?).map_err(|_| Malformed)?;
        Ok(Tag { field: value >> 3, wire_type: (value & 7) as u8 })
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub fn delimited(&mut self) -> Result<&'a [u8]> {
        let len = self.varint_of(5)?;
        if len > i32::MAX as u64 {
            return Err(Malformed);
        }
        self.take(len as usize)
    }

    pub fn fixed32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Skip the value of an unknown field inside a message at nesting depth `depth` (0 is the
    /// outermost).
    pub fn skip(&mut self, tag: Tag, depth: u32) -> Result<()> {
        match tag.wire_type {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            LEN => self.delimited().map(drop),
            FIXED32 => self.take(4).map(drop),
            START_GROUP => self.skip_group(tag.field, depth + 1),
            _ => Err(Malformed),
        }
    }

    fn skip_group(&mut self, field: u32, depth: u32) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Malformed);
        }
        loop {
            // In groups, upb does not look at the number.
            let tag = self.any_tag()?;
            if tag.wire_type == END_GROUP {
                return if tag.field == field { Ok(()) } else { Err(Malformed) };
            }
            self.skip(tag, depth)?;
        }
    }
}

/// The top bit of each byte: that a varint continues.
pub const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// The value of the varint whose bytes are the low ones of `word`, of which the continuation bits
/// are still set or not.
#[inline]
pub fn squeeze(word: u64) -> u64 {
    let x = word & 0x7f7f_7f7f_7f7f_7f7f;
    let x = (x & 0x007f_007f_007f_007f) | ((x & 0x7f00_7f00_7f00_7f00) >> 1);
    let x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x3fff_0000_3fff_0000) >> 2);
    (x & 0x0fff_ffff) | ((x & 0x0fff_ffff_0000_0000) >> 4)
}

/// The reverse: 7 bits of `value`, of which only those below 2^56 count, in each byte.
#[inline]
pub fn spread(value: u64) -> u64 {
    let x = (value & 0x0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let x = (x & 0x0000_3fff_0000_3fff) | ((x & 0x0fff_c000_0fff_c000) << 2);
    (x & 0x007f_007f_007f_007f) | ((x & 0x3f80_3f80_3f80_3f80) << 1)
}

/// The ninth byte of a varint and the tenth, which is zero where it has only nine.
#[inline]
pub fn last_two(value: u64) -> [u8; 2] {
    // The top bit is all that the tenth holds, and says that the ninth continues.
    let high = (value >> 56) as u8;
    [high, high >> 7]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squeezes_eight_bytes() {
        // 0x96 0x01 is 150 in protobuf's own documentation.
        assert_eq!(squeeze(0x0196), 150);
        assert_eq!(squeeze(0x7f), 127);
        assert_eq!(spread(150), 0x0116);
        assert_eq!(spread((1 << 56) - 1), 0x7f7f_7f7f_7f7f_7f7f);
        assert_eq!(squeeze(0x7fff_ffff_ffff_ffff), (1 << 56) - 1);
    }

    #[test]
    fn reads_varints_as_upb_does() {
        assert_eq!(Reader::new(&[0x96, 0x01]).varint(), Ok(150));
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), Ok(0));
        assert_eq!(Reader::new(&[0xff; 10]).varint(), Err(Malformed));
        let mut long = [0xff; 10];
        long[9] = 0x7f;
        assert_eq!(Reader::new(&long).varint(), Ok(u64::MAX));
        assert_eq!(Reader::new(&[0x80]).varint(), Err(Malformed));
    }
}
