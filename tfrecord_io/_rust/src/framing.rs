//! Record frames: u64 LE length, masked CRC of these 8 bytes, payload, masked CRC of the payload.
//!
//! Source: TensorFlow's `core/lib/io/record_writer.h`. No I/O, no allocation; lengths are believed
//! only after their CRC, and even then never lead to an allocation.

use crate::error::{Fault, FaultKind, Place, Result};

/// Bytes before a payload.
pub const HEADER: usize = 12;
/// Bytes of a frame beside its payload.
pub const OVERHEAD: usize = 16;

const MASK_DELTA: u32 = 0xa282_ead8;

/// CRC-32C of `data` as a frame holds it.
#[inline]
pub fn masked_crc(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data).rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The header and the trailer of a frame around `payload`.
#[inline]
pub fn header(payload_len: usize) -> [u8; HEADER] {
    let length = (payload_len as u64).to_le_bytes();
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&masked_crc(&length).to_le_bytes());
    header
}

#[inline]
fn u32_at(data: &[u8], pos: usize) -> u32 {
    u32::from_le_bytes(data[pos..pos + 4].try_into().expect("4 bytes"))
}

/// Where the next frame of a file stands, and how much of it must be there to go on.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    pub offset: u64,
    pub record: u64,
    pub needed: u64,
    pub max_record_bytes: u64,
}

impl Cursor {
    pub fn new(offset: u64, record: u64, max_record_bytes: u64) -> Self {
        Self { offset, record, needed: HEADER as u64, max_record_bytes }
    }

    pub fn seek(&mut self, offset: u64, record: u64) {
        *self = Self::new(offset, record, self.max_record_bytes);
    }

    pub fn place(&self) -> Place {
        Place::Record { offset: self.offset, record: self.record }
    }

    /// Forget what the last call found missing.
    pub fn begin(&mut self) {
        self.needed = HEADER as u64;
    }

    /// The length of the payload of the frame at `pos`, if the whole frame is there.
    #[inline]
    pub fn next_length(&mut self, data: &[u8], pos: usize) -> Result<Option<usize>> {
        let Some(header) = data[pos..].first_chunk::<HEADER>() else {
            self.needed = HEADER as u64;
            return Ok(None);
        };
        let (length, crc) = header.split_at(8);
        if masked_crc(length) != u32_at(crc, 0) {
            return Err(self.fault(
                FaultKind::Checksum,
                "the CRC of the record's length does not fit: the bytes are damaged here, or are not TFRecord",
            ));
        }
        let length = u64::from_le_bytes(length.try_into().expect("8 bytes"));
        if length > self.max_record_bytes {
            let what = format!(
                "the record says it has {length} bytes, max_record_bytes is {}; raise it if the file is to be trusted",
                self.max_record_bytes
            );
            return Err(Fault::boxed(FaultKind::Limit, what, self.place()));
        }
        // max_record_bytes is below 2^31, so this fits.
        let length = length as usize;
        if data.len() - pos < length + OVERHEAD {
            self.needed = (length + OVERHEAD) as u64;
            return Ok(None);
        }
        Ok(Some(length))
    }

    /// Hold the payload of the frame at `pos` to its CRC.
    #[inline]
    pub fn payload<'a>(&self, data: &'a [u8], pos: usize, length: usize) -> Result<&'a [u8]> {
        let payload = &data[pos + HEADER..pos + HEADER + length];
        if masked_crc(payload) != u32_at(data, pos + HEADER + length) {
            return Err(self.fault(
                FaultKind::Checksum,
                "the CRC of the record's payload does not fit: its bytes are damaged",
            ));
        }
        Ok(payload)
    }

    /// Go behind a frame.
    #[inline]
    pub fn advance(&mut self, length: usize) {
        self.offset += (length + OVERHEAD) as u64;
        self.record += 1;
        self.needed = HEADER as u64;
    }

    fn fault(&self, kind: FaultKind, what: &str) -> Box<Fault> {
        Fault::boxed(kind, what, self.place())
    }
}

/// Hop over the whole frames of `data[start..]` and return the bytes they take and their payload
/// lengths.
pub fn frames(
    data: &[u8],
    start: usize,
    cursor: &mut Cursor,
    check_payload: bool,
) -> Result<(usize, Vec<u64>)> {
    let mut pos = start;
    let mut lengths = Vec::new();
    while let Some(length) = cursor.next_length(data, pos)? {
        if check_payload {
            cursor.payload(data, pos, length)?;
        }
        lengths.push(length as u64);
        cursor.advance(length);
        pos += length + OVERHEAD;
    }
    Ok((pos - start, lengths))
}

/// The first position from `start` on at which a whole frame with two fitting CRCs stands.
pub fn find_frame(data: &[u8], start: usize) -> Option<usize> {
    let last = data.len().checked_sub(OVERHEAD)?;
    (start..=last).find(|&pos| {
        let length = u64::from_le_bytes(data[pos..pos + 8].try_into().expect("8 bytes"));
        // The cheap test first: most positions hold no plausible length.
        length <= (last - pos) as u64
            && masked_crc(&data[pos..pos + 8]) == u32_at(data, pos + 8)
            && masked_crc(&data[pos + HEADER..pos + HEADER + length as usize])
                == u32_at(data, pos + HEADER + length as usize)
    })
}
