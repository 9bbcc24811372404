"""A cluster of Slurm with one node, this machine, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
INSTALLED = os.geteuid() == 0 and all(map(shutil.which, _PROGRAMS))
MISSING = "needs root and Slurm: apt-get install slurmctld slurmd slurm-client munge"
_SETTINGS = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The variables with which srun finds it."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host, settings = socket.gethostname(), folder / "slurm.conf"
    settings.write_text(_SETTINGS.format(host=host, folder=folder, ports=_free_ports()))
    munge = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munged.pid"}
    munge |= {"log-file": folder / "munged.log", "seed-file": folder / "seed"}
    daemons = [
        ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in munge.items())],
        ["slurmctld", "-D", "-f", str(settings)],
        ["slurmd", "-D", "-f", str(settings), "-N", host],
    ]
    variables = {"SLURM_CONF": str(settings)}
    with contextlib.ExitStack() as running:
        for daemon in daemons:
            log = running.enter_context((folder / f"{daemon[0]}.out").open("w"))
            process = subprocess.Popen(daemon, stdout=log, stderr=log, env={**os.environ, **variables})
            running.callback(_end, process)
            if daemon[0] == "munged":
                _wait_for(lambda: (folder / "munge.socket").exists())
        _wait_for(lambda: "idle" in _told(["sinfo", "-h", "-o", "%T"], variables))
        yield variables


def _free_ports() -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(2)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _told(command: list[str], variables: dict[str, str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **variables}
    ).stdout.strip()


def _wait_for(holds: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "Slurm does not start"
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
