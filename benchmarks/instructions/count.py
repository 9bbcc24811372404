"""Counts the instructions of what recording adds, under valgrind. A count does not change with the load.

    python benchmarks/instructions/count.py            # half a minute; compares with table.json
    python benchmarks/instructions/count.py --write    # writes table.json

Counted is tracer's own code: what Python and torch take for a call changes with where the stack and the
heap happen to lie, by more than a hop costs. Exits with 1 if a count is off by more than 2 % of the
table's. Counts depend on the compiler and on torch: where these are not the table's, counts are printed and
not compared. Needs valgrind, gcc, and for calls of CUDA the headers that `make cuda-check` fetches.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "system")]
from cupti_program import build, cuda_headers  # noqa: E402

TABLE = HERE / "table.json"
BOUND = 0.02  # of a count in the table
OPS = {"add": 2, "mm": 5, "matmul_grad": 6}  # hops of a call
OP_CALLS, CUDA_CALLS = 500, 1000  # as in hops.py and calls.cpp
MEANINGS = {
    "hop": "a hop, hops only: the mean over `torch.add`, `mm` and `matmul` with grad of 4x4",
    "hop_default": "the same with the defaults: shapes, lines and modules",
    "query": "`cudaGetDevice` in a hop",
    "hooked": "the same with `--queries torch`, without CUPTI",
    "launch": "`cudaLaunchKernel`",
    "copy": "`cudaMemcpyAsync`",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write table.json, and compare nothing")
    options = parser.parse_args()
    for tool in ("valgrind", "gcc", "g++"):
        if shutil.which(tool) is None:
            parser.error(f"{tool} is missing: apt-get install valgrind gcc g++")
    with tempfile.TemporaryDirectory() as name:
        counts = count_hops(Path(name)) | count_calls(Path(name))
    made_with = {
        "compiler": _says("g++", "-dumpfullversion").strip(),
        "torch": version("torch"),
        "python": "{}.{}".format(*sys.version_info),
    }
    if options.write:
        TABLE.write_text(json.dumps({"made_with": made_with, "instructions": counts}, indent=1) + "\n")
    table = json.loads(TABLE.read_text())
    comparable = table["made_with"] == made_with
    for line in lines(counts, table["instructions"], comparable):
        print(line)
    if not comparable:
        print(f"not compared: the table is of {_words(table['made_with'])}; this is {_words(made_with)}")
        return 0
    return int(bool(too_far(counts, table["instructions"])))


def lines(counts: dict[str, float], table: dict[str, float], comparable: bool) -> list[str]:
    """One line a count: instructions, the table's, and what is counted."""
    made = [f"{'':12} {'now':>7} {'table':>7}"]
    far = too_far(counts, table) if comparable else []
    for key, count in counts.items():
        known = f"{table[key]:7.1f}" if key in table else f"{'-':>7}"
        mark = "  off by more than 2 %" if key in far else ""
        made.append(f"{key:12} {count:7.1f} {known}  {MEANINGS[key]}{mark}")
    return made


def too_far(counts: dict[str, float], table: dict[str, float]) -> list[str]:
    """Counts that are off by more than BOUND, or that the table has not."""
    return [
        key for key, count in counts.items() if abs(count - table.get(key, 0)) > BOUND * table.get(key, 0)
    ]


def count_hops(folder: Path) -> dict[str, float]:
    """What a hop adds: instructions, means over the ops."""
    requests = folder / "requests.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", requests, HERE / "requests.c"], check=True)
    script = [sys.executable, "-P", str(HERE / "hops.py"), str(requests), str(folder)]
    counted = _counted(script, folder, "/tracer/_C.")
    means = {}
    for variant, key in (("hops", "hop"), ("default", "hop_default")):
        of_ops = [counted[f"{variant}.{op}"] / OP_CALLS / hops for op, hops in OPS.items()]
        means[key] = round(sum(of_ops) / len(of_ops), 1)
    return means


def count_calls(folder: Path) -> dict[str, float]:
    """What a call of CUDA costs: instructions."""
    if cuda_headers() is None:
        print("no headers of CUPTI: calls of CUDA are not counted (make cuda-check fetches them)")
        return {}
    program = build(HERE / "calls.cpp", folder, "-O2", "-DNDEBUG", "-rdynamic")
    counted = _counted([str(program), str(folder)], folder, "/calls")
    return {key: round(counted[key] / CUDA_CALLS, 1) for key in ("query", "hooked", "launch", "copy")}


def _counted(command: list[str], folder: Path, own: str) -> dict[str, int]:
    """Instructions in files whose path has `own`, of each stretch that the command named."""
    out = folder / f"counted.{Path(command[0]).name}"
    valgrind = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    environment = os.environ | {"PYTHONHASHSEED": "0", "KINETO_LOG_LEVEL": "99", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([*valgrind, *command], check=True, env=environment)
    found = {}
    for part in folder.glob(f"{out.name}.*"):
        text = part.read_text()
        named = re.search(r"^desc: Trigger: Client Request: (\S+)$", text, re.MULTILINE)
        if named:
            found[named[1]] = own_instructions(text, own)
    return found


def own_instructions(text: str, own: str) -> int:
    """Instructions in files whose path has `own`, out of callgrind's output."""
    names: dict[str, str] = {}
    total, counts, called = 0, False, False
    for line in text.splitlines():
        if line.startswith("ob="):
            number, _, name = line[3:].partition(" ")
            counts = own in names.setdefault(number, name)
        elif line.startswith("cob="):
            number, _, name = line[4:].partition(" ")
            names.setdefault(number, name)
        elif line.startswith("calls="):
            called = True  # the next line has what the called function took
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            total += int(line.split()[1]) if counts and not called else 0
            called = False
    return total


def _says(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _words(made_with: dict[str, str]) -> str:
    return f"g++ {made_with['compiler']}, torch {made_with['torch']}, Python {made_with['python']}"


if __name__ == "__main__":
    sys.exit(main())
