//! What can go wrong in a simulation.
//!
//! In: probabilities. Out: the same, by name. Never: decides when; that follows from the seed.

use super::Chance;

/// The one list of what can go wrong: a probability and a count for each.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How probable each thing is that goes wrong, 0 to 1.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Faults {
            $($(#[$doc])* pub $name: f64,)*
        }

        /// How often each thing went wrong in a simulation.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Struck {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Struck {
            /// Each fault by name, and how often it came.
            #[must_use]
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Adds what went wrong in another simulation.
            pub fn add(&mut self, other: &Struck) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

/// Whether a fault of the simulation in `$world` comes about now, and notes that it does.
macro_rules! strikes {
    ($world:expr, $name:ident) => {{
        let strikes = $world.chance.happens($world.faults.$name);
        $world.struck.$name += u64::from(strikes);
        strikes
    }};
}
pub(super) use strikes;

faults! {
    /// A read takes only a part of what is there.
    split,
    /// All reads of a connection take at most three bytes.
    bytewise,
    /// A read comes up to 5 ms late and finds more.
    merge,
    /// No buffer is left: nothing of an engine's is read for up to 2 ms.
    no_buffers,
    /// Bytes travel up to 3 ms longer.
    slow,
    /// The engine wakes up to 200 us late.
    lag,
    /// The engine wakes up to half a second late: its process or its machine stood still, and the clock did not.
    freeze,
    /// Completions of several connections come in another order than they happened.
    reorder,
    /// The kernel's stamp of a read is given up, as after a step of the wall clock.
    unstamped,
    /// The completion of a send comes up to 4 ms late, perhaps after the response.
    late_sent,
    /// The kernel takes a send in several parts, with up to 2 ms between them.
    short_write,
    /// A request arrives in pieces.
    request_split,
    /// Completions of a connection are still reported after it was closed.
    stale,
    /// An answer never begins: to a request, to the first bytes of TLS, or to what a proxy is asked.
    mute,
    /// An answer stops and nothing more comes.
    stall,
    /// An answer is reset, before its head or inside.
    reset,
    /// An answer ends early in order.
    truncate,
    /// A body that ends with its connection ends early in order, which HTTP does not show.
    cut_close,
    /// An answer comes byte by byte, up to 20 us apart.
    drip,
    /// An answer's head is no HTTP.
    garbage,
    /// A chunk size is no number.
    bad_chunk,
    /// Bytes follow an answer.
    surplus,
    /// A body does not end although all of it has come.
    open_body,
    /// A body ends up to 3 s after its last byte.
    late_end,
    /// A request is answered before its body has come, and the connection is closed.
    early_answer,
    /// A kept connection is closed within 20 ms.
    idle_close,
    /// A peer that closes goes on taking bytes, so that nothing is reset.
    half_close,
    /// A used connection is closed just as a request comes.
    close_on_request,
    /// A connection is closed as soon as it is accepted.
    early_close,
    /// A connection is reset within 40 ms, whatever it does then.
    reset_any,
    /// Connecting is refused.
    refuse,
    /// Connecting is never answered.
    silent_connect,
    /// Connecting takes up to 3 s longer.
    slow_connect,
    /// Connecting fails in the kernel: no way there, or no port or descriptor left here.
    failed_connect,
    /// A send fails in the middle.
    send_error,
    /// A TLS server ends without close_notify.
    no_close_notify,
}

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Nothing goes wrong, but reads are cut and joined anyhow, and nothing comes on time.
    #[must_use]
    pub fn rough() -> Faults {
        Faults {
            split: 0.2,
            bytewise: 0.03,
            merge: 0.2,
            no_buffers: 0.02,
            slow: 0.2,
            lag: 0.3,
            reorder: 0.3,
            unstamped: 0.1,
            short_write: 0.1,
            request_split: 0.3,
            stale: 0.5,
            drip: 0.02,
            ..Faults::default()
        }
    }

    /// Everything that can go wrong does, with `probability` each.
    #[must_use]
    pub fn all(probability: f64) -> Faults {
        let p = probability;
        Faults {
            late_sent: p,
            mute: p,
            stall: p,
            reset: p,
            truncate: p,
            garbage: p,
            bad_chunk: p,
            surplus: p,
            open_body: p,
            late_end: p,
            early_answer: p,
            idle_close: p,
            half_close: p,
            close_on_request: p,
            early_close: p,
            reset_any: p,
            refuse: p,
            silent_connect: p,
            slow_connect: p,
            failed_connect: p,
            send_error: p,
            no_close_notify: p,
            ..Faults::rough()
        }
    }

    /// Some of everything: each thing by itself goes wrong never, seldom, or often. Runs in which only a few things go wrong reach
    /// states that a run with all of them at once never lives to see.
    #[must_use]
    pub fn random(chance: &mut Chance) -> Faults {
        let share = 1 + chance.below(8);
        let mut some = || match chance.below(16) {
            many if many >= share => 0.0,
            0 => 0.5,
            1 | 2 => 0.15,
            _ => 0.03,
        };
        Faults {
            split: some(),
            bytewise: some(),
            merge: some(),
            no_buffers: some() / 4.0,
            slow: some(),
            lag: some(),
            freeze: some() / 16.0,
            reorder: some(),
            unstamped: some(),
            late_sent: some(),
            short_write: some(),
            request_split: some(),
            stale: some(),
            mute: some(),
            stall: some(),
            reset: some(),
            truncate: some(),
            cut_close: some(),
            drip: some() / 4.0,
            garbage: some(),
            bad_chunk: some(),
            surplus: some(),
            open_body: some(),
            late_end: some(),
            early_answer: some(),
            idle_close: some(),
            half_close: some(),
            close_on_request: some(),
            early_close: some(),
            reset_any: some(),
            refuse: some(),
            silent_connect: some(),
            slow_connect: some(),
            failed_connect: some(),
            send_error: some(),
            no_close_notify: some(),
        }
    }

    /// Those that may come about, by name.
    #[must_use]
    pub fn active(&self) -> String {
        // The derived form is the one list of all names that cannot be forgotten.
        let all = format!("{self:?}");
        let inner = all.trim_start_matches("Faults { ").trim_end_matches(" }");
        let active = inner.split(", ").filter(|field| !field.ends_with(": 0.0"));
        active.collect::<Vec<_>>().join(", ")
    }
}
