//! The floor: what it costs to receive a load and throw it away.
//!
//! In: a server's URL, how many streams, how long. Out: one line of JSON with this thread's processor time and what came. Never: looks
//! at a byte of a reply, keeps one, or waits to gather several.
//!
//! A plain epoll loop: wait, then one `recv` for each socket that is ready. It asks for the connection to be closed after the reply, so
//! that its end needs no parser. `benches/floor.py` holds tokenring against it. Without `--url` it plays a small load against the
//! built-in server, to show that it works.

#[cfg(target_os = "linux")]
fn main() {
    if let Err(error) = floor::run(std::env::args().skip(1)) {
        eprintln!("floor: {error}");
        std::process::exit(1);
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("floor: epoll is Linux's; there is no floor to measure here");
}

#[cfg(target_os = "linux")]
mod floor {
    use std::io::{self, ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
    use std::path::PathBuf;

    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use serde_json::json;
    use tokenring::clock::{Nanos, thread_cpu};
    use tokenring::config::MockPlan;

    /// As large as any read that a ring driver could make of one write.
    const READ_BYTES: usize = 64 << 10;

    /// Sockets that one wait may name.
    const REPORTS: usize = 1_024;

    /// No chat-completion event is shorter. A refusal has fewer bytes than this for each token that was asked for.
    const EVENT_BYTES_LEAST: u64 = 60;

    /// Length of the prompt, about that of 128 tokens.
    const PROMPT_BYTES: usize = 600;

    /// The unit of times in `/proc`: `USER_HZ` is 100 on x86-64 and ARM.
    const TICK_NS: u64 = 10_000_000;

    /// What to receive.
    struct Plan {
        url: Option<String>,
        streams: usize,
        tokens: u64,
        cpu: Option<usize>,
    }

    /// What came.
    #[derive(Default)]
    struct Tally {
        reads: u64,
        waits: u64,
        bytes: u64,
    }

    /// Plays the load that `words` ask for and prints the line.
    pub(super) fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
        let mut plan = parse(words)?;
        let server = if plan.url.is_none() {
            let mock = MockPlan {
                inter_token_latency: Nanos(100_000),
                threads: Some(1),
                ..MockPlan::default()
            };
            let server = tokenring::mock::start(&mock).map_err(|error| error.to_string())?;
            plan.url = Some(server.url());
            Some(server)
        } else {
            None
        };
        if let Some(id) = plan.cpu
            && !core_affinity::set_for_current(core_affinity::CoreId { id })
        {
            return Err(format!("--cpu {id}: this process may not use that core"));
        }
        let url = plan.url.as_deref().unwrap_or_default();
        let (host, address) = resolve(url)?;
        let request = request(host, plan.tokens);
        let failed = |error: io::Error| format!("{url}: {error}");
        let before = thread_cpu();
        let tally = receive(address, plan.streams, &request).map_err(failed)?;
        let cpu = Nanos(thread_cpu().0 - before.0);
        let (user, system) = user_and_system().map_err(|error| error.to_string())?;
        drop(server);
        let events = plan.streams as u64 * plan.tokens;
        if tally.bytes < events * EVENT_BYTES_LEAST {
            return Err(format!(
                "{url}: {} bytes are too few for {events} events; the server refused or broke off",
                tally.bytes
            ));
        }
        let line = json!({
            "events": events, "bytes": tally.bytes, "reads": tally.reads, "waits": tally.waits,
            "cpu_ns": cpu.0, "user_ns": user.0, "system_ns": system.0,
        });
        println!("{line}");
        Ok(())
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Plan, String> {
        let mut plan = Plan {
            url: None,
            streams: 4,
            tokens: 20,
            cpu: None,
        };
        while let Some(flag) = words.next() {
            // cargo says so to every benchmark.
            if flag == "--bench" {
                continue;
            }
            let value = words.next().ok_or(format!("{flag} needs a value"))?;
            let number = || {
                let number = value.parse::<u32>();
                number.map_err(|_| format!("{flag} {value}: not a whole number"))
            };
            match flag.as_str() {
                "--url" => plan.url = Some(value),
                "--streams" => plan.streams = number()?.max(1) as usize,
                "--osl" => plan.tokens = u64::from(number()?.max(1)),
                "--cpu" => plan.cpu = Some(number()? as usize),
                _ => return Err(format!("{flag}: there are --url, --streams, --osl, --cpu")),
            }
        }
        Ok(plan)
    }

    /// Host and port of `http://HOST:PORT`, and the first address of it.
    fn resolve(url: &str) -> Result<(&str, SocketAddr), String> {
        let host = url.strip_prefix("http://").unwrap_or(url);
        let host = host.trim_end_matches('/');
        let mut addresses = host.to_socket_addrs().map_err(|error| {
            format!("--url {url}: {error}; it should look like http://127.0.0.1:8000")
        })?;
        let address = addresses.next();
        Ok((host, address.ok_or(format!("--url {url}: no address"))?))
    }

    /// What tokenring would send for a chat, but for the words.
    fn request(host: &str, tokens: u64) -> Vec<u8> {
        let body = json!({
            "messages": [{"role": "user", "content": "word ".repeat(PROMPT_BYTES / 5)}],
            "model": "mock-model",
            "stream": true,
            "max_completion_tokens": tokens,
            "stream_options": {"include_usage": true},
        })
        .to_string();
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Opens all connections, sends on all, and receives until the server has closed the last.
    fn receive(address: SocketAddr, streams: usize, request: &[u8]) -> io::Result<Tally> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut sockets = Vec::with_capacity(streams);
        for index in 0..streams {
            let socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            let data = EventData::new_u64(index as u64);
            epoll::add(&epoll, &socket, data, EventFlags::IN)?;
            sockets.push(Some(socket));
        }
        for mut socket in sockets.iter().flatten() {
            socket.write_all(request)?;
            socket.set_nonblocking(true)?;
        }
        let mut tally = Tally::default();
        let mut buffer = vec![0; READ_BYTES];
        let mut reports = Vec::with_capacity(REPORTS);
        let mut open = streams;
        while open > 0 {
            reports.clear();
            match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut reports), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => tally.waits += 1,
                Err(error) => return Err(error.into()),
            }
            for report in &reports {
                let index = usize::try_from(report.data.u64()).unwrap_or(usize::MAX);
                let Some(mut socket) = sockets[index].as_ref() else {
                    continue;
                };
                match socket.read(&mut buffer) {
                    Ok(0) => {
                        // Dropping the socket takes it out of the epoll set.
                        sockets[index] = None;
                        open -= 1;
                    }
                    Ok(count) => {
                        tally.reads += 1;
                        tally.bytes += count as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(tally)
    }

    /// Time of this thread in user space and in the kernel. The kernel divides the time by a sample at each of its ticks.
    fn user_and_system() -> io::Result<(Nanos, Nanos)> {
        let path = PathBuf::from("/proc/thread-self/stat");
        let text = std::fs::read_to_string(path)?;
        // The name in brackets may hold blanks. After it the state is field 3, user time 14, system time 15 (proc(5)).
        let after = text.rsplit(')').next().unwrap_or_default();
        let ticks = |field: usize| {
            let word = after.split_whitespace().nth(field - 3);
            word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok((Nanos(ticks(14) * TICK_NS), Nanos(ticks(15) * TICK_NS)))
    }
}
