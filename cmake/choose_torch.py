"""Which build of torch `make` installs: arguments for pip on stdout, and why on stderr in one line.

Without an NVIDIA driver a CPU build does all that tracer can show there, and the CUDA build is 2.7 GB to
download and 5.4 GB on disk. Runs with nothing but the standard library, before anything is installed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import re
import subprocess
import sys
import threading
import urllib.request
from urllib.parse import unquote

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SECONDS = 5.0  # for the CPU index to answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("torch", help="what pip is asked for, such as torch==2.13.0")
    parser.add_argument("--build", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--index", default="", help="an index that torch must come from")
    parser.add_argument("--cpu-index", default=CPU_INDEX)
    parser.add_argument(
        "--pip", default=sys.executable, help="the Python whose pip is asked for local wheels"
    )
    given = parser.parse_args()
    if given.build not in ("auto", "cpu", "cuda"):
        sys.exit(f"TORCH_BUILD is auto, cpu or cuda, not {given.build}")
    arguments, why = choose(given)
    print(f"torch: {why}", file=sys.stderr)
    print(*arguments)


def choose(given: argparse.Namespace) -> tuple[list[str], str]:
    """The arguments for `pip install`, and a line that says which torch that is and why."""
    if given.index:
        return [given.torch, "--index-url", given.index], f"{given.torch} of {given.index}, as you asked"
    if given.build == "cuda":
        return [plain(given.torch)], f"the CUDA build of {given.torch} (2.7 GB to download), as you asked"
    if given.build == "auto" and has_driver():
        return [given.torch], f"{given.torch} from pip's own index, since this machine has an NVIDIA driver"
    reason = "as you asked" if given.build == "cpu" else "since this machine has no NVIDIA driver"
    if index_has(given.cpu_index, given.torch):
        return [given.torch, "--index-url", given.cpu_index], f"the CPU build of {given.cpu_index}, {reason}"
    if version := local_version(given.torch, given.pip):
        return [f"torch=={version}"], f"the local wheel of torch {version}, {reason}"
    missing = (
        f"{given.cpu_index} has no wheel of it for this Python or did not answer within {SECONDS:.0f} s, "
        "and pip knows no local one"
    )
    if given.build == "cpu":
        sys.exit(f"there is no CPU build of {given.torch}: {missing}")
    return [given.torch], f"pip's default build of {given.torch} (with CUDA: 2.7 GB to download): {missing}"


def plain(torch: str) -> str:
    """Without local versions: pip prefers a wheel of 2.13.0+cpu that lies on this machine to 2.13.0."""
    return re.sub(r"^torch==([\d.]+)$", r"torch===\1", torch)


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
        try:
            with urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=SECONDS) as page:
                answer.append(page.read())
        except (OSError, ValueError):
            pass

    asking = threading.Thread(target=ask, daemon=True)  # looking up a name has no time limit of its own
    asking.start()
    asking.join(SECONDS)
    return bool(answer) and any(suits(name, torch) for name in wheels(answer[0]))


def wheels(page: bytes) -> list[str]:
    return re.findall(r">\s*(torch-[^<>\s]+\.whl)\s*<", unquote(page.decode(errors="replace")))


def suits(wheel: str, torch: str) -> bool:
    """Whether a wheel, by its name, is of this torch and runs on this Python and processor."""
    wanted = re.fullmatch(r"torch(?:==([^,;]+))?", torch)
    if wanted is None:
        return False  # a range or a file: pip itself must decide
    _, version, python, abi, system = wheel.removesuffix(".whl").split("-")[:5]
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return (
        wanted[1] in (None, version, version.partition("+")[0])
        and (python, abi) == (here, here)
        and system.startswith(("linux", "manylinux"))
        and system.endswith(platform.machine())
    )


def local_version(torch: str, python: str) -> str | None:
    """The CPU build among the local wheels that pip is configured to look at; None: there is none."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--no-index", "--no-deps", "--report", "-", torch]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        version = json.loads(done.stdout)["install"][0]["metadata"]["version"]
    except (ValueError, LookupError):
        return None
    return version if version.endswith("+cpu") else None


if __name__ == "__main__":
    main()
