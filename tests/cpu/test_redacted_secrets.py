"""`tracer pack --redact` of a program with secrets in forty places: none is in the file, or it is printed."""

from __future__ import annotations

import lzma
import os
import re
import stat
import sys
from datetime import datetime, timezone
from pathlib import Path

import polars as pl
import pytest
from compiler_cache import use_cache
from launching import Launcher, Run
from unpacked import unpacked

from tracer.trace import load

pytestmark = pytest.mark.compiler

SCRIPT = '''
"""planted_docstring"""
import ctypes, os, subprocess, sys, threading
import torch
import zq_listed_module

library = ctypes.CDLL("../zq gone library folder/zq_listed_library.so")

# names that stay: functions, classes, attributes, operators, kernels
def zq_listed_function(values):
    return torch.relu(values)  # planted comment zq_gone_comment

def zq_listed_kernel(x, token):
    return x + len("zq_gone_literal")

torch.library.define("zq_listed_space::zq_listed_op", "(Tensor x, str token) -> Tensor")
torch.library.impl("zq_listed_space::zq_listed_op", "cpu", zq_listed_kernel)
for token in (
    "zq_gone_token",
    "https://zq_gone_user:pass@host/x",
    "/home/zq_gone_home/file",
    "C:\\\\zq_gone_drive\\\\x",
):
    torch.ops.zq_listed_space.zq_listed_op(torch.ones(3), token)

class zq_listed_autograd(torch.autograd.Function):
    @staticmethod
    def forward(context, values):
        return values * 2
    @staticmethod
    def backward(context, gradient):
        return gradient * 2

class zq_listed_class(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.zq_listed_attribute = torch.nn.Linear(4, 4)
        self.add_module("zq gone attribute", torch.nn.ReLU())
    def forward(self, values):
        return getattr(self, "zq gone attribute")(self.zq_listed_attribute(values))

class zq_listed_optimizer(torch.optim.SGD):
    pass

from torch.utils._python_dispatch import TorchDispatchMode
class zq_listed_mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))

# names that look as those of torch and Python
torch.library.define("aten::zq_listed_aten", "(Tensor x) -> Tensor")
torch.library.impl("aten::zq_listed_aten", "cpu", lambda x: x.clone())
torch.ops.aten.zq_listed_aten(torch.ones(3))
torch.library.define("primzq_listed_prim::x", "(Tensor x) -> Tensor")
torch.library.impl("primzq_listed_prim::x", "cpu", lambda x: x.clone())
torch.ops.primzq_listed_prim.x(torch.ones(3))
sys.path.append("lib/python3.11/dist-packages")
import zq_listed_package

# ranges, threads, file names
record = torch.profiler.record_function
with record("https://bob:zq_gone_range@host"), record("zq_gone_word"):
    model = zq_listed_class()
    optimizer = zq_listed_optimizer(model.parameters(), lr=0.1)
    zq_listed_autograd.apply(model(torch.ones(2, 4))).sum().backward()
    optimizer.step()
with zq_listed_mode():
    torch.ones(2).exp()

def in_thread():
    ctypes.CDLL(None).prctl(15, b"zq_gone_thread", 0, 0, 0)
    torch.ones(5).tanh()

thread = threading.Thread(target=in_thread, name="zq_gone_thread_name")
thread.start()
thread.join()
for file in (
    "<zq gone pseudo file>",
    "C:\\\\Users\\\\zq_gone_windows_user\\\\my files\\\\zq_listed_windows.py",
    "../../zq gone other folder/zq_listed_relative.py",
    "/mnt/zq gone mount/zq_listed_absolute.py",
):
    exec(compile("torch.ones(7).cos()", file, "exec"))
torch.add  # a function without a name that is one
code = zq_listed_function.__code__.replace(co_name="zq gone function name")
type(zq_listed_function)(code, globals())(torch.ones(3))
torch.mm(torch.ones(2, 2), torch.ones(2, 2))  # the override

# what the compiler says
def zq_listed_compiled(values, zq_gone_variable, mode):
    hidden = values @ zq_gone_variable
    print("zq_gone_print")
    torch._dynamo.graph_break(msg="zq_gone_break")
    return hidden.sin() + len(mode)

compiled = torch.compile(zq_listed_compiled)
compiled(torch.randn(4, 8), torch.randn(8, 8), "zq_gone_mode")
compiled(torch.randn(4, 8), torch.randn(8, 8), "zq_gone_guard")

child = "import torch; torch.ones(3).sin(); 'zq_gone_child'"
subprocess.run([sys.executable, "-c", child, "zq_gone_child_argument"], check=True)
try:
    raise ValueError("zq_gone_exception")
except ValueError:
    pass
print("zq_gone_output", file=sys.stderr)
'''
OVERRIDE = """
import tracer
@tracer.overrides.register("aten::mm", "CPU", name="zq_listed_override")
def zq_listed_override(self, mat2):
    raise tracer.overrides.HandOver("zq_gone_reason")
"""
OPTIONS = ["--stack", "8", "--values", "scalars", "--why", "--memory"]
READERS = [
    ["tree", "--limit", "0"],
    ["top", "--by", "source", "--limit", "0"],
    ["tree", "--steps"],
    ["tree", "--memory"],
    ["report"],
    ["report", "-o", "page.html", "--force"],
    ["ledger"],
    ["lock", "-o", "lock.txt", "--force"],
    ["certificate"],
    ["sql", "select * from hops"],
    *(
        ["export", "--to", to, "-o", f"out.{to}", "--force"]
        for to in ("chrome", "speedscope", "perfetto", "parquet")
    ),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launcher, str]:
    """A launcher in the folder of the trace, and what `pack --redact` printed."""
    top = tmp_path_factory.mktemp("zq gone user")
    folder = top / "zq gone home" / "zq gone project"
    folder.mkdir(parents=True)
    launcher = Launcher(folder)
    (top / "zq gone home" / "zq gone library folder").mkdir()
    library = sys.modules["_ctypes"].__file__
    (top / "zq gone home" / "zq gone library folder" / "zq_listed_library.so").write_bytes(
        Path(library).read_bytes()
    )
    (folder / "zq_listed_module.py").write_text("import torch\ntorch.ones(9).sqrt()  # zq_gone_line\n")
    package = folder / "lib" / "python3.11" / "dist-packages" / "zq_listed_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import torch\ndef zq_listed_in_package(): torch.ones(9).sqrt()\nzq_listed_in_package()\n"
    )
    (folder / "zq_listed_overrides").mkdir()
    (folder / "zq_listed_overrides" / "zq_listed_override_file.py").write_text(OVERRIDE)
    launcher.environment |= {
        "HOME": str(top / "zq gone home"),
        "USER": "zq_gone_login",
        "ZQ_SECRET": "zq_gone_variable_of_environment",
        "CUBLAS_WORKSPACE_CONFIG": ":zq_gone_setting:",
        "RANK": "0",
        "WORLD_SIZE": "2",
        "XDG_CACHE_HOME": str(top / "zq gone kept"),
    }
    use_cache(launcher, top.parent / "zq_gone_cache")  # g++ is given it without quotes
    launcher.write(SCRIPT)
    override = ["--override", "zq_listed_overrides/zq_listed_override_file.py:zq_listed_override"]
    arguments = ["script.py", "--password", "zq_gone_password", "https://zq_gone_url"]
    run = launcher.record(*OPTIONS, *override, "-o", "run.trace", *arguments)
    assert run.status == 0, run.err
    (folder / "run.rank0.trace").rename(folder / "run.trace")
    os.chmod(folder / "run.trace", 0o600)
    packed = tracer(launcher, "pack", "run.trace", "--redact", "-o", "out.trace.xz")
    assert packed.status == 0, packed.err
    (folder / "out.trace").write_bytes(lzma.decompress((folder / "out.trace.xz").read_bytes()))
    return launcher, packed.out


def tracer(launcher: Launcher, *arguments: str) -> Run:
    return launcher.run([str(launcher.tracer), *arguments])


def secrets(data: bytes, kind: str) -> set[str]:
    """Those of the program that are in these bytes: `gone` or `listed`."""
    return {match[0].decode() for match in re.finditer(rf"zq[_ ]{kind}[_ ]\w+".encode(), data)}


def test_forty_secrets_are_gone_or_printed(recorded: tuple[Launcher, str]) -> None:
    launcher, printed = recorded
    before, after = (unpacked(launcher.folder / name) for name in ("run.trace", "out.trace"))
    assert len(secrets(before, "gone") | secrets(before, "listed")) >= 40, sorted(secrets(before, "gone"))
    assert secrets(after, "gone") == set()
    listed = tuple(secrets(printed.encode(), "listed"))
    # In the file the next byte may be a digit or a letter too.
    assert [name for name in secrets(after, "listed") if not name.startswith(listed)] == []
    assert len(listed) >= 15
    assert {"zq_listed_aten", "zq_listed_prim", "zq_listed_package", "zq_listed_in_package"} <= set(listed)
    assert secrets(printed.encode(), "gone") == set()


def test_names_of_torch_and_python_are_not_printed(recorded: tuple[Launcher, str]) -> None:
    """Those of this machine, which is where it was recorded."""
    _, printed = recorded
    names = ("aten::relu", "AutogradCPU", "MmBackward0", "RegisterCPU", "nn/modules/linear.py", "libc.so.6")
    assert [name for name in names if name in printed] == []


def test_no_time_of_day_and_no_machine(recorded: tuple[Launcher, str]) -> None:
    launcher, _ = recorded
    after = unpacked(launcher.folder / "out.trace")
    nanoseconds = int.from_bytes((launcher.folder / "run.trace").read_bytes()[72:80], "little")
    began = datetime.fromtimestamp(nanoseconds / 1e9, tz=timezone.utc)
    assert nanoseconds.to_bytes(8, "little") not in after
    for gone in (f"{began:%Y-%m-%d}", os.uname().release, os.environ.get("PWD", str(launcher.folder))):
        assert gone.encode() not in after
    assert load(launcher.folder / "out.trace").processes["host"].to_list() == [None, None]


def test_each_reader_works_and_prints_none(recorded: tuple[Launcher, str]) -> None:
    launcher, _ = recorded
    for reader in READERS:
        before = {path.name for path in launcher.folder.iterdir()}
        run = tracer(launcher, reader[0], "out.trace.xz", *reader[1:])
        assert run.status == 0, (reader, run.err)
        said = (run.out + run.err).encode()
        files = [path for path in launcher.folder.iterdir() if path.name not in before]
        assert secrets(said + b"".join(map(unpacked, filter(Path.is_file, files))), "gone") == set(), reader


def test_numbers_and_structure_stay(recorded: tuple[Launcher, str]) -> None:
    launcher, _ = recorded
    whole, redacted = (load(launcher.folder / name) for name in ("run.trace", "out.trace"))
    texts = ("source", "called_from", "registered_at", "kernel", "module", "range", "handed_over")
    others = [name for name in whole.hops.columns if name not in texts]
    assert redacted.hops.select(others).equals(whole.hops.select(others))
    assert redacted.hops["handed_over"].is_null().equals(whole.hops["handed_over"].is_null())
    assert redacted.certificate["verdict"] == whole.certificate["verdict"]
    for name, table in vars(whole).items():
        if isinstance(table, pl.DataFrame) and name != "source_lines":
            assert len(getattr(redacted, name)) == len(table), name


def test_it_has_the_permissions_of_its_source(recorded: tuple[Launcher, str]) -> None:
    launcher, _ = recorded
    assert stat.S_IMODE((launcher.folder / "out.trace.xz").stat().st_mode) == 0o600


def test_values_of_a_small_tensor_are_not_to_be_tried(launcher: Launcher) -> None:
    launcher.write("import torch\n(torch.tensor([4711]) + 0, torch.tensor([float('nan')]) + 0)\n")
    assert launcher.record("--values", "all", "-o", "run.trace", "script.py").status == 0
    printed = tracer(launcher, "pack", "run.trace", "--redact", "-o", "out.trace.xz").out
    before, after = (load(launcher.folder / name) for name in ("run.trace", "out.trace.xz"))
    hashes = before.values["hash"].drop_nulls()
    assert len(hashes) >= 4
    assert f"{len(hashes)} hashes of results\n" in printed
    assert after.values["hash"].null_count() == len(before.values)
    assert after.values.drop("hash").equals(before.values.drop("hash"))
    assert before.values["nan"].any()
    data = unpacked(launcher.folder / "out.trace.xz")
    assert not any(number.to_bytes(8, "little")[:7] in data for number in hashes)
    same = ("id", "op", "start_ns", "end_ns")
    assert after.hops.select(same).equals(before.hops.select(same))
