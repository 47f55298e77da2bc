//! Memory that is asked for ahead of its use.
//!
//! In: addresses. Out: the lines they lie in, on their way to the caches. Never: an access that could fail, or a change.
//!
//! With a thousand connections nothing of one is at hand any more when it is read again. Loads that hang on each other wait for memory in
//! turn; lines whose addresses are known can be asked for all at once.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the standard library has no stable prefetch")
)]

/// Bytes of a line, on x86-64 and nearly everywhere else.
const LINE: usize = 64;

/// Asks for the lines of `bytes` bytes from `address` on. What lies there does not matter, nor whether there is anything at all.
#[inline]
pub fn fetch(address: usize, bytes: usize) {
    let end = address.wrapping_add(bytes);
    let first = address & !(LINE - 1);
    for line in (first..end).step_by(LINE) {
        ask(line);
    }
}

/// Asks for the first `bytes` bytes of `value`.
#[inline]
pub fn fetch_front<T>(value: &T, bytes: usize) {
    fetch(std::ptr::from_ref(value).addr(), bytes);
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ask(line: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let place = std::ptr::without_provenance::<i8>(line);
    // SAFETY: every x86-64 has the instruction, and it accesses nothing: at an address that is not mapped it does nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ask(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_wrong() {
        for address in [0, 1, 63, 64, 4_095, 1 << 46, usize::MAX - 300, usize::MAX] {
            for bytes in [0, 1, 64, 65, 256] {
                fetch(address, bytes);
            }
        }
        fetch_front(&[0_u8; 100], 100);
    }
}
