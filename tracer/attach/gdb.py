"""Has a stopped process call a function: gdb attaches, adds a pending call to its Python, and detaches."""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tracer.attach.process import (
    GDB_FOLDER,
    OTHERS,
    START_IT,
    ExecutedError,
    Process,
    PythonEndsError,
    already_traced,
    not_permitted,
)
from tracer.base.errors import RecordingError
from tracer.base.visible import visible

_IS_X86 = platform.machine() == "x86_64"
_INSTALL = "apt-get install gdb (dnf install gdb)"
_NEW = 14  # the first version that asks the processor how large its registers are
_SHORTEST, _LONGEST = 5.0, 30.0  # seconds that gdb may have to attach; it needs less than one
_HOLDS = 30.0  # seconds more for a gdb that has the process stopped: to end it in a call harms the process
_LAST = 2.0  # seconds for a gdb that was told to end
_ADDED, _ATTACHED, _WRITTEN = "tracer-added", "tracer-attached", "tracer-written"
_THERE, _ELSEWHERE, _PYTHON, _FULL = "tracer-there", "tracer-elsewhere", "tracer-python", "tracer-full"
# Debian's and Ubuntu's gdb says more to a refusal, and by saying it loses what the system had said: then
# "ptrace: Operation not permitted" becomes "ptrace: Inappropriate ioctl for device".
_REFUSED = ("not permitted", "Could not attach to process.  If your uid", "is already traced by process")
_NOT_FOR_GDB = ("DEBUGINFOD_URLS", "PYTHONHOME", "PYTHONPATH")  # it has a Python of its own
# What gdb reads when it attaches, it reads while the process is stopped. All addresses are known without the
# symbols of its libraries, which would take seconds, and of its Python: some 100 ms. The sysroot is where gdb
# looks for the program itself. On aarch64 it must find it: its entry point is where calls return to.
_SETTINGS = ["set auto-solib-add off", "set auto-load off"] + ["set sysroot /dev/null"] * _IS_X86
_VERSION_TEXT = re.compile(r"^GNU gdb\b.*?(?:^Type \"apropos [^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
# Of each processor: a register that gdb writes together with all floating-point and vector registers, and
# a bit of it that only notes that some result was rounded.
_REGISTERS = {"x86_64": ("mxcsr", 0x20), "aarch64": ("fpsr", 0x10)}
# A gdb that is older than the processor may know too small a size of these registers; Linux then refuses to
# write them. In the middle of a call that leaves the process with half of its registers, and has ended jobs;
# here nothing is changed yet. gdb writes no value that is there already: the bit is inverted and put back.
_TRY_TO_WRITE = """\
set $saved = ${name}
set ${name} = $saved ^ {bit:#x}
set ${name} = $saved
"""
# First all of them are kept, because gdb may change more than it writes.
_KEEP_REGISTERS = Path(__file__).with_name("keep_registers.py")
_KEEP = """\
if $_isvoid($tracer_keeps)
if $_isvoid($_gdb_major) || $_gdb_major < {new}
printf "it has no Python, so it may change others\\n"
detach
quit
end
else
python keep_registers({pid})
end
"""
# A gdb that fails itself, as it may when the process ends, leaves no core file in the user's folder. A signal
# of the process must not stop it for gdb, which nobody would answer.
# First, whether the functions are at these addresses: the process may have begun another program since its
# memory was looked at, also the same Python, which has its own functions at the same place again. Then,
# whether Python runs: Py_FinalizeEx clears that flag before it frees what Py_AddPendingCall uses. In a call
# only the main thread runs: no other one ends the process meanwhile, and a crash is the call's own. gdb keeps
# the signal from the process, and undoes the call.
_COMMANDS = """\
set confirm off
maintenance set internal-error corefile no
set unwindonsignal on
handle all nostop noprint pass
handle SIGINT nostop noprint pass
show version
attach {pid}
printf "{attached}\\n"
{keep}{try_to_write}printf "{written}\\n"
if {is_there}
printf "{there}\\n"
set scheduler-locking on
handle SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT stop nopass
set $python = ((int (*)(void)) {is_initialized:#x})()
printf "{python} %d\\n", $python
if $python
set $page = ((long (*)(long, long, long, long, long, long)) {mmap:#x})(0, {size}, 3, 0x22, -1, 0)
if $page == -1
printf "{full}\\n"
else
restore /proc/self/fd/{text} binary $page
set $added = ((int (*)(long, long)) {add_pending_call:#x})({run_string:#x}, $page)
printf "{word} %d\\n", $added
end
end
else
printf "{elsewhere}\\n"
end
"""
# Also after an error in the commands above.
_DETACH = """\
handle all nostop noprint pass
handle SIGINT nostop noprint pass
if ! $_isvoid($tracer_keeps)
python put_registers_back({pid})
end
detach
"""


def find() -> str:
    """The gdb on the PATH. Raises RecordingError with what to install."""
    path = shutil.which("gdb")
    if path is None:
        # It starts NVIDIA's debugger in the process, which crashed jobs and keeps CUPTI from tracer.
        instead = "; cuda-gdb cannot replace it" if shutil.which("cuda-gdb") else ""
        raise RecordingError(f"tracer attach needs gdb, which is missing{instead}: {_INSTALL}")
    return path


def inject(process: Process, gdb: str, script: str, patience: float) -> None:
    """Have the process run the Python text on its main thread, soon. It is stopped for some 20 ms.

    `patience`: seconds for gdb to attach, as far as they are between 5 and 30. Raises RecordingError if gdb
    cannot attach or cannot write registers, or if the call could not be added, PythonEndsError if Python does
    not run there.
    """
    entrances = process.entrances()
    register = _REGISTERS.get(platform.machine())
    patience = min(max(patience, _SHORTEST), _LONGEST)
    # gdb takes no name of a file that has spaces, so it gets a number. Those below 3 are its own.
    with (
        _folder() as folder,
        tempfile.TemporaryFile() as unnamed,
        os.fdopen(fcntl.fcntl(unnamed.fileno(), fcntl.F_DUPFD_CLOEXEC, 3), "wb") as text,
    ):
        text.write(script.encode() + b"\0")
        text.flush()
        commands, detach = folder / "commands", folder / "detach"
        detach.write_text(_DETACH.format(pid=process.pid))
        commands.write_text(
            _COMMANDS.format(
                pid=process.pid,
                size=text.tell(),
                text=text.fileno(),
                word=_ADDED,
                attached=_ATTACHED,
                written=_WRITTEN,
                there=_THERE,
                elsewhere=_ELSEWHERE,
                python=_PYTHON,
                full=_FULL,
                is_there=" && ".join(f"*(long*) {at:#x} == (long) {code:#x}" for at, code in entrances.code),
                keep=_KEEP.format(pid=process.pid, new=_NEW) if _IS_X86 else "",
                try_to_write=_TRY_TO_WRITE.format(name=register[0], bit=register[1]) if register else "",
                **vars(entrances),
            )
        )
        command = [gdb, "-nx", "-batch", "--readnever"]
        for setting in _SETTINGS:
            command += ["-iex", setting]
        files = [_KEEP_REGISTERS] if _IS_X86 else []
        for file in (*files, commands, detach):
            command += ["-x", str(file)]
        end = _attached(process, command, text.fileno(), patience)
    if f"{_ADDED} 0" not in end.said:
        raise _why(process, gdb, end)


@contextmanager
def _folder() -> Iterator[Path]:
    """For gdb's files. It is gone afterwards, also if a signal ends this command while it is removed."""
    folder = Path(tempfile.mkdtemp(prefix=GDB_FOLDER))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except KeyboardInterrupt:
            shutil.rmtree(folder, ignore_errors=True)
            raise


@dataclass(frozen=True)
class _End:
    """How a run of gdb ended: what it said, and how long it had if it was ended before it attached."""

    said: str
    status: int | None
    late: float | None = None
    is_blocked: bool = False  # the process waited in the kernel, where gdb cannot stop it

    @property
    def how(self) -> str:
        if self.status is None:
            return "it did not end"
        if self.status >= 0:
            return f"exit status {self.status}"
        with suppress(ValueError):
            return f"ended by {signal.Signals(-self.status).name}"
        return f"ended by signal {-self.status}"

    @property
    def is_refused(self) -> bool:
        """Whether the system did not let gdb attach."""
        return _ATTACHED not in self.said and any(words in self.said for words in _REFUSED)


def _attached(process: Process, command: list[str], text: int, patience: float) -> _End:
    """Runs gdb, and again while the gdb of another attach has the process."""
    last = time.monotonic() + OTHERS
    for tries in itertools.count(1):
        end = _run(process, command, text, patience)
        is_held = bool(_holder(process, end.said)) or tries == 1  # it may have let go meanwhile
        if not (end.is_refused and is_held) or time.monotonic() > last:
            break
        time.sleep(0.2)
    return end


def _holder(process: Process, said: str) -> int:
    """The process that traces it, now or when gdb was refused; 0 if there is none."""
    found = re.search(r"is already traced by process (\d+)", said)
    return int(found[1]) if found else process.debugger()


def _why(process: Process, gdb: str, end: _End) -> RecordingError:
    """What went wrong, from what gdb said, and what to do."""
    said = end.said
    pid, error = process.pid, visible(_error_line(said), 200)
    is_attached = _ATTACHED in said
    if end.is_refused:
        holder = _holder(process, said)
        return already_traced(pid, holder) if holder else not_permitted(pid)
    if not process.is_running():
        when = "while gdb was attached to it" if is_attached else "before tracer could attach"
        return PythonEndsError(f"process {pid} ended {when}")
    if end.late is not None and end.is_blocked:
        return RecordingError(
            f"process {pid} waits in the kernel, e.g. for a disk, a driver or a child that it starts, and "
            f"could not be stopped in {end.late:g} s, so nothing was changed; attach again later"
        )
    if end.late is not None:
        do = "wait longer (--timeout SECONDS)" if end.late < _LONGEST else "try again"
        return RecordingError(
            f"{gdb} did not attach to process {pid} in {end.late:g} s, so tracer ended it, and nothing was "
            f"changed; {do}, or check that gdb works: gdb --version"
        )
    if is_attached and _WRITTEN not in said:
        version, is_old = _version(said)
        do = f"install gdb {_NEW} or newer" if is_old else START_IT
        return RecordingError(
            f"{version} cannot write the registers of this CPU ({error.rstrip('.')}), "
            f"so process {pid} was left as it was; {do}"
        )
    if _ELSEWHERE in said or (_THERE not in said and error.startswith("Cannot access memory at address")):
        return ExecutedError(f"process {pid} has begun another program; attach again")
    if f"{_PYTHON} 0" in said:
        which = "ended" if process.is_a_python() else "ended or not begun"  # it had loaded torch
        return PythonEndsError(f"Python in process {pid} has {which}, so nothing was changed")
    if _FULL in said:
        return RecordingError(f"process {pid} has no memory left, so nothing was changed; {START_IT}")
    if f"{_ADDED} -1" in said:
        return RecordingError(f"Python in process {pid} has no place for another call now; attach again")
    if found := re.search(r"received signal (SIG\w+)", said):
        return RecordingError(f"a call in process {pid} ended with {found[1]} and was undone; {START_IT}")
    what = "call a function in" if is_attached else "attach to"
    return RecordingError(f"{gdb} could not {what} process {pid} ({end.how}): {error}")


def _version(said: str) -> tuple[str, bool]:
    """The gdb and its version, as in "gdb 13.1", and whether a newer one may know more registers."""
    found = re.search(r"^GNU gdb\b.*?(\d+)\.(\d+)(?!.*\d\.\d)", said, re.MULTILINE)
    return (f"gdb {found[1]}.{found[2]}", int(found[1]) < _NEW) if found else ("gdb", True)


def _error_line(said: str) -> str:
    """The line in which gdb says what went wrong, else the last one that it was not asked for."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("[Inferior ")]
    for line, following in itertools.pairwise(lines):
        if line.endswith("Error in sourced command file:"):
            return following
    said = _VERSION_TEXT.sub("", said)
    lines = [line for line in lines if line in said and line not in (_ATTACHED, _WRITTEN, _THERE)]
    return lines[-1] if lines else "it said nothing"


def _run(process: Process, command: list[str], text: int, patience: float) -> _End:
    """Runs gdb, which inherits the file `text`, in a session of its own: Ctrl-C does not end it midway.

    Raises RecordingError if it cannot be started.
    """
    was_stopped = process.is_stopped()
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_GDB}
    try:
        gdb = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment | {"LC_ALL": "C"},
            pass_fds=(text,),
            start_new_session=True,
        )
    except OSError as error:  # e.g. an empty file, or a program of another CPU
        why = error.strerror or error
        raise RecordingError(f"cannot run {command[0]}: {why}; install gdb: {_INSTALL}") from None
    with gdb:
        try:
            return _end(process, gdb, patience, was_stopped)
        except KeyboardInterrupt:
            _end(process, gdb, _LAST, was_stopped)
            raise


def _end(process: Process, gdb: subprocess.Popen[str], patience: float, was_stopped: bool) -> _End:
    """What gdb says until it ends. One that does not end in time is ended, with what it has started."""
    seconds, has_held, blocked = patience, False, False
    for number in (signal.SIGINT, signal.SIGKILL, None):
        with suppress(subprocess.TimeoutExpired):
            said = gdb.communicate(timeout=seconds)[0]
            if number is None and not was_stopped and process.is_stopped():
                with suppress(OSError):  # the SIGSTOP with which that gdb attached is still on its way
                    os.kill(process.pid, signal.SIGCONT)
            return _End(said, gdb.returncode, _late(number, patience, has_held), blocked)
        if _is_of(process.debugger(), gdb.pid):
            blocked = process.state() == "D"  # the kernel stops it later, so nothing is called in it yet
        if not blocked and _is_of(process.debugger(), gdb.pid):
            has_held = True
            with suppress(subprocess.TimeoutExpired):
                said = gdb.communicate(timeout=_HOLDS)[0]
                return _End(said, gdb.returncode)
        if number is not None:
            with suppress(ProcessLookupError):
                os.killpg(gdb.pid, number)
        seconds = _LAST
    return _End("", None, _late(None, patience, has_held), blocked)


def _late(next_signal: int | None, patience: float, has_held: bool) -> float | None:
    return None if next_signal == signal.SIGINT or has_held else patience


def _is_of(pid: int, group: int) -> bool:
    """Whether a process is in the group, as gdb and what it has started are."""
    try:
        return pid != 0 and os.getpgid(pid) == group
    except OSError:
        return False
