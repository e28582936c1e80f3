//! The native codec of tfrecord-io: framed TFRecord bytes to Arrow record batches and back.
//!
//! `python.rs` is the door; no path, file or fsspec object comes in. Reading: `framing` finds
//! payloads and checks their CRCs, `walk` goes over them expecting the shape of the last one,
//! `record` (by `message`) decodes what is out of the ordinary, and `decode` (into `columns`) or
//! `infer` takes what they find. Writing: `encode`. `summary` tells what columns hold.

#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the kernel copies little-endian values as they are");

mod block;
mod bytes;
mod canonical;
mod columns;
mod crc;
mod decode;
mod encode;
mod error;
mod features;
mod fetch;
mod finder;
mod framing;
mod hash;
mod infer;
mod leaf;
mod message;
mod packed;
mod pen;
mod python;
mod record;
mod sketch;
mod summary;
mod template;
mod walk;
mod wire;

/// Columns are large and short-lived: an allocator that keeps freed pages saves the page faults,
/// which would else cost more than decoding.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
