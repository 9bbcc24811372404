"""Full disks, files that are no whole traces, installations that do not fit: one clear line."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from launching import TIMEOUT, Launcher, Run
from lazily import torch

import tracer
from tracer.trace.bytes import format as fmt

# ---- no space ------------------------------------------------------------------------------------

BUSY = """
import sys, torch
x = torch.ones(2)
for _ in range(150_000): torch.neg(x)
print("own output", flush=True)
print("own error", file=sys.stderr)
sys.exit(5)
"""


@pytest.fixture(params=["full disk", "file size limit"])
def cramped(request: pytest.FixtureRequest, launcher: Launcher) -> Iterator[tuple[Path, list[str]]]:
    """A folder with room for 4 MiB, and what to put before a command so that this holds."""
    folder = launcher.folder / "small"
    folder.mkdir()
    if request.param == "file size limit":
        yield folder, ["bash", "-c", 'ulimit -f 4096 && exec "$@"', "bash"]
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder, []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def run_in(launcher: Launcher, prefix: list[str], *arguments: str) -> Run:
    process = launcher.start(*prefix, *arguments)
    out, err = process.communicate(timeout=TIMEOUT)
    return Run(process.returncode, out, err)


@pytest.mark.promise("record", "docs/reliability.md")
def test_no_space_left_while_recording(launcher: Launcher, cramped: tuple[Path, list[str]]) -> None:
    launcher.write(BUSY)
    folder, prefix = cramped
    trace_file = str(folder / "run.trace")
    run = run_in(launcher, prefix, str(launcher.tracer), "record", "-o", trace_file, "script.py")
    assert (run.status, run.out, run.own_err) == (5, "own output\n", "own error\n")
    reason = r"(No space left on device|File too large)"
    stopped, summary = re.split(r"own error\n", run.err)
    assert re.fullmatch(
        rf"tracer: recording stopped: {reason} \(.*\); the script continues unrecorded\n", stopped
    )
    assert re.search(rf"incomplete: the recording stopped early: {reason}", " ".join(summary.split()))
    trace = tracer.load(trace_file)
    ran = trace.hops.filter(pl.col("op").cast(pl.String) == "aten::neg")
    assert 10_000 < len(ran) < 150_000 * 2
    assert trace.certificate["closed_in_order"] == {0: True}
    assert trace.certificate["damaged_chunks"] == trace.certificate["torn_events"] == 0
    assert re.search(rf"^incomplete: .*{reason}", trace.certificate["verdict"])
    report = launcher.python("-m", "tracer.cli.app", "report", trace_file)
    assert report.status == 0
    assert re.search(reason, report.out)


def test_no_space_left_at_the_start(launcher: Launcher, cramped: tuple[Path, list[str]]) -> None:
    launcher.write("import torch\nprint(torch.ones(1).item())\n")
    folder, prefix = cramped
    if prefix:
        prefix[2] = prefix[2].replace("4096", "1")
    else:
        (folder / "filler").write_bytes(bytes(4 << 20))
    trace_file = str(folder / "run.trace")
    run = run_in(launcher, prefix, str(launcher.tracer), "record", "-o", trace_file, "script.py")
    assert (run.status, run.out, run.own_err) == (0, "1.0\n", "")
    assert re.fullmatch(r"tracer: nothing is recorded: cannot record to .*: .*\n", run.err)
    assert not os.path.exists(trace_file)


# ---- files that are no traces, or not whole ------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.trace"
    x = torch.ones(4, 4, requires_grad=True)
    with tracer.record(path):
        for n in range(100):
            (x[: 1 + n % 4] @ x).relu().sum().backward()
    return path


def rows(hops: pl.DataFrame) -> set[tuple[object, ...]]:
    return set(hops.select(pl.col("op", "key").cast(pl.String), "start_ns", "thread").iter_rows())


def verbs(launcher: Launcher, name: str) -> list[Run]:
    return [launcher.python("-m", "tracer.cli.app", verb, name) for verb in ("tree", "report")]


def refused(launcher: Launcher, content: bytes, *parts: str) -> None:
    path = launcher.folder / "bad.trace"
    path.write_bytes(content)
    with pytest.raises(tracer.TraceError) as error:
        tracer.load(path)
    lines = [str(error.value) + "\n"]
    for run in verbs(launcher, "bad.trace"):
        assert (run.status, run.out) == (2, "")
        lines.append(run.err)
    for line in lines:
        assert line.count("\n") == 1
        for part in ("bad.trace", *parts):
            assert part in line
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"import torch\n" * 1000, "is not a trace"),
        (b"\x89PNG\r\n\x1a\n" + bytes(9000), "is not a trace"),
    ],
    ids=["empty", "text", "picture"],
)
def test_files_that_are_no_traces(launcher: Launcher, content: bytes, says: str) -> None:
    refused(launcher, content, says)


@pytest.mark.promise("docs/versions.md#what-may-change")
def test_a_newer_format(launcher: Launcher, whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    struct.pack_into("<I", content, 8, fmt.FORMAT_VERSION + 1)
    refused(launcher, bytes(content), f"format {fmt.FORMAT_VERSION + 1}", "upgrade")


def test_an_older_format(launcher: Launcher, whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    struct.pack_into("<I", content, 8, fmt.OLDEST_VERSION - 1)
    refused(launcher, bytes(content), f"format {fmt.OLDEST_VERSION - 1}", "never released", "record it again")


def test_cut_within_the_header(launcher: Launcher, whole: Path) -> None:
    refused(launcher, whole.read_bytes()[: fmt.HEADER_BYTES // 2], "ends inside its header")


def test_cut_anywhere(tmp_path: Path, whole: Path) -> None:
    content, path = whole.read_bytes(), tmp_path / "cut.trace"
    everything = rows(tracer.load(whole).hops)
    seen = set()
    for end in range(fmt.HEADER_BYTES, len(content), (len(content) - fmt.HEADER_BYTES) // 150):
        path.write_bytes(content[:end])
        trace = tracer.load(path)
        named = trace.hops.filter(pl.col("op").is_not_null())
        assert len(trace.hops) <= len(everything)
        assert not trace.certificate["complete"], f"cut at {end} of {len(content)}"
        assert trace.certificate["verdict"].startswith("incomplete: ")
        if trace.certificate["undefined_hops"] == 0 and trace.certificate["clock_known"]:
            assert {row[2:] for row in rows(named)} <= {row[2:] for row in everything}, f"cut at {end}"
        seen.add(len(trace.hops))
    assert len(seen) > 50, "hops before the cut are read"


def test_verbs_on_a_cut_file(launcher: Launcher, whole: Path) -> None:
    content = whole.read_bytes()
    (launcher.folder / "cut.trace").write_bytes(content[: len(content) * 3 // 4])
    tree, report = verbs(launcher, "cut.trace")
    assert tree.status == report.status == 0
    assert "aten::mm" in tree.out
    assert tree.err.startswith("tracer: incomplete: ")
    assert "missing at the end of the file" in report.out


def damaged(content: bytes, moments: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(moments.choice([1, 10, 100])):
        changed[moments.randrange(len(changed))] = moments.randrange(256)
    return bytes(changed)


def test_damaged_at_random_bytes(launcher: Launcher, whole: Path) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    content, path = whole.read_bytes(), launcher.folder / "damaged.trace"
    count = len(tracer.load(whole).hops)
    readable = 0
    for attempt in range(150):
        path.write_bytes(damaged(content, moments))
        try:
            hops = tracer.load(path).hops
        except tracer.TraceError:
            continue
        except Exception as error:
            raise AssertionError(f"attempt {attempt} of seed {seed}") from error
        assert len(hops) <= count, f"attempt {attempt} of seed {seed}"
        readable += len(hops) > count // 2
    assert readable > 50, f"what is whole is read (seed {seed})"
    for _ in range(4):
        path.write_bytes(damaged(content, moments))
        for run in verbs(launcher, "damaged.trace"):
            assert run.status in (0, 2), f"seed {seed}: {run.err}"
            assert "Traceback" not in run.err, f"seed {seed}: {run.err}"


# ---- installations and recordings that do not fit ------------------------------------------------


def test_another_torch_than_it_was_built_with(launcher: Launcher) -> None:
    package = launcher.folder / "overlay" / "tracer"
    shutil.copytree(Path(tracer.__file__).parent, package)
    with (package / "_build_info.py").open("a") as file:
        file.write("\nTORCH_VERSION = '2.10.9+other'\n")
    overlay = {"PYTHONPATH": str(package.parent)}
    expected = (
        rf"tracer was built with torch 2\.10\.9\+other, but this is torch {re.escape(torch.__version__)}; "
    )
    launcher.write("print('must not run')\n")
    run = launcher.python("-m", "tracer.cli.app", "record", "script.py", extra=overlay)
    assert (run.status, run.out) == (2, "")
    assert re.fullmatch(rf"tracer: {expected}rebuild .*pip install .*\n", run.err)
    launcher.write(
        "import torch, tracer\n"
        "try:\n    tracer.start('run.trace')\nexcept tracer.RecordingError as error:\n    print(error)\n"
    )
    run = launcher.python("script.py", extra=overlay)
    assert re.fullmatch(rf"{expected}rebuild .*pip install .*\n", run.out)
    assert launcher.traces() == []


def test_recordings_do_not_nest(tmp_path: Path) -> None:
    with tracer.record(tmp_path / "outer.trace") as outer:
        torch.ones(1)
        for begin in (
            tracer.record(tmp_path / "inner.trace").start,
            lambda: tracer.start(tmp_path / "inner.trace"),
        ):
            with pytest.raises(
                tracer.RecordingError, match=r"outer\.trace is already running; stop it first$"
            ):
                begin()
        torch.ones(1)
    assert not (tmp_path / "inner.trace").exists()
    assert outer.summary.verdict == "complete: nothing dropped"
    assert len(tracer.load(tmp_path / "outer.trace").hops) == outer.summary.hops
