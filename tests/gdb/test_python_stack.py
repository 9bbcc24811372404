"""The Python stack, read from memory, against what Python says of itself: in the process and under gdb."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from stack_programs import GDB_SCRIPT, LINE_CHECK, PROGRAM, ROOT


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layout_module = load("gdb/inferior/python_layout.py")
stack_module = load("gdb/inside/python_stack.py")


@functools.cache
def interpreters() -> dict[str, str]:
    """The CPythons from 3.8 on: this one, those on PATH, pyenv's, and those in TRACER_TEST_PYTHONS."""
    candidates = [sys.executable, "/usr/bin/python3"]
    candidates += [f"python3.{minor}" for minor in range(8, 16)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python"))]
    candidates += [path for path in os.environ.get("TRACER_TEST_PYTHONS", "").split(os.pathsep) if path]
    found: dict[str, str] = {}
    ask = "import sys; print(sys.version_info >= (3, 8), sys.implementation.name, sys.version.split()[0])"
    for candidate in candidates:
        path = shutil.which(candidate)
        command = [path, "-c", f"{ask}; print(sys.executable)"]  # `path` may be a script that starts it
        said = subprocess.run(command, capture_output=True, text=True).stdout.split() if path else []
        if said[:2] == ["True", "cpython"]:
            found.setdefault(*said[2:])
    return found


each_python = pytest.mark.parametrize("version", sorted(interpreters()))


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_program(folder: Path) -> Path:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return program


def assert_same_stacks(records: list[dict[str, Any]]) -> None:
    seen = set()
    for record in records:
        assert [list(frame) for frame in record["found"]] == record["expected"], record["scenario"]
        seen.add(record["scenario"])
    assert len(seen) == PROGRAM.count("@case\n")


@each_python
def test_stack_of_a_waiting_thread(version: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = write_program(tmp_path)
    subprocess.run([interpreters()[version], program, ROOT, "self", out], check=True, timeout=120)
    layout, *records = read_records(out)
    assert "error" not in layout["layout"]
    assert_same_stacks(records)


@each_python
def test_every_line_of_the_library(version: str, tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text(LINE_CHECK)
    command = [interpreters()[version], check, ROOT]
    compared, different = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.split()
    assert int(compared) > 20_000
    assert int(different) == 0


PUBLISHED = """
import importlib.util, json, sys

spec = importlib.util.spec_from_file_location("layout", sys.argv[1])
layout = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layout)
search = layout.searched_layout
layout.searched_layout = lambda *_: {"error": "searched"}
published = layout.measure()
layout.searched_layout, layout.PUBLISHED_AT = search, {}
print(json.dumps([published, layout.measure()]))
"""


@pytest.mark.parametrize(
    "version", [each for each in sorted(interpreters()) if int(each.split(".")[1]) >= 13]
)
def test_what_cpython_publishes_is_taken_and_is_what_a_search_finds(version: str) -> None:
    command = [interpreters()[version], "-c", PUBLISHED, str(ROOT / "gdb/inferior/python_layout.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    published, searched = json.loads(done.stdout)
    assert published == searched
    assert published["python"] == version


@pytest.mark.gdb
@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
@each_python
def test_stack_under_gdb(version: str, tmp_path: Path) -> None:
    out, script = tmp_path / "out", tmp_path / "script.py"
    script.write_text(GDB_SCRIPT)
    program = [interpreters()[version], write_program(tmp_path), ROOT, "gdb", out]
    environment = {**os.environ, "STACK_ROOT": str(ROOT), "STACK_OUT": str(out)}
    command = ["gdb", "-nx", "-batch", "-x", script, "--args", *program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (tmp_path / "out.found").exists(), done.stdout + done.stderr
    found, (_layout, *expected) = read_records(tmp_path / "out.found"), read_records(out)
    assert len(found) == len(expected), done.stdout + done.stderr
    assert_same_stacks([{**a, **b} for a, b in zip(expected, found, strict=True)])
    for record in found:
        assert record["warm"] == record["found"][:10]
        assert record["none"] == []
        assert record["reads"] <= 60


# In this process


class OwnMemory:
    def __init__(self) -> None:
        self.file = open("/proc/self/mem", "rb", buffering=0)  # noqa: SIM115
        self.reads = 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        return os.pread(self.file.fileno(), size, address)


class ChangedMemory(OwnMemory):
    """As if other bytes stood at some addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[int, bytes] = {}

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(super().read(address, size))
        for at, value in self.changed.items():
            if address <= at < address + size:
                data[at - address : at - address + len(value)] = value
        return bytes(data[:size])


@pytest.fixture(scope="module")
def layout() -> dict[str, Any]:
    return json.loads(json.dumps(layout_module.measure()))


@pytest.fixture
def waiting_thread():
    """A thread that waits in a C function, below 20 calls of one function and 3 of others."""
    ready, done = threading.Semaphore(0), threading.Lock()
    done.acquire()

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            ready.release()
            done.acquire()

    thread = threading.Thread(target=descend, args=(20,))
    thread.start()
    ready.acquire()
    yield thread
    done.release()
    thread.join()


def test_measuring_leaves_nothing_behind() -> None:
    threads, counter, modules = threading.active_count(), threading._counter, set(sys.modules)
    states = layout_module.thread_states(layout_module.own_interpreter())
    files = os.listdir("/proc/self/fd")
    assert "error" not in layout_module.measure()
    assert layout_module.thread_states(layout_module.own_interpreter()) == states
    assert os.listdir("/proc/self/fd") == files
    assert threading.active_count() == threads
    assert threading._counter is counter
    assert {name.partition(".")[0] for name in set(sys.modules) - modules} <= set(sys.stdlib_module_names)
    assert ctypes.pythonapi.PyThreadState_Get.restype is ctypes.c_int


def test_measuring_says_what_it_cannot_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "places", lambda *_args: set())
    assert "no place" in layout_module.measure()["error"]


def test_measuring_among_threads_that_come_and_go(layout: dict[str, Any]) -> None:
    over = threading.Event()

    def start_others() -> None:
        while not over.is_set():
            other = threading.Thread(target=sum, args=((1, 2),))
            other.start()
            other.join()

    thread = threading.Thread(target=start_others)
    thread.start()
    measured = [json.loads(json.dumps(layout_module.measure())) for _ in range(10)]
    over.set()
    thread.join()
    assert layout in measured
    assert all(found == layout or "error" in found for found in measured)


def test_words_that_are_not_of_this_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "PUBLISHED_AT", {sys.version_info[:2]: (9, 21)})
    monkeypatch.setattr(sys, "hexversion", sys.hexversion + 1)
    assert "_PyRuntime does not begin with" in layout_module.measure()["error"]


def test_an_ambiguous_place_is_refused() -> None:
    with pytest.raises(layout_module.NotFoundError, match=r"\[8, 16\] of 2 samples"):
        layout_module.only([{8, 16, 24}, {8, 16}], "x")


def test_layout_is_checked(layout: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="free-threaded"):
        stack_module.PythonStack({"error": "a free-threaded build"}, OwnMemory())
    other = {**layout, "code": {**layout["code"], "first_line": layout["code"]["first_line"] + 4}}
    with pytest.raises(ValueError, match="does not match"):
        stack_module.PythonStack(other, OwnMemory())
    other = {**layout, "check": {**layout["check"], "code": 4096}}
    with pytest.raises(ValueError, match="does not match"):
        stack_module.PythonStack(other, OwnMemory())


def test_limit(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    stack = stack_module.PythonStack(layout, OwnMemory())
    frames = stack.frames(waiting_thread.ident)
    assert len(frames) > 20
    for limit in (0, 1, 7):
        assert stack.frames(waiting_thread.ident, limit) == frames[:limit]


def test_threads_without_python(layout: dict[str, Any]) -> None:
    stack = stack_module.PythonStack(layout, OwnMemory())
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, libc.usleep, ctypes.c_void_p(100_000)) == 0
    assert stack.frames(thread.value) == []
    libc.pthread_join(thread, None)
    assert stack.frames(ended.ident) == []
    assert stack.frames(0) == []


def test_few_reads_and_a_warm_cache(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    memory = OwnMemory()
    stack = stack_module.PythonStack(layout, memory)
    frames = stack.frames(waiting_thread.ident)
    memory.reads, stack.codes.read = 0, None  # nothing is decoded again
    assert stack.frames(waiting_thread.ident) == frames
    assert memory.reads <= 30


def addresses_of(stack: Any, thread: int) -> list[int]:
    window = stack_module.Window(stack.memory)
    found, address = [], stack.innermost(window, thread)
    while address:
        found.append(address)
        address = stack.frame.read(window, address)[1]
    return found


def test_another_code_object_at_the_same_address(
    layout: dict[str, Any], waiting_thread: threading.Thread
) -> None:
    memory = ChangedMemory()
    stack = stack_module.PythonStack(layout, memory)
    frames, address = stack.frames(waiting_thread.ident), addresses_of(stack, waiting_thread.ident)[1]
    window = stack_module.Window(memory)
    code = stack.frame.read(window, address)[0]
    parts = {name: window.word(code + layout["code"][name]) for name in ("file", "function", "lines")}
    text, lines = layout["str"]["kinds"][0][2], layout["bytes"]["data"]
    for place, value in (
        (parts["file"] + text, b"X"),
        (parts["function"] + text, b"Y"),
        (parts["lines"] + lines, b"\xe9\x02"),  # one unit, a line further, no columns
        (code + layout["code"]["first_line"], b"\1\0\0\0"),
    ):
        memory.changed = {place: value}
        changed = stack.frames(waiting_thread.ident)
        assert changed == stack_module.PythonStack(layout, memory).frames(waiting_thread.ident)
        assert changed[1] != frames[1]
        memory.changed = {}
        assert stack.frames(waiting_thread.ident) == frames


def test_what_is_too_long_is_cut(
    layout: dict[str, Any], waiting_thread: threading.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_module, "MOST_CHARACTERS", 7)
    monkeypatch.setattr(stack_module, "MOST_LINE_TABLE_BYTES", 7)
    check = {name: layout["check"][name][:7] for name in ("file", "function")}
    layout = {**layout, "check": {**layout["check"], **check, "lines": []}}
    stack = stack_module.PythonStack(layout, OwnMemory())
    assert stack.frames(waiting_thread.ident)[0] == (__file__[:7], "waiting", 0)


def test_low_bits_of_the_code_pointer(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    memory = ChangedMemory()
    stack = stack_module.PythonStack(layout, memory)
    frames = stack.frames(waiting_thread.ident)
    for address in addresses_of(stack, waiting_thread.ident):
        at = address + layout["frame"]["code"]
        memory.changed[at] = bytes([memory.read(at, 1)[0] | 1])
    assert stack.frames(waiting_thread.ident) == frames


def test_a_loop_of_frames_ends(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    memory = ChangedMemory()
    stack = stack_module.PythonStack(layout, memory)
    frames, addresses = stack.frames(waiting_thread.ident), addresses_of(stack, waiting_thread.ident)
    memory.changed[addresses[4] + layout["frame"]["previous"]] = addresses[3].to_bytes(8, "little")
    assert stack.frames(waiting_thread.ident) == frames[:4] + [frames[4], frames[3]] * 30
    memory.changed[addresses[4] + layout["frame"]["code"]] = bytes(8)
    memory.changed[addresses[3] + layout["frame"]["code"]] = bytes(8)
    assert stack.frames(waiting_thread.ident) == frames[:3]


def test_a_loop_of_threads_ends(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    memory = ChangedMemory()
    stack = stack_module.PythonStack(layout, memory)
    for state in layout_module.thread_states(layout_module.own_interpreter()):
        memory.changed[state + layout["thread"]["next"]] = state.to_bytes(8, "little")
    assert stack.frames(12345) == []


def test_damage_ends_the_stack(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    memory = ChangedMemory()
    stack = stack_module.PythonStack(layout, memory)
    frames, addresses = stack.frames(waiting_thread.ident), addresses_of(stack, waiting_thread.ident)
    memory.changed[addresses[6] + layout["frame"]["previous"]] = b"\1\2\3\4\5\6\7\x88"
    assert stack.frames(waiting_thread.ident) == frames[:7]


def test_random_damage_raises_nothing(layout: dict[str, Any], waiting_thread: threading.Thread) -> None:
    memory = ChangedMemory()
    stack = stack_module.PythonStack(layout, memory)
    window = stack_module.Window(memory)
    spots = addresses_of(stack, waiting_thread.ident)[:3]
    codes = [stack.frame.read(window, address)[0] for address in spots]
    names = ("file", "function", "lines")
    objects = [window.word(code + layout["code"][name]) for code in codes for name in names]
    states = layout_module.thread_states(layout_module.own_interpreter())
    dice = random.Random(1)
    for _ in range(3000):
        places = [dice.choice(spots + codes + objects + states) + dice.randrange(0, 200) for _ in range(4)]
        memory.changed = {place: dice.randbytes(dice.choice((1, 2, 8))) for place in places}
        stack.cache.clear()
        assert len(stack.frames(waiting_thread.ident)) <= 64
