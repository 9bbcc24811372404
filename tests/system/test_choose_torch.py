"""Which build of torch `make` installs: cmake/choose_torch.py, asked as make asks it."""

from __future__ import annotations

import gzip
import http.server
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cmake" / "choose_torch.py"
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
HERE = f"{TAG}-{TAG}-manylinux_2_28_{platform.machine()}"


def chosen(*arguments: str, **environment: str) -> tuple[str, str, int]:
    """What it prints for pip, what it says, and its exit status."""
    command = [sys.executable, str(SCRIPT), *arguments]
    clean = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False)
    return done.stdout.strip(), done.stderr.strip(), done.returncode


class Index(http.server.BaseHTTPRequestHandler):
    """A package index with some wheels of torch; it answers after `delay` seconds."""

    wheels: tuple[str, ...] = ()
    delay = 0.0
    compressed = False
    raw = b""  # sent as it is, in place of all else

    def do_GET(self) -> None:
        time.sleep(self.delay)
        if self.raw:
            self.wfile.write(self.raw)
            return
        page = "".join(f'<a href="{name}#sha256=0">{name}</a><br/>' for name in self.wheels).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(gzip.compress(page) if self.compressed else page)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[tuple[type[Index], str]]:
    answers = type("Answers", (Index,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield answers, f"http://127.0.0.1:{server.server_port}/whl/cpu"
    server.shutdown()
    server.server_close()


has_driver = pytest.mark.skipif(
    Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver"
)


@has_driver
def test_the_cpu_index_is_taken_if_it_has_a_wheel_for_this_python(index: tuple[type[Index], str]) -> None:
    answers, url = index
    answers.wheels = (f"torch-2.13.0%2Bcpu-{HERE}.whl", f"torch-2.12.0%2Bcpu-{HERE}.whl")
    out, said, _ = chosen("torch==2.13.0", "--cpu-index", url)
    assert out == f"torch==2.13.0 --index-url {url}"
    assert said == f"torch: the CPU build of {url}, since this machine has no NVIDIA driver"
    assert chosen("torch", "--cpu-index", url)[0] == f"torch --index-url {url}"
    for asked in ("torch==2.13", "torch==2.13.*", "torch>=2.11,<2.14", "torch==2.13.0+cpu"):
        assert chosen(asked, "--cpu-index", url)[0] == f"{asked} --index-url {url}"
    assert chosen("torch == 2.13.0", "--cpu-index", url)[0] == f"torch==2.13.0 --index-url {url}"
    for other in ("torch==2.11.0", "torch>=2.14", "https://example.org/torch.whl"):
        assert chosen(other, "--cpu-index", url)[0] == other


@has_driver
def test_an_index_behind_a_cache_that_compresses(index: tuple[type[Index], str]) -> None:
    answers, url = index
    answers.wheels, answers.compressed = (f"torch-2.13.0%2Bcpu-{HERE}.whl",), True
    assert chosen("torch==2.13.0", "--cpu-index", url)[0] == f"torch==2.13.0 --index-url {url}"


@has_driver
@pytest.mark.parametrize(
    "name",
    [f"cp39-cp39-manylinux_2_28_{platform.machine()}", f"{TAG}-{TAG}t-x", f"{TAG}-{TAG}-win_amd64", "none"],
)
def test_a_wheel_for_another_python_or_system_is_none(index: tuple[type[Index], str], name: str) -> None:
    answers, url = index
    answers.wheels = (f"torch-2.13.0%2Bcpu-{name}.whl",)
    out, said, _ = chosen("torch==2.13.0", "--cpu-index", url)
    assert out == "torch==2.13.0"
    assert "pip's default build of torch==2.13.0 (with CUDA: 2.7 GB to download, 5.4 GB on disk)" in said
    assert said.endswith("; to take the CPU build of another index, 0.2 GB: make TORCH_INDEX=URL")
    assert said.count("\n") == 0


@has_driver
def test_an_index_that_does_not_answer_costs_five_seconds(index: tuple[type[Index], str]) -> None:
    answers, url = index
    answers.delay, answers.wheels = 30, (f"torch-2.13.0%2Bcpu-{HERE}.whl",)
    began = time.monotonic()
    out, said, _ = chosen("torch==2.13.0", "--cpu-index", url)
    assert time.monotonic() - began < answers.delay - 5
    assert out == "torch==2.13.0"
    assert "did not answer within 5 s" in said


@has_driver
@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n<a>torch",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n\x1f\x8b<a>torch-2.13.0+cpu.whl</a>",
    ],
)
def test_an_index_that_answers_something_else(index: tuple[type[Index], str], raw: bytes) -> None:
    answers, url = index
    answers.raw = raw
    out, said, status = chosen("torch==2.13.0", "--cpu-index", url)
    assert (out, status) == ("torch==2.13.0", 0)
    assert said.count("\n") == 0


@has_driver
def test_a_local_cpu_wheel_comes_after_the_index(tmp_path: Path) -> None:
    wheel = tmp_path / f"torch-2.13.0+cpu-{TAG}-none-any.whl"
    subprocess.run([sys.executable, "-c", WHEEL, str(wheel)], check=True)
    out, said, _ = chosen("torch==2.13.0", "--cpu-index", "http://127.0.0.1:9", PIP_FIND_LINKS=str(tmp_path))
    assert out == "torch==2.13.0+cpu"
    assert said == "torch: the local wheel of torch 2.13.0+cpu, since this machine has no NVIDIA driver"


def test_who_asks_for_cuda_gets_no_local_cpu_wheel() -> None:
    out, said, _ = chosen("torch==2.13.0", "--build", "cuda")
    assert out == "torch===2.13.0", "=== takes no local version such as 2.13.0+cpu"
    assert "the CUDA build of torch==2.13.0 (2.7 GB to download, 5.4 GB on disk), as you asked" in said
    assert chosen("torch==2.13", "--build", "cuda")[0] == "torch===2.13.0"
    assert chosen("torch>=2.11,<2.14", "--build", "cuda")[0] == "torch>=2.11,<2.14"


def test_who_asks_for_cuda_must_name_the_version_beside_a_local_cpu_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / f"torch-2.13.0+cpu-{TAG}-none-any.whl"
    subprocess.run([sys.executable, "-c", WHEEL, str(wheel)], check=True)
    out, said, status = chosen("torch", "--build", "cuda", PIP_FIND_LINKS=str(tmp_path))
    assert (out, status) == ("", 1)
    assert said == "pip prefers the local wheel of torch 2.13.0+cpu; give the version: TORCH=torch==X.Y.Z"


def test_who_asks_for_a_cpu_build_that_there_is_not_gets_none() -> None:
    out, said, status = chosen("torch==2.13.0", "--build", "cpu", "--cpu-index", "http://127.0.0.1:9")
    assert (out, status) == ("", 1)
    assert said.startswith("no CPU build of torch==2.13.0: http://127.0.0.1:9 has no wheel of it")
    assert chosen("torch", "--build", "gpu") == ("", "TORCH_BUILD=gpu: choose auto, cpu or cuda", 1)


def test_a_named_index_is_taken_as_it_is() -> None:
    out, said, _ = chosen("torch==2.13.0", "--index", "http://example.org/whl")
    assert out == "torch==2.13.0 --index-url http://example.org/whl"
    assert said == "torch: torch==2.13.0 of http://example.org/whl, as you asked"


WHEEL = """\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    about = "torch-2.13.0+cpu.dist-info/"
    wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: torch\\nVersion: 2.13.0+cpu\\n")
    wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(about + "RECORD", "")
"""
