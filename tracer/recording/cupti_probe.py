"""Whether CUPTI can be called on this machine, tried in a separate process.

Some versions of CUPTI crash or hang in their first call (13.2 without a driver does); that must not end the
script. The result is kept for each version of the library and of the driver.
"""

from __future__ import annotations

import os
import signal
import sys

from tracer.base import kept
from tracer.base.interpreter import bare_helper

_SECONDS = 60
_KIND = "cupti"
_DONE = "leaving"
# Any of them: there is an NVIDIA driver here. Nothing is loaded to find out.
_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvmap", "/dev/dxg")
# What a fault in CUPTI itself ends a process with; others come from outside, and the next try may go well.
_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# Calls what a recording calls first and names each function before. 2 is the domain of runtime calls,
# 10 the activity of kernels.
_TRY = """\
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
cupti = ctypes.CDLL(sys.argv[1])
def call(name, *arguments, library=cupti):
    print(name, flush=True)
    getattr(library, name)(*arguments)
version, text, subscriber = ctypes.c_uint32(), ctypes.c_char_p(), ctypes.c_void_p()
signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
callback = signature(lambda *_: None)
call("cuptiGetVersion", ctypes.byref(version))
call("cuptiGetResultString", 0, ctypes.byref(text))
call("cuptiSubscribe", ctypes.byref(subscriber), callback, None)
if subscriber:
    call("cuptiEnableDomain", 1, subscriber, 2)
    call("cuptiActivityEnable", 10)
    call("cuInit", 0, library=cuda)
    call("cuptiActivityDisable", 10)
    call("cuptiUnsubscribe", subscriber)
print("leaving", flush=True)
"""


def unusable(cuda: str | None, *, again: bool = False) -> str:
    """Why tracer must not call CUPTI here, in half a sentence; "" if it may.

    cuda    the version of CUDA of this torch, as 13.0; None: none, so nothing is tried
    again   try it even if what was found before is known
    """
    if cuda is None or not any(map(os.path.exists, _DRIVER)):
        return ""  # the extension calls CUPTI only after the driver was initialised
    library = find_library(cuda)
    key = f"{library} {_stamp(library)} {os.uname().nodename} {_driver()}"
    reason = None if again else kept.read(_KIND, key)
    if reason is None:
        reason, lasts = attempt(library)
        if lasts:
            kept.write(_KIND, key, reason)
    return f"{reason}; to try again: tracer doctor" if reason else ""


def find_library(cuda: str) -> str:
    """The libcupti that torch loads: that of NVIDIA's packages, else the name that the loader looks up."""
    major = cuda.partition(".")[0]
    name = f"libcupti.so.{major}"
    for folder in sys.path:
        for package in (f"cu{major}", "cuda_cupti"):
            path = os.path.join(folder, "nvidia", package, "lib", name)
            if os.path.exists(path):
                return os.path.realpath(path)
    return name


def attempt(library: str) -> tuple[str, bool]:
    """Call it in another process: why tracer must not call it, and whether that will hold the next time.

    "" if that process lived, or could not even load the libraries.
    """
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH"}
    try:
        done = subprocess.run(
            bare_helper(_TRY, library),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"{_last(error.stdout)} of {library} did not return within {_SECONDS} s", False
    except OSError:
        return "", False
    last = _last(done.stdout)
    # 1 is Python's own error. A script that ignores SIGCHLD hides the status, but not how far it came.
    if done.returncode == 1 or (done.returncode == 0 and last == _DONE):
        return "", True
    how = f" (signal {-done.returncode})" if done.returncode < 0 else ""
    return f"{last} of {library} crashed{how}", -done.returncode in _FAULTS


def _last(out: bytes | None) -> str:
    lines = (out or b"").decode(errors="replace").split()
    return lines[-1] if lines else "loading"


def _stamp(library: str) -> str:
    try:
        found = os.stat(library)
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


def _driver() -> str:
    try:
        with open(_DRIVER[0], encoding="utf-8", errors="replace") as file:
            return file.readline()
    except OSError:
        return ""
