"""A server of somebody else, while it is needed.

In: its command, up to the port's number. Out: its URL, once it answers. Never: a process that stays.
"""
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "benches"))
import programs  # noqa: E402


class Served:
    """A server on a free port, for the length of a `with`. `settings` go into its environment."""

    def __init__(self, words, health, log, **settings):
        self.words, self.health, self.log, self.settings = words, health, log, settings

    def __enter__(self):
        port = programs.free_port()
        words = [str(word) for word in [*self.words, port]]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=os.environ | self.settings)
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(url + self.health, timeout=5).close()
                return url
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.2)
        self.process.kill()
        sys.exit("a server did not start:\n" + self.log.read_text()[-2000:])

    def __exit__(self, *_):
        programs.end(self.process, 10)
