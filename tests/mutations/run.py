"""Tries mutations: small faults, each of which some test must notice.

    make mutations                                 all of tests/mutations, ten minutes
    make mutations MUTATIONS="cli-last-line"       some, by name
    python tests/mutations/run.py --list           their names, and what each breaks
    python tests/mutations/run.py --nearest-only   only the tests that the patches name

First the named tests run without a mutation: if one fails, nothing is tried. Then each mutation is applied to
a copy of the sources, its nearest tests run, and if they pass the tests of its room, until one fails. Your
working tree and your environment are never changed: everything is in build/mutations.

The exit status is 1 if a mutation survived, 2 if one could not be tried.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import mutation
from mutation import Mutation
from runner import BrokenError, Runner, Verdict, status_of, summary
from sandbox import ROOT, Sandbox, SandboxError


def main(arguments: Sequence[str] | None = None) -> int:
    known = mutation.every()
    options = _options(arguments)
    if options.list:
        for each in known.values():
            print(f"{each.name}: {each.breaks}")
        return 0
    unknown = [name for name in options.name if name not in known]
    if unknown:
        print(f"no mutation {unknown[0]}; to see their names: --list", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.name] or [*known.values()]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    verdicts: list[Verdict] = []
    try:
        try_all(chosen, options, verdicts)
    except (SandboxError, BrokenError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if verdicts:
            print(summary(verdicts, len(chosen)))
    return status_of(verdicts)


def try_all(chosen: Sequence[Mutation], options: argparse.Namespace, verdicts: list[Verdict]) -> None:
    """Adds a verdict for each. Raises SandboxError or BrokenError."""
    sandbox = Sandbox(options.folder, options.jobs)
    print("building tracer (minutes the first time)", flush=True)
    sandbox.make(mutation.every().values())
    runner = Runner(sandbox, options.minutes, options.jobs, options.nearest_only)
    print("running the nearest tests without any mutation", flush=True)
    runner.check(chosen)
    width = max(len(each.name) for each in chosen)
    for each in chosen:
        verdicts.append(runner.verdict(each))
        print(verdicts[-1].line(width), flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("name", nargs="*", help="mutations to try (default: all)")
    parser.add_argument("--list", action="store_true", help="print the mutations and try none")
    parser.add_argument("--nearest-only", action="store_true", help="do not run the tests of the rooms")
    parser.add_argument("--minutes", type=float, default=10, help="limit for one mutation (default 10)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="tests of a room, and compilers, at a time",
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "mutations", help="default: build/mutations"
    )
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
