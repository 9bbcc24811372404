"""`tracer pack --redact`: what tells of the user is not in the file any more, and all else still is."""

from __future__ import annotations

import lzma
import os
import re
import struct
from pathlib import Path

import polars as pl
import pytest
from every_kind import written
from every_text import FIELDS, changed, places
from synthetic import CERTIFICATE, TraceWriter, definition, tensor, text
from typer.testing import CliRunner
from unpacked import unpacked

from tracer.base.known_names import KnownNames
from tracer.cli.app import app
from tracer.trace import load
from tracer.trace.bytes import kept
from tracer.trace.bytes.kept_names import Names, Redaction
from tracer.trace.bytes.redact import redact as redact_to
from tracer.trace.bytes.start import start_of_file

GPU = Path(__file__).parents[1] / "data" / "gpu.trace.xz"
KNOWN = KnownNames(
    operators=frozenset(("aten::mm", "aten::to", "aten::relu", "aten::add.Tensor")),
    keys=frozenset(("Undefined", "CPU", "CUDA", "AutogradCPU", "AutogradCUDA")),
    types=frozenset(("torch.float32", "cpu", "cuda", "torch.strided")),
    files={"torch/nn/modules/linear.py": os.devnull, "os.py": os.__file__},
)
SECRETS = ("secret", "hunter2", "/home")


def redact(trace: Path, output: Path) -> Redaction:
    with output.open("wb") as file:
        return redact_to(trace, file, KNOWN)


def made(folder: Path) -> Path:
    writer = TraceWriter()
    writer.process(command="python train.py --token secret-token")
    writer.hop(0, "mine::op", registered_at="/home/secret/ext/op.cpp:12 (in /home/secret/lib.so)")
    environment = {
        "torch": "2.13.0",
        "python": "3.11.7",
        "argv": ["secret-project/train.py", "--password", "hunter2"],
        "cwd": "/home/secret-user",
        "cpu": "a secret CPU",
        "options": {"shapes": True, "ops": ["secret::*"]},
    }
    documents = {
        "environment": environment,
        "source_lines": {
            "/home/secret-user/secret-project/train.py": {"lines": {"7": "password = 'hunter2'"}}
        },
        "settings": {"threads": 2, "variables": {"OMP_NUM_THREADS": "secret"}},
        "libraries": [
            {"path": "/home/secret/libmine.so", "base": 0, "end": 10, "build_id": "ab"},
            {"path": "/home/my secret/lib.so", "base": 10, "end": 20, "build_id": "cd"},
        ],
    }
    for name, document in documents.items():
        writer.json(0, name, document)
    lane = writer.lane()
    for number, file in enumerate(("secret-project/parts/net.py", "secret-project/train.py"), 1):
        lane.define_source(number, f"/home/secret-user/{file}", 7)
    lane.define_source(3, "/usr/lib/python3.11/site-packages/library/net.py", 7)
    lane.define_source(4, "/home/secret/other/net.py", 7)
    lane.define_source(5, "/home/secret/another/net.py", 7)
    for number in range(1, 6):
        lane.enter(0, source=number)
        lane.exit()
    return writer.write(folder / "run.trace")


def test_no_secret_is_left_in_the_bytes(tmp_path: Path) -> None:
    trace = made(tmp_path)
    assert all(secret.encode() in unpacked(trace) for secret in ("secret-token", "hunter2", "secret CPU"))
    done = redact(trace, tmp_path / "out.trace")
    left = unpacked(tmp_path / "out.trace")
    assert [secret for secret in SECRETS if secret.encode() in left] == []
    found = load(tmp_path / "out.trace")
    assert found.environment == {
        "torch": "2.13.0",
        "python": "3.11.7",
        "options": {"shapes": True, "ops": ["left out"]},
        "settings": {"threads": 2},
    }
    assert found.source_lines.is_empty()
    assert found.processes["command"].to_list() == [""]
    assert dict(done.removed)["texts of source lines"] == 1
    assert dict(done.removed)["environment variables"] == 1
    assert list(done.left["operators"]) == ["mine::op"]


def test_texts_among_arguments_and_hosts_of_ranks(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::to")
    writer.json(0, "rank", {"rank": 1, "ranks": 2, "host": "secret-host", "boot": "secret" * 6})
    lane = writer.lane()
    scalars = b"".join(
        struct.pack("<H", place) + text(value)
        for place, value in ((1, '"/home/secret-user/range"'), (2, '{"process_group":"0"}'), (3, "[1,2]"))
    )
    known = tensor((2, 3), (3, 1)), tensor((4,))
    lane.define_signature(1, *known, scalars=struct.pack("<I", 3) + scalars)
    lane.define_signature(2, *known)
    for number in (1, 2):
        lane.enter(0, signature=number)
        lane.exit()
    trace = writer.write(tmp_path / "run.trace")
    before = load(trace)
    done = redact(trace, tmp_path / "out.trace")
    left = unpacked(tmp_path / "out.trace")
    assert [secret for secret in SECRETS if secret.encode() in left] == []
    found = load(tmp_path / "out.trace")
    assert found.signatures.equals(before.signatures)
    assert found.scalars["value"].to_list() == ['"text 1"', '{"process_group":"0"}', "[1,2]"]
    assert found.processes.select("rank", "ranks", "host").row(0) == (1, 2, None)
    assert found.processes["boot"][0] not in (None, before.processes["boot"][0])
    assert done.removed["names of hosts"] == 1


def test_files_keep_names_that_differ(tmp_path: Path) -> None:
    redact(made(tmp_path), tmp_path / "out.trace")
    found = load(tmp_path / "out.trace").hops["source"].to_list()
    assert found == ["parts/net.py:7", "train.py:7", "library/net.py:7", "net.py:7", "2/net.py:7"]


def test_tables_stay_as_they_are(tmp_path: Path) -> None:
    redact(GPU, tmp_path / "out.trace")
    before, after = load(GPU), load(tmp_path / "out.trace")
    others = [name for name in before.hops.columns if name not in ("source", "called_from", "registered_at")]
    assert after.hops.select(others).equals(before.hops.select(others))
    assert after.gpu_activities.equals(before.gpu_activities)
    assert after.signatures.equals(before.signatures)
    assert after.api_calls.drop("source").equals(before.api_calls.drop("source"))
    assert after.certificate["verdict"] == before.certificate["verdict"]
    left = unpacked(tmp_path / "out.trace")
    assert [secret for secret in (b"/home", b"/tmp", b"/root", b"argv") if secret in left] == []


def test_numbers_of_storages_stay(tmp_path: Path) -> None:
    made = written(closed=True).write(tmp_path / "in.trace")
    redact(made, tmp_path / "out.trace")
    before, after = load(made), load(tmp_path / "out.trace")
    assert len(before.tensors) == 16  # two calls of four steps, in two processes
    assert after.tensors.equals(before.tensors)


def test_what_the_compiler_says_of_the_code_is_left_out(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    node = {"name": "mm", "op": "aten::mm", "source": "/home/my secret/net.py:9", "dynamo": "secret_variable"}
    mine = {"name": "op", "op": "mine::op", "source": None, "dynamo": "secret_variable"}
    region = {
        "function": "Net.forward",
        "defined_at": "/home/my secret/net.py:7",
        "decorated_at": "/home/my secret/net.py:6",
        "generated": "/tmp/torchinductor_secret/ab/cab.py",
        "recompiled": "0/0: L['self'].mode == 'secret'",
        "uses": {"cpp_fused_mm_0": [{"nodes": [node, mine], "bytes": 4}], "my_kernel": []},
    }
    breaks = [{"reason": "call of print('secret')", "source": "/home/my secret/net.py:10", "times": 2}]
    errors = ["KeyError: 'secret'"]
    writer.json(0, "compiled:1", region)
    writer.json(
        0, "launch:1", {"file": "/tmp/torchinductor_secret/k.py", "defined_at": "/home/my secret/k.py:3"}
    )
    compiled = {"breaks": breaks, "missing": [], "errors": errors}
    writer.json(0, "certificate", CERTIFICATE | {"compiled": compiled})
    trace = writer.write(tmp_path / "run.trace")
    assert unpacked(trace).count(b"secret") == 12
    done = redact(trace, tmp_path / "out.trace")
    left = unpacked(tmp_path / "out.trace")
    assert b"secret" not in left
    for stays in (
        b'"recompiled":"0/0: left out"',
        b'"reason":"left out"',
        b'"source":"net.py:9"',
        b'"decorated_at":"net.py:6"',
        b'["KeyError"]',
    ):
        assert stays in left
    removed = {what: number for what, number in done.removed.items() if number}
    assert removed == {
        "command lines": 1,
        "names of nodes": 2,
        "names of variables": 2,
        "reasons of graph breaks": 1,
        "reasons of recompilations": 1,
        "texts of errors": 1,
        "paths": 4,
    }
    assert {kind: list(names) for kind, names in done.left.items()} == {
        "Python functions": ["Net.forward"],
        "kernels of compiled code": ["cpp_fused_mm_0", "my_kernel"],
        "operators": ["mine::op"],
        "files": ["net.py", "cab.py", "k.py"],
    }


PLANTED = (
    'planted "text" of mine',
    "/mnt/planted user/x.py:3",
    "C:\\planted user\\x.py",
    "../planted folder/x.py",
    "https://planted:x@y/z",
    "planted: x\nplanted: y\tz",
    '{"planted": 1}',
    "<planted text>",
    "planted=3\nplanted: 4\n",
    "x (/mnt/planted/x.py:3)",
    "registered at /home/planted/x.cpp:3 (in /home/planted/libx.so)",
)


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("keys", [False, True], ids=["values", "keys"])
def test_no_text_stays_that_is_no_name(tmp_path: Path, planted: str, keys: bool) -> None:
    """In the place of each text of each definition and document, and of each key of a document."""

    def change(place: str, old: str) -> str:
        is_place = place in ("document", "environment.cwd", "environment.argv[]")
        return planted if keys == place.endswith("}") and not is_place else old

    trace = tmp_path / "run.trace"
    trace.write_bytes(changed(written(closed=True).data(), change))
    assert b"planted" in unpacked(trace)
    done = redact(trace, tmp_path / "out.trace")
    left = unpacked(tmp_path / "out.trace")
    place = left.find(b"planted")
    assert place < 0, left[max(place - 50, 0) : place + 50]
    assert not [name for names in done.left.values() for name in names if "planted" in name]
    load(tmp_path / "out.trace")


LIKE_THOSE_OF_TORCH = r"""
{}
Net.{}
aten::{}
prim{}::x
profiler::{}
torch::autograd::{}
torch::autograd::PyNode {}
triton_{}
cpp_fused_{}_0
extern_kernels.{}
sm80_{}
_ZN2at6native{}
ncclDevKernel_{}
pt_{}_x
python_{}
cuda_{}
Autograd{}
torch.{}
{}:0
{}Error: why
nccl:{}
\x1fphase:{}:0/0
\x1fkernel:triton_{}#1
Optimizer.step#{}.step
<frozen {}>
<frozen os.{}>
/usr/lib/{}.so
/usr/lib/python3.11/{}.py
/usr/lib/python3.11/dist-packages/{}/x.py
/lib64/lib{}.so.6
/pytorch/aten/{}.cpp:3
/__w/pytorch/{}.cpp
/x/site-packages/torch/{}.py:3
/usr/local/cuda/{}.so
/x/site-packages/nvidia/lib{}.so
x{}xxxxxxxxxxxxxxxxxxxxx.py
libpython3.{}.so
/x/python3{}
__main__.{} (/usr/lib/python3.11/{}.py:3)
registered at /pytorch/{}.cpp:3 (in /usr/lib/lib{}.so)
""".split("\n")[1:-1]
OF_HEADERS = ("9.", "10.", "13.")
"""Functions, types and devices of CUDA: the recorder has their names, the program cannot choose them"""


@pytest.mark.parametrize("form", LIKE_THOSE_OF_TORCH)
@pytest.mark.parametrize("keys", [False, True], ids=["values", "keys"])
def test_each_name_that_stays_is_printed_unless_it_is_on_a_list(
    tmp_path: Path, form: str, keys: bool
) -> None:
    """In the place of each text, another name that looks as those of torch, Python or the system do."""
    planted: list[str] = []

    def change(place: str, old: str) -> str:
        is_place = place in ("document", "environment.cwd") or place.startswith(OF_HEADERS)
        if is_place or keys != place.endswith("}"):
            return old
        planted.append(f"zq{len(planted)}zq")
        return form.replace("{}", planted[-1]).replace(r"\x1f", "\x1f")

    trace = tmp_path / "run.trace"
    trace.write_bytes(changed(written(closed=True).data(), change))
    done = redact(trace, tmp_path / "out.trace")
    stay = {name.decode() for name in re.findall(rb"zq\d+zq", unpacked(tmp_path / "out.trace"))}
    printed = " ".join(name for names in done.left.values() for name in names)
    assert stay <= set(re.findall(r"zq\d+zq", printed))
    assert len(planted) > 50


def test_what_is_on_a_list_is_not_printed(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0, "aten::mm", registered_at="/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30")
    lane = writer.lane()
    lane.define_source(1, "/x/lib/python3.14/site-packages/torch/nn/modules/linear.py", 7)
    lane.enter(0, source=1)
    lane.exit()
    done = redact(writer.write(tmp_path / "run.trace"), tmp_path / "out.trace")
    assert done.left == {"Python functions": {"function": None}}, "no such function is in that file here"


def test_each_kind_of_definition_is_in_the_trace_that_is_tried() -> None:
    kinds = {place.partition(".")[0] for place in places(written(closed=True).data())}
    assert {str(kind) for kind in FIELDS} <= kinds
    documents = {
        place.partition(":")[0].partition(".")[0].partition("{")[0]
        for place in places(written(closed=True).data())
    }
    assert set(kept.DOCUMENTS) - {"compiled_hidden"} <= {name.removesuffix("[]") for name in documents}


def test_the_time_of_day_is_left_out(tmp_path: Path) -> None:
    writer = TraceWriter(header={"wall_ns": 1795691123526239048})
    writer.process()
    redact(writer.write(tmp_path / "run.trace"), tmp_path / "out.trace")
    assert (1795691123526239048).to_bytes(8, "little") not in (tmp_path / "out.trace").read_bytes()
    start = start_of_file(str(tmp_path / "out.trace"))
    assert start is not None
    assert start.in_words() == "process 100"


def test_names_that_stay_are_printed_whole(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane()
    for number in range(60):
        lane.define_source(number + 1, f"/home/x/file{number}.py", 3)
    writer.write(tmp_path / "run.trace")
    run = CliRunner().invoke(app, ["pack", str(tmp_path / "run.trace"), "--redact"])
    assert run.exit_code == 0, run.stderr
    assert all(f"file{number}.py" in run.stdout for number in range(60))
    assert "  60 files: " in run.stdout


def test_ranges_become_numbers_and_those_of_torch_stay(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane()
    names = (
        "https://bob:planted@host",
        "planted",
        "Optimizer.step#SGD.step",
        "\x1fcall:1",
        "planted",
        "unused",
    )
    for number, name in enumerate(names, 1):
        lane.define_string(number, name)
    for number in range(1, 6):
        lane.range_enter(number)
        lane.range_exit()
    done = redact(writer.write(tmp_path / "run.trace"), tmp_path / "out.trace")
    found = load(tmp_path / "out.trace").ranges["name"].cast(pl.String).to_list()
    assert found == ["range 1", "range 2", "Optimizer.step#SGD.step", "range 2"]
    assert done.removed["texts that nothing uses"] == 1
    assert list(done.left["optimizers and loaders"]) == ["SGD.step"]


def test_a_damaged_signature_is_left_out_and_counted(tmp_path: Path) -> None:
    """hostile finding 10: an IndexError, which no list of exceptions had."""
    writer = TraceWriter()
    writer.process()
    whole = definition(6, struct.pack("<2I", 1, 2) + tensor((2, 3)) + tensor((4,)))
    for size in range(16, len(whole), 8):
        lane = writer.lane(number=size)
        lane.definitions.append(struct.pack("<I", size) + whole[4:size])
    trace = writer.write(tmp_path / "run.trace")
    run = CliRunner().invoke(app, ["pack", str(trace), "--redact"])
    assert run.exit_code == 0, run.exception
    assert " definitions that cannot be read" in run.stdout


@pytest.mark.parametrize("error", [IndexError, ZeroDivisionError, AssertionError, OverflowError, LookupError])
def test_whatever_a_record_raises_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    trace = made(tmp_path)

    def raises(*_: object) -> None:
        raise error("of a record")

    monkeypatch.setattr(Names, "op", raises)
    assert redact(trace, tmp_path / "out.trace").removed["definitions that cannot be read"] == 1
    monkeypatch.setattr("tracer.trace.bytes.definitions.HopDefinition", raises)
    assert load(trace).certificate["torn_events"] == 1


def test_damage_becomes_zeros(tmp_path: Path) -> None:
    trace = made(tmp_path)
    with open(trace, "ab") as file:
        file.write(b"secret bytes between chunks ".ljust(4096, b"."))
    redact(trace, tmp_path / "out.trace")
    assert b"secret" not in (tmp_path / "out.trace").read_bytes()


def test_a_document_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane()
    lane.define(7, text("environment") + struct.pack("<I", 6) + b"secret")
    done = redact(writer.write(tmp_path / "run.trace"), tmp_path / "out.trace")
    assert done.removed["definitions that cannot be read"] == 1
    assert b"secret" not in (tmp_path / "out.trace").read_bytes()


@pytest.mark.promise("pack", "docs/export.md#for-a-bug-report---redact")
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path)
    run = CliRunner().invoke(app, ["pack", "run.trace", "--redact"])
    assert run.exit_code == 0, run.stderr
    assert "run.trace (" in run.stderr
    assert "-> run.redacted.trace.xz (" in run.stderr
    assert b"secret" not in lzma.decompress(Path("run.redacted.trace.xz").read_bytes())
    assert "  1 texts of source lines" in run.stdout
    assert "  1 operators: mine::op" in run.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.redacted.trace.xz", "run.trace"]
    again = CliRunner().invoke(app, ["pack", "run.trace", "--redact"])
    assert again.exit_code == 2
    assert "exists; overwrite it with --force" in again.stderr
    packed = CliRunner().invoke(app, ["pack", str(GPU), "--redact", "-o", "gpu.xz"])
    assert packed.exit_code == 0, "a packed trace can be redacted too"
