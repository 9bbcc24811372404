"""TRACER_JOIN, by which processes join a recording. A shell or a service may keep it after the recording.

So an invitation names the process that records, and counts only while that process lives and its file
says that it is being written.
"""

from __future__ import annotations

import os
import sys

NAME = "TRACER_JOIN"
# `-X` option of a Python that ignores the environment (-I, -E), but may read what `tracer record` has set.
FLAG = "tracer"

# The begin of a trace: csrc/trace/records.h.
_MAGIC = b"tracer\n\x1a"
_STATE, _SESSION, _HEADER = slice(16, 20), slice(24, 32), 32
_RECORDING, _CLOSED = 0, 1

# With a dot: qemu runs containers of other processors, and makes these files up for the process itself only.
_PROC = "/proc/./{}/{}"


def this_process() -> list[int]:
    """What distinguishes this process from all others: its number in /proc, its start time, its namespace.

    It stays the same when the process becomes another program.
    """
    return [_number(), _began("self"), _namespace()]


def _number() -> int:
    """Its pid, but in a namespace of pids that kept the /proc of another: what it is called there."""
    try:
        return int(os.readlink("/proc/self"))
    except (OSError, ValueError):
        return os.getpid()


def withdraw() -> None:
    """Take it out of the environment; if an audit hook of the program refuses, it ends with the recording."""
    try:
        os.environ.pop(NAME, None)
    except Exception as error:
        if _is_of_the_program(error):
            raise


def program(process: int) -> int:
    """What distinguishes the program that a process runs from those that it runs later (`exec`); 0: unknown.

    Linux gives each program addresses of its own, which /proc/PID/auxv lists.
    """
    import zlib

    try:
        with open(_PROC.format(process, "auxv"), "rb") as file:
            addresses = file.read()
    except OSError:
        return 0
    return zlib.crc32(addresses) if any(addresses) else 0


def lives(process: object, path: str, runs: object = None) -> bool:
    """Whether the process that `this_process` described is still running, and `runs` is its `program`.

    `path` is the file that it writes: of a process in another container nothing else can be seen.
    """
    if not isinstance(process, list) or not all(isinstance(number, int) for number in process):
        return False
    if len(process) != 3 or process[0] <= 0:
        return False
    number, began, namespace = process
    if namespace != _namespace():
        return _is_written(path)
    try:
        if _number() == os.getpid():  # else pids are other numbers than those of /proc
            os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's
    return _began(str(number)) == began and (not runs or program(number) in (0, runs))


def running(invitation: str) -> str | None:
    """The path of the recording of an invitation; None if it has ended, or if the invitation is malformed.

    A recording that waits for `import torch` counts as one that runs.
    """
    import json

    try:
        request = json.loads(invitation)
        path = request["path"]
        if not isinstance(path, str) or not lives(request["process"], path, request.get("program")):
            return None
        header = _header(path)
        if not header:
            return path
        return path if _is_session(header, request["session"]) and _is_recording(header) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_begun(path: str, session: object) -> bool:
    """Whether the recording with this session number has begun to write the file.

    Until then the file is empty, or an older trace that `--force` gives up.
    """
    header = _header(path)
    return header.startswith(_MAGIC) and _is_session(header, session)


def has_ended(path: str) -> bool:
    """Whether the header of this file says that its recording was stopped properly."""
    try:
        return _state(_header(path)) == _CLOSED
    except Exception as error:  # it is gone, or an audit hook of the program refuses
        if _is_of_the_program(error):
            raise
        return False


def _is_of_the_program(error: BaseException) -> bool:
    interrupts = sys.modules.get("tracer.base.interrupts")  # loaded since the recording has begun
    return interrupts is not None and interrupts.is_of_the_program(error)


def _header(path: str) -> bytes:
    from tracer.base.boundary import open_regular  # not each start of a Python comes here

    with open(path, "rb", buffering=0, opener=open_regular) as file:
        return file.read(_HEADER)


def _is_recording(header: bytes) -> bool:
    return header.startswith(_MAGIC) and _state(header) == _RECORDING


def _is_session(header: bytes, session: object) -> bool:
    return int.from_bytes(header[_SESSION], "little") == session


def _state(header: bytes) -> int:
    return int.from_bytes(header[_STATE], "little")


def _began(process: str) -> int:
    """When a process began, in ticks of the kernel's clock; 0 if it has ended, or /proc cannot be read."""
    try:
        with open(_PROC.format(process, "stat"), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _is_written(path: str) -> bool:
    from tracer.base.boundary import open_regular
    from tracer.trace.bytes.leases import is_open_for_writing

    try:
        descriptor = open_regular(path)
    except OSError:
        return False
    try:
        return is_open_for_writing(descriptor)
    finally:
        os.close(descriptor)
