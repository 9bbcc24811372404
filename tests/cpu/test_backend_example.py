"""examples/backend: a device outside torch is recorded, explained and replayed; docs/backends.md says how."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from kept_extensions import kept_extension
from launching import Launcher, Run

import tracer
from tracer.analysis.why import NO_KERNEL

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "backends.md"
FALLBACK = (pl.col("rule") == "backend fallback") & (pl.col("key") == "PrivateUse1")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """The example's folder with `train.trace`; the device is compiled once for all sessions."""
    if shutil.which("g++") is None:
        pytest.skip("the example needs g++")
    folder = tmp_path_factory.mktemp("example") / "backend"
    shutil.copytree(ROOT / "examples" / "backend", folder, ignore=shutil.ignore_patterns("__pycache__"))
    launcher = Launcher(folder)
    with kept_extension("tracer_example_toy"):
        launcher.environment |= {name: os.environ[name] for name in ("PATH", "TORCH_EXTENSIONS_DIR")}
        run = launcher.record("-o", "train.trace", "--why", "--memory", "train.py")
        assert run.status == 0, run.err
        assert run.out.startswith("toy:0: loss ")
        yield launcher


@pytest.fixture(scope="module")
def hops(example: Launcher) -> pl.DataFrame:
    trace = tracer.load(example.folder / "train.trace")
    assert not trace.certificate["lost_entries"]
    return trace.hops.with_columns(pl.col(pl.Categorical).cast(pl.String))


def run(example: Launcher, *words: object) -> Run:
    return example.run([str(example.tracer), *map(str, words)])


def test_the_program_does_the_same_without_tracer(example: Launcher) -> None:
    assert example.python("train.py").out == example.record("-o", "other.trace", "train.py").out


def test_each_key_has_the_kernel_that_the_package_registered(hops: pl.DataFrame) -> None:
    rows = hops.filter(pl.col("op").is_in(["toy::mm_plus", "aten::_copy_from", "aten::mm"]))
    assert set(rows.filter(~pl.col("key").str.contains("Autocast")).select("op", "key", "kernel").rows()) == {
        ("aten::_copy_from", "PrivateUse1", "toy::copy_from"),
        ("aten::mm", "AutogradPrivateUse1", "torch::autograd::VariableType::mm"),
        ("aten::mm", "PrivateUse1", "toy::mm"),
        ("toy::mm_plus", "AutogradPrivateUse1", "toy::mm_plus_autograd"),
        ("toy::mm_plus", "PrivateUse1", "toy::mm_plus"),
    }
    autocast = rows.filter(pl.col("key") == "AutocastPrivateUse1")
    assert set(autocast["op"]) == {"aten::mm", "toy::mm_plus"}
    lines = (ROOT / "examples/backend/toy.cpp").read_text().splitlines()
    for place in autocast["registered_at"]:
        file, _, line = place.rpartition("/")[2].partition(":")
        assert (file, "AutocastPrivateUse1" in lines[int(line) - 1]) == ("toy.cpp", True)


def test_what_has_no_kernel_is_a_fallback_with_its_copies_below(hops: pl.DataFrame) -> None:
    fell_back = hops.filter(FALLBACK)
    assert {"aten::relu", "aten::sum.IntList_out", "aten::_local_scalar_dense"} < set(fell_back["op"])
    assert "aten::mm" not in set(fell_back["op"])
    assert set(fell_back["kernel"]) == {"fallback: toy::fallback"}
    below = hops.filter(pl.col("parent") == fell_back.filter(pl.col("op") == "aten::relu")["id"][0])
    assert below["op"].to_list() == ["aten::_to_cpu", "aten::relu", "aten::to.dtype_layout"]
    assert below["key"].to_list()[1] == "CPU"


def test_its_own_derivative_has_the_forward_line(hops: pl.DataFrame) -> None:
    backward = hops.filter(pl.col("backward_node").str.contains("MmPlus"), pl.col("op") == "aten::mm")
    assert len(backward)
    assert all("train.py:" in source for source in backward["source"])


@pytest.mark.parametrize("options", [[], ["--import", "toy"]], ids=["the trace alone", "with the package"])
def test_no_kernel_of_the_package_is_denied(
    example: Launcher, hops: pl.DataFrame, options: list[str]
) -> None:
    """aten::mm ran at AutocastPrivateUse1 later; aten::relu never does."""
    for op, denied in (("aten::mm", False), ("toy::mm_plus", False), ("aten::relu", bool(options))):
        row = hops.filter(pl.col("op") == op, pl.col("key") == "AutogradPrivateUse1")["id"][-1]
        out = run(example, "explain", op, "--from", "train.trace", "--hop", row, *options).out
        assert "AutocastPrivateUse1: hidden: autocast is off" in out, out
        assert (NO_KERNEL in out) is denied, out


def first(hops: pl.DataFrame, op: str, key: str) -> int:
    return int(hops.filter(pl.col("op") == op, pl.col("key") == key)["id"][0])


@pytest.mark.parametrize(
    ("op", "key", "chain"),
    [
        ("aten::mm", "AutogradPrivateUse1", "-> aten::mm [PrivateUse1] toy::mm"),
        ("aten::mm", "AutocastPrivateUse1", "aten::mm [AutocastPrivateUse1] "),
        ("toy::mm_plus", "AutogradPrivateUse1", "toy::mm_plus [PrivateUse1] toy::mm_plus"),
        ("toy::mm_plus", "AutocastPrivateUse1", "toy::mm_plus [AutocastPrivateUse1] toy::mm_plus_autocast"),
        ("aten::relu", "PrivateUse1", "[PrivateUse1] fallback: toy::fallback"),
        ("aten::sum", "AutogradPrivateUse1", "aten::sum.IntList_out [PrivateUse1] fallback: toy::fallback"),
    ],
)
def test_its_calls_are_replayed_on_the_device(
    example: Launcher, hops: pl.DataFrame, op: str, key: str, chain: str
) -> None:
    done = run(example, "replay", "train.trace", "--hop", first(hops, op, key), "--import", "toy")
    assert (done.status, done.err) == (0, "")
    assert chain in done.out


def test_without_the_package_one_line_says_what_is_missing(example: Launcher, hops: pl.DataFrame) -> None:
    mm = first(hops, "aten::mm", "AutogradPrivateUse1")
    for more in ([], ["--script", "never.py"]):
        done = run(example, "replay", "train.trace", "--hop", mm, *more)
        assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
        assert "which the torch here does not have; if a package makes it: --import PACKAGE" in done.err
        assert "Traceback" not in done.err
    assert not (example.folder / "never.py").exists()
    on_cpu = run(example, "replay", "train.trace", "--hop", mm, "--key", "CPU")
    assert (on_cpu.status, on_cpu.err) == (0, "")
    assert "aten::mm [CPU] wrapper_CPU_mm" in on_cpu.out


@pytest.mark.parametrize("text", ["1 / 0", "def", "raise SystemError", "import no_such_module"])
def test_a_package_that_cannot_be_imported_is_one_line(
    example: Launcher, hops: pl.DataFrame, text: str
) -> None:
    example.write(text, "broken.py")
    mm = first(hops, "aten::mm", "AutogradPrivateUse1")
    done = run(example, "replay", "train.trace", "--hop", mm, "--import", "broken")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("tracer: cannot import broken: ")


@pytest.mark.parametrize("key", ["AutogradPrivateUse1", "AutocastPrivateUse1"])
def test_a_script_imports_the_package(example: Launcher, hops: pl.DataFrame, key: str) -> None:
    mm = first(hops, "aten::mm", key)
    name = f"{key}.py"
    done = run(example, "replay", "train.trace", "--hop", mm, "--import", "toy", "--script", name)
    assert done.status == 0, done.err
    text = (example.folder / name).read_text()
    assert text.startswith("import time\nimport torch\nimport toy\n")
    assert ('torch.autocast("toy")' in text) is (key == "AutocastPrivateUse1")
    again = example.python(name)
    assert (again.status, "us a call" in again.out) == (0, True), again.err


def test_a_call_of_the_cpu_runs_on_the_device_by_its_key(example: Launcher, hops: pl.DataFrame) -> None:
    mm = first(hops, "aten::relu", "CPU")
    done = run(example, "replay", "train.trace", "--hop", mm, "--import", "toy", "--key", "PrivateUse1")
    assert (done.status, done.err) == (0, "")
    assert "the results are equal" in done.out
    assert "fallback: toy::fallback" in done.out
    without = run(example, "replay", "train.trace", "--hop", mm, "--key", "PrivateUse1")
    assert (without.status in (1, 2), without.err.count("\n")) == (True, 1)


def commands() -> list[tuple[list[str], list[str]]]:
    """Those of the page, and the lines that it shows below each."""
    found: list[tuple[list[str], list[str]]] = []
    for line in PAGE.read_text().splitlines():
        if line.startswith("    $ "):
            found.append((shlex.split(line.removeprefix("    $ ")), []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line.strip())
    return [(words, shown) for words, shown in found if words[0] == "tracer"]


def plain(line: str) -> str:
    """A line of a table without times, numbers of lines and the width of its columns; counts are small."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*\d", "#", line)).strip()


@pytest.mark.promise("docs/backends.md")
def test_every_command_of_the_page_says_what_it_shows(example: Launcher) -> None:
    done = 0
    for words, shown in commands():
        if words[1] == "record":
            continue
        ran = run(example, *words[1:], *(["--force"] if "--script" in words else []))
        assert ran.status == 0, (words, ran.err)
        printed = {plain(line) for line in ran.out.splitlines()}
        lost = [line for line in shown if plain(line) not in printed]
        assert lost == [], (words, ran.out)
        done += 1
    assert done > 10
