"""`tracer attach` to a job that is a stranger's: it answers badly, or not, and gets nothing but its own.

Where the tests are root's, the job is another user's, which is where that matters.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from attaching import attach, refused, running
from launching import Launcher, Run

from tracer.attach import left
from tracer.attach.process import Process

pytestmark = pytest.mark.gdb
GPU_TRACE = Path(__file__).parents[1] / "data" / "gpu.trace.xz"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")

# It does what the file `do` says with each ticket for it that it finds, before its script does: its main
# thread waits in C, so that the script never runs.
JOB = """\
import ctypes, glob, json, os, socket, sys, threading, time
import torch
os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setgroups([]); os.setresgid(*[12345] * 3); os.setresuid(*[12345] * 3)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
def connected(folder):
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.connect(folder + "/socket")
    return end
def sent(folder, *packets):
    end = connected(folder)
    for packet in packets: end.send(packet)
    end.close()
class Do:
    def closes(folder): sent(folder)
    def nonsense(folder): sent(folder, b"[1, 2, {")
    def escapes(folder): sent(folder, json.dumps(["failed", chr(27) + "]0;pwned" + chr(7)]).encode())
    def summary(folder):
        sent(folder, json.dumps(["started", chr(27) + "[2J"]).encode())
        text = chr(27) + "]0;pwned" + chr(7) + chr(10) + "complete" + chr(10)
        sent(folder, json.dumps(["ended", text]).encode())
    def silent(folder): kept.append(connected(folder))
    def large(folder):
        end = connected(folder)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 20)
        for size in (10 << 20, 150_000):
            try: end.send(bytes(size))
            except OSError: pass
    def floods(folder):
        while os.path.exists(folder):
            try: sent(folder, *[b"x"] * 5)
            except OSError: pass
    def another(folder):
        if os.fork() == 0:
            sent(folder, json.dumps(["started", ""]).encode())
            os._exit(0)
        os.wait()
    def plants(folder):
        for name in ("left.json", "script.py", "socket", "x"):
            for act in (os.unlink, lambda path: os.symlink("../victim", path), lambda path: open(path, "w")):
                try: act(folder + "/" + name)
                except OSError: continue
                open("planted", "w").close()
        try: os.rename(folder, folder + ".old")
        except OSError: pass
        else: open("planted", "w").close()
kept = []
def watch():
    done = set()
    while True:
        for folder in set(glob.glob(os.environ["TMPDIR"] + "/tracer-attach-*")) - done:
            if not os.access(folder + "/socket", os.W_OK): continue
            done.add(folder)
            try: getattr(Do, open("do").read())(folder)
            except OSError: pass
        time.sleep(0.001)
threading.Thread(target=watch, daemon=True).start()
print("on", flush=True)
ctypes.CDLL(None).sleep(600)
"""


@dataclass
class Hostile:
    pid: int
    folder: Path

    def attach(self, launcher: Launcher, do: str, output: str, *options: str) -> Run:
        (self.folder / "do").write_text(do)
        return attach(launcher, self.pid, "-o", f"{self.folder}/{output}", *options)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    """A job, and a folder that its user may write."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o777)
        with running(sys.executable, "-c", JOB, made) as process:
            yield Hostile(process.pid, folder)


@pytest.mark.parametrize(
    ("do", "says"),
    [
        ("closes", "gave no answer in 2 s"),
        ("silent", "gave no answer in 2 s"),
        ("nonsense", "its answer is not one of this version of tracer"),
        ("large", "its answer is not one of this version of tracer"),
        ("floods", "its answer is not one of this version of tracer"),
        ("escapes", "\\x1b]0;pwned\\x07"),
        ("another", "ran no Python on its main thread in 2 s, so nothing was changed"),
        ("plants", "ran no Python on its main thread in 2 s, so nothing was changed"),
    ],
)
def test_a_bad_answer_is_one_line_in_time(launcher: Launcher, hostile: Hostile, do: str, says: str) -> None:
    if do == "plants" and os.getuid() != 0:
        pytest.skip("its own folder it may change")
    begin = time.monotonic()
    done = hostile.attach(launcher, do, "t.trace", "--seconds", "1", "--timeout", "2")
    refused(done, says, advice=f"process {hostile.pid}")
    assert "\x1b" not in done.err
    assert time.monotonic() - begin < 60, "not some minutes, also on a busy machine"
    assert not (hostile.folder / "planted").exists()
    assert not (hostile.folder / "t.trace").exists()


def test_a_summary_with_control_characters(launcher: Launcher, hostile: Hostile) -> None:
    done = hostile.attach(launcher, "summary", "s.trace", "--seconds", "5", "--timeout", "2")
    assert done.status == 0, done.err
    assert "CUDA will not be recorded: \\x1b[2J. " in done.err
    assert done.err.endswith("\\x1b]0;pwned\\x07\ncomplete\n")
    assert "\x1b" not in done.err


@needs_root
def test_nothing_of_root_becomes_the_users(launcher: Launcher, hostile: Hostile) -> None:
    """Neither what is written over, nor what links in its folders lead to, nor what is made there."""
    with tempfile.TemporaryDirectory() as made:
        victim = Path(made, "victim")
        victim.write_text("root's")
        victim.chmod(0o600)
        Path(made).chmod(0o755)
        (hostile.folder / "u.trace").symlink_to(victim)
        (hostile.folder / "made").symlink_to(made)
        for output in ("u.trace", "made/x.trace", "made/y/"):
            done = hostile.attach(launcher, "plants", output, "--force", "--seconds", "1", "--timeout", "1")
            assert done.status == 2
            assert done.err.count("\n") == 1
        found = victim.stat()
        assert (found.st_uid, found.st_mode & 0o777, victim.read_text()) == (0, 0o600, "root's")
        assert os.listdir(made) == ["victim"]


@needs_root
def test_the_file_is_made_with_the_rights_of_the_user(tmp_path: Path, hostile: Hostile) -> None:
    (tmp_path / "roots").mkdir(mode=0o700)
    with Process(hostile.pid).rights():
        (hostile.folder / "new").touch()
        assert not os.access(tmp_path / "roots", os.X_OK, effective_ids=True)
    found = (hostile.folder / "new").stat()
    assert (found.st_uid, found.st_gid) == (12345, 12345)
    assert (os.geteuid(), os.getegid()) == (0, 0)


def test_a_trace_that_the_process_names(tmp_path: Path, hostile: Hostile) -> None:
    """Whose environment says where an earlier recording is to be closed."""
    process = Process(hostile.pid)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, Path("/dev/null"), tmp_path / "nosuch\0"):
        assert not left.close(str(path), process)


@needs_root
def test_what_a_process_names_is_opened_with_its_rights(tmp_path: Path) -> None:
    """Whoever opens it breaks the lease, which a signal says. The process claims to be in a container."""
    opened: list[int] = []
    before = signal.signal(signal.SIGIO, lambda number, _: opened.append(number))
    path = tmp_path / "roots"
    path.write_text("root's")
    path.chmod(0o600)
    invitation = f'{{"path": "{path}", "session": 1, "program": 1, "process": [\'$$\', 1, 1]}}'
    script = f"echo on; TRACER_JOIN='{invitation}' exec sleep 600"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, user=12345, group=12345)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        with path.open("r+b") as leased:
            fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            while b"sleep" not in Path("/proc", str(process.pid), "cmdline").read_bytes()[:5]:
                time.sleep(0.01)
            assert b"TRACER_JOIN" in Path("/proc", str(process.pid), "environ").read_bytes()
            assert left.close_of(process.pid) is None
            time.sleep(0.3)  # another thread may get the signal first
            assert opened == []
    finally:
        signal.signal(signal.SIGIO, before)
        process.kill()
        process.communicate()


@needs_root
@pytest.mark.parametrize(("mode", "line"), [(0o644, "op calls"), (0o600, "")])
def test_a_summary_is_of_what_the_user_may_read(mode: int, line: str, hostile: Hostile) -> None:
    path = hostile.folder / "roots.trace.xz"
    shutil.copy(GPU_TRACE, path)
    path.chmod(mode)
    said = left.summary(str(path), Process(hostile.pid))
    assert line in said
    assert bool(said) == bool(line)


def test_a_thread_is_no_process(launcher: Launcher) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        number = thread.native_id or 0
        said = f"{number} is a thread of process {os.getpid()}"
        refused(attach(launcher, number), said, advice="give that number")
    finally:
        end.set()
        thread.join()


MOVES_ITS_ENVIRONMENT = """\
import ctypes, mmap, struct, time
size = 32 << 20
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
words = ctypes.addressof((ctypes.c_char * size).from_buffer(memory))
ctypes.memset(words, 97, size)
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
numbers = [int(word) for word in open("/proc/self/stat").read().rpartition(")")[2].split()[1:]]
start_code, end_code, start_stack = numbers[22:25]
start_data, end_data, start_brk = numbers[41:44]
places = [start_code, end_code, start_data, end_data, start_brk, libc.sbrk(0), start_stack]
given = struct.pack("12QIi", *places, *[words, words + size] * 2, 0, 0, -1)
print(libc.prctl(35, 14, given, ctypes.c_ulong(len(given)), 0), flush=True)  # PR_SET_MM, PR_SET_MM_MAP
time.sleep(600)
"""


def test_an_environment_of_any_length() -> None:
    """A process may say that its environment is any part of its memory."""
    command = [sys.executable, "-c", MOVES_ITS_ENVIRONMENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            if job.stdout.readline() != b"0\n":
                pytest.skip("this kernel moves no environment without CONFIG_CHECKPOINT_RESTORE")
            assert len(Path(f"/proc/{job.pid}/environ").read_bytes()) == 32 << 20
            assert sum(map(len, Process(job.pid).words("environ"))) == 8 << 20
        finally:
            job.kill()


@needs_root
@pytest.mark.parametrize("away", ["os.chroot('.')", "ctypes.CDLL(None).unshare(0x20000)"])
def test_another_root_folder(launcher: Launcher, away: str) -> None:
    """As in a container: what the process takes for our socket may be another file."""
    code = f"import ctypes, os; {away}; print('on', flush=True); input()"
    with running(sys.executable, "-c", code, cwd=launcher.folder) as process:
        done = attach(launcher, process.pid)
        refused(done, "runs in another container", advice="run this command inside of it")
