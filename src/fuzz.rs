//! Bodies of the fuzz targets, compiled in tests too.
//!
//! In: arbitrary bytes. Out: a panic when an invariant breaks. Never: a rule that a test does not replay from `fuzz/regressions/`.
