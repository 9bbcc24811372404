"""A package index on this machine: local wheels of torch, all else from PyPI; as PyTorch's CPU index is."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote

PYPI = "https://pypi.org/simple"


class WheelIndex:
    """Serves the CPU wheels of torch in `folders` on the loopback, from `__enter__` to `__exit__`."""

    def __init__(self, folders: list[Path]) -> None:
        self.wheels = {
            wheel.name: wheel for folder in folders for wheel in sorted(folder.glob("torch-*+cpu-*.whl"))
        }
        self.url = ""

    def has(self, python: str, version: str) -> bool:
        """Whether there is torch `version` (as 2.13.0) for a Python (as cp311)."""
        return any(name.startswith(f"torch-{version}+cpu-{python}-{python}-") for name in self.wheels)

    def __enter__(self) -> WheelIndex:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/whl/cpu"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        wheels = self.wheels

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                project, _, file = self.path.removeprefix("/whl/cpu/").partition("/")
                if project != "torch":
                    self.send_response(302)
                    self.send_header("Location", f"{PYPI}/{project}/")
                    self.end_headers()
                elif file:
                    self._send(wheels.get(unquote(file)))
                else:
                    links = "".join(f'<a href="{quote(name)}">{name}</a><br/>\n' for name in wheels)
                    self._answer(links.encode(), "text/html")

            def _send(self, wheel: Path | None) -> None:
                if wheel is None:
                    self.send_error(404)
                else:
                    self._answer(wheel.read_bytes(), "application/octet-stream")

            def _answer(self, content: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
