//! In: x. Out: y. Never: z.
