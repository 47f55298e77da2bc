"""Other programs, while a script needs them.

In: a port, a process. Out: a port that nobody has, whether the process listens there. Never: a process that stays.
"""
import socket
import subprocess
import time


def free_port():
    """A port of 127.0.0.1 that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(process, port):
    """Waits until `process` takes connections at `port`; false when it ends before, or does not within some seconds."""
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            if process.poll() is not None:
                return False
            time.sleep(0.05)
    return False


def end(process, seconds):
    """Ends `process`: asked to, and after `seconds` without more ado."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
