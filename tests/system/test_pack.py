"""Packed traces: written by `tracer pack`, read by everything that reads traces."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from elf import FUNCTION, write_library
from hypothesis import given
from hypothesis import strategies as st
from synthetic import TraceWriter

from examples import examples
from tracer.trace import TraceError, load
from tracer.trace.bytes.packed import pack
from tracer.trace.names import completion

ROOT = Path(__file__).parents[2]


def command(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracer.cli.app", *map(str, arguments)],
        cwd=cwd or ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def new_writer(hops: int = 50) -> TraceWriter:
    writer = TraceWriter(hop_chunk_bytes=1 << 12)
    writer.process()
    writer.hop(0, "aten::mm")
    lane = writer.lane()
    for _ in range(hops):
        lane.enter(0)
        lane.exit()
    return writer


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return new_writer().write(tmp_path / "run.trace")


def test_a_packed_trace_is_the_trace(trace: Path) -> None:
    done = command("pack", trace)
    packed = trace.with_name("run.trace.xz")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{packed} (" in done.stderr
    assert lzma.decompress(packed.read_bytes()) == trace.read_bytes()
    assert packed.stat().st_size < trace.stat().st_size
    content = packed.read_bytes()
    plain, read = load(trace), load(packed)
    assert read.hops.equals(plain.hops)
    assert read.certificate == plain.certificate
    assert read.path == str(packed)
    assert packed.read_bytes() == content
    assert sorted(path.name for path in trace.parent.iterdir()) == ["run.trace", "run.trace.xz"]


@pytest.mark.parametrize("verb", ["tree", "report"])
def test_verbs_read_packed_traces(trace: Path, verb: str) -> None:
    command("pack", trace, "-o", trace.with_name("small"))
    plain, packed = command(verb, trace), command(verb, trace.with_name("small"))
    assert packed.returncode == 0
    assert packed.stdout.replace("small", "run.trace") == plain.stdout.replace("small", "run.trace")
    assert "aten::mm" in packed.stdout


def test_nothing_is_overwritten_unless_forced(trace: Path) -> None:
    output = trace.with_name("run.trace.xz")
    output.write_text("precious")
    done = command("pack", trace)
    assert done.returncode == 2
    assert "exists; overwrite it with --force" in done.stderr
    assert output.read_text() == "precious"
    assert command("pack", trace, "--force").returncode == 0
    assert len(load(output).hops) == 50


def test_the_newest_trace_is_packed_where_none_is_named(trace: Path) -> None:
    assert command("pack", cwd=trace.parent).returncode == 0
    assert trace.with_name("run.trace.xz").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.trace"], 2, "does not exist"),
        (["run.trace", "-o", "nowhere/x.xz"], 2, "folder nowhere does not exist; create it first"),
        (["run.trace", "-o", "."], 2, "is a folder"),
        (["run.trace", "-o", "run.trace", "--force"], 2, "is the trace itself"),
        (["text"], 2, "is not a trace"),
    ],
)
def test_wrong_usage_is_one_line(trace: Path, arguments: list[str], code: int, message: str) -> None:
    trace.with_name("text").write_text("hello, this is a text")
    done = command("pack", *arguments, cwd=trace.parent)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(trace.parent.glob("*.xz*"))


def test_a_packed_trace_is_not_packed_again(trace: Path) -> None:
    command("pack", trace)
    done = command("pack", trace.with_name("run.trace.xz"))
    assert done.returncode == 2
    assert "is packed already" in done.stderr


def test_names_are_completed_before_it_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = write_library(tmp_path / "lib.so", [("_ZN2at6mm_cpuEv", 0x1000, 0x80, FUNCTION)], "ab" * 20)
    writer = TraceWriter(header={"state": 0})
    writer.process(certificate=None)
    base = 0x7F0000000000
    loaded = {"path": str(library), "base": base, "end": base + 0x10000, "build_id": "ab" * 20}
    writer.json(0, "libraries", [loaded])
    writer.hop(0, "aten::mm", address=base + 0x1000)
    lane = writer.lane()
    lane.enter(0)
    path = writer.write(tmp_path / "killed.trace")
    content = path.read_bytes()
    packed = tmp_path / "raw.xz"
    packed.write_bytes(lzma.compress(content))
    with monkeypatch.context() as patch:
        patch.setattr(completion, "_append", None)  # a packed file cannot be added to
        assert load(packed).hops["kernel"].to_list() == ["at::mm_cpu"]
    assert lzma.decompress(packed.read_bytes()) == content
    assert command("pack", path).returncode == 0
    library.unlink()
    assert load(tmp_path / "killed.trace.xz").hops["kernel"].to_list() == ["at::mm_cpu"]


def test_a_file_that_is_packed_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / "x.xz").write_bytes(lzma.compress(b"a text that is no trace"))
    with pytest.raises(TraceError, match="is not a trace"):
        load(tmp_path / "x.xz")
    (tmp_path / "y.xz").write_bytes(b"\xfd7zXZ\x00 and nothing of the kind")
    with pytest.raises(TraceError, match="is a damaged packed file"):
        load(tmp_path / "y.xz")


@examples(40)
@given(kept=st.floats(0, 1))
def test_a_packed_file_that_is_cut_gives_the_hops_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, kept: float
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    # Random words do not compress, so that the cut lies anywhere in the trace.
    writer = new_writer(0)
    for number in range(400):
        writer.lanes[0].enter(0, key_set=hash((number, 1)) & (1 << 62) - 1)
        writer.lanes[0].exit()
    content = lzma.compress(writer.data())
    path = folder / "cut.xz"
    path.write_bytes(content[: int(kept * len(content))])
    try:
        trace = load(path)
    except TraceError:
        return
    assert len(trace.hops) <= 400
    assert (len(trace.hops) == 400) or trace.certificate["missing_bytes"] > 0


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
@pytest.mark.parametrize("options", [(), ("--redact",)])
def test_the_packed_file_has_the_permissions_of_its_source(
    trace: Path, mode: int, options: tuple[str, ...]
) -> None:
    trace.chmod(mode)
    done = command("pack", trace, *options, "-o", trace.with_name("out.xz"))
    assert done.returncode == 0, done.stderr
    assert trace.with_name("out.xz").stat().st_mode & 0o777 == mode
    assert sorted(path.name for path in trace.parent.iterdir()) == ["out.xz", "run.trace"]


def test_what_is_being_written_has_a_name_that_nobody_can_guess(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever name somebody has put a link at, it is not followed."""
    seen: list[set[str]] = []
    replace = os.replace

    def noting(partial: str, output: Path) -> None:
        seen.append({Path(partial).name})
        assert os.stat(partial).st_uid == os.getuid()
        replace(partial, output)

    monkeypatch.setattr(os, "replace", noting)
    for _ in range(2):
        with trace.open("rb") as file:
            pack(file, trace.with_name("out.xz"), 0o600)
    assert seen[0] != seen[1]
    (trace.with_name("victim")).write_text("mine")
    trace.with_name("out.xz").unlink()
    trace.with_name("out.xz").symlink_to("victim")
    with trace.open("rb") as file:
        pack(file, trace.with_name("out.xz"), 0o600)
    assert trace.with_name("victim").read_text() == "mine"
