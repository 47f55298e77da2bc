"""Run a command with one of io_uring's system calls refused, as the seccomp profiles of containers do.

  deny_io_uring.py io_uring_setup|io_uring_enter|io_uring_register|none COMMAND...
"""
import ctypes
import errno
import os
import struct
import sys

CALLS = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "none": None}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def instruction(code, true, false, value):
    return struct.pack("HBBI", code, true, false, value)


def deny(number):
    code = (
        instruction(0x20, 0, 0, 0)  # load the call's number, which is the same on every architecture
        + instruction(0x15, 0, 1, number)  # jump if equal
        + instruction(0x06, 0, 0, ERRNO | errno.EPERM)
        + instruction(0x06, 0, 0, ALLOW)
    )
    memory = ctypes.create_string_buffer(code)
    program = Program(len(code) // 8, ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*arguments):
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


number = CALLS[sys.argv[1]]
# Also with nothing to refuse, a filter is set: so that a machine without filters is known.
deny(0xFFFF if number is None else number)
os.execvp(sys.argv[2], sys.argv[2:])
