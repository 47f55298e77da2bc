//! The built-in server: an independent reading of HTTP and of the OpenAI API.
//!
//! In: requests on a loopback port. Out: replies paced by absolute times. Never: shares code with `wire`, so that one mistake
//! cannot pass twice.
