//! What a session is called towards a server and in files.
//!
//! In: the session's 128 bits. Out: text. Never: one name for two sessions of a phase.

use std::fmt;

/// A session's name, as `X-Correlation-ID` carries it: a version 4 UUID, or the number of a user where users have numbers. No such
/// UUID is below 2^64, since its version is written above that.
///
/// ```
/// use tokenring::endpoint::SessionName;
/// assert_eq!(SessionName(17).to_string(), "17");
/// let uuid = SessionName(0x67e5504410b1426f9247bb680e5fe0c8);
/// assert_eq!(uuid.to_string(), "67e55044-10b1-426f-9247-bb680e5fe0c8");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionName(pub u128);

impl fmt::Display for SessionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u64::try_from(self.0) {
            Ok(user) => user.fmt(formatter),
            Err(_) => uuid::Uuid::from_u128(self.0).hyphenated().fmt(formatter),
        }
    }
}
