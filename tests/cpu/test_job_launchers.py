"""Jobs that mpirun, Accelerate, Lightning and Ray Train start, and ranks that no variable names."""

from __future__ import annotations

import importlib.util
import shutil
import sys

import pytest
import slurm
from launching import Launcher

import tracer

LACKS_ACCELERATE = importlib.util.find_spec("accelerate") is None
LACKS_LIGHTNING = importlib.util.find_spec("lightning") is None
LACKS_RAY = importlib.util.find_spec("ray") is None
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

JOINS = """\
import os
import torch
import torch.distributed as dist
rank, ranks = (int(os.environ[name]) for name in VARIABLES)
store = dist.FileStore("store", ranks)
dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
x = torch.full((3,), float(rank))
dist.all_reduce(x)
print(x[0].item())
dist.destroy_process_group()
"""
MPI = JOINS.replace("VARIABLES", '("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")')
SLURM = JOINS.replace("VARIABLES", '("SLURM_PROCID", "SLURM_NTASKS")')

SPAWN = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, ranks):
    store = dist.FileStore("store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    dist.new_group([rank])
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(work, (2,), nprocs=2, start_method="{method}")
"""

TRAINING = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
loss = model(torch.ones(2, 4)).sum()
accelerator.backward(loss)
optimizer.step()
accelerator.end_training()
"""

FORKED = """\
import runpy
from accelerate import debug_launcher

def train():
    runpy.run_path("training.py")

if __name__ == "__main__":
    debug_launcher(train, num_processes=2)
"""

LIGHTNING = """\
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2)
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar")}
    lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **quiet).fit(Line(), data)
"""

RAY = """\
import sys
import ray
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

def train():
    import torch.distributed as dist
    x = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(x)

if __name__ == "__main__":
    switch = {"env_vars": {"TRACER": sys.argv[1]}}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env=switch)
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2, use_gpu=False)).fit()
"""


def ranks(trace: tracer.Trace) -> list[tuple[int, int]]:
    """(rank, ranks) of the processes that have one."""
    return sorted(trace.processes.select("rank", "ranks").drop_nulls().rows())


def of_folder(launcher: Launcher) -> list[tracer.Trace]:
    return [tracer.load(path) for path in sorted((launcher.folder / "job").glob("*.trace"))]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_are_given_to_torch_alone(launcher: Launcher, method: str) -> None:
    launcher.write(SPAWN.replace("{method}", method))
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert trace.certificate["verdict"].startswith("complete: ")
    assert ranks(trace) == [(0, 2), (1, 2)]
    assert tracer.load_job(launcher.folder / "run.trace").ranks == 2


def test_a_recording_that_begins_behind_the_process_group(launcher: Launcher) -> None:
    launcher.write(
        "import sys, torch, tracer\n"
        "import torch.distributed as dist\n"
        "rank = int(sys.argv[1])\n"
        'dist.init_process_group("gloo", store=dist.FileStore("store", 2), rank=rank, world_size=2)\n'
        'with tracer.record(f"{rank}.trace"):\n'
        "    dist.all_reduce(torch.ones(2))\n"
        "dist.destroy_process_group()\n"
    )
    both = ["sh", "-c", '"$0" script.py 1 & "$0" script.py 0 && wait', sys.executable]
    assert launcher.run(both).status == 0
    for rank in (0, 1):
        assert ranks(tracer.load(launcher.folder / f"{rank}.trace")) == [(rank, 2)]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is missing: apt-get install openmpi-bin")
def test_mpirun(launcher: Launcher) -> None:
    launcher.write(MPI)
    record = [str(launcher.tracer), "record", "-o", "job/", "script.py"]
    run = launcher.run(["mpirun", "--oversubscribe", "-n", "2", *record], extra=AS_ROOT)
    assert run.status == 0, run.err
    assert [ranks(trace) for trace in of_folder(launcher)] == [[(0, 2)], [(1, 2)]]


@pytest.mark.skipif(not slurm.INSTALLED, reason=slurm.MISSING)
def test_srun(launcher: Launcher) -> None:
    launcher.write(SLURM)
    record = [str(launcher.tracer), "record", "-o", "job/", "script.py"]
    with slurm.cluster(launcher.folder / "slurm") as settings:
        run = launcher.run(["srun", "-n", "2", "--export", "ALL", *record], extra=settings)
    assert run.status == 0, run.err
    assert sorted(run.out.split()) == ["1.0", "1.0"]
    assert sorted(path.name for path in (launcher.folder / "job").iterdir()) == ["rank0.trace", "rank1.trace"]
    assert [ranks(trace) for trace in of_folder(launcher)] == [[(0, 2)], [(1, 2)]]
    assert tracer.load_job(launcher.folder / "job").collectives["op"].to_list() == ["c10d::allreduce_"]


@pytest.mark.skipif(LACKS_ACCELERATE, reason="accelerate is not installed")
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is missing: apt-get install openmpi-bin")
def test_accelerate_launch(launcher: Launcher) -> None:
    launcher.write(TRAINING, "training.py")
    launcher.write("localhost slots=2\n", "hosts")
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    record = ["--mpirun_hostfile", "hosts", "--module", "tracer", "record", "-o", "job/", "training.py"]
    run = launcher.run([*launch, *record], extra=AS_ROOT)
    assert run.status == 0, run.err
    assert [ranks(trace) for trace in of_folder(launcher)] == [[(0, 2)], [(1, 2)]]


@pytest.mark.skipif(LACKS_ACCELERATE, reason="accelerate is not installed")
def test_accelerate_in_forked_processes(launcher: Launcher) -> None:
    launcher.write(TRAINING, "training.py")
    launcher.write(FORKED)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    assert ranks(tracer.load(launcher.folder / "run.trace")) == [(0, 2), (1, 2)]


@pytest.mark.skipif(LACKS_LIGHTNING, reason="lightning is not installed")
def test_lightning(launcher: Launcher) -> None:
    launcher.write(LIGHTNING)
    run = launcher.record("-o", "run.trace", "script.py")
    assert run.status == 0, run.err
    trace = tracer.load(launcher.folder / "run.trace")
    assert ranks(trace) == [(0, 2), (1, 2)]
    assert "c10d::allreduce_" in set(trace.hops["op"].cast(str))


@pytest.mark.skipif(LACKS_RAY, reason="ray is not installed")
def test_ray_train_workers(launcher: Launcher) -> None:
    launcher.write(RAY)
    (launcher.folder / "job").mkdir()
    switch = str(launcher.folder / "job" / "%p.trace")
    run = launcher.run([sys.executable, "script.py", switch])
    assert run.status == 0, run.err
    found = sorted(rank for trace in of_folder(launcher) for rank in ranks(trace))
    assert found == [(0, 2), (1, 2)]
