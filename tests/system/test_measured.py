"""The file of `tracer compare --tune`: written, read, refused, and given to the extension."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from lazily import torch

from tracer.overrides import measured
from tracer.overrides.measured import Key, MeasuredError, Measurements

GPU = "NVIDIA H200"
MM = {
    "case": "mm 8x1536x5893 NT float32",
    "faster": True,
    "element": "float32",
    "tf32": False,
    "inner_major": True,
    "columns": [5, 8],
    "rows": [4167, 8333],
    "inner": [1087, 2172],
}
MM_TUPLE = ("float32", False, True, (5, 8), (4167, 8333), (1087, 2172))
CAT = {"case": "cat", "faster": False, "tensors": [2, 2], "bytes": [1, 9], "aligned": True}
GRU = {
    "case": "gru",
    "faster": True,
    "precision": "tf32",
    "steps": [1, 1],
    "batch": [1, 1],
    "input": [1, 2],
    "hidden": [1, 2],
}


class Native:
    """What the extension gets."""

    def __init__(self, file, gpus=(GPU,)):
        self.__file__ = str(file)
        self.gpus = list(gpus)
        self.given = []

    def gpu_names(self):
        return self.gpus

    def __getattr__(self, name):
        family = name.removeprefix("set_measured_")
        return lambda device, faster, slower: self.given.append((family, device, faster, slower))


@pytest.fixture
def native(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(measured.VARIABLE, raising=False)
    monkeypatch.setattr(measured, "_loaded", {})
    monkeypatch.setattr(measured, "_said", set())
    extension = tmp_path / "_overrides.so"
    extension.write_bytes(b"kernels")
    return Native(extension)


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(measured, "say", lines.append)
    return lines


def usual(native, gpu=GPU, **rows):
    key = measured.key_of(native, gpu)
    measured.write(measured.usual_path(key), Measurements(key, rows or {"mm": [MM]}))
    return measured.usual_path(key)


def test_what_was_written_is_read(native, tmp_path):
    found = Measurements(Key(GPU, "2.11.0+cu130", "0a1b"), {"mm": [MM], "gru": [GRU], "cat": [CAT]})
    measured.write(tmp_path / "deeper" / "file.json", found)
    assert measured.read(tmp_path / "deeper" / "file.json") == found
    assert [path.name for path in (tmp_path / "deeper").iterdir()] == ["file.json"]


def test_the_name_of_the_file_says_what_it_is_for(native, tmp_path):
    path = measured.usual_path(Key("NVIDIA A100 80GB/x", "2.11.0+cu130", "0a1b"))
    assert path == tmp_path / "tracer" / "measured-NVIDIA_A100_80GB_x-2.11.0+cu130-0a1b.json"


GOOD = {"format": 1, "gpu": GPU, "torch": "2", "build": "0", "mm": [MM], "cat": [CAT], "gru": [GRU]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": 1, "gpu": ', "it is damaged: no JSON"),
        ("\udcff", "it is damaged: no JSON"),
        ("[" * 100_000, "it is damaged: its brackets are nested too deeply"),
        ("[]", "it is not a file of measurements"),
        ("{}", "it is not a file of measurements"),
        (GOOD | {"format": 2}, "its format is 2, and this tracer reads 1"),
        (GOOD | {"torch": None}, "it is damaged: it does not say what it was measured with"),
        (GOOD | {"mm": {}}, "it is damaged: mm is not a list"),
        (GOOD | {"mm": [MM, {**MM, "rows": [9, 8]}]}, "it is damaged: rows of row 2 of mm"),
        (GOOD | {"mm": [{**MM, "rows": [True, 8]}]}, "it is damaged: rows of row 1 of mm"),
        (GOOD | {"mm": [{**MM, "rows": [1, 2**63]}]}, "it is damaged: rows of row 1 of mm"),
        (GOOD | {"mm": [{**MM, "element": "int8"}]}, "it is damaged: element of row 1 of mm"),
        (GOOD | {"mm": [{**MM, "element": ["float32"]}]}, "it is damaged: element of row 1 of mm"),
        (GOOD | {"cat": [{**CAT, "faster": 1}]}, "it is damaged: faster of row 1 of cat"),
        (GOOD | {"gru": [{**GRU, "precision": "fp8"}]}, "it is damaged: precision of row 1 of gru"),
        (GOOD | {"gru": ["row"]}, "it is damaged: case of row 1 of gru"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, text, why):
    text = text if isinstance(text, str) else json.dumps(text)
    (tmp_path / "file.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(MeasuredError, match=f"^{why}$"):
        measured.read(tmp_path / "file.json")


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    """A pipe would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    for path, why in ((tmp_path / "pipe", "it is not a regular file"), (tmp_path, "it is a folder")):
        with pytest.raises(MeasuredError, match=why):
            measured.read(path)


def test_without_a_file_nothing_is_asked(native, said):
    native.gpus = None  # would raise
    measured.load_into(native)
    assert (native.given, said) == ([], [])


def test_a_file_is_given_once_and_again_when_it_changes(native, said):
    path = usual(native, mm=[MM, {**MM, "faster": False, "columns": [1, 1]}], gru=[GRU], cat=[CAT])
    measured.load_into(native)
    slower = (*MM_TUPLE[:3], (1, 1), *MM_TUPLE[4:])
    assert native.given == [
        ("mm", 0, [MM_TUPLE], [slower]),
        ("gru", 0, [("tf32", (1, 1), (1, 1), (1, 2), (1, 2))], []),
        ("cat", 0, [], [((2, 2), (1, 9), True)]),
    ]
    measured.load_into(native)
    assert len(native.given) == 3
    path.unlink()
    measured.load_into(native)
    assert native.given[3:] == [("mm", 0, [], []), ("gru", 0, [], []), ("cat", 0, [], [])]
    assert said == []


def test_each_gpu_has_its_own(native, said):
    native.gpus = [GPU, "NVIDIA L4", GPU]
    usual(native)
    measured.load_into(native)
    assert [call[:2] for call in native.given if call[0] == "mm"] == [("mm", 0), ("mm", 2)]


def test_measurements_of_another_build_are_ignored_with_one_line(native, said):
    old = usual(native)
    native.__file__ = str(old.parent / "anew.so")
    (old.parent / "anew.so").write_bytes(b"other kernels")
    for _ in range(2):
        measured.load_into(native)
    assert native.given == []
    assert said == [
        f"{old} is ignored: it was measured with another torch or build of tracer; "
        "to measure again: tracer compare --tune"
    ]


def test_a_damaged_file_is_ignored_with_one_line(native, said):
    path = usual(native)
    path.write_text("{")
    measured.load_into(native)
    assert native.given == []
    assert said == [f"{path} is ignored: it is damaged: no JSON; to measure this GPU: tracer compare --tune"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gpu": "NVIDIA L4"}, f"it was measured on NVIDIA L4, and this GPU is {GPU}"),
        ({"torch": "1.0"}, "it was measured with torch 1.0, and this is torch {torch}"),
        ({"build": "0"}, "it was measured with another build of tracer"),
    ],
)
def test_a_named_file_for_something_else_is_ignored(native, said, tmp_path, monkeypatch, change, why):
    path = tmp_path / "named.json"
    measured.write(path, Measurements(replace(measured.key_of(native, GPU), **change), {"mm": [MM]}))
    monkeypatch.setenv(measured.VARIABLE, str(path))
    measured.load_into(native)
    assert native.given == []
    why = why.format(torch=torch.__version__)
    assert said == [f"{path} is ignored: {why}; to measure this GPU: tracer compare --tune"]


def test_a_named_file_is_used_on_the_gpus_that_it_is_for(native, said, tmp_path, monkeypatch):
    native.gpus = ["NVIDIA L4", GPU]
    path = tmp_path / "named.json"
    measured.write(path, Measurements(measured.key_of(native, GPU), {"mm": [MM]}))
    monkeypatch.setenv(measured.VARIABLE, str(path))
    measured.load_into(native)
    assert [call[:3] for call in native.given if call[0] == "mm"] == [("mm", 1, [MM_TUPLE])]
    assert said == []


def test_a_named_file_that_is_missing_is_said(native, said, tmp_path, monkeypatch):
    monkeypatch.setenv(measured.VARIABLE, str(tmp_path / "none.json"))
    measured.load_into(native)
    assert said[0].startswith(f"{tmp_path / 'none.json'} is ignored: it cannot be read: No such file")


@pytest.mark.parametrize("off", ["off", "OFF"])
def test_off_takes_back_what_was_given(native, said, monkeypatch, off):
    usual(native)
    measured.load_into(native)
    monkeypatch.setenv(measured.VARIABLE, off)
    measured.load_into(native)
    assert native.given[3:] == [("mm", 0, [], []), ("gru", 0, [], []), ("cat", 0, [], [])]
    assert said == []


def test_cases_that_are_not_measured_again_stay():
    key = Key(GPU, "2", "0")
    older = Measurements(key, {"mm": [MM, {**MM, "case": "other"}], "cat": [CAT]})
    newer = Measurements(key, {"mm": [{**MM, "faster": False}]})
    found = newer.merged(older).families
    assert [(row["case"], row["faster"]) for row in found["mm"]] == [(MM["case"], False), ("other", True)]
    assert found["cat"] == [CAT]


def test_only_auto_reads_measurements(monkeypatch):
    from tracer.overrides import builtin

    read = []
    extension = SimpleNamespace(install=lambda name, forced: read.append((name, forced)))
    monkeypatch.setattr(builtin, "native_module", lambda: extension)
    monkeypatch.setattr(measured, "load_into", read.append)
    for mode in ("auto", "force"):
        builtin.BuiltinKernels("mm", mode).install()
    assert read == [extension, ("mm", False), ("mm", True)]
