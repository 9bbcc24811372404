"""`tracer attach` to a job that uses the GPU: its kernels are recorded, and it goes on as before."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from attaching import wait_until
from launching import TIMEOUT, Launcher, Run
from seen import Recorded, launches, of_graph

JOB = str(Path(__file__).parent / "attached_training.py")
STEPS = 12

pytestmark = pytest.mark.skipif(
    not shutil.which("gdb") and not hasattr(sys, "remote_exec"), reason="no gdb is here"
)


class Training:
    """The job, in the launcher's folder, from step to step."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.process = launcher.start(sys.executable, JOB, str(launcher.folder), str(STEPS))

    def reach(self, step: int) -> None:
        """Until it waits before this step, everything before it done on the GPU."""
        for before in range(step):
            (self.launcher.folder / f"go.{before}").touch()
        wait_until((self.launcher.folder / f"at.{step}").exists, self.process)

    def tracer(self, verb: str, *options: str) -> Run:
        done = self.launcher.run([str(self.launcher.tracer), verb, str(self.process.pid), *options])
        assert (done.status, done.out) == (0, ""), done.err
        return done

    def end(self) -> str:
        self.reach(STEPS)
        (self.launcher.folder / f"go.{STEPS}").touch()
        out, err = self.process.communicate(timeout=TIMEOUT)
        assert (self.process.returncode, err) == (0, ""), err
        return out


@contextlib.contextmanager
def training(folder: Path) -> Iterator[Training]:
    folder.mkdir()
    led = Training(Launcher(folder))
    try:
        yield led
    finally:
        led.process.kill()
        led.process.communicate()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    with training(tmp_path_factory.mktemp("alone") / "job") as led:
        return led.end()


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Recorded], str]:
    """Attached before step 2 and detached before step 5, and once more before steps 7 and 8."""
    with training(tmp_path_factory.mktemp("attached") / "job") as led:
        recordings = []
        for begin, end in ((2, 5), (7, 8)):
            led.reach(begin)
            led.tracer("attach", "-o", f"{begin}.trace")
            led.reach(end)
            ended = led.tracer("detach")
            recordings.append(Recorded(ended, led.launcher.folder / f"{begin}.trace"))
        return recordings, led.end()


def test_the_job_computes_what_it_computes_alone(attached: tuple[list[Recorded], str], expected: str) -> None:
    assert attached[1] == expected
    assert expected.endswith("\nend\n")


@pytest.mark.parametrize("number", [0, 1])
def test_the_recording_is_complete(attached: tuple[list[Recorded], str], number: int) -> None:
    recorded = attached[0][number]
    certificate = recorded.trace.certificate
    assert certificate["complete"], certificate["verdict"]
    assert certificate["attached"] is True
    assert recorded.cuda["reconciles"], recorded.cuda
    own = recorded.kernels.filter(~of_graph(recorded.kernels))
    assert own["api_call"].null_count() == 0
    assert set(own["api_call"]) == set(launches(recorded.api_calls)["id"])


def test_as_many_kernels_as_steps(attached: tuple[list[Recorded], str]) -> None:
    """Each step runs the same kernels, of which those of the graph are the two that it captured."""
    three, one = attached[0]
    for recorded, steps in ((three, 3), (one, 1)):
        losses = recorded.hops.filter(pl.col("op") == "aten::mean", pl.col("parent").is_null())
        assert len(losses) == steps
        assert of_graph(recorded.kernels).sum() == 2 * steps
    names = [sorted(recorded.kernels["name"].value_counts().iter_rows()) for recorded in (three, one)]
    assert names[0] == [(name, 3 * count) for name, count in names[1]]


def test_each_kernel_has_its_op(attached: tuple[list[Recorded], str]) -> None:
    three, _ = attached[0]
    own = three.kernels.filter(~of_graph(three.kernels))
    assert own["hop"].null_count() == 0
    hops = three.hops.select(hop="id", op="op")
    ops = set(own.join(hops, on="hop")["op"])
    assert {"aten::addmm", "aten::native_layer_norm", "aten::native_layer_norm_backward"} <= ops


def test_a_job_that_runs_on_and_ends_meanwhile(tmp_path: Path, expected: str) -> None:
    with training(tmp_path / "job") as led:
        led.reach(1)
        command = led.launcher.start(
            str(led.launcher.tracer), "attach", str(led.process.pid), "--seconds", "60", "-o", "t.trace"
        )
        assert command.stderr is not None
        assert "Ctrl-C ends it earlier" in command.stderr.readline()
        assert led.end() == expected
        out, err = command.communicate(timeout=TIMEOUT)
    assert (command.returncode, out) == (0, ""), err
    recorded = Recorded(Run(0, out, err), led.launcher.folder / "t.trace")
    assert recorded.trace.certificate["complete"], recorded.trace.certificate["verdict"]
    assert recorded.cuda["reconciles"], recorded.cuda
    losses = recorded.hops.filter(pl.col("op") == "aten::mean", pl.col("parent").is_null())
    assert len(losses) == STEPS - 1
