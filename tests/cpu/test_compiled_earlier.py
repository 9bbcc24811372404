"""Kernels of code that was compiled before the recording: ops and lines from the text of the module."""

from __future__ import annotations

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher

import tracer
from tracer.trace import Trace

PROGRAM = """
import sys, torch, tracer
how = sys.argv[1]
torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = how == "provenance"
torch._inductor.config.trace.provenance_tracking_level = int(how == "provenance")

class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(16, 32), torch.nn.Linear(16, 16)

    def forward(self, x):  # def
        first, second = self.inner(x).chunk(2, -1)  # inner
        mixed = torch.nn.functional.silu(first) * second
        scaled = mixed * torch.rsqrt(mixed.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.log_softmax(x + self.outer(scaled), -1)  # outer

torch.manual_seed(5)
net = torch.compile(Gate())
x = torch.randn(8, 16)

def step():
    loss = net(x)[:, 3].sum()  # calls
    loss.backward()  # goes back

if how != "recorded":
    step()
with tracer.record(f"{sys.argv[2]}.trace", cuda="off"):
    step()
    step()
"""

pytestmark = pytest.mark.compiler


class Runs:
    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        use_cache(launcher, launcher.folder / "cache")
        launcher.write(PROGRAM)

    def run(self, how: str, name: str) -> Trace:
        """Recorded without what other recordings kept of its kernels."""
        self.launcher.environment["XDG_CACHE_HOME"] = str(self.launcher.folder / name)
        run = self.launcher.python("script.py", how, name)
        assert run.status == 0, run.err
        trace = tracer.load(self.launcher.folder / f"{name}.trace")
        assert not trace.certificate["compiled"]["errors"]
        return trace

    def line(self, comment: str) -> str:
        (number,) = (n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"# {comment}"))
        return f"{self.launcher.folder / 'script.py'}:{number}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(Launcher(tmp_path_factory.mktemp("earlier")))


@pytest.fixture(scope="module")
def recorded(runs: Runs) -> Trace:
    """The same program, with its compilation in the recording."""
    return runs.run("recorded", "recorded")


def kernels(trace: Trace) -> dict[str, dict[str, object]]:
    columns = "name", "fused_ops", "sources", "origin"
    rows = trace.compiled_kernels.select(columns).with_columns(pl.col("name", "origin").cast(pl.String))
    return {row["name"]: row for row in rows.iter_rows(named=True)}


def test_kernels_have_the_ops_that_they_had_if_the_recording_had_seen_it(runs: Runs, recorded: Trace) -> None:
    trace = runs.run("later", "later")
    found, wanted = kernels(trace), kernels(recorded)
    assert len(trace.compiled_kernels) == len(recorded.compiled_kernels) > 6
    assert {row["origin"] for row in wanted.values()} == {"compiled"}
    assert {row["origin"] for row in found.values()} == {"text"}
    assert {name: set(row["fused_ops"]) for name, row in found.items()} == {
        name: set(row["fused_ops"]) for name, row in wanted.items()
    }
    assert {row["sources"] for row in found.values()} == {None}, "this torch did not keep its lines"
    calls = trace.compiled_calls.select("function", "defined_at", "called_from").cast(pl.String).rows()
    called = [("Gate.forward", runs.line("def"), runs.line(by)) for by in ("calls", "goes back")]
    assert calls == called * 2
    code = trace.certificate["compiled"]
    runs_of_kernels = len(trace.compiled_kernels)
    assert (code["kernel_runs"], code["from_nodes"], code["by_name"]) == (runs_of_kernels, runs_of_kernels, 0)


def test_with_provenance_they_have_their_lines_unless_these_are_of_another_run(
    runs: Runs, recorded: Trace
) -> None:
    """Lines come with the cache: after an edit of the script those in it are of other text."""
    trace = runs.run("provenance", "provenance")
    found, wanted = kernels(trace), kernels(recorded)
    assert {name: set(row["sources"]) for name, row in found.items()} == {
        name: set(row["sources"]) for name, row in wanted.items()
    }
    products = trace.hops.filter(pl.col("op").cast(pl.String).str.contains(r"mm\.out"))
    assert set(products["source"].cast(pl.String)) == {runs.line("inner"), runs.line("outer")}
    runs.launcher.write("# Another line\n" + PROGRAM)
    moved = kernels(runs.run("provenance", "moved"))
    runs.launcher.write(PROGRAM)
    assert {row["origin"] for row in moved.values()} == {"text"}
    assert {name: row["fused_ops"] for name, row in moved.items()} == {
        name: row["fused_ops"] for name, row in found.items()
    }
    assert {row["sources"] for row in moved.values()} == {None}
