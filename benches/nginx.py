"""nginx before the built-in server, to take TLS off, and with large replies of its own.

In: the server's address, a folder. Out: addresses that speak TLS, or plain HTTP. Never: an address other than 127.0.0.1.
"""
import pathlib
import shutil
import subprocess

import programs
import rig

TLS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e" / "tls"
# What makes the client trust it.
TRUST = ["--cacert", TLS / "ca.pem"]
# Where the large reply is asked for.
PATH = "v1/chat/completions"


class Nginx:
    """One nginx on `core`, for the length of a `with`. `url` takes TLS off before `upstream`; `large_urls` are a large reply by name of
    their scheme, of `large_bytes`, that is there at once. A process of nginx may open two descriptors for each stream: `processes` share them."""

    def __init__(self, core, folder, upstream, large_bytes=0, processes=1):
        if shutil.which("nginx") is None:
            raise rig.RigError("nginx is not installed; `apt-get install nginx` has it")
        self.core, self.folder, self.upstream = core, pathlib.Path(folder).resolve() / "nginx", upstream.removeprefix("http://")
        self.processes = processes
        # A retry is cheaper than a port that somebody else took meanwhile.
        self.ports = [programs.free_port() for _ in range(3)]
        self.url = f"https://127.0.0.1:{self.ports[0]}"
        self.large_urls = {"https": f"https://127.0.0.1:{self.ports[1]}", "http": f"http://127.0.0.1:{self.ports[2]}"}
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / PATH).parent.mkdir(parents=True)
        (self.folder / PATH).write_bytes(large_reply(large_bytes))
        # Its processes are another user's when it is started by root.
        for path in [self.folder, *self.folder.rglob("*"), *self.folder.parents[:1]]:
            path.chmod(0o755)

    def config(self):
        pair = f"ssl_certificate {TLS / 'server.pem'}; ssl_certificate_key {TLS / 'server.key'};"
        large = f"root {self.folder}; default_type text/event-stream; error_page 405 =200 $uri; keepalive_requests 1000000;"
        return f"""daemon off; worker_processes {self.processes}; pid {self.folder}/pid; error_log {self.folder}/error.log;
user root;
events {{ worker_connections 60000; }}
http {{
  access_log off; tcp_nodelay on; ssl_buffer_size 16k; ssl_session_cache shared:all:1m;
  client_body_temp_path {self.folder}/a; proxy_temp_path {self.folder}/b; fastcgi_temp_path {self.folder}/c;
  uwsgi_temp_path {self.folder}/d; scgi_temp_path {self.folder}/e;
  upstream behind {{ server {self.upstream}; keepalive 10000; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{self.ports[0]} ssl backlog=65535 reuseport; {pair} keepalive_requests 1000000; keepalive_timeout 600;
    location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 600; }}
  }}
  server {{ listen 127.0.0.1:{self.ports[1]} ssl; {pair} {large} }}
  server {{ listen 127.0.0.1:{self.ports[2]}; {large} }}
}}
"""

    def __enter__(self):
        (self.folder / "config").write_text(self.config())
        words = ["nginx", "-c", self.folder / "config", "-p", self.folder, "-e", self.folder / "error.log"]
        self.process = subprocess.Popen(
            [str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=rig.pin(self.core))
        if programs.listens(self.process, self.ports[0]):
            return self
        self.__exit__()
        error = (self.folder / "error.log").read_text(errors="replace") if (self.folder / "error.log").exists() else ""
        raise rig.RigError(f"nginx did not start: {error[-500:]}")

    def __exit__(self, *_):
        programs.end(self.process, 20)


def large_reply(large_bytes):
    """An event stream of one content event and, in comments of 16,000 bytes, as many bytes as asked for: nothing that takes the client's
    recorder time."""
    event = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
    comment = b": " + b"x" * 15_996 + b"\n\n"
    return event + comment * (large_bytes // len(comment)) + b"data: [DONE]\n\n"
