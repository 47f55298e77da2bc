//! In: bytes of the fuzzer. Out: what `tokenring::fuzz::coded` finds. Never: a check of its own.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tokenring::fuzz::coded(data));
