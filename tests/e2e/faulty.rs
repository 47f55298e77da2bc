//! A server that breaks its answers as it is told, byte by byte.
//!
//! In: steps for requests and connections, in words. Out: the same on sockets of 127.0.0.1, and how many requests came. Never: the crate's own
//! reading of HTTP.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;

/// What every good answer says.
pub const TEXT: &str = "alpha beta gamma";

/// One step of an answer.
#[derive(Clone, Debug)]
enum Step {
    /// The rest of the good answer, or so many bytes of it; of a negative number, all but so many.
    Send(Option<i64>),
    /// The rest of it, each byte by itself.
    Drip,
    /// These bytes in its place.
    Raw(Vec<u8>),
    /// A whole answer that says back what the request's head said.
    Echo(String),
    Wait(Duration),
    /// The connection is reset.
    Reset,
    /// It is closed in order.
    Close,
    /// This side is closed, and what comes is taken.
    Half,
    /// Nothing more, until the client goes away.
    Stall,
}

/// What is done with whom: steps for the requests, by their number from 0, and for connections before a request is read.
pub struct Script {
    request: Steps,
    connection: Steps,
}

/// The steps of a number; `None` for a good answer, or a connection that is served.
type Steps = Box<dyn Fn(usize) -> Option<Vec<Step>> + Send + Sync>;

impl Script {
    /// `steps` for every other request, from the first on, good answers for the rest. Steps after `accept` are for connections.
    pub fn every_other(steps: &str) -> Script {
        match steps.strip_prefix("accept ") {
            Some(steps) => Script {
                request: Box::new(|_| None),
                connection: every_other(steps_of(steps)),
            },
            None => Script {
                request: every_other(steps_of(steps)),
                connection: Box::new(|_| None),
            },
        }
    }

    /// These bytes for every other request.
    pub fn raw_every_other(bytes: Vec<u8>) -> Script {
        Script {
            request: every_other(vec![Step::Raw(bytes)]),
            connection: Box::new(|_| None),
        }
    }

    /// Steps of each request.
    pub fn of(request: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> Script {
        Script {
            request: Box::new(move |number| request(number).map(|steps| steps_of(&steps))),
            connection: Box::new(|_| None),
        }
    }
}

fn every_other(steps: Vec<Step>) -> Steps {
    Box::new(move |number| number.is_multiple_of(2).then(|| steps.clone()))
}

/// The bytes of a good answer.
pub fn good_answer() -> Vec<u8> {
    let mut answer =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_owned();
    let mut event = |data: &str| {
        let event = format!("data: {data}\n\n");
        answer += &format!("{:x}\r\n{event}\r\n", event.len());
    };
    for (number, word) in TEXT.split(' ').enumerate() {
        let gap = if number > 0 { " " } else { "" };
        event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{gap}{word}"}}}}]}}"#
        ));
    }
    event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
    event("[DONE]");
    (answer + "0\r\n\r\n").into_bytes()
}

fn steps_of(text: &str) -> Vec<Step> {
    text.split(';').map(|step| step_of(step.trim())).collect()
}

fn step_of(text: &str) -> Step {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    match name {
        "send" if rest.is_empty() => Step::Send(None),
        "send" => Step::Send(Some(rest.parse().unwrap())),
        "drip" => Step::Drip,
        "raw" => Step::Raw(rest.replace("\\r", "\r").replace("\\n", "\n").into_bytes()),
        "echo" => Step::Echo(rest.to_owned()),
        "wait" => Step::Wait(Duration::from_millis(rest.parse().unwrap())),
        "reset" => Step::Reset,
        "close" => Step::Close,
        "half" => Step::Half,
        "stall" => Step::Stall,
        other => panic!("no step is called {other:?}"),
    }
}

struct Shared {
    script: Script,
    requests: AtomicUsize,
    /// Requests whose answer was given to its end.
    answered: AtomicUsize,
    over: AtomicBool,
    /// Twins by the number of the connection, to wake threads at the end.
    sockets: Mutex<HashMap<usize, TcpStream>>,
}

/// A server under way; it ends when dropped.
pub struct Faulty {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Faulty {
    pub fn start(script: Script) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script,
            requests: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            sockets: Mutex::default(),
        });
        let ours = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &ours));
        Faulty { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests that came whole.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Good answers that were given whole.
    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, and those that wait for their clients.
        let _ = TcpStream::connect(self.address);
        for (_, socket) in self.shared.sockets.lock().unwrap().drain() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, mut socket) in listener.incoming().flatten().enumerate() {
        if shared.over.load(Ordering::SeqCst) {
            return;
        }
        socket.set_nodelay(true).unwrap();
        let twin = socket.try_clone().unwrap();
        shared.sockets.lock().unwrap().insert(number, twin);
        let shared = Arc::clone(shared);
        // Whatever ends a connection is the client's affair, or what the script asked for.
        std::thread::spawn(move || {
            let _ = serve(&shared, &mut socket, number);
            // With a twin left it would stay open; with a linger of no time, dropping the last one resets.
            shared.sockets.lock().unwrap().remove(&number);
        });
    }
}

fn serve(shared: &Shared, socket: &mut TcpStream, number: usize) -> std::io::Result<()> {
    if let Some(steps) = (shared.script.connection)(number) {
        let mut unheard = Hand::new(socket, String::new());
        if !unheard.play(&steps)? {
            return Ok(());
        }
    }
    let mut read = Vec::new();
    while let Some(head) = request(socket, &mut read)? {
        let number = shared.requests.fetch_add(1, Ordering::SeqCst);
        let steps = (shared.script.request)(number).unwrap_or_else(|| vec![Step::Send(None)]);
        let mut hand = Hand::new(socket, head);
        let goes_on = hand.play(&steps)?;
        let whole = hand.rest.is_empty();
        shared
            .answered
            .fetch_add(usize::from(whole), Ordering::SeqCst);
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
}

/// The head of the next request, whose body is read too; `None` when the client is gone.
fn request(socket: &mut TcpStream, read: &mut Vec<u8>) -> std::io::Result<Option<String>> {
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let lower = head.to_ascii_lowercase();
            let length = lower.split("content-length:").nth(1);
            let length: usize = length
                .and_then(|rest| rest.lines().next()?.trim().parse().ok())
                .unwrap_or(0);
            if read.len() >= end + 4 + length {
                read.drain(..end + 4 + length);
                return Ok(Some(head));
            }
        }
        match socket.read(&mut piece)? {
            0 => return Ok(None),
            count => read.extend_from_slice(&piece[..count]),
        }
    }
}

/// One answer under way.
struct Hand<'a> {
    socket: &'a mut TcpStream,
    head: String,
    rest: Vec<u8>,
}

impl Hand<'_> {
    fn new(socket: &mut TcpStream, head: String) -> Hand<'_> {
        Hand {
            socket,
            head,
            rest: good_answer(),
        }
    }

    /// Says whether the connection goes on.
    fn play(&mut self, steps: &[Step]) -> std::io::Result<bool> {
        for step in steps {
            match step {
                Step::Send(count) => self.send(*count)?,
                Step::Drip => {
                    for byte in std::mem::take(&mut self.rest) {
                        self.socket.write_all(&[byte])?;
                    }
                }
                Step::Raw(bytes) => self.socket.write_all(bytes)?,
                Step::Echo(how) => {
                    let answer = echo(how, &self.head);
                    self.socket.write_all(answer.as_bytes())?;
                }
                Step::Wait(time) => std::thread::sleep(*time),
                Step::Reset => {
                    SockRef::from(&*self.socket).set_linger(Some(Duration::ZERO))?;
                    return Ok(false);
                }
                Step::Close => return Ok(false),
                Step::Half => {
                    self.socket.shutdown(Shutdown::Write)?;
                    self.drain()?;
                    return Ok(false);
                }
                Step::Stall => {
                    self.drain()?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn send(&mut self, count: Option<i64>) -> std::io::Result<()> {
        let all = self.rest.len();
        let count = match count {
            None => all,
            Some(count) => usize::try_from(count)
                .unwrap_or_else(|_| all - usize::try_from(-count).unwrap())
                .min(all),
        };
        let bytes: Vec<u8> = self.rest.drain(..count).collect();
        self.socket.write_all(&bytes)
    }

    /// Takes what comes until the client goes away.
    fn drain(&mut self) -> std::io::Result<()> {
        let mut piece = [0; 4 << 10];
        while self.socket.read(&mut piece)? > 0 {}
        Ok(())
    }
}

/// An answer that says back what came: as an error status, an error event, the words of the reply, or a redirect.
fn echo(how: &str, head: &str) -> String {
    let json = serde_json::Value::from(head).to_string();
    let secret = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("authorization"));
    let secret = secret.unwrap_or("none");
    let target = head.split(' ').nth(1).unwrap_or("/");
    let error = format!(
        r#"{{"error":{{"message":{json},"type":{}}}}}"#,
        serde_json::Value::from(secret)
    );
    let whole = |status: &str, fields: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nX-Seen: {secret}\r\n\r\n{body}"
        )
    };
    let stream = |data: &str| {
        let body = format!("{data}\n\ndata: [DONE]\n\n");
        whole("200 OK", "Content-Type: text/event-stream\r\n", &body)
    };
    match how {
        "status" => whole(
            &format!("401 No {secret}"),
            "Content-Type: application/json\r\n",
            &error,
        ),
        "event" => stream(&format!("event: error\ndata: {error}")),
        "data" => stream(&format!("data: {error}")),
        "words" => stream(&format!(
            r#"data: {{"choices":[{{"index":0,"delta":{{"content":{json}}},"finish_reason":"{secret}"}}]}}"#
        )),
        "redirect" => whole(
            "307 Elsewhere",
            &format!("Location: http://elsewhere{target}\r\n"),
            "",
        ),
        other => panic!("no echo is called {other:?}"),
    }
}
