"""The recording of a process that tracer attached to, and that has begun another program since (`exec`).

exec takes the recorder away with the process's memory. Nobody closes the trace then, and children that joined
the recording would go on writing to it.
"""

from __future__ import annotations

import json
import os

from tracer.attach.process import Process
from tracer.base.boundary import open_regular
from tracer.base.errors import RecordingError
from tracer.base.visible import visible
from tracer.recording import invitation
from tracer.recording.summary import Summary
from tracer.trace.bytes import format as fmt
from tracer.trace.certificate.verdict import EXECUTED

_STATE, _EXECUTED = 16, 100  # where they are in the header of a trace: csrc/trace/records.h
_COUNTED = 1 << 28  # bytes of a trace whose hops are counted for its summary; a larger one takes too long

_NOT_OURS = (OSError, TypeError, ValueError, RecordingError)


def close_of(pid: int) -> tuple[str, Process] | None:
    """Close the trace that this process has left open: its path and the process, None if there is none.

    The new program has the invitation to that recording in the environment with which it began.
    """
    try:
        process = Process(pid)
        mark = f"{invitation.NAME}="
        request = json.loads(
            next(word for word in process.words("environ") if word.startswith(mark))[len(mark) :]
        )
        path, began, before = str(request["path"]), request["process"], request.get("program")
        if began[0] != pid or not before:
            return None
        with process.rights():  # the process chose the path, which may be opened
            if not invitation.lives(began, path):
                return None
        if invitation.program(pid) in (0, before):
            return None
        return (path, process) if close(path, process, request["session"]) else None
    except (*_NOT_OURS, KeyError, IndexError, StopIteration, RecursionError):
        return None


def close(path: str, process: Process, session: object = None) -> bool:
    """Say in the trace of this process that it began another program. From then on nobody writes to it.

    False if it is closed, or another process's, or of another session than this one, or cannot be written.
    """
    try:
        with process.rights(), open(path, "r+b", buffering=0, opener=open_regular) as file:
            header = file.read(fmt.FILE_HEADER.size)
            if len(header) < fmt.FILE_HEADER.size or not header.startswith(fmt.MAGIC):
                return False
            found = fmt.unpack_file_header(header)
            if found.state != fmt.RECORDING or found.root_pid != process.pid:
                return False
            if session not in (None, found.session):
                return False
            for at, value in ((_EXECUTED, 1), (_STATE, fmt.CLOSED)):
                os.pwrite(file.fileno(), value.to_bytes(4, "little"), at)
    except _NOT_OURS:
        return False
    return True


def told(pid: int, shown: str) -> str:
    """What to say of it."""
    return f"process {pid} began another program, so its recording ended; {shown} has what it did until then"


def summary(path: str, process: Process, shown: str = "") -> str:
    """The closing summary, from the trace of this process; "" if it cannot be read or is large."""
    from tracer.trace import TraceError, load

    try:
        with process.rights():  # its path may lead to another file by now
            size = os.path.getsize(path)
            if size > _COUNTED:
                return ""
            found = load(path).certificate
    except (OSError, TraceError, RecordingError):
        return ""
    names = ("op_calls", "hops", "threads", "processes", "open_hops")
    counts = {name: found[name] for name in names}
    in_gpu_tables = ("kernels", "memcpys", "memsets")
    cuda = found.get("cuda", {})
    return Summary(
        path=path,
        shown=visible(shown or path),
        **counts,
        size=size,
        api_calls=cuda.get("api_calls", 0),
        activities=sum(cuda.get(name, 0) for name in in_gpu_tables),
        ns_per_hop=None,
        dropped=(EXECUTED,),
    ).text()
