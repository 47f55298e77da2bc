//! A server that does what a script says, also wrong things.
//!
//! In: steps for each request, connections on 127.0.0.1. Out: replies, and what was seen: requests, connections, most open at once.
//! Never: uses the crate's own HTTP reader, or waits longer than for its own end.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// One step of a reply.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing for so long.
    Wait(Duration),
    /// A streamed reply of these words, each so long after the one before.
    Words(Vec<String>, Duration),
    /// The same, but it stops after the words: no usage, no end.
    Part(Vec<String>, Duration),
    /// After a part: the finish reason.
    Stop,
    /// After a part: an event that says so.
    Error(String),
    /// After a part: `[DONE]`.
    Done,
    /// After a part: the end of the body, as its framing has it.
    End,
    /// A reply that is not streamed.
    Whole(String),
    /// This body, which is JSON, as it is.
    Json(String),
    /// The list of models: only `m`.
    Models,
    /// A field of the head of a later error status.
    Field(String),
    /// An error status with a JSON body that has this message; `{n}` in it is the request's number.
    Status(u16, String),
    /// Token counts that later steps report: prompt, completion.
    Usage(u64, u64),
    /// The connection ends without a word.
    Close,
    /// Nothing until the client goes away.
    Stall,
}

/// What the server does.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Steps for the requests with these numbers, from 1; the first that fits is taken.
    pub answers: Vec<(Numbers, Vec<Step>)>,
    /// Statuses of successive `GET`s; the last stands for all further ones.
    pub models: Vec<u16>,
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub first: usize,
    pub last: usize,
    pub step: usize,
}

impl Numbers {
    fn hold(self, number: usize) -> bool {
        number >= self.first
            && number <= self.last
            && (number - self.first).is_multiple_of(self.step)
    }
}

impl Script {
    /// The same steps for every request.
    pub fn always(steps: &str) -> Script {
        Script::default().answer("*", steps)
    }

    /// `which`: `*`, `3`, `2-4` or `odd`; `steps`: separated by `;`.
    pub fn answer(mut self, which: &str, steps: &str) -> Script {
        let number = |text: &str| text.parse().unwrap();
        let (first, last, step) = match which.split_once('-') {
            _ if which == "*" => (1, usize::MAX, 1),
            _ if which == "odd" => (1, usize::MAX, 2),
            Some((first, last)) => (number(first), number(last), 1),
            None => (number(which), number(which), 1),
        };
        let steps = steps.split(';').map(|text| step_of(text.trim())).collect();
        self.answers.push((Numbers { first, last, step }, steps));
        self
    }
}

fn step_of(text: &str) -> Step {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let paced = |rest: &str| match rest.rsplit_once(" every ") {
        Some((text, gap)) => (words(text), millis(gap)),
        None => (words(rest), Duration::ZERO),
    };
    match name {
        "wait" => Step::Wait(millis(rest)),
        "words" => {
            let (words, gap) = paced(rest);
            Step::Words(words, gap)
        }
        "part" => {
            let (words, gap) = paced(rest);
            Step::Part(words, gap)
        }
        "stop" => Step::Stop,
        "error" => Step::Error(rest.to_owned()),
        "done" => Step::Done,
        "end" => Step::End,
        "whole" => Step::Whole(rest.to_owned()),
        "json" => Step::Json(rest.to_owned()),
        "field" => Step::Field(rest.to_owned()),
        "status" => {
            let (code, message) = rest.split_once(' ').unwrap_or((rest, ""));
            let message = match message {
                "" => format!("scripted {code}"),
                message => message.to_owned(),
            };
            Step::Status(code.parse().unwrap(), message)
        }
        "usage" => {
            let (prompt, completion) = rest.split_once(' ').unwrap();
            Step::Usage(prompt.parse().unwrap(), completion.parse().unwrap())
        }
        "close" => Step::Close,
        "stall" => Step::Stall,
        other => panic!("no step is called {other:?}"),
    }
}

fn millis(text: &str) -> Duration {
    Duration::from_secs_f64(text.trim().parse::<f64>().unwrap() / 1e3)
}

/// One request, as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Number of its connection, from 1.
    pub connection: usize,
    /// When its last byte had been read.
    pub at: Instant,
    /// Request line and fields.
    pub head: String,
    /// Its body; null where there was none.
    pub body: Value,
}

impl Seen {
    /// Value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// It is load, not a probe.
    pub fn is_load(&self) -> bool {
        self.header("x-request-id").is_some()
    }
}

/// What a server has seen.
#[derive(Debug, Default)]
pub struct Log {
    pub requests: Vec<Seen>,
    pub connections: usize,
    /// Addresses that connections came from.
    pub peers: BTreeSet<IpAddr>,
    pub open: usize,
    pub open_most: usize,
    probes: usize,
    loads: usize,
}

impl Log {
    /// Requests of the load.
    pub fn load(&self) -> Vec<&Seen> {
        self.requests.iter().filter(|seen| seen.is_load()).collect()
    }
}

struct Shared {
    script: Script,
    log: Mutex<Log>,
    stop: AtomicBool,
    tls: Option<Arc<rustls::ServerConfig>>,
}

/// A server under way; it ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    /// Plain HTTP on 127.0.0.1.
    pub fn start(script: Script) -> Server {
        Server::on(Ipv4Addr::LOCALHOST.into(), script, None).unwrap()
    }

    /// On any local address, with TLS where there is a configuration.
    pub fn on(
        ip: IpAddr,
        script: Script,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> std::io::Result<Server> {
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
            log: Mutex::default(),
            stop: AtomicBool::new(false),
            tls,
        });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &for_thread));
        Ok(Server { address, shared })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock().unwrap()
    }

    /// Waits until so many requests of the load have been seen.
    pub fn wait_for(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.log().load().len() < count {
            assert!(Instant::now() < end, "the load never came");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Cuts every connection and takes no more.
    pub fn die(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, so that the port is closed when this returns or soon after.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(socket) = socket else { continue };
        let number = {
            let mut log = shared.log.lock().unwrap();
            log.connections += 1;
            log.peers.extend(socket.peer_addr().map(|peer| peer.ip()));
            log.connections
        };
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            socket.set_nodelay(true).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            let stream: Box<dyn Stream> = match &shared.tls {
                None => Box::new(socket),
                Some(config) => {
                    let session = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                    Box::new(rustls::StreamOwned::new(session, socket))
                }
            };
            Link {
                number,
                stream,
                buffer: Vec::new(),
                shared,
            }
            .serve();
        });
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection.
struct Link {
    number: usize,
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    shared: Arc<Shared>,
}

/// The client or the server is gone.
struct Gone;

impl Link {
    fn serve(mut self) {
        while let Ok(seen) = self.request() {
            let steps = {
                let mut log = self.shared.log.lock().unwrap();
                let load = seen.is_load();
                let get = seen.head.starts_with("GET");
                log.requests.push(seen);
                log.open += 1;
                log.open_most = log.open_most.max(log.open);
                if load {
                    log.loads += 1;
                } else {
                    log.probes += 1;
                }
                let script = &self.shared.script;
                if get {
                    let last = script.models.last().copied().unwrap_or(200);
                    vec![match script.models.get(log.probes - 1).unwrap_or(&last) {
                        200 => Step::Models,
                        status => Step::Status(*status, format!("scripted {status}")),
                    }]
                } else {
                    let number = if load { log.loads } else { log.probes };
                    let mut answers = script.answers.iter();
                    let found = answers.find(|(numbers, _)| numbers.hold(number));
                    let mut steps = found.map_or_else(Vec::new, |(_, steps)| steps.clone());
                    for step in &mut steps {
                        if let Step::Status(_, message) = step {
                            *message = message.replace("{n}", &number.to_string());
                        }
                    }
                    steps
                }
            };
            let mut open = true;
            let goes_on = self.play(&steps, &mut open);
            if open {
                self.shared.log.lock().unwrap().open -= 1;
            }
            if goes_on.is_err() {
                return;
            }
        }
    }

    /// Reads more; an error when there will be no more.
    fn fill(&mut self) -> Result<(), Gone> {
        let mut bytes = [0; 65_536];
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return Err(Gone);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Gone),
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    fn request(&mut self) -> Result<Seen, Gone> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill()?;
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let mut seen = Seen {
            connection: self.number,
            at: Instant::now(),
            head: String::from_utf8(head).unwrap(),
            body: Value::Null,
        };
        let length = seen
            .header("content-length")
            .map_or(0, |text| text.parse().unwrap());
        while self.buffer.len() < length {
            self.fill()?;
        }
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        if !body.is_empty() {
            // A form is no JSON.
            let form = || Value::from(String::from_utf8_lossy(&body));
            let is_form = seen.head.contains("multipart/form-data");
            seen.body = if is_form {
                form()
            } else {
                serde_json::from_slice(&body).unwrap()
            };
        }
        seen.at = Instant::now();
        Ok(seen)
    }

    fn write(&mut self, text: &str) -> Result<(), Gone> {
        if self.shared.stop.load(Ordering::SeqCst) {
            return Err(Gone);
        }
        let outcome = self.stream.write_all(text.as_bytes());
        outcome.and_then(|()| self.stream.flush()).map_err(|_| Gone)
    }

    /// The last bytes of a reply. From here on the client may send the next request, so the count goes down first.
    fn write_last(&mut self, text: &str, open: &mut bool) -> Result<(), Gone> {
        if std::mem::take(open) {
            self.shared.log.lock().unwrap().open -= 1;
        }
        self.write(text)
    }

    fn play(&mut self, steps: &[Step], open: &mut bool) -> Result<(), Gone> {
        let completions = {
            let log = self.shared.log.lock().unwrap();
            let mut back = log.requests.iter().rev();
            let last = back.find(|seen| seen.connection == self.number);
            last.is_some_and(|seen| seen.head.contains("/v1/completions"))
        };
        let mut usage = None;
        let mut fields = String::new();
        for step in steps {
            match step {
                Step::Wait(time) => self.pause(*time)?,
                Step::Usage(prompt, completion) => {
                    usage = Some(
                        json!({"prompt_tokens": prompt, "completion_tokens": completion,
                        "total_tokens": prompt + completion}),
                    );
                }
                Step::Part(words, gap) => self.stream_words(words, *gap, completions)?,
                Step::Words(words, gap) => {
                    self.stream_words(words, *gap, completions)?;
                    let mut rest = stop();
                    if let Some(usage) = &usage {
                        rest += &event(&json!({"choices": [], "usage": usage}));
                    }
                    rest += &chunk("data: [DONE]\n\n");
                    self.write_last(&(rest + "0\r\n\r\n"), open)?;
                }
                Step::Stop => self.write(&stop())?,
                Step::Error(message) => {
                    self.write(&event(&json!({"error": {"message": message}})))?;
                }
                Step::Done => self.write(&chunk("data: [DONE]\n\n"))?,
                Step::End => self.write_last("0\r\n\r\n", open)?,
                Step::Json(text) => {
                    let body = serde_json::from_str(text).unwrap();
                    self.write_last(&reply(200, &body), open)?;
                }
                Step::Whole(text) => {
                    let mut body = if completions {
                        json!({"object": "text_completion", "choices": [{"index": 0, "text": text,
                            "finish_reason": "stop"}]})
                    } else {
                        json!({"object": "chat.completion", "choices": [{"index": 0,
                            "finish_reason": "stop",
                            "message": {"role": "assistant", "content": text}}]})
                    };
                    if let Some(usage) = &usage {
                        body["usage"] = usage.clone();
                    }
                    self.write_last(&reply(200, &body), open)?;
                }
                Step::Models => {
                    let body = json!({"object": "list", "data": [{"id": "m"}]});
                    self.write_last(&reply(200, &body), open)?;
                }
                Step::Field(field) => fields += &format!("{field}\r\n"),
                Step::Status(status, message) => {
                    let body = json!({"error": {"message": message}});
                    let text = reply(*status, &body);
                    let (first, rest) = text.split_once("\r\n").unwrap();
                    self.write_last(&format!("{first}\r\n{fields}{rest}"), open)?;
                }
                Step::Close => return Err(Gone),
                Step::Stall => loop {
                    self.fill()?;
                },
            }
        }
        Ok(())
    }

    fn stream_words(
        &mut self,
        words: &[String],
        gap: Duration,
        completions: bool,
    ) -> Result<(), Gone> {
        self.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                self.pause(gap)?;
            }
            let text = format!("{word} ");
            let choice = if completions {
                json!({"index": 0, "text": text})
            } else {
                json!({"index": 0, "delta": {"content": text}})
            };
            self.write(&event(&json!({"choices": [choice]})))?;
        }
        Ok(())
    }

    fn pause(&self, time: Duration) -> Result<(), Gone> {
        let end = Instant::now() + time;
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return Err(Gone);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// The event with the finish reason.
fn stop() -> String {
    event(&json!({"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "stop"}]}))
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn event(data: &Value) -> String {
    chunk(&format!("data: {data}\n\n"))
}

fn reply(status: u16, body: &Value) -> String {
    let body = body.to_string();
    let names: HashMap<u16, &str> = [
        (200, "OK"),
        (307, "Temporary Redirect"),
        (429, "Too Many Requests"),
        (500, "Internal Server Error"),
        (503, "Service Unavailable"),
    ]
    .into();
    let reason = names.get(&status).unwrap_or(&"Other");
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
