"""Traces that somebody else made, to harm who reads them: bounded memory and time, one line."""

from __future__ import annotations

import json
import lzma
import os
import re
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from synthetic import CERTIFICATE, ENUMS, TraceWriter, chunk, definition, text

from tracer.trace import TraceError, load
from tracer.trace.names.demangle import demangle
from tracer.trace.names.kernels import short_kernel_name

ROOT = Path(__file__).parents[2]
CPU = ROOT / "tests" / "cpu"
sys.path.insert(0, str(CPU))

import in_process  # noqa: E402

VERBS = [["tree"], ["top"], ["report"], ["export", "--to", "chrome", "-o", "o", "--force"]]
ENVIRON = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
SECONDS = 120
MEMORY = 1 << 30
LARGEST = (1 << 32) - 64
"""Bytes of a chunk"""
LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import tracer.trace
try:
    print(len(tracer.trace.load(sys.argv[1]).hops))
except tracer.trace.TraceError as error:
    print(error)
used = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
assert used < {MEMORY}, used
"""


def python(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command of tracer that only reads, in this process."""
    words = [*map(str, command)]

    def too_long(*_: object) -> None:
        raise TimeoutError(f"{words} took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        return subprocess.CompletedProcess(words, *in_process.run(words, cwd, ENVIRON, ""))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def new_writer() -> TraceWriter:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm")
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    return writer


def raw_json(writer: TraceWriter, kind: str, content: bytes) -> None:
    packed = zlib.compress(content, 9)
    writer.process_definitions[0].append(definition(7, text(kind) + struct.pack("<I", len(packed)) + packed))


# ---- memory ----------------------------------------------------------------------------------------


def large_document(writer: TraceWriter) -> None:
    packer = zlib.compressobj(9)
    packed = packer.compress(b'"') + b"".join(packer.compress(b"a" * (1 << 20)) for _ in range(1 << 11))
    packed += packer.compress(b'"') + packer.flush()
    writer.process_definitions[0].append(
        definition(7, text("environment") + struct.pack("<I", len(packed)) + packed)
    )


def many_large_documents(writer: TraceWriter) -> None:
    """Each as large as one may be, of empty lists, which take 20 times as much memory as text."""
    content = b"[" + b"[]," * (2 << 20) + b"[]]"
    for process in range(40):
        writer.process(process)
        packed = zlib.compress(content, 9)
        body = text("environment") + struct.pack("<I", len(packed)) + packed
        writer.process_definitions[process].append(definition(7, body))


def many_backends(writer: TraceWriter) -> None:
    writer.json(0, "enums", {**ENUMS, "num_backends": 20_000_000_000})


def a_long_name_in_many_stacks(writer: TraceWriter) -> None:
    lane = writer.lanes[0]
    lane.define_source(1, "x" * (1 << 20), 7)
    for number in range(2, 100):
        lane.define_python_stack(number, *[1] * 4000)


def a_long_name_in_all_arguments(writer: TraceWriter) -> None:
    fields = [("enter", "n" * 100_000 + str(number), "int", 0, 1) for number in range(10)]
    writer.function(1, "cudaFree", *fields)
    for _ in range(5000):
        writer.lanes[0].api(1, 7)


def fields_of_large_size(writer: TraceWriter) -> None:
    writer.function(1, "cudaFree", ("enter", "everything", "blob", 0, 1 << 40))
    writer.lanes[0].api(1, 7)


def devices_with_facts_of_their_own(writer: TraceWriter) -> None:
    for device in range(6000):
        writer.gpu(device, "GPU", **{f"fact{device}_{number}": 1 for number in range(5)})


def enumerations_for_each_function(writer: TraceWriter) -> None:
    for number in range(12_000):
        writer.enumeration(f"e{number}", a=1)
        writer.function(number, f"cudaF{number}")


def a_symbol_with_a_name_without_end(writer: TraceWriter) -> None:
    writer.symbol(0x10, endless_symbol(32), "libx.so")
    writer.hop(1, "aten::add", address=0x10)


def endless_symbol(parts: int) -> str:
    """f(A<int, int>, ...): each type has the one before it twice."""
    references = ["S_", *(f"S{digit}_" for digit in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")]
    return "_Z1f1AIiiE" + "".join(f"S_I{references[k + 1] * 2}E" for k in range(parts))


@pytest.mark.parametrize(
    "attack",
    [
        large_document,
        many_large_documents,
        many_backends,
        a_long_name_in_many_stacks,
        a_long_name_in_all_arguments,
        fields_of_large_size,
        devices_with_facts_of_their_own,
        enumerations_for_each_function,
        a_symbol_with_a_name_without_end,
    ],
)
def test_memory_is_bounded(tmp_path: Path, attack: Callable[[TraceWriter], None]) -> None:
    writer = new_writer()
    attack(writer)
    path = writer.write(tmp_path / "x.trace")
    assert path.stat().st_size < 12 << 20
    done = python("-c", LIMITED, path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    too_large = attack in (large_document, many_large_documents)
    assert ("its documents unpack to more than" in done.stdout) == too_large
    if too_large:
        for verb in VERBS:
            told = run(verb[0], path, *verb[1:], cwd=tmp_path)
            assert (told.returncode, told.stdout, told.stderr.count("\n")) == (2, "", 1)


@pytest.fixture
def packed_zeros(tmp_path: Path) -> Path:
    """A trace with 400 MiB of zeros behind it, in some 60 KiB."""
    packer = lzma.LZMACompressor(preset=0)
    path = tmp_path / "zeros.trace.xz"
    with path.open("wb") as file:
        file.write(packer.compress(new_writer().data()))
        for _ in range(400):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.flush())
    return path


def test_a_packed_trace_that_is_too_large(packed_zeros: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"unpacks to more than 256 MiB .* unpack it with xz -d"):
        load(packed_zeros)
    for verb in [*VERBS, ["pack"]]:
        told = run(verb[0], packed_zeros, *verb[1:], cwd=tmp_path)
        assert (told.returncode, told.stdout, told.stderr.count("\n")) == (2, "", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["zeros.trace.xz"]


def test_a_packed_trace_that_takes_much_memory_to_unpack(tmp_path: Path) -> None:
    data = bytearray(lzma.compress(new_writer().data()))
    block = 12
    size = (data[block] + 1) * 4
    assert data[block + 2 : block + 4] == b"\x21\x01"  # LZMA2, one byte of properties
    data[block + 4] = 35  # 768 MiB
    data[block + size - 4 : block + size] = struct.pack("<I", zlib.crc32(data[block : block + size - 4]))
    (tmp_path / "x.xz").write_bytes(data)
    with pytest.raises(TraceError, match="unpacking it takes more than 256 MiB of memory"):
        load(tmp_path / "x.xz")


def test_zeros_of_a_packed_trace_take_no_room(tmp_path: Path) -> None:
    from tracer.trace.bytes import packed

    (tmp_path / "x.xz").write_bytes(lzma.compress(new_writer().data() + bytes(64 << 20)))
    with (tmp_path / "x.xz").open("rb") as file:
        descriptor = packed.unpack(file.fileno())
    found = os.fstat(descriptor)
    assert found.st_size > 64 << 20
    assert found.st_blocks * 512 < 4 << 20
    assert not any(os.pread(descriptor, 1 << 20, found.st_size - (1 << 20)))
    os.close(descriptor)


# Each command in the same process, which has what the one before has given back.
WITH_3_GIB = f"""
import json, os, resource, sys
from pathlib import Path
sys.path.insert(0, {str(CPU)!r})
import in_process
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
done = [in_process.run(words, Path.cwd(), dict(os.environ), "") for words in json.loads(sys.argv[1])]
print(json.dumps(done))
"""


def test_less_memory_than_a_trace_takes_is_one_line(tmp_path: Path) -> None:
    path = new_writer().write(tmp_path / "x.trace")
    large = bytearray(chunk(1, 0, 100, 9, 0, 1000, b"", closed=False)[:64])
    large[4:8] = struct.pack("<I", LARGEST)
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.write(large)
        file.truncate(end + LARGEST)  # zeros that are not on the disk
    verbs = [[verb[0], str(path), *verb[1:]] for verb in (*VERBS, ["watch"])]
    done = python("-c", WITH_3_GIB, json.dumps(verbs), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = f"tracer: not enough memory to read {path}; to read one step of it: tracer tree --step N\n"
    assert json.loads(done.stdout) == [[1, "", told] for _ in verbs]


def test_a_ring_that_says_that_it_is_larger_than_its_file(tmp_path: Path) -> None:
    from tracer.trace.live.follower import Follower

    writer = TraceWriter(header={"state": 0, "attached": 1, "ring_slots": (1 << 32) - 1})
    writer.process(certificate=None)
    follower = Follower(writer.write(tmp_path / "x.trace"))
    began = time.process_time()
    assert follower.wait()
    follower.look()
    assert follower.ended
    follower.close()
    assert time.process_time() - began < 30  # each slot takes a microsecond, all an hour


# ---- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "nothing", "a file of the kernel"])
def test_only_regular_files_are_opened_for_libraries(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "library"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "a file of the kernel":
        path = Path("/proc/self/mem")
    writer = TraceWriter(header={"state": 0})
    writer.process(certificate=None)
    writer.json(0, "libraries", [{"path": str(path), "base": 0, "end": 1 << 62, "build_id": "aa"}])
    writer.hop(0, "aten::mm", address=0x1000)
    writer.lane().enter(0)
    trace = writer.write(tmp_path / "x.trace")
    done = run("tree", trace, cwd=tmp_path)
    assert done.returncode == 0
    assert f"[CPU] {path.name}+0x1000" in done.stdout
    assert f"cannot read {path.name} on this machine" in run("report", trace, cwd=tmp_path).stdout.replace(
        "\\_", "_"
    )


@pytest.mark.parametrize("verb", [*VERBS, ["pack"]])
def test_a_trace_is_a_regular_file(tmp_path: Path, verb: list[str]) -> None:
    os.mkfifo(tmp_path / "x.trace")
    told = run(verb[0], "x.trace", *verb[1:], cwd=tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "tracer: cannot read x.trace: it is not a regular file\n"


# ---- documents ---------------------------------------------------------------------------------------

ENVIRONMENT = {"argv": ["x.py"], "cwd": "/home", "torch": "2.13.0", "cores": 4, "options": {"shapes": True}}
CUDA = {"state": "recorded", "why": "", "kernels": 0, "driver_version": 13000, "cupti": 130001}
DOCUMENTS = {
    "enums": ENUMS,
    "environment": ENVIRONMENT,
    "certificate": {
        **CERTIFICATE,
        "cuda": CUDA,
        "steps": {"wanted": [0, None], "ended": 2, "counted_by": "tracer.step()"},
    },
    "libraries": [{"path": "/lib/x.so", "base": 0, "end": 9, "build_id": "aa"}],
    "overrides": {
        "compiled_frames": 0,
        "overrides": [{"name": "n", "operator": "aten::mm", "key": "CPU", "handed_over": {"why": 1}}],
    },
}
WRONG = [True, -1, 1 << 70, 1.5, float("inf"), "text", ["a", 1], [[]], {"a": {}}, {"": 1e999}, "\ud800"]


def wrong_documents() -> Iterator[dict[str, tuple[str, Any]]]:
    """Each field of each document, and each document, with a value of each type: one of each kind."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for kind, document in DOCUMENTS.items():
        fields = [(), *((name,) for name in document)] if isinstance(document, dict) else [()]
        inner = [
            (name, each)
            for (name,) in fields[1:]
            if isinstance(document[name], dict)  # type: ignore[call-overload]
            for each in document[name]  # type: ignore[call-overload]
        ]
        for path in (*fields, *inner):
            found.setdefault(kind, []).extend((json.dumps(path), value) for value in WRONG)
    for number in range(max(map(len, found.values()))):
        yield {kind: wrong[number] for kind, wrong in found.items() if number < len(wrong)}


def with_field(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    return {**document, path[0]: with_field(document[path[0]], path[1:], value)}


def test_documents_of_other_types_are_damage_and_no_error(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from tracer.cli.app import app

    path = tmp_path / "x.trace"
    counted = 0
    for number, wrong in enumerate(wrong_documents()):
        writer = TraceWriter()
        writer.process(certificate=None)
        for name, document in DOCUMENTS.items():
            where, value = wrong.get(name, ("null", None))
            changed = with_field(document, json.loads(where), value) if name in wrong else document
            raw_json(writer, name, json.dumps(changed).encode())
        writer.hop(0, "aten::mm")
        lane = writer.lane()
        lane.enter(0)
        lane.exit()
        writer.write(path)
        trace = load(path)
        assert trace.hops["op"].to_list() == ["aten::mm"]
        counted += trace.certificate["torn_events"]
        if number % 8 == 0:  # of each field some value
            for verb in (["report", str(path)], ["tree", str(path)]):
                done = CliRunner().invoke(app, verb)
                assert done.exit_code == 0, (wrong, done.exception)
    assert counted > 400


def test_what_is_taken_out_of_a_document_is_counted(tmp_path: Path) -> None:
    writer = new_writer()
    writer.json(0, "environment", {**ENVIRONMENT, "argv": 7, "options": [1]})
    trace = load(writer.write(tmp_path / "x.trace"))
    expected = {name: value for name, value in ENVIRONMENT.items() if name not in ("argv", "options")}
    assert trace.environment == expected
    assert trace.certificate["torn_events"] == 1
    assert "1 record incomplete" in trace.certificate["verdict"]


def test_what_has_no_definition_is_unknown(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane(process=3)
    lane.enter(7)
    lane.api(9, 1, stack=4)
    lane.exit()
    path = writer.write(tmp_path / "x.trace")
    done = run("report", path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"- process 3 \(pid \d+, unknown\): unknown\n", done.stdout)
    survey = run("report", path, "--only", "cuda", cwd=tmp_path)
    assert "`an unknown function`" in survey.stdout
    assert run("tree", path, cwd=tmp_path).returncode == 0


def test_an_operator_that_calls_what_has_no_definition(tmp_path: Path) -> None:
    writer = new_writer()
    lane = writer.lanes[0]
    lane.enter(0)
    lane.enter(7)
    lane.exit()
    lane.exit()
    path = writer.write(tmp_path / "x.trace")
    done = python("-m", "tracer.cli.app", "explain", "aten::mm", "--from", path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 2: an unknown op\n" in done.stdout


def test_numbers_that_no_system_has_are_exported(tmp_path: Path) -> None:
    writer = new_writer()
    writer.pids[0] = (1 << 32) - 1
    writer.function(1, "cudaFree", ("enter", "devPtr", "void *", 0, 8))
    lane = writer.lane(process=(1 << 32) - 1, thread=(1 << 32) - 1)
    lane.enter(0)
    writer.lane(number=1).api(1, (1 << 64) - 1)
    writer.activity(2, 20, 1, 2, node=(1 << 64) - 1, graph=7, size=64)
    path = writer.write(tmp_path / "x.trace")
    for to in ("chrome", "parquet", "speedscope", *(["perfetto"] if find_spec("perfetto") else [])):
        done = run("export", path, "--to", to, "-o", to, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / to).exists()


# ---- names -------------------------------------------------------------------------------------------


def test_a_name_that_takes_years_does_not_hold_up_the_others() -> None:
    assert demangle(endless_symbol(4)).startswith("f(A<int, int>, A<A<int, int>, A<int, int> >")
    for parts in (24, 34):
        assert demangle(endless_symbol(parts)) == endless_symbol(parts)
    assert demangle("_ZN2at2mmEv") == "at::mm()"


@pytest.mark.parametrize("opened", ["f<&", "f<&(a f", "<", "("])
def test_brackets_in_brackets(opened: str) -> None:
    name = f"x{opened * 2000}"
    assert short_kernel_name(name) == name
    assert short_kernel_name(name + ">)" * 4000) == name + ">)" * 4000
