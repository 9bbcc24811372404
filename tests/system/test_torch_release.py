"""cmake/checks reads what it needs of a torch wheel from an index, in parts where the server has parts."""

import http.server
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("unearth", reason="pip install unearth, as make check-layout does")

CHECKS = Path(__file__).resolve().parents[2] / "cmake" / "checks"
FILLER = 6 << 20  # bytes of the wheel that nobody needs
WHEEL = "torch-9.1.2-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: 9.1.2\n"


class Index(http.server.BaseHTTPRequestHandler):
    """A folder, with ranges or without; `sent` counts the bytes of files."""

    folder: Path
    ranges: bool
    sent: int

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def answer(self, with_body):
        whole = self.path.endswith(".whl")
        if whole:
            data = (self.folder / WHEEL).read_bytes()
        else:
            data = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if wanted and self.ranges else 200)
        if wanted and self.ranges:
            self.send_header("Content-Range", f"bytes {wanted[1]}-{wanted[2]}/{len(data)}")
            data = data[int(wanted[1]) : int(wanted[2]) + 1]
        self.send_header("Content-Type", "application/octet-stream" if whole else "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            try:
                self.wfile.write(data)
            except BrokenPipeError:  # who asked for a part has seen that there are none
                return
            type(self).sent += len(data) if whole else 0

    def log_message(self, *arguments):
        pass


@pytest.fixture
def index(tmp_path):
    """A package index with one release of torch; the class says what it does and did."""
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("torch/lib/libtorch_cpu.so", bytes(FILLER))
        wheel.writestr("torch/include/ATen/ops/mm_ops.h", "// mm")
        wheel.writestr("torchgen/packaged/ATen/native/native_functions.yaml", "- func: mm(Tensor self)")
        wheel.writestr("torch-9.1.2.dist-info/METADATA", METADATA)
        wheel.writestr("torch-9.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("torch-9.1.2.dist-info/RECORD", "")
    handler = type("Handler", (Index,), {"folder": tmp_path, "ranges": True, "sent": 0})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.url = f"http://127.0.0.1:{server.server_port}/simple"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler
        server.shutdown()


def fetched(url, wanted, folder):
    """What torch_release.fetch() says in a process that has only this index."""
    program = (
        f"import sys; sys.path.insert(0, {str(CHECKS)!r})\n"
        "from pathlib import Path\n"
        "from torch_release import NotFetchedError, fetch\n"
        f"try: print(fetch({wanted!r}, Path({str(folder)!r})))\n"
        "except NotFetchedError as error: print('not fetched:', error)\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": url}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wanted_files(release):
    return sorted(str(file.relative_to(release)) for file in release.rglob("*") if file.is_file())


FILES = [".done", "torch/include/ATen/ops/mm_ops.h", "torchgen/packaged/ATen/native/native_functions.yaml"]


@pytest.mark.parametrize("ranges", [True, False], ids=["in parts", "as a whole"])
def test_headers_are_fetched_once(index, tmp_path, ranges):
    index.ranges = ranges
    kept = tmp_path / "kept"
    release = Path(fetched(index.url, "9.1", kept))
    assert release == kept / "9.1.2"
    assert wanted_files(release) == FILES
    assert (index.sent < FILLER) == ranges
    index.sent = 0
    assert fetched(index.url, "9.1", kept) == str(release)
    assert fetched(index.url, "newest", kept) == str(release)
    assert index.sent == 0


def test_a_release_that_the_index_does_not_have_is_not_fetched(index, tmp_path):
    assert fetched(index.url, "9.2", tmp_path / "kept").startswith(
        "not fetched: No matching distribution found"
    )


def test_an_index_that_does_not_answer_is_said(tmp_path):
    said = fetched("http://127.0.0.1:9/simple", "9.1", tmp_path)
    assert said.startswith("not fetched: ")
    assert "\n" not in said


def test_a_wheel_without_headers_is_refused(index, tmp_path):
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("torch-9.1.2.dist-info/METADATA", METADATA)
        wheel.writestr("torch-9.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("torch-9.1.2.dist-info/RECORD", "")
    assert (
        fetched(index.url, "9.1", tmp_path / "kept") == "not fetched: the wheel of torch 9.1.2 has no headers"
    )
