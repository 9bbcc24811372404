"""A running process, looked at through /proc before it is touched: can tracer attach to it?"""

from __future__ import annotations

import os
import pwd
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tracer.base import extension
from tracer.base.boundary import open_regular
from tracer.base.elf import UNDEFINED_SECTION, Elf, named
from tracer.base.errors import RecordingError
from tracer.base.torch_build import TorchBuild, build_of, facts_of
from tracer.base.visible import visible
from tracer.recording import invitation, ranks
from tracer.trace.bytes.damage import DamagedError, whole

_LIBC = re.compile(r"(libc[.-]|ld-musl|libc\.musl).*so")
_PYTHON = re.compile(r"(lib)?python\d")
_ENDS_WITH_CODE = re.compile("-[A-Za-z]*c")  # also behind other options: -uc CODE
_TORCH = "libtorch_python.so"
_PAGE = 4096
GDB_FOLDER = "tracer-gdb-"  # what the folder with the commands for gdb is called
OTHERS = 5.0  # seconds until the gdb of another attach has let go of the process
START_IT = "start the job with: tracer record"


_FILES = 16  # that may still be opened: a recording needs a few, and imports open some
_MEMORY = 512 << 20  # of address space: the extension, the mapped trace, a thread and its heap
_MOST_OF_EXEC = 8 << 20  # bytes of arguments and environment; Linux gives a new program at most 6 MiB
_SMALL = 1 << 16  # characters of a text that may be anything
_MOST_SYMBOLS = 1 << 16
_MOST_NAMES = 1 << 24
"""Of a Python or a libc; 8,000 are usual, and 200 KB of their names"""
_CODE = 8  # bytes with which a function begins


class PythonEndsError(RecordingError):
    """Python no longer runs in the process, or not yet."""


class ExecutedError(RecordingError):
    """The process has begun another program."""


@dataclass(frozen=True)
class Entrances:
    """Addresses in the process of the functions that are called there, and how they begin."""

    mmap: int
    is_initialized: int
    add_pending_call: int
    run_string: int
    code: tuple[tuple[int, int], ...]  # addresses, and what 8 bytes there are as a number


class Process:
    """A process of this machine, by its number. Its checks raise RecordingError with what to do."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Path("/proc", str(pid))
        try:
            self.user = os.stat(self._folder).st_uid
        except FileNotFoundError:
            raise _no_process(pid) from None
        if not self.is_running():
            raise _no_process(pid)
        if self._numbers("Tgid") not in ([pid], []):
            raise RecordingError(f"{pid} is a thread of process {self._numbers('Tgid')[0]}; give that number")
        self._program = invitation.program(pid)
        self._groups = self._numbers("Gid")[1:2] + self._numbers("Groups")
        self._has_executed = False

    def is_running(self) -> bool:
        state = self.state()
        return bool(state) and (state not in "ZX" or self.has_lost_its_main_thread())

    def has_lost_its_main_thread(self) -> bool:
        """Whether the main thread has ended, and others have not."""
        try:
            return self.state() == "Z" and len(os.listdir(self._folder / "task")) > 1
        except OSError:
            return False

    def has_executed(self) -> bool:
        """Whether it has begun another program since this object was made. Once true, it stays so."""
        if not self._has_executed and self._program:
            self._has_executed = invitation.program(self.pid) not in (0, self._program)
        return self._has_executed

    def is_same(self) -> bool:
        """Whether it runs, and still the program that tracer attached to."""
        return self.is_running() and not self.has_executed()

    def state(self) -> str:
        """The letter that ps shows: R (runs), S (sleeps), T (stopped)...; "" if there is no such process."""
        try:
            return (self._folder / "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
        except (OSError, IndexError):
            return ""

    def debugger(self) -> int:
        """The process that traces it now, 0 if none does."""
        return (self._numbers("TracerPid") or [0])[0]

    def _numbers(self, name: str) -> list[int]:
        """What its status says under this name; [] if that is nothing, or cannot be read."""
        try:
            found = re.search(rf"^{name}:([\t \d]*)$", (self._folder / "status").read_text(), re.MULTILINE)
        except OSError:
            return []
        return [int(number) for number in found[1].split()] if found else []

    @contextmanager
    def rights(self) -> Iterator[None]:
        """Meanwhile root has only the rights of the process's user: its folders are no place for more.

        A name there may become a link to any file at any moment. Raises RecordingError.
        """
        if self.user == os.getuid():
            yield
            return
        own, groups = os.getegid(), os.getgroups()
        try:
            os.setgroups(self._groups[1:])
            os.setegid(self._groups[0])
            os.seteuid(self.user)
            yield
        except (OSError, IndexError, RecordingError) as error:
            raise RecordingError(f"as {_user(self.user)}, whose job it is: {error}") from None
        finally:
            os.seteuid(os.getuid())
            os.setegid(own)
            os.setgroups(groups)

    def is_stopped(self) -> bool:
        """Whether it waits for SIGCONT, or will: a SIGSTOP is on its way to one of its threads."""
        try:
            for status in (self._folder / "task").glob("*/status"):
                pending = re.search(r"^SigPnd:\s*(\w+)", status.read_text(), re.MULTILINE)
                if pending and int(pending[1], 16) >> (signal.SIGSTOP - 1) & 1:
                    return True
        except OSError:
            pass
        return self.state() == "T"

    def is_a_python(self) -> bool:
        """Whether its program is Python itself, not one that may begin and end Python."""
        try:
            return bool(_PYTHON.match(os.path.basename(os.readlink(self._folder / "exe"))))
        except OSError:
            return False

    def script(self) -> str:
        """The script or module of its command line, "" if it has none."""
        words = self.words("cmdline")[1:-1]
        for option, word in zip(["", *words], words, strict=False):
            if _ENDS_WITH_CODE.fullmatch(option):
                return ""
            if option in ("-W", "-X"):
                continue
            if option == "-m" or not word.startswith("-"):
                return word
        return ""

    def rank(self) -> ranks.Rank | None:
        """Its rank in a job, as its environment says; None if it is alone, or that cannot be read."""
        words = self.words("environ")
        return ranks.of_this_process(dict(word.split("=", 1) for word in words if "=" in word))

    def words(self, name: str) -> list[str]:
        """Its "cmdline" or its "environ", not more of them than exec gives; empty if they cannot be read."""
        return _words(self._folder / name)

    def check(self) -> None:
        """Whether tracer may attach, and fits the Python and the torch of the process."""
        if self.has_lost_its_main_thread():
            raise RecordingError(
                f"the main thread of process {self.pid} has ended, so tracer cannot attach; {START_IT}"
            )
        try:
            self._check()
        except (FileNotFoundError, ProcessLookupError):
            raise _no_process(self.pid) from None

    def _check(self) -> None:
        self._check_permission()
        maps = self._maps()
        self._check_python(maps)
        torch = next((path for path in maps if path.endswith("/" + _TORCH)), None)
        if torch is None:
            raise RecordingError(
                f"process {self.pid} has not loaded torch; attach again when it has, or {START_IT}"
            )
        extension.check(_torch_build(torch))

    def check_room(self) -> None:
        """Whether its limits leave a recording the files and the memory that it needs."""
        try:
            limits = (self._folder / "limits").read_text()
            status = (self._folder / "status").read_text()
            files = len(os.listdir(self._folder / "fd"))
        except OSError:
            return  # it has ended, or does not say
        most = _number(r"^Max open files\s+(\d+)", limits)
        if most is not None and most - files < _FILES:
            raise RecordingError(
                f"process {self.pid} has {files} of at most {most} files open, and a recording needs "
                f"{_FILES} more; raise that limit: prlimit --pid {self.pid} --nofile={most + 64}"
            )
        memory, used = _number(r"^Max address space\s+(\d+)", limits), _number(r"^VmSize:\s+(\d+)", status)
        if memory is not None and used is not None and memory - used * 1024 < _MEMORY:
            raise RecordingError(
                f"process {self.pid} is limited to {memory >> 20} MiB of address space (ulimit -v) and uses "
                f"{used >> 10}, and a recording needs {_MEMORY >> 20} more; raise that limit: "
                f"prlimit --pid {self.pid} --as={used * 1024 + 2 * _MEMORY}"
            )

    def entrances(self) -> Entrances:
        """The functions to call.

        Raises RecordingError if the Python of the process does not export them, PythonEndsError if the
        process has ended.
        """
        try:
            maps = self._maps()
            pythons = self._pythons(maps)
        except (FileNotFoundError, ProcessLookupError):  # so it has ended
            maps, pythons = {}, []
        libc = next((path for path in maps if _LIBC.match(os.path.basename(path))), "")
        names = ["Py_IsInitialized", "Py_AddPendingCall", "PyRun_SimpleString"]
        of_python = _functions(maps, pythons, names)
        of_libc = _functions(maps, [libc], ["mmap"])
        # A process that ends loses its memory before it counts as ended.
        if not maps or not self.is_running():
            raise PythonEndsError(f"process {self.pid} ended before tracer could attach")
        if len(of_python) < len(names) or not of_libc:
            raise RecordingError(
                f"the Python of process {self.pid} exports no Py_AddPendingCall (a static build without "
                f"symbols), so tracer cannot attach; {START_IT}"
            )
        is_initialized, pending, run = (of_python[name][0] for name in names)
        code = (*of_python.values(), *of_libc.values())
        return Entrances(of_libc["mmap"][0], is_initialized, pending, run, code)

    def _check_permission(self) -> None:
        last = time.monotonic() + OTHERS
        while (
            (debugger := self.debugger()) and _is_of_tracer(debugger) is not False and time.monotonic() < last
        ):
            time.sleep(0.05)
        if debugger:
            raise already_traced(self.pid, debugger)
        if self.user != os.getuid() and os.geteuid() != 0:
            raise RecordingError(
                f"process {self.pid} belongs to {_user(self.user)}; run this command as that user"
            )
        for space in ("ns/mnt", "ns/pid", "root"):
            try:
                same = os.path.samefile(self._folder / space, Path("/proc/self", space))
            except PermissionError:
                raise not_permitted(self.pid) from None
            if not same:
                raise RecordingError(
                    f"process {self.pid} runs in another container; run this command inside of it"
                )

    def _check_python(self, maps: dict[str, int]) -> None:
        pythons = self._pythons(maps)
        if not pythons:
            raise RecordingError(
                f"process {self.pid} is not a Python process; give the number of one that is"
            )
        version = next((found for path in pythons if (found := _python_version(path))), None)
        if version is not None and version != sys.version_info[:2]:
            theirs, ours = (".".join(map(str, numbers[:2])) for numbers in (version, sys.version_info))
            raise RecordingError(
                f"process {self.pid} runs Python {theirs}, and this tracer is built for {ours}; "
                "use a tracer that is installed for that Python"
            )

    def _pythons(self, maps: dict[str, int]) -> list[str]:
        """The files that may be its interpreter: its program, and libpython."""
        program = os.readlink(self._folder / "exe")
        libraries = [path for path in maps if re.match(r"libpython\d", os.path.basename(path))]
        return libraries + ([program] if _PYTHON.match(os.path.basename(program)) or libraries else [])

    def _maps(self) -> dict[str, int]:
        """file that is mapped -> its lowest address."""
        found: dict[str, int] = {}
        try:
            lines = (self._folder / "maps").read_text(errors="surrogateescape").splitlines()
        except PermissionError:
            raise not_permitted(self.pid) from None
        for line in lines:
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[5].startswith("/"):
                found.setdefault(words[5], int(words[0].partition("-")[0], 16))
        return found


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else None


def _no_process(pid: int) -> RecordingError:
    return RecordingError(f"no process {pid} runs here; list the Python processes with: pgrep -a python")


def already_traced(pid: int, debugger: int) -> RecordingError:
    """Linux lets one process trace another, and one has it."""
    is_of_tracer = _is_of_tracer(debugger)
    if is_of_tracer is None:
        return RecordingError(
            f"process {pid} was traced by process {debugger}, which has ended meanwhile; try again"
        )
    if is_of_tracer:
        return RecordingError(
            f"process {pid} is already traced by process {debugger}, which another tracer attach or detach "
            "started; try again when that has ended"
        )
    return RecordingError(
        f"process {pid} is already traced by process {debugger} (a debugger, strace or another tracer "
        "attach); end that first"
    )


def _is_of_tracer(debugger: int) -> bool | None:
    """Whether it is a gdb that another attach or detach has started; None if it has ended."""
    command = "".join(
        _words(Path("/proc", str(debugger), "cmdline"))
    )  # a thread may trace, which is no Process
    return GDB_FOLDER in command if command else None


def _words(path: Path) -> list[str]:
    """A process may say that they are anywhere in its memory, and of any length."""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_OF_EXEC).decode(errors="replace").split("\0")
    except OSError:
        return []


def not_permitted(pid: int) -> RecordingError:
    """The system does not let this user trace the process: why, and what changes that."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope in (1, 2):
        allow = "run as root, or allow it: sysctl kernel.yama.ptrace_scope=0"
        what = f"kernel.yama.ptrace_scope is {scope}; {allow}"
    elif scope > 2:
        what = f"kernel.yama.ptrace_scope is {scope}, which forbids it until the next boot; {START_IT}"
    else:
        root = "root may not trace it either" if os.geteuid() == 0 else "run as root"
        what = f"{root}; in a container, start that with --cap-add SYS_PTRACE"
    return RecordingError(f"tracing process {pid} is not permitted: {what}")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _torch_build(library: str) -> TorchBuild:
    """The torch that this library (torch/lib/libtorch_python.so) is of."""
    path = Path(library).parent.parent / "version.py"
    try:
        with open(open_regular(path), encoding="utf-8", errors="replace") as file:
            found = build_of(facts_of(file.read(_SMALL)))
    except OSError:
        found = build_of({})
    return found._replace(version=visible(found.version))


def _python_version(path: str) -> tuple[int, int] | None:
    """The version of a Python executable or library; None if it does not tell."""
    try:
        number = whole(_py_version, path)
    except DamagedError:
        number = 0
    if number:
        return number >> 24, number >> 16 & 0xFF
    named = re.match(r"(?:lib)?python(\d)\.(\d+)", os.path.basename(path))
    return (int(named[1]), int(named[2])) if named else None


def _py_version(path: str) -> int:
    """What a file has as Py_Version, which Python 3.11 and newer export; else 0."""
    elf = Elf(path)
    values = _exported(elf, ["Py_Version"])["Py_Version"]
    numbers = (int.from_bytes(elf.bytes_at(value, 8), sys.byteorder) for value in values)
    return next(filter(None, numbers), 0)


def _exported(elf: Elf, names: list[str]) -> dict[str, list[int]]:
    """name -> the addresses of what the file exports as it. Raises ValueError: more than any Python has."""
    table = elf.section(".dynsym")
    if table is None:
        return {name: [] for name in names}
    symbols, texts = elf.symbols(table, _MOST_SYMBOLS), elf.names(table, _MOST_NAMES)
    symbols = symbols[symbols["section"] != UNDEFINED_SECTION]
    return {name: symbols["value"][named(texts, symbols["name"], name)].tolist() for name in names}


def _functions(maps: dict[str, int], paths: list[str], names: list[str]) -> dict[str, tuple[int, int]]:
    """name that one of the files exports -> its address, and its first bytes as a number."""
    found: dict[str, tuple[int, int]] = {}

    def look(path: str) -> None:
        elf = Elf(path)
        first = elf.first_address // _PAGE * _PAGE
        for name, values in _exported(elf, names).items():
            for value in values:
                if path in maps:
                    code = int.from_bytes(elf.bytes_at(value, _CODE), sys.byteorder)
                    found.setdefault(name, (maps[path] - first + value, code))

    for path in paths:
        try:
            whole(look, path)
        except DamagedError:
            continue
    return found
