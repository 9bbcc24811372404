"""What `tracer advise --measure` says a change gains, and what the changed program gains.

    python benchmarks/advise_truth.py [--gpu] [--only WORD] [--processes N]

A row for each program of advise_programs.py: the gain that advice says as a share of the step (measured, or
at most), and the true one: whole steps of both programs without tracer, median of the medians of N processes
in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from advise_programs import PROGRAMS, Program, text


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument(
        "--gpu", action="store_true", help="the programs of a GPU, in place of those of a CPU"
    )
    options.add_argument("--only", default="", help="those whose name has this")
    options.add_argument("--processes", type=int, default=3)
    options.add_argument("--part", default="0/1", help="K/N: every N-th program, from K on")
    given = options.parse_args()
    first, parts = map(int, given.part.split("/"))
    chosen = [(name, one) for name, one in PROGRAMS.items() if one.cuda == given.gpu and given.only in name]
    print("| program | rule | known | said | true | other rows |\n|---|---|---|--:|--:|---|")
    for name, program in chosen[first::parts]:
        print(row(name, program, given.processes), flush=True)


def row(name: str, program: Program, processes: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        now, changed = (Path(folder) / f"{kind}.py" for kind in ("now", "changed"))
        now.write_text(text(program, False))
        changed.write_text(text(program, True))
        times = {now: [], changed: []}
        for _ in range(processes):
            for script, found in times.items():
                found.append(median(json.loads(ran([sys.executable, str(script)]))))
        true = 1 - median(times[changed]) / median(times[now])
        said = advised(now)
    rows = [one for head in said["advice"] for one in (head, *head["alternatives"])] + said["dropped"]
    mine = [one for one in rows if one["rule"] == program.rule]
    others = ", ".join(sorted({f"{one['rule']} {told(one)}" for one in rows if one["rule"] != program.rule}))
    if not mine:
        known = "said nothing" + (" (untried)" if program.rule in said["untried"] else "")
        return f"| {name} | {program.rule} | {known} | | {true:.0%} | {others} |"
    best = mine[0]
    reason = best["why_not_measured"] or best["note"]
    why = f" ({reason})" if reason else ""
    return f"| {name} | {program.rule} | {best['known']}{why} | {told(best)} | {true:.0%} | {others} |"


def told(one: dict[str, Any]) -> str:
    share = f"{one['gain']['share']:.0%}"
    return {"measured": share, "bounded": f"<= {share}", "dropped": "no gain", "undecided": f"0 to {share}"}[
        one["known"]
    ]


def advised(script: Path) -> dict[str, Any]:
    tracer = Path(sys.executable).with_name("tracer")
    trace = script.with_suffix(".trace")
    ran([str(tracer), "record", "--values", "scalars", "-o", str(trace), str(script)])
    return json.loads(ran([str(tracer), "advise", str(trace), "--measure", "--all", "--json"]))


def ran(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1] if command[0] == sys.executable else done.stdout


if __name__ == "__main__":
    main()
