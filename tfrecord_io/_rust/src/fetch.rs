//! Bytes that memory is asked for before they are read.
//!
//! A processor sees by itself that bytes are read one behind the other, within long pieces and
//! across short ones. Pieces of some KiB, each with a loop of its own, can hide it: on a Zen 5 the
//! CRCs of such frames took 2.5 times as long as with this, and copies of such values twice as long.
//! So can columns of ints that are packed by turns, some rows of each.

use std::ops::Range;

use prefetch_index::prefetch_index;

/// How many bytes ahead: what memory needs at full speed, and little enough to stay in the first
/// cache.
pub const AHEAD: usize = 6 * 1024;

/// The lengths of pieces that gain by it.
const LENGTHS: Range<usize> = 512..8192;
/// What memory gives at a time.
const LINE: usize = 64;

/// Ask for as many bytes as `data[piece]` has, ahead of it, as far as there are any.
#[inline(always)]
pub fn fetch_ahead(data: &[u8], piece: Range<usize>) {
    if LENGTHS.contains(&piece.len()) {
        fetch(data, piece.start + AHEAD..piece.end + AHEAD);
    }
}

/// Ask for `data[part]`, as far as it is there, unless it is so long that a copy of it will do that.
#[inline(always)]
pub fn fetch_short(data: &[u8], part: Range<usize>) {
    if part.len() < LENGTHS.end {
        fetch(data, part);
    }
}

/// Ask for `data[part]`, as far as it is there.
#[inline(always)]
pub fn fetch<T>(data: &[T], part: Range<usize>) {
    for at in part.step_by(LINE / size_of::<T>()) {
        prefetch_index(data, at);
    }
}
