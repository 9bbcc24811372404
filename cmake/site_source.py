"""Collects the pages of the documentation, and every file that they link to, as `make docs` builds them.

The pages link to each other by paths that hold on GitHub too, so the site keeps the repository's folders.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "examples/README.md",
    "reports/README.md",
]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def main() -> None:
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    waiting = [page for pattern in PAGES for page in Path().glob(pattern)]
    seen: set[Path] = set()
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        if page.is_dir():
            waiting += page.glob("README.md")
            continue
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target / page)
        if page.suffix == ".md":
            root = Path.cwd()
            links = ((page.parent / link).resolve() for link in LINK.findall(page.read_text()))
            waiting += [link.relative_to(root) for link in links if link.is_relative_to(root)]


if __name__ == "__main__":
    main()
