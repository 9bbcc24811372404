"""What recording costs now and what it cost with another tracer, such as the last release.

    git worktree add ../before main
    pip install --no-build-isolation --no-deps --target build/before ../before
    python benchmarks/before.py build/before                # about seven minutes

Runs overhead.py with one and with the other in turns, so that the noise of the machine meets both, and
prints the medians over the turns. The other tracer needs the same version of the benchmarks' calls.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Table

KEYS = {"hops": "hops only", "default": "defaults"}


def main() -> None:
    options = parse()
    before: list[dict] = []
    now: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.turns):
            order = [(before, str(options.before)), (now, "")]
            for results, path in order[:: -1 if turn % 2 else 1]:
                results.append(measured(Path(folder) / "result.json", path, options.rounds))
            if sys.stderr.isatty():
                print(f"turn {turn + 1} of {options.turns}", file=sys.stderr)
    for key, meaning in KEYS.items():
        print(table(key, f"{meaning}: ns a hop, median of {options.turns} turns", before, now).text())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("before", type=Path, help="folder that the other tracer is installed in")
    parser.add_argument("--turns", type=int, default=8, help="of each (8)")
    parser.add_argument("--rounds", type=int, default=5, help="of overhead.py --quick in a turn (5)")
    options = parser.parse_args()
    if not (options.before / "tracer").is_dir():
        parser.error(f"{options.before} has no tracer: pip install --target {options.before}")
    options.before = options.before.absolute()
    return options


def measured(result: Path, path: str, rounds: int) -> dict:
    """What overhead.py found, with the tracer of a folder (or the one that is installed)."""
    command = [sys.executable, str(Path(__file__).with_name("overhead.py")), "--quick"]
    command += ["--rounds", str(rounds), "--json", str(result)]
    environment = os.environ | ({"PYTHONPATH": path} if path else {})
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return json.loads(result.read_text())


def table(key: str, title: str, before: list[dict], now: list[dict]) -> Table:
    names = [row["workload"] for row in before[0]["workloads"]]
    rows, ratios = [], []
    for name in names:
        one, other = costs(key, name, before), costs(key, name, now)
        ratio = statistics.median(other) / statistics.median(one)
        ratios.append(ratio)
        middle = [f"{statistics.median(cost):.1f}" for cost in (one, other)]
        apart = [f"{min(cost):.1f}-{max(cost):.1f}" for cost in (one, other)]
        rows.append([name, *middle, f"{ratio:.3f}", *apart])
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    rows.append(["geometric mean", "", "", f"{mean:.3f}", "", ""])
    return Table(title, ["", "before", "now", "now/before", "before from-to", "now from-to"], rows)


def costs(key: str, workload: str, results: list[dict]) -> list[float]:
    """What a variant adds, a hop, by turn."""
    rows = [row for result in results for row in result["workloads"] if row["workload"] == workload]
    return [row["added"][key][1] / row["hops"] for row in rows]


if __name__ == "__main__":
    main()
