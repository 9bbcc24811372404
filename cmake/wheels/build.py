"""Builds wheels that record with several minor versions of torch, without one installed.

    python cmake/wheels/build.py --torch 2.13 2.15 --python 3.11 3.12 3.13 --cuda-packages FOLDER...

Of each torch only the headers are downloaded. What sees no Python.h is compiled once for each torch, and the
rest once for each torch and Python. Then sysroot.py, assemble.py and smoke.py. One wheel serves one Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "cmake" / "checks")]

import assemble  # noqa: E402
import smoke  # noqa: E402
import sysroot  # noqa: E402
import torch_release  # noqa: E402

from tracer.base.torch_build import TorchBuild, build_of, facts_in  # noqa: E402

_ASKED = (
    "import json, sys, sysconfig as s; "
    "print(json.dumps([sys.executable, s.get_config_var('SOABI'), s.get_path('include')]))"
)


@dataclass(frozen=True)
class Python:
    """An interpreter whose headers are there: `version` 3.11, `soabi` cpython-311-x86_64-linux-gnu."""

    version: str
    executable: str
    soabi: str
    include: str

    @property
    def tag(self) -> str:
        return f"cp{self.version.replace('.', '')}"


def find_python(version: str) -> Python:
    """This Python, or pythonX.Y of the PATH or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [
        sys.executable,
        f"python{version}",
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}"))),
    ]
    for name in names:
        code = f"import sys; assert sys.version_info[:2] == {tuple(map(int, version.split('.')))}; {_ASKED}"
        try:
            done = subprocess.run([name, "-c", code], capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0:
            executable, soabi, include = json.loads(done.stdout)
            if Path(include, "Python.h").exists():
                return Python(version, executable, soabi, include)
    raise SystemExit(f"no Python {version} with headers was found: python{version} of the PATH, or of pyenv")


def cuda_headers(packages: list[Path], cuda: object) -> tuple[str, list[Path]]:
    """A version of CUDA and its headers, of the major version that a torch has; the first one if it has none.

    `packages`: folders into which pip put NVIDIA's packages; those of CUDA 13 share one folder of headers.
    """
    found = {}
    for folder in packages:
        places = [place for place in sorted(folder.glob("nvidia/*/include")) if any(place.glob("cu*.h"))]
        text = "".join((place / "cuda.h").read_text() for place in places if (place / "cuda.h").exists())
        number = int(re.findall(r"#define CUDA_VERSION (\d+)", text)[0])
        found[str(number // 1000)] = f"{number // 1000}.{number % 1000 // 10}", places
    return found.get(str(cuda).partition(".")[0]) or next(iter(found.values()))


def build_native(release: Path, pythons: list[Python], given: argparse.Namespace) -> tuple[str, Path]:
    """The extensions for one torch, one for each Python: its minor version, and the folder with them."""
    known = facts_in(release / "torch")
    torch: TorchBuild = build_of(known)
    cuda, headers = cuda_headers(given.cuda_packages, known.get("cuda"))
    minor = ".".join(torch.version.split(".")[:2])
    folder = given.work / f"torch{minor}"
    facts = {
        "TORCH_INCLUDE": release / "torch" / "include",
        "TORCH_VERSION": torch.version.partition("+")[0],
        "TORCH_GIT": torch.git,
        "CUDA_VERSION": cuda,
        "CUDA_HEADERS": ";".join(str(place.resolve()) for place in headers),
        "SYSROOT": sysroot.make(given.work / "sysroot") if given.sysroot else "",
        "PYTHONS": ";".join(f"{python.soabi}={python.include}" for python in pythons),
    }
    tools = Path(sys.executable).parent
    configure = [tools / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", f"-DPython_EXECUTABLE={sys.executable}"]
    configure += [f"-DTRACER_{name}={value}" for name, value in facts.items()]
    subprocess.run(configure, check=True)
    subprocess.run([tools / "cmake", "--build", folder], check=True)
    return minor, folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", nargs="+", required=True, help="minor versions, as 2.13")
    parser.add_argument("--python", nargs="+", required=True, help="versions, as 3.11")
    parser.add_argument("--cuda-packages", type=Path, nargs="+", required=True, help="of CUDA 13, and 12")
    parser.add_argument(
        "--no-sysroot", dest="sysroot", action="store_false", help="in the image manylinux_2_28"
    )
    parser.add_argument("--smoke", choices=["none", "auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    pythons = [find_python(version) for version in given.python]
    releases = [torch_release.fetch(version, ROOT / "build" / "layout") for version in given.torch]
    natives = dict(build_native(release, pythons, given) for release in releases)
    shutil.rmtree(given.work / "tree", ignore_errors=True)
    wheels = []
    for python in pythons:
        made = assemble.wheel(ROOT, natives, python.soabi, python.tag, given.work / "tree", given.output)
        print(f"{made}: {made.stat().st_size / 1e6:.1f} MB, torch {', '.join(natives)}", flush=True)
        wheels.append((made, python.executable))
    for made, executable in wheels if given.smoke != "none" else ():
        for release in releases:
            print(smoke.tried(made, release.name, executable, given.smoke, given.work), flush=True)


if __name__ == "__main__":
    main()
