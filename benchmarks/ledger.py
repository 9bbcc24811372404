"""How well `tracer ledger` predicts a step without tracer: predicted against measured, in fresh processes.

    python benchmarks/ledger.py                              # a transformer layer and a seq2seq
    python benchmarks/ledger.py --processes 4 train.py --epochs 2
    python benchmarks/ledger.py benchmarks/ledger_compiled.py    # no prediction, only the cost

Processes take turns: alone, recorded, alone, recorded, ... In each that runs alone the median steady step
is measured; of each that is recorded, `tracer ledger` predicts it. The same is done with a fast step, the one
that a tenth of the steps are faster than: other work on the machine interrupts few of those.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import mean

import polars as pl

import tracer
from tracer.analysis.ledger import ledger
from tracer.recording import environment

HERE = Path(__file__).parent
QUANTILES = {"median": 0.5, "fast": 0.1}
EXAMPLES = {
    "transformer layer": [str(HERE / "ledger_transformer.py")],
    "seq2seq_gru.py": [str(HERE.parent / "examples" / "seq2seq_gru.py"), "--epochs", "3"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=10, help="of each kind (10)")
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where traces go (build/)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT ...")
    options = parser.parse_args()
    known = environment.snapshot({})
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    print(f"{known['cpu']}, {known['cores']} cores, torch {known['torch']}, {date}")
    options.folder.mkdir(exist_ok=True)
    scripts = {Path(options.command[0]).name: options.command} if options.command else EXAMPLES
    with tempfile.TemporaryDirectory(prefix="ledger-", dir=options.folder.absolute()) as folder:
        for name, command in scripts.items():
            compare(name, command, Path(folder), options.processes)


def compare(name: str, command: list[str], folder: Path, processes: int) -> None:
    print(f"\n{name}, milliseconds a step\n\nprocess  step      alone  recorded  predicted  tracer   rest")
    rows: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in QUANTILES}
    for number in range(1, processes + 1):
        ends = run([sys.executable], folder, command)
        trace = folder / "run.trace"
        run([shutil.which("tracer") or "tracer", "record", "--force", "-o", str(trace)], folder, command)
        loaded = tracer.load(trace)
        steady = loaded.steps.filter((pl.col("process") == 0) & (pl.col("phase").cast(pl.String) == "steady"))
        walls = sorted(steady.select(pl.col("end_ns") - pl.col("start_ns"), "step").rows())
        lengths = [after - before for before, after in pairwise(ends)]
        alone = sorted(lengths[step - 1] for _, step in walls if 0 < step <= len(lengths))
        for kind, quantile in QUANTILES.items():
            step = walls[int(len(walls) * quantile)][1]
            found = ledger(loaded, 0, step, step)
            known = found.bare_ns is not None and found.own_ns is not None
            bare = found.bare_ns / 1e6 if known else math.nan
            row = alone[int(len(alone) * quantile)] / 1e6, found.wall_ns / 1e6, bare
            rows[kind].append(row)
            more = f"{found.own_ns / 1e6:7.3f} {found.rest_ns / found.wall_ns:6.1%}" if known else ""
            print(f"{number:7}  {kind:8} {row[0]:6.3f} {row[1]:9.3f} {row[2]:10.3f} {more}", flush=True)
            if not known and number == 1:
                print(f"         no prediction: {'; '.join(found.unknown)}")
    for kind, of in rows.items():
        alone_ms, recorded_ms, predicted_ms = (mean(column) for column in zip(*of, strict=True))
        off = "" if math.isnan(predicted_ms) else f", predicted off by {predicted_ms / alone_ms - 1:+.1%}"
        print(
            f"   mean  {kind:8} {alone_ms:6.3f} {recorded_ms:9.3f} {predicted_ms:10.3f}  "
            f"recorded {recorded_ms / alone_ms - 1:+.1%}{off}"
        )


def run(python: list[str], folder: Path, command: list[str]) -> list[int]:
    """When each step ended, in nanoseconds."""
    out = folder / "ends.json"
    process = [*python, str(HERE / "ledger_process.py"), str(out), *command]
    done = subprocess.run(process, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    ends: list[int] = json.loads(out.read_text())
    return ends


if __name__ == "__main__":
    main()
