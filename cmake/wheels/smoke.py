"""A wheel in an empty environment with one torch and nothing else: a script is recorded, completely."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

CHOOSE = Path(__file__).resolve().parents[1] / "choose_torch.py"
SCRIPT = """\
import torch

a = torch.ones(64, 64, requires_grad=True)
for step in range(3):
    (a @ a).relu().sum().backward()
"""
_COUNTED = (
    "import tracer; t = tracer.load('smoke.trace'); h = t.hops; "
    "print(len(h), t.certificate['complete'], t.certificate['other_signatures'], 'aten::mm' in set(h['op']))"
)


def tried(wheel: Path, torch: str, python: str, build: str, work: Path) -> str:
    """What came of it, in a line. Raises SystemExit if it did not record. `build`: auto, cpu or cuda"""
    version = torch.partition("+")[0]
    folder = work / "smoke" / f"{wheel.name.split('-')[2]}-torch{version}-{build}"
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / "bin" / "python"
    if not own.exists():
        _run([python, "-m", "venv", str(folder)], folder)
    chosen = _run([str(own), str(CHOOSE), f"torch=={version}", "--build", build], folder, said=False).split()
    _run([str(own), "-m", "pip", "install", "--quiet", *chosen, "numpy"], folder)
    _run([str(own), "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", str(wheel)], folder)
    _run([str(own), "-m", "pip", "install", "--quiet", str(wheel)], folder)
    (folder / "smoke.py").write_text(SCRIPT)
    said = _run(
        [str(folder / "bin" / "tracer"), "record", "--force", "-o", "smoke.trace", "smoke.py"], folder
    )
    counted = _run([str(own), "-c", _COUNTED], folder).split()
    if counted[1:] != ["True", "[]", "True"]:
        raise SystemExit(f"{wheel.name} with torch {version}: {' '.join(counted)}\n{said}")
    return f"{wheel.name} with torch {version} ({build}): {counted[0]} hops, complete"


def _run(command: list[str], folder: Path, said: bool = True) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr * said
