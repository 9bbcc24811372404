"""What of a torch release can be checked without installing it: headers, declarations, a few Python files.

They are read out of the wheel that pip would take here, in parts: some 20 MB of 0.5 GB. Where the server
sends no parts, pip downloads the whole wheel, which is deleted afterwards.
"""

from __future__ import annotations

import http.client
import io
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from packaging.utils import parse_wheel_filename
from unearth import PackageFinder

PARTS = ("torch/include/", "torchgen/packaged/")
FILES = (
    "torch/version.py",
    "torch/_C/__init__.pyi",
    "torch/_inductor/output_code.py",
    "torch/_library/custom_ops.py",
    "torch/_inductor/package/package.py",
    "torch/export/pt2_archive/_package.py",
    "torch/nn/modules/module.py",
    "torch/optim/optimizer.py",
)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
PYPI = "https://pypi.org/simple"
BLOCK = 4 << 20  # bytes a request
_FETCHED = "\n".join(
    (*PARTS, *FILES)
)  # in the file that is written last; of an older list all is fetched again


class NotFetchedError(Exception):
    """A release could not be had; one line that says why."""


class RemoteFile(io.RawIOBase):
    """A file behind HTTP, read by ranges. Raises OSError where the server knows none."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = 0
        with self._request(0, 1) as answer:
            self._size = int(answer.headers["Content-Range"].rpartition("/")[2])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        with self._request(self._place, end) as answer:
            data = answer.read()
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _request(self, begin: int, end: int) -> http.client.HTTPResponse:
        wanted = urllib.request.Request(self._url, headers={"Range": f"bytes={begin}-{end - 1}"})
        answer = urllib.request.urlopen(wanted, timeout=60)
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            answer.close()
            raise OSError(f"{self._url} cannot be read in parts")
        return answer


def fetch(wanted: str, folder: Path) -> Path:
    """The folder with the parts of a release: `2.13`, or `newest`. What is there is not fetched again.

    Raises NotFetchedError where there is no wheel, or it cannot be read.
    """
    for kept in sorted(folder.glob(f"{wanted}.*/.done")):
        if kept.read_text() == _FETCHED:
            return kept.parent
    try:
        requirement = "torch" if wanted == "newest" else f"torch=={wanted}.*"
        try:
            version, url = _newest_wheel(requirement)
            done = folder / version / ".done"
            if done.exists() and done.read_text() == _FETCHED:
                return folder / version
            wheel = zipfile.ZipFile(io.BufferedReader(RemoteFile(url), BLOCK))
        except (OSError, ValueError):  # no parts, or an index that pip alone knows
            version, wheel = _downloaded(requirement)
        target = folder / version
        shutil.rmtree(target, ignore_errors=True)
        with wheel:
            _extract(wheel, target)
    except (OSError, ValueError, http.client.HTTPException, zipfile.BadZipFile) as error:
        raise NotFetchedError(f"{error}") from error
    if not (target / "torch/include/ATen/ops").is_dir():
        raise NotFetchedError(f"the wheel of torch {version} has no headers")
    (target / ".done").write_text(_FETCHED)
    return target


def _newest_wheel(requirement: str) -> tuple[str, str]:
    """Version and address of the newest wheel for this Python and machine. ValueError where there is none."""
    try:
        found = PackageFinder(index_urls=[_index()], only_binary=[":all:"]).find_best_match(requirement).best
    except Exception as error:  # what its HTTP client raises has no class in common
        raise ValueError(f"{_index()}: {error}") from error
    if found is None or found.version is None:
        raise ValueError(f"{_index()} has no {requirement} for this Python and machine")
    return found.version, found.link.url_without_fragment


def _index() -> str:
    """The index that pip is configured to use, or PyPI."""
    if "PIP_INDEX_URL" in os.environ:
        return os.environ["PIP_INDEX_URL"]
    asked = subprocess.run([*PIP, "config", "get", "global.index-url"], capture_output=True, text=True)
    return asked.stdout.strip() or PYPI


def _downloaded(requirement: str) -> tuple[str, zipfile.ZipFile]:
    """Version and wheel, by pip, which knows every kind of index. Raises OSError where it has none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*PIP, "download", "--no-deps", "--only-binary", ":all:", "--dest", folder, requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError(_last_error(done.stderr, f"pip download {requirement} failed"))
        wheel = next(Path(folder).glob("*.whl"))
        return str(parse_wheel_filename(wheel.name)[1]), zipfile.ZipFile(wheel)  # open, so it can be deleted


def _extract(wheel: zipfile.ZipFile, target: Path) -> None:
    for member in sorted(wheel.infolist(), key=lambda member: member.header_offset):
        if member.filename.startswith(PARTS) or member.filename in FILES:
            wheel.extract(member, target)


def _last_error(text: str, otherwise: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")]
    return lines[-1] if lines else otherwise
