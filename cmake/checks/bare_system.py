"""A bare Debian in a folder, with an ordinary user and no more packages than docs/install.md names.

Needs root, debootstrap and network. CUDA toolkit, wheels and settings of this machine are not seen inside.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

PACKAGES = ("git", "make", "g++", "gdb", "python3-dev", "python3-venv")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class NoSystemError(Exception):
    """No bare system could be made; the text says why."""


@dataclass(frozen=True)
class Done:
    """A command that ran: `status` None if it did not end in time."""

    status: int | None
    seconds: float


class BareSystem:
    """One system, from `__enter__` to `__exit__`, which removes it.

    suite   a name of Debian's: bookworm, trixie, sid
    logs    the folder for what the installation printed
    """

    def __init__(self, suite: str, logs: Path) -> None:
        self.suite = suite
        self._logs = logs
        self.root = Path()
        self._stopped = False

    def __enter__(self) -> BareSystem:
        if os.geteuid() != 0:
            raise NoSystemError("only root can make a bare system: sudo make fresh")
        if shutil.which("debootstrap") is None:
            raise NoSystemError("debootstrap is missing: apt-get install debootstrap")
        place = os.environ.get("BARE_DIR", "/var/tmp")
        self.root = Path(tempfile.mkdtemp(prefix=f"bare-{self.suite}.", dir=place))
        self.root.chmod(0o755)
        try:
            self._install()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def clone(self, repository: Path, name: str) -> Path:
        """The repository's last commit, in a home folder of its own; the path as seen from outside."""
        home = self.root / "home" / name
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(repository), str(home / "tracer")], check=True)
        subprocess.run(["chroot", str(self.root), "chown", "-R", "user:user", f"/home/{name}"], check=True)
        return home / "tracer"

    def run(self, command: str, name: str, log: Path, *, limit: float, variables: Mapping[str, str]) -> Done:
        """A shell command of the user, in the clone of that name. Nothing begins after `stop`."""
        if self._stopped:
            raise NoSystemError(f"{self.suite} was stopped")
        environment = {"HOME": f"/home/{name}", "USER": "user", "LANG": "C.UTF-8", "TERM": "dumb"}
        environment |= {"PATH": "/usr/bin:/bin", **variables}
        chroot = shutil.which("chroot") or "/usr/sbin/chroot"
        line = [chroot, "--userspec=user:user", str(self.root), "bash", "-c", f"cd ~/tracer && {command}"]
        began = time.monotonic()
        with log.open("w") as out:
            process = subprocess.Popen(
                line,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                status: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Done(status, time.monotonic() - began)

    def stop(self) -> None:
        """End every process that runs in it, also those that a test left behind."""
        self._stopped = True
        for entry in Path("/proc").glob("[0-9]*/root"):
            try:
                if os.readlink(entry) == str(self.root):
                    os.kill(int(entry.parent.name), signal.SIGKILL)
            except OSError:
                pass  # it has ended

    def forget(self, name: str) -> None:
        shutil.rmtree(self.root / "home" / name)

    def _install(self) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{self.suite}-install.log"
        include = "--include=ca-certificates"
        self._step(["debootstrap", "--variant=minbase", include, self.suite, str(self.root)], log)
        for what in ("proc", "sys", "dev"):
            inside = str(self.root / what)
            kind = ["-t", "proc", "proc"] if what == "proc" else ["--rbind", "--make-rslave", f"/{what}"]
            subprocess.run(["mount", *kind, inside], check=True)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        self._step(
            ["chroot", str(self.root), "apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES], log
        )
        # Behind a proxy with a certificate of its own only this machine's list knows it.
        shutil.copy(_CERTIFICATES.resolve(), self.root / _CERTIFICATES.relative_to("/"))
        (self.root / "etc/pip.conf").write_text(f"[global]\ncert = {_CERTIFICATES}\ntimeout = 180\n")
        self._step(["chroot", str(self.root), "useradd", "-M", "-s", "/bin/bash", "user"], log)

    def _step(self, command: list[str], log: Path) -> None:
        environment = {"PATH": _PATH, "DEBIAN_FRONTEND": "noninteractive", "LANG": "C.UTF-8"}
        with log.open("a") as out:
            done = subprocess.run(command, env=environment, stdout=out, stderr=out, check=False)
        if done.returncode:
            last = (log.read_text(errors="replace").splitlines() or [""])[-1]
            raise NoSystemError(f"{self.suite}: {' '.join(command[:3])} failed: {last} ({log})")

    def _remove(self) -> None:
        self.stop()
        for what in ("dev", "sys", "proc"):
            inside = self.root / what
            if os.path.ismount(inside):
                subprocess.run(["umount", "-R", "-l", str(inside)], check=False)
        if not any(os.path.ismount(self.root / what) for what in ("dev", "sys", "proc")):
            shutil.rmtree(self.root, ignore_errors=True)
