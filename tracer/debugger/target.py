"""The Python environment of the debugged script, examined from outside: it needs no tracer."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tracer.base.interpreter import ask
from tracer.debugger.debugger_errors import DebuggerError

# Runs in the target's Python (3.7 or newer) without importing torch, which takes seconds.
_LOOK = """
import importlib.util, json, os, platform, sys
def folder(name):
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations)[0] if spec and spec.submodule_search_locations else None
torch = folder("torch")
facts = {"executable": sys.executable, "python": platform.python_version(), "torch": torch,
         "torchgen": folder("torchgen"), "torch_version": None, "machine": platform.machine()}
if torch and os.path.exists(os.path.join(torch, "version.py")):
    space = {}
    exec(open(os.path.join(torch, "version.py")).read(), space)
    facts["torch_version"] = str(space.get("__version__"))
print(json.dumps(facts))
"""


@dataclass(frozen=True)
class Target:
    """A Python with a torch in it.

    `torch` is the folder of the package; its libraries are in `torch/lib`, its headers in
    `torch/include`. `torchgen` is the folder of torchgen, None where the wheel has none.
    """

    executable: str
    python: str
    torch: Path
    torch_version: str
    torchgen: Path | None
    machine: str

    @property
    def libraries(self) -> Path:
        return self.torch / "lib"

    @property
    def libtorch_cpu(self) -> Path:
        return self.libraries / "libtorch_cpu.so"


def look(python: str) -> Target:
    """The environment of the interpreter `python`. Raises DebuggerError with what to do."""
    found = shutil.which(python)
    if found is None:
        raise DebuggerError(f"{python} does not exist or is not a program; give a Python with --python")
    try:
        done = ask(found, _LOOK)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DebuggerError(f"{python} does not run as Python: {error}") from None
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise DebuggerError(f"{python} does not run as Python: {last[:100]}") from None
    if facts["torch"] is None or facts["torch_version"] is None:
        raise DebuggerError(f"{python} has no torch; install it there, or give another Python with --python")
    if facts["machine"] != "x86_64":
        raise DebuggerError(
            f"tracer gdb knows the registers of x86-64 only, and {python} runs on {facts['machine']}; "
            "tracer record and tracer tree work there"
        )
    torchgen = facts["torchgen"]
    return Target(
        executable=facts["executable"],
        python=facts["python"],
        torch=Path(facts["torch"]),
        torch_version=facts["torch_version"],
        torchgen=Path(torchgen) if torchgen else None,
        machine=facts["machine"],
    )
