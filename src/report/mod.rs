//! Numbers for people and for programs.
//!
//! In: summaries and records. Out: console tables and artifact files, one file a format.
//! Never: computes a metric, or leaves half a file behind.
