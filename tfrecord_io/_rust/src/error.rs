//! The one error of the kernel. `python.rs` maps it to the exceptions of `tfrecord_io.errors`.

/// What kind of exception a fault becomes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A frame's CRC does not fit: `ChecksumError`.
    Checksum,
    /// A payload is not a valid protobuf message: `DecodeError`.
    Malformed,
    /// Larger than a limit: `LimitExceededError`.
    Limit,
    /// Sound bytes that do not fit the schema: `SchemaMismatchError`.
    Mismatch,
    /// A value that cannot be written: `EncodeError`.
    Encode,
}

/// Where a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A record of the file that is read: the offset of its frame and its index.
    Record { offset: u64, record: u64 },
    /// A row of the batch that is written.
    Row(usize),
}

/// What is wrong, where, and what to do.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub what: String,
    pub place: Place,
    pub feature: Option<String>,
}

/// Faults are rare: a pointer keeps results small.
pub type Result<T> = std::result::Result<T, Box<Fault>>;

impl Fault {
    pub fn boxed(kind: FaultKind, what: impl Into<String>, place: Place) -> Box<Self> {
        Box::new(Self { kind, what: what.into(), place, feature: None })
    }

    pub fn of_feature(
        kind: FaultKind,
        what: impl Into<String>,
        place: Place,
        feature: &[u8],
    ) -> Box<Self> {
        let feature = Some(String::from_utf8_lossy(feature).into_owned());
        Box::new(Self { kind, what: what.into(), place, feature })
    }
}
