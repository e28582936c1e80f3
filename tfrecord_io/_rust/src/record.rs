//! What a payload is taken for, and what it must be before any of its values is taken.

use crate::error::{Fault, FaultKind, Place, Result};
use crate::message::{Message, may_have_feature_lists};

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    Example,
    SequenceExample,
    ByteArray,
}

/// What an Example or a SequenceExample holds; `Err` says why the payload cannot be one.
pub fn parse(
    payload: &[u8],
    record_type: RecordType,
    max_features: usize,
    place: Place,
) -> Result<Message<'_>> {
    let is_sequence = record_type == RecordType::SequenceExample;
    let message = Message::parse(payload, is_sequence, max_features).map_err(|_| {
        let name = if is_sequence { "SequenceExample" } else { "Example" };
        Fault::boxed(
            FaultKind::Malformed,
            format!(
                "the record is not a valid {name}, though its CRC fits: it holds something else, \
                 which record_type=\"ByteArray\" reads as bytes, or was damaged before it was written"
            ),
            place,
        )
    })?;
    let count = message.context_entries + message.feature_list_entries;
    if count > max_features {
        return Err(Fault::boxed(
            FaultKind::Limit,
            format!(
                "the record has {count} features, max_features is {max_features}; raise it if the file is to be \
                 trusted"
            ),
            place,
        ));
    }
    // An Example must not drop feature lists in silence.
    if !is_sequence && has_feature_lists(payload) {
        return Err(Fault::boxed(
            FaultKind::Mismatch,
            "the record has feature lists, which record type Example would drop: read it with \
             record_type=\"SequenceExample\", or, if it is another message, such as an \
             ExampleListWithContext, with record_type=\"ByteArray\", as bytes",
            place,
        ));
    }
    Ok(message)
}

/// Whether an Example is a SequenceExample with at least one feature list as well.
fn has_feature_lists(payload: &[u8]) -> bool {
    // Without a look at the fields, each message would be parsed twice.
    may_have_feature_lists(payload)
        && Message::parse(payload, true, 0).is_ok_and(|message| message.feature_list_entries > 0)
}
