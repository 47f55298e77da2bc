//! How the ring driver waits: asleep, spinning, or the one and then the other; for one completion or for a window of them.
//!
//! In: what the engine waits for. Out: stamped completions. Never: sleeps past a due time, or leaves reads where their stamps or a
//! request would suffer.

use std::io;
use std::time::Duration;

use crate::clock::{Nanos, Tick};
use crate::driver::waiting::WaitMode;

use super::pump::Pump;
use super::{Pause, Wait};

/// How fast the guess at late wake-ups grows.
const LATENESS_STEP: Nanos = Nanos(10_000);

impl Pump {
    /// Waits for completions, at most as long as `pause` says, and stamps them.
    pub(super) fn wait(&mut self, pause: Pause) -> io::Result<()> {
        let now = self.clock.now();
        if pause.until <= now || self.has_news() {
            return self.enter(Wait::No);
        }
        match self.waiting.mode {
            WaitMode::Spin => self.spin(pause.until),
            WaitMode::Sleep | WaitMode::Hybrid => {
                let awake = self.awake_at(pause);
                if awake > now {
                    self.sleep(now, awake, pause.sending)?;
                    let woken = self.clock.now();
                    if self.has_news() || woken < awake {
                        return Ok(());
                    }
                    let step = self.clock.rate().ticks(LATENESS_STEP);
                    self.lateness.note(awake, woken, step);
                    if awake == pause.until {
                        return Ok(());
                    }
                }
                self.spin(pause.until)
            }
        }
    }

    /// When to be awake for `pause`: where it then spins, earlier by what this core proved to be late, at most as long again.
    fn awake_at(&self, pause: Pause) -> Tick {
        let rate = self.clock.rate();
        let awake = self.waiting.awake_at(pause, rate);
        if awake == pause.until {
            awake
        } else {
            self.lateness.ahead_of(awake, rate.ticks(self.waiting.spin))
        }
    }

    fn sleep(&mut self, now: Tick, until: Tick, sending: bool) -> io::Result<()> {
        let left = until.since(now);
        let rate = self.clock.rate();
        let window = match &mut self.windows {
            Some(windows) if !sending => windows.open(now, left, self.engine.arrived()),
            _ => 0,
        };
        let length = Duration::from_nanos(rate.nanos(left).0);
        self.enter(match (until, window) {
            (Tick::NEVER, _) => Wait::Forever,
            (_, 0) => Wait::For(length),
            (_, window) => Wait::Window {
                length,
                window: Duration::from_nanos(rate.nanos(window).0),
            },
        })
    }

    /// Looks for completions again and again. The ring is entered only when the kernel has something: its flags say so.
    fn spin(&mut self, until: Tick) -> io::Result<()> {
        loop {
            if self.ring.has_something() {
                self.enter(Wait::No)?;
            }
            if self.has_news() || self.clock.now() >= until {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }
}
