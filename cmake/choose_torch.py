"""Which build of torch `make` installs: arguments for pip on stdout, and why on stderr in one line.

Without an NVIDIA driver a CPU build does all that tracer can show there, and the CUDA build is 2.7 GB to
download and 5.4 GB on disk. Runs in a new virtual environment, with pip and the standard library alone.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import json
import platform
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from urllib.parse import unquote

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
from pip._vendor.packaging.version import InvalidVersion, Version

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SECONDS = 5.0  # for the CPU index to answer
SIZE = "2.7 GB to download, 5.4 GB on disk"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("torch", help="requirement for pip, e.g. torch==2.13.0")
    parser.add_argument("--build", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--index", default="", help="package index to install torch from")
    parser.add_argument("--cpu-index", default=CPU_INDEX)
    given = parser.parse_args()
    if given.build not in ("auto", "cpu", "cuda"):
        sys.exit(f"TORCH_BUILD={given.build}: choose auto, cpu or cuda")
    given.torch = "".join(given.torch.split())  # the shell splits what is printed
    arguments, why = choose(given)
    print(f"torch: {why}", file=sys.stderr)
    print(*arguments)


def choose(given: argparse.Namespace) -> tuple[list[str], str]:
    """The arguments for `pip install`, and a line that says which torch that is and why."""
    if given.index:
        return [given.torch, "--index-url", given.index], f"{given.torch} of {given.index}, as you asked"
    if given.build == "cuda":
        return [with_cuda(given.torch)], f"the CUDA build of {given.torch} ({SIZE}), as you asked"
    if given.build == "auto" and has_driver():
        why = "since this machine has an NVIDIA driver; without CUDA, 0.2 GB: make TORCH_BUILD=cpu"
        return [given.torch], f"{given.torch} from pip's own index ({SIZE}), {why}"
    reason = "as you asked" if given.build == "cpu" else "since this machine has no NVIDIA driver"
    if index_has(given.cpu_index, given.torch):
        return [given.torch, "--index-url", given.cpu_index], f"the CPU build of {given.cpu_index}, {reason}"
    if version := local_version(given.torch):
        return [f"torch=={version}"], f"the local wheel of torch {version}, {reason}"
    missing = (
        f"{given.cpu_index} has no wheel of it for this Python or did not answer within {SECONDS:.0f} s, "
        "and pip found no local one"
    )
    if given.build == "cpu":
        sys.exit(f"no CPU build of {given.torch}: {missing}")
    other = "to take the CPU build of another index, 0.2 GB: make TORCH_INDEX=URL"
    return [given.torch], f"pip's default build of {given.torch} (with CUDA: {SIZE}): {missing}; {other}"


def with_cuda(torch: str) -> str:
    """What keeps pip from a local CPU wheel: 2.13.0+cpu is newer than 2.13.0, and === takes 2.13.0 alone."""
    if exact := re.fullmatch(r"torch==([\d.]+)", torch):
        version = [*exact[1].strip(".").split("."), "0", "0"]
        return f"torch==={'.'.join(version[: max(3, len(version) - 2)])}"
    if version := local_version(torch):
        sys.exit(f"pip prefers the local wheel of torch {version}; give the version: TORCH=torch==X.Y.Z")
    return torch


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def index_has(index: str, torch: str) -> bool:
    """Whether a package index answers in time and has a wheel of this torch for this Python."""
    answer: list[bytes] = []

    def ask() -> None:
        request = urllib.request.Request(
            f"{index.rstrip('/')}/torch/", headers={"Accept-Encoding": "identity"}
        )
        # whatever a server or a proxy answers, a wheel it is not
        with contextlib.suppress(Exception), urllib.request.urlopen(request, timeout=SECONDS) as page:
            answer.append(page.read())

    asking = threading.Thread(target=ask, daemon=True)  # looking up a name has no time limit of its own
    asking.start()
    asking.join(SECONDS)
    return bool(answer) and any(suits(name, torch) for name in wheels(answer[0]))


def wheels(page: bytes) -> list[str]:
    if page.startswith(b"\x1f\x8b"):
        with contextlib.suppress(OSError, EOFError):
            page = gzip.decompress(page)
    return re.findall(r">\s*(torch-[^<>\s]+\.whl)\s*<", unquote(page.decode(errors="replace")))


def suits(wheel: str, torch: str) -> bool:
    """Whether a wheel, by its name, is of this torch and runs on this Python and processor."""
    parts = wheel.removesuffix(".whl").split("-")
    try:
        wanted = Requirement(torch)
        if len(parts) != 5 or not wanted.specifier.contains(Version(parts[1])):
            return False
    except (InvalidRequirement, InvalidVersion):
        return False  # a file or an address: there is nothing to choose
    python, abi, system = parts[2:]
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return (
        wanted.url is None
        and (python, abi) == (here, here)
        and system.startswith(("linux", "manylinux"))
        and system.endswith(platform.machine())
    )


def local_version(torch: str) -> str | None:
    """The CPU build among the local wheels that pip is configured to look at; None: there is none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--dry-run",
        ]
        command += ["--ignore-installed", "--no-index", "--no-deps", "--report", str(report), torch]
        subprocess.run(command, capture_output=True, check=False)
        try:
            version = json.loads(report.read_text())["install"][0]["metadata"]["version"]
        except (OSError, ValueError, LookupError):
            return None
    return version if version.endswith("+cpu") else None


if __name__ == "__main__":
    main()
