//! Whether there are local ports for a load.
//!
//! In: where connections go and come from, what is taken. Out: a refusal where all at once do not fit, a warning where few are left, and where
//! closed ones use them up. Never: a rate that only the load can show.

use super::{Closing, Destination, Facts, Finding, Needs, weigh};

/// The lowest port that may be given to connections.
const LOWEST_PORT: u64 = 1_024;

/// One past the highest port.
const PORTS_END: u64 = 65_536;

/// Seconds of `TIME_WAIT` (`TCP_TIMEWAIT_LEN`, a constant of the kernel).
const REST_S: u64 = 60;

/// Seconds after which a port can be used again where that is allowed.
const REUSE_S: u64 = 1;

/// What gives room where ports run out.
const MORE_ADDRESSES: &str =
    "give more addresses, this machine's with --local-address, the server's with several --url";

/// The ports towards one server, over all local addresses.
struct Room {
    low: u16,
    high: u16,
    /// Local addresses.
    addresses: u64,
    reserved: u64,
    in_use: u64,
    resting: u64,
    /// Seconds until the last of those that rest is free.
    rest_s: u64,
}

impl Room {
    fn of(needs: &Needs, destination: &Destination, facts: &Facts) -> Option<Room> {
        let (low, high) = facts.ports?;
        let ways = needs.ways_to(destination.to);
        let mut room = Room {
            low,
            high,
            addresses: ways.len() as u64,
            reserved: facts.reserved * ways.len() as u64,
            in_use: needs.own_ports * ways.len() as u64,
            resting: 0,
            rest_s: 0,
        };
        for (_, taken) in facts.taken.iter().filter(|(way, _)| ways.contains(way)) {
            room.in_use += taken.in_use;
            room.resting += taken.resting;
            room.rest_s = room.rest_s.max(taken.rest_s);
        }
        Some(room)
    }

    fn taken(&self) -> u64 {
        self.reserved + self.in_use + self.resting
    }

    fn free(&self) -> u64 {
        let range = u64::from(self.high - self.low) + 1;
        (range * self.addresses).saturating_sub(self.taken())
    }

    /// How many are free, and why not more.
    fn told(&self) -> String {
        let each = match self.addresses {
            1 => String::new(),
            more => format!(" on each of {more} local addresses"),
        };
        let resting = match self.resting {
            0 => String::new(),
            some => format!(", {some} in TIME_WAIT for up to {} s", self.rest_s),
        };
        format!(
            "{} are free ({} to {}{each}, less {} in use{resting} and {} reserved)",
            self.free(),
            self.low,
            self.high,
            self.in_use,
            self.reserved
        )
    }

    /// What makes room for `needed`.
    fn remedy(&self, needed: u64) -> String {
        let wait = match self.resting {
            resting if needed > self.free() && needed <= self.free() + resting => {
                format!("wait {} s, or ", self.rest_s)
            }
            _ => String::new(),
        };
        let each = (needed + self.taken()).div_ceil(self.addresses);
        if each > PORTS_END - LOWEST_PORT {
            return format!("{wait}no range holds so many: {MORE_ADDRESSES}");
        }
        let (low, high) = (u64::from(self.low), u64::from(self.high));
        let first = (high + 1).saturating_sub(each);
        let (first, last) = if first >= LOWEST_PORT {
            (first.min(low), high)
        } else {
            (LOWEST_PORT, PORTS_END - 1)
        };
        format!(
            "{wait}sysctl -w net.ipv4.ip_local_port_range=\"{first} {last}\", or {MORE_ADDRESSES}"
        )
    }
}

/// Says what there is to say of `destination`.
pub(super) fn judge(needs: &Needs, destination: &Destination, facts: &Facts) -> Option<Finding> {
    let room = Room::of(needs, destination, facts)?;
    let (to, connections) = (destination.to, destination.connections);
    let finding = weigh(connections, room.free(), || {
        format!(
            "{connections} connections to {to} need as many local ports, and {}: {}",
            room.told(),
            room.remedy(connections)
        )
    });
    if let Some(Finding::Refusal(_)) = finding {
        return finding;
    }
    let closing = destination.closing.as_ref();
    let text = closing.and_then(|closing| closed(closing, destination, &room, facts));
    text.map(Finding::Warning).or(finding)
}

/// Closed connections leave too few ports. A server that closes first keeps the rest on its own side, so this is no refusal.
fn closed(
    closing: &Closing,
    destination: &Destination,
    room: &Room,
    facts: &Facts,
) -> Option<String> {
    let (to, connections) = (destination.to, destination.connections);
    let rest_s = if facts.reuse.is_for(to.ip()) {
        REUSE_S
    } else {
        REST_S
    };
    let most = |count: u64| {
        let bound = count.min(closing.count.unwrap_or(u64::MAX));
        bound.min(facts.most_resting.unwrap_or(u64::MAX))
    };
    let left = room.free().saturating_sub(connections);
    match closing.per_second {
        Some(rate) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate is positive, and the cast saturates"
            )]
            let resting = most((rate * rest_s as f64).ceil() as u64);
            (resting > left).then(|| {
                format!(
                    "{connections} connections to {to} and {resting} closed ones, whose ports rest in TIME_WAIT for {rest_s} s, need {} local ports, and {}: {}, or keep connections (--connection-reuse-strategy pooled)",
                    connections + resting,
                    room.told(),
                    room.remedy(connections + resting)
                )
            })
        }
        // How many a second it will be only the load shows; where a port rests for a second, more than the machine can do.
        None => (rest_s == REST_S && most(u64::MAX) > left).then(|| {
            format!(
                "each request to {to} leaves a local port in TIME_WAIT for {rest_s} s, and {}: above {} requests/s none is left; {MORE_ADDRESSES}, or keep connections (--connection-reuse-strategy pooled)",
                room.told(),
                left / rest_s
            )
        }),
    }
}
