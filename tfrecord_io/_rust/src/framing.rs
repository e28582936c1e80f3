//! Record frames: u64 LE length, masked CRC of these 8 bytes, payload, masked CRC of the payload.
//!
//! Source: TensorFlow's `core/lib/io/record_writer.h`. No I/O, no allocation; lengths are believed
//! only after their CRC, and even then never lead to an allocation.

use crate::crc::{PartCrcs, masked_crc, masked_crc_of_length};
use crate::error::{Fault, FaultKind, Place, Result};
use crate::fetch::fetch_ahead;

/// Bytes before a payload.
pub const HEADER: usize = 12;
/// Bytes of a frame beside its payload.
pub const OVERHEAD: usize = 16;

/// Frames that are checked at a time should stay in the first cache.
const AHEAD_BYTES: usize = 32 * 1024;

/// Payloads that are checked one by one, whatever a search has checked already.
const SHORT_BYTES: usize = 2048;
/// Bytes of payloads that a search checks one by one.
const LOOKED_AT_BYTES: usize = 1024 * 1024;

/// What stands before a payload.
#[inline]
pub fn header(payload_len: usize) -> [u8; HEADER] {
    let length = payload_len as u64;
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&length.to_le_bytes());
    header[8..].copy_from_slice(&masked_crc_of_length(length).to_le_bytes());
    header
}

#[inline]
fn u32_at(data: &[u8], pos: usize) -> u32 {
    u32::from_le_bytes(data[pos..pos + 4].try_into().expect("4 bytes"))
}

#[inline]
fn u64_at(data: &[u8], pos: usize) -> u64 {
    u64::from_le_bytes(data[pos..pos + 8].try_into().expect("8 bytes"))
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
        let length = u64_at(header, 0);
        if masked_crc_of_length(length) != u32_at(header, 8) {
            return Err(self.fault(
                FaultKind::Checksum,
                "the CRC of the record's length does not fit: the bytes are damaged here, or are not TFRecord",
            ));
        }
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
    fn check_payload(&self, data: &[u8], pos: usize, length: usize) -> Result<()> {
        let (start, end) = (pos + HEADER, pos + HEADER + length);
        fetch_ahead(data, start..end);
        if masked_crc(&data[start..end]) != u32_at(data, end) {
            return Err(self.fault(
                FaultKind::Checksum,
                "the CRC of the record's payload does not fit: its bytes are damaged",
            ));
        }
        Ok(())
    }

    /// The same, and look at the frames behind it as well; return where the sound ones end.
    ///
    /// One CRC after the other keeps the memory busy; with other work between them, each would wait
    /// for its bytes.
    pub fn check_payloads(&self, data: &[u8], pos: usize, length: usize) -> Result<usize> {
        self.check_payload(data, pos, length)?;
        let mut ahead = *self;
        let mut end = pos + length + OVERHEAD;
        ahead.advance(length);
        while end - pos < AHEAD_BYTES
            && let Ok(Some(length)) = ahead.next_length(data, end)
            && ahead.check_payload(data, end, length).is_ok()
        {
            ahead.advance(length);
            end += length + OVERHEAD;
        }
        Ok(end)
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
            cursor.check_payload(data, pos, length)?;
        }
        lengths.push(length as u64);
        cursor.advance(length);
        pos += length + OVERHEAD;
    }
    Ok((pos - start, lengths))
}

/// The payloads of the whole frames of `data[start..]`, both CRCs checked, and the bytes they take.
/// A bad frame is an error only where it is the first: else what stands before it is given.
pub fn payloads<'a>(
    data: &'a [u8],
    start: usize,
    cursor: &mut Cursor,
) -> Result<(usize, Vec<&'a [u8]>)> {
    let mut pos = start;
    let mut found = Vec::new();
    loop {
        let next = cursor.next_length(data, pos).and_then(|length| {
            length.map(|n| cursor.check_payload(data, pos, n).map(|()| n)).transpose()
        });
        match next {
            Ok(Some(length)) => {
                found.push(&data[pos + HEADER..pos + HEADER + length]);
                cursor.advance(length);
                pos += length + OVERHEAD;
            }
            Err(fault) if found.is_empty() => return Err(fault),
            Ok(None) | Err(_) => return Ok((pos - start, found)),
        }
    }
}

/// The frames of payloads, one behind the other.
pub fn framed<T: AsRef<[u8]>>(payloads: &[T]) -> Vec<u8> {
    let size = payloads.iter().map(|payload| payload.as_ref().len() + OVERHEAD).sum();
    let mut out = Vec::with_capacity(size);
    payloads.iter().for_each(|payload| put_frame(&mut out, payload.as_ref()));
    out
}

/// Append the frame of a payload.
pub fn put_frame(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(&header(payload.len()));
    out.extend_from_slice(payload);
    out.extend_from_slice(&masked_crc(payload).to_le_bytes());
}

/// The first position from `start` on and before `stop` at which a whole frame with two fitting CRCs
/// stands.
pub fn find_frame(data: &[u8], start: usize, stop: usize) -> Option<usize> {
    let data = data.get(start..)?;
    let last = data.len().checked_sub(OVERHEAD)?;
    let stop = stop.saturating_sub(start).min(last + 1);
    let looks_like_one = |pos: usize| {
        let (length, crc) = (u64_at(data, pos), u32_at(data, pos + 8));
        // The cheap tests first: most positions hold no plausible length, and where a file has a
        // hole, all bytes are 0.
        length <= (last - pos) as u64
            && (length > 0 || crc > 0)
            && masked_crc_of_length(length) == crc
    };
    // The highest bytes of a length that fits are 0. If the last of them is not, none of the
    // positions at which it would be another of them holds a length either.
    let zeros = ((last as u64).leading_zeros() / 8) as usize;
    let mut payloads = Payloads { data, parts: PartCrcs::new(data), looked_at: 0 };
    let mut pos = 0;
    while pos < stop {
        if data[pos + 7] != 0 {
            pos += zeros;
            continue;
        }
        if looks_like_one(pos) && payloads.fit(pos + HEADER, u64_at(data, pos) as usize) {
            return Some(start + pos);
        }
        pos += 1;
    }
    None
}

/// The payloads behind what looks like headers.
///
/// A header with a fitting CRC is a frame's, as a rule. Where many are not, because a payload was
/// made of them, one long payload after the other would have to be gone through.
struct Payloads<'a> {
    data: &'a [u8],
    parts: PartCrcs<'a>,
    looked_at: usize,
}

impl Payloads<'_> {
    #[cold]
    fn fit(&mut self, pos: usize, length: usize) -> bool {
        let end = pos + length;
        let crc = if length <= SHORT_BYTES || self.looked_at <= LOOKED_AT_BYTES {
            self.looked_at += length;
            masked_crc(&self.data[pos..end])
        } else {
            self.parts.masked_crc(pos..end)
        };
        crc == u32_at(self.data, end)
    }
}
