"""Compiles what knows torch's private layout, and the typed hops, against the headers of several releases.

    python cmake/checks/layout.py 2.11 2.13 newest

A line a release. The exit status is 1 where one does not compile, or could not be had and so was not checked.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

from compiling import (
    ROOT,
    Compiler,
    default_jobs,
    extension_sources,
    problems,
    show_progress,
    torch_abi_headers,
    typed_hops,
)
from private_names import missing_in_headers, missing_in_python_files
from torch_release import NotFetchedError, fetch

sys.path.insert(0, str(ROOT))
from tracer.base.torch_abi import PRIVATE_FUNCTIONS
from tracer.dispatch.declarations import Declarations


def missing_in_python(release: Path) -> list[str]:
    """What tracer asks of torch's Python part and torchgen, and a release does not have."""
    missing = []
    for file, functions in PRIVATE_FUNCTIONS.items():
        text = (release / file).read_text(encoding="utf-8") if (release / file).exists() else ""
        missing += [f"{file} has no {function}" for function in functions if f"def {function}(" not in text]
    missing += missing_in_python_files(release)
    declared = Declarations(release / "torchgen")
    try:
        if not (declared.function("aten::mm") and declared.derivative("aten::mm")):
            missing.append("torchgen/packaged declares no aten::mm that can be read")
    except OSError as error:
        missing.append(f"torchgen/packaged cannot be read: {error}")
    return missing


def check(release: Path, compiler: str, jobs: int) -> list[str]:
    """What is wrong with a release, a line each."""
    include = release / "torch/include"
    headers = [include, include / "torch/csrc/api/include", Path(sysconfig.get_path("include"))]
    # The long files first, so that none of them is left alone at the end.
    try:
        sources = typed_hops(include, release / "typed_hops", parts=max(jobs, 2))
    except OSError as error:
        return [str(error)]
    found = problems(
        Compiler([compiler], headers),
        [*sources, *extension_sources(), *torch_abi_headers()],
        jobs,
        f"torch {release.name}",
    )
    return found + missing_in_headers(include) + missing_in_python(release)


def hops_in(release: Path) -> str:
    """What was generated from its headers."""
    text = "".join(file.read_text() for file in (release / "typed_hops").glob("typed_hops_*.cpp"))
    signatures, operators = text.count("typed_function<"), text.count("functions[")
    return f"the typed hops of {signatures:,} signatures, {operators:,} operators"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("releases", nargs="+", help="such as 2.13, the newest 2.13.*; or newest")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/layout", help="keeps the headers")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=default_jobs(), help="files at a time")
    parser.add_argument(
        "--unreachable-ok", action="store_true", help="a release that cannot be had is said and is no failure"
    )
    arguments = parser.parse_args()
    wrong = False
    seen: set[Path] = set()
    for wanted in arguments.releases:
        show_progress(f"torch {wanted}: fetching the headers")
        try:
            release = fetch(wanted, arguments.folder)
        except NotFetchedError as error:
            show_progress("")
            print(f"torch {wanted}: NOT CHECKED: {error}", flush=True)
            wrong = wrong or not arguments.unreachable_ok
            continue
        show_progress("")
        newest = " (the newest)" if wanted == "newest" else ""
        if release in seen:
            print(f"torch {release.name}{newest}: see above", flush=True)
            continue
        seen.add(release)
        found = check(release, arguments.compiler, arguments.jobs)
        for problem in found:
            print(f"torch {release.name}{newest}: FAILED: {problem}", flush=True)
        wrong = wrong or bool(found)
        if not found:
            print(f"torch {release.name}{newest}: compiles, with {hops_in(release)}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
