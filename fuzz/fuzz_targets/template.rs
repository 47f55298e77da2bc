//! In: bytes of the fuzzer. Out: what `tokenring::fuzz::template` finds. Never: a check of its own.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tokenring::fuzz::template(data));
