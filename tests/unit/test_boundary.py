"""The trust boundary is one module: nothing else turns a text into code or a name, or starts a Python.

Files that others can change are read, and not mapped; ELF files only by `tracer/base/elf.py`. Outputs of
several files are written by `tracer/base/folder.py`, which follows no link.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracer.base.boundary import StrangeTextError, device, literal, open_regular, operator, value, word

ROOT = Path(__file__).parents[2]
BOUNDARY = {"tracer/base/boundary.py", "tracer/base/interpreter.py"}
OF_TRACES = ("analysis", "trace", "report", "export", "replay", "fleet", "interactive")
"""Rooms whose code reads traces"""
KNOWN = {
    # what it does, where: what it is given
    ("runs code", "tracer/debugger/breakpoints.py"): "the user's --when",
    ("runs code", "tracer/debugger/walk.py"): "a session script of tracer, or of the user",
    ("imports", "tracer/attach/inside.py"): "modules of tracer",
    ("imports", "tracer/base/build.py"): "the extension of tracer, and its account",
    ("imports", "tracer/__init__.py"): "modules of tracer",
    ("imports", "tracer/export/formats.py"): "modules of tracer",
    ("imports", "tracer/overrides/builtin.py"): "tracer's own kernels",
    ("imports", "tracer/overrides/names.py"): "the user's --override",
    ("imports", "tracer/cli/imports.py"): "the user's --import",
    ("takes a pickle", "tracer/fleet/processes.py"): "from a process that this one has started",
    ("names of torch", "tracer/compare/roof.py"): "float32 or bfloat16",
    (
        "names of torch",
        "tracer/compare/trial_samples.py",
    ): "a dtype and an operator of tracer's own cases or of the user's override",
    ("names of torch", "tracer/compare/trial_arguments.py"): "an operator of the user's override",
    ("names of torch", "tracer/compare/trial_database.py"): "a dtype of tracer's own list",
    ("names of torch", "tracer/compare/workload.py"): "a dtype of tracer's own cases",
    ("opens a file", "tracer/trace/bytes/packed.py"): "the trace, and the output that the user names",
    ("opens a file", "tracer/trace/names/completion.py"): "the trace itself",
    ("opens a file", "tracer/report/html/document.py"): "files of tracer",
    ("opens a file", "tracer/report/svg/picture.py"): "files of tracer",
    ("opens a file", "tracer/analysis/api_functions.py"): "a file of tracer",
    ("changes a folder", "tracer/cli/fleet.py"): "makes the output",
    ("changes a folder", "tracer/cli/help.py"): "text of help, and no file",
    ("changes a folder", "tracer/cli/replay.py"): "a temporary folder of its own",
    ("changes a folder", "tracer/fleet/parts.py"): "makes the output",
    ("changes a folder", "tracer/fleet/traces.py"): "a temporary folder of its own",
    ("changes a folder", "tracer/testing/snapshots.py"): "makes the folder beside the user's test",
    ("starts a Python", "tracer/debugger/session.py"): "the user's script, and launch.py with -I -S",
    ("starts a Python", "tracer/debugger/overlay_sources.py"): "torchgen, in a folder that tracer has made",
}
"""Each of these is not given text of a trace: add one only if that holds."""
RUNS = {"eval", "exec", "compile", "run_path", "run_module"}
IMPORTS = {"import_module", "__import__", "spec_from_file_location"}
LIBRARIES = {"CDLL", "PyDLL", "LoadLibrary", "load_library"}
PICKLES = {"load", "loads", "Unpickler"}
WRITES = {"write_text", "write_bytes", "mkdir", "makedirs", "rmtree"}
OPENS = {"open", "read_text", "read_bytes"}
MAPS = {"memmap", "read_parquet", "scan_parquet", "read_csv", "scan_csv", "read_ipc", "scan_ipc"}
"""polars maps the files that it is given by name"""


def dotted(node: ast.expr) -> list[str]:
    """`torch.ops.aten` as its names; of a nested getattr too."""
    if isinstance(node, ast.Call) and dotted(node.func) == ["getattr"] and node.args:
        return [*dotted(node.args[0]), "*"]
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else ["?"]


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and is_constant(node.operand))


def deeds(path: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What in a module turns a text that it is given into something else, and in which line."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.List, ast.Tuple)):
            if any(isinstance(word, ast.Attribute) and word.attr == "executable" for word in node.elts):
                yield "starts a Python", node.lineno
        elif isinstance(node, ast.Call) and (deed := deed_of(node, path.split("/")[1])):
            yield deed, node.lineno


def deed_of(call: ast.Call, room: str) -> str:
    *_, of, name = ["", *dotted(call.func)]
    root = dotted(call.func)[0]
    given = not all(map(is_constant, call.args[:1]))
    of_torch = name == "getattr" and dotted(call.args[0])[0] == "torch" and not is_constant(call.args[1])
    ways = {
        "runs code": name in RUNS and root != "re" and of != "list",  # an expression of polars
        "imports": name in IMPORTS and given,
        "loads a library": name in LIBRARIES and given,
        "takes a pickle": name in PICKLES and root in ("pickle", "marshal", "shelve", "torch"),
        "names of torch": of_torch or (root == "torch" and name == "device" and given),
        "maps a file": given and ((root, name) == ("mmap", "mmap") or maps(call, name)),
        "reads ELF": name == "ELFFile",
        "unpacks without a limit": (of, name) == ("zlib", "decompress"),
        "changes a folder": room in (*OF_TRACES, "cli", "testing") and name in WRITES,
        "opens a file": room in OF_TRACES and name in OPENS and "open_regular" not in ast.dump(call),
    }
    return next((deed for deed, done in ways.items() if done), "")


def maps(call: ast.Call, name: str) -> bool:
    return name in MAPS and "BytesIO" not in ast.dump(call)


def found() -> Iterator[tuple[str, str, int]]:
    for file in sorted((ROOT / "tracer").rglob("*.py")):
        path = str(file.relative_to(ROOT))
        for deed, line in deeds(path, ast.parse(file.read_text())):
            yield deed, path, line


def test_nothing_else_does_what_the_boundary_does() -> None:
    others = [
        f"{path}:{line} {deed}"
        for deed, path, line in found()
        if path not in BOUNDARY and (deed, path) not in KNOWN
    ]
    assert not others, "let tracer/base/boundary.py, folder.py or interpreter.py do it"


def test_no_exception_is_left_over() -> None:
    assert set(KNOWN) == {(deed, path) for deed, path, _ in found() if path not in BOUNDARY}


@pytest.mark.parametrize(
    "source",
    [
        *("eval(x)", "exec(x)", "compile(x, '', 'exec')", "runpy.run_path(x)", "importlib.import_module(x)"),
        *(
            "ctypes.CDLL(x)",
            "pickle.loads(x)",
            "torch.load(x)",
            "getattr(torch, x)",
            "getattr(torch.ops.aten, x)",
        ),
        *("getattr(getattr(torch.ops, 'aten'), x)", "torch.device(x)", "open(x)", "Path(x).read_text()"),
        *(
            "pl.scan_parquet(x)",
            "subprocess.run([sys.executable, x])",
            "[target.executable, '-c', x]",
            "os.open(x, 0)",
        ),
        *("Path(x).write_bytes(y)", "shutil.rmtree(x)", "x.mkdir()"),
        *("mmap.mmap(file.fileno(), 0)", "np.memmap(x)", "ELFFile(x)", "zlib.decompress(x)"),
    ],
)
def test_each_way_is_seen(source: str) -> None:
    assert list(deeds("tracer/replay/x.py", ast.parse(source)))


def test_only_regular_files_of_a_disk_are_opened(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.close(open_regular(tmp_path / "empty"))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/proc/self/status")
    whys = {
        tmp_path: "a folder",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "link": "not on a disk",
        "/proc/kmsg": "not on a disk",
        "/proc/self/status": "not on a disk",
        "/dev/zero": "not a regular file",
    }
    for path, why in whys.items():
        with pytest.raises(OSError, match=why):
            open_regular(path)


def test_words() -> None:
    assert (word("float32", "a dtype"), device("cuda:1")) == ("float32", "cuda:1")
    assert operator("aten::add.Tensor") == ("aten", "add", "Tensor")
    assert operator("aten::mm") == ("aten", "mm", "default")
    for wrong in ("", "a b", "a\n", "a.b", "1a", "\xe9", "a" * 201, "a\0"):
        for check in (lambda text: word(text, "a word"), device, operator):
            with pytest.raises(StrangeTextError, match="where a"):
                check(wrong)


def test_literals_are_what_they_were() -> None:
    values = [
        None,
        True,
        7,
        -1,
        2.5,
        float("inf"),
        1 + 2j,
        complex(float("nan"), 1),
        "a'\"\n\\\u2028\ud800",
        [[1], "x"],
    ]
    assert repr(eval(literal(values))) == repr(values)
    for wrong in ({}, [{}], object(), b"", (1,), {1}):
        with pytest.raises(StrangeTextError):
            value(wrong)
    deep: object = 1
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(StrangeTextError):
        literal(deep)
