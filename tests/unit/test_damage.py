"""Parts that cannot be read are left out, whatever reading them raises, and numbers in them cost no time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from elf import write_library
from every_kind import written
from every_text import with_documents
from one_op import ENVIRONMENT
from synthetic import ENUMS, TraceWriter

from tracer.analysis import library_work, op_work
from tracer.attach import process
from tracer.base.numerals import number_of
from tracer.trace import TraceError, load
from tracer.trace.bytes.damage import DamagedError, whole
from tracer.trace.bytes.documents import read_document

ERRORS = (IndexError, ZeroDivisionError, AssertionError, OverflowError, RecursionError, UnicodeError, OSError)


def raising(error: type[BaseException]) -> object:
    def raises(*_: object, **__: object) -> None:
        raise error("of the bytes")

    return raises


@pytest.mark.parametrize("error", ERRORS)
def test_any_error_is_damage(error: type[Exception]) -> None:
    with pytest.raises(DamagedError, match="of the bytes"):
        whole(raising(error))


@pytest.mark.parametrize("error", [TraceError, MemoryError, KeyboardInterrupt])
def test_what_is_of_the_whole_file_is_none(error: type[BaseException]) -> None:
    with pytest.raises(error):
        whole(raising(error))


@pytest.mark.parametrize("error", ERRORS)
def test_work_that_cannot_be_told_is_unknown(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    monkeypatch.setitem(op_work.RULES, "mm", raising(error))
    assert op_work.work_of("aten::mm", []) is None
    monkeypatch.setattr(library_work, "item_bytes", raising(error))
    assert library_work.gemm_work(dict.fromkeys(("m", "n", "k"), "2"), "cublasSgemm_v2") is None


def test_a_file_of_more_symbols_than_a_python_has_is_not_searched(tmp_path: Path) -> None:
    many = [("Py_Version", 64, 4, 1)] * ((1 << 16) + 1)
    library = write_library(tmp_path / "libpython3.99.so", many, table=".dynsym")
    begun = time.process_time()
    assert process._python_version(str(library)) == (3, 99)  # by its name
    assert time.process_time() - begun < 0.5
    with pytest.raises(ValueError, match="65,538 symbols"):
        process._py_version(str(library))


def test_a_number_of_layers_costs_no_time() -> None:
    numbers = {"layers": "3", "input": "5", "hidden": "7", "sequence": "2", "batch": "4", "mode": "GRU"}
    numbers["direction"] = "BIDIRECTIONAL"
    weights = sum(2 * 3 * 7 * ((14 if layer else 5) + 7) for layer in range(3))
    known = library_work.rnn_work(numbers, "cudnnRNNForward")
    assert known is not None
    assert known.flops == 2 * 2 * 4 * weights
    assert library_work.rnn_work(numbers | {"layers": str(1 << 62)}, "cudnnRNNForward") is not None
    none = library_work.rnn_work(numbers | {"layers": "-1"}, "cudnnRNNForward")
    assert none is not None
    assert none.flops == 0


@pytest.mark.parametrize(
    ("kind", "content", "kept"),
    [
        ("source_lines", b'{"a.py": {"lines": null, "cell": null}, "b.py": null}', {"a.py": {"cell": None}}),
        ("environment", b'{"torch": null, "options": null}', {"torch": None}),
        ("compiled", b'{"uses": {"x": null, "y": [null]}, "kernels": null}', {"uses": {"y": []}}),
    ],
)
def test_null_is_never_in_the_place_of_fields(kind: str, content: bytes, kept: object) -> None:
    assert read_document(kind, content)[0] == kept


@pytest.mark.parametrize("value", [["x"], "x", 7, True, [{}]])
@pytest.mark.parametrize("field", ["settings", "options"])
def test_what_readers_take_for_fields_is_fields_or_absent(tmp_path: Path, field: str, value: object) -> None:
    writer = TraceWriter()
    writer.process()
    writer.json(0, "environment", {**ENVIRONMENT, field: value})
    assert field not in load(writer.write(tmp_path / "run.trace")).environment


def test_lines_that_are_null_are_not_known(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.json(0, "source_lines", {"a.py": {"lines": None}})
    assert load(writer.write(tmp_path / "run.trace")).source_lines.is_empty()


def test_a_number_of_ranks_costs_no_memory() -> None:
    document, damaged = read_document("rank", b'{"rank": 1, "ranks": 4000000000}')
    assert (document, damaged) == ({"rank": 1}, True)


def test_keys_without_names_are_none(tmp_path: Path) -> None:
    writer = TraceWriter()
    writer.process()
    writer.hop(0)
    writer.json(0, "enums", {**ENUMS, "keys": ["Undefined", [], ["Undefined"]]})
    lane = writer.lane()
    lane.enter(0)
    lane.exit()
    assert len(load(writer.write(tmp_path / "run.trace")).hops) == 1


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("17", 17), (str((1 << 63) - 1), (1 << 63) - 1), (str(1 << 63), None), ("9" * 5000, None)]
    + [(text, None) for text in ("", "²", "٣", "-1", "1e3", " 1", "1_0", "x")],
)
def test_numbers_in_texts(text: str, number: int | None) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize(
    "name", ["\x1fcall:²", "\x1fcall:" + "9" * 5000, "\x1fcall:99999999999", "\x1fkernel:#²"]
)
def test_a_range_of_compiled_code_with_a_name_of_somebody_else(tmp_path: Path, name: str) -> None:
    writer = TraceWriter()
    writer.process()
    lane = writer.lane()
    lane.define_string(1, name)
    lane.range_enter(1)
    lane.range_exit()
    trace = load(writer.write(tmp_path / "run.trace"))
    assert len(trace.compiled_calls) + len(trace.compiled_kernels) == 1


@pytest.mark.parametrize("number", [1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_number_of_a_document_fits_its_column_or_is_damage(tmp_path: Path, number: int) -> None:
    data = written(closed=True).data()

    def other(document: object) -> object:
        if isinstance(document, dict):
            return {name: other(value) for name, value in document.items()}
        if isinstance(document, list):
            return [other(value) for value in document]
        return number if isinstance(document, int) and not isinstance(document, bool) else document

    trace = tmp_path / "run.trace"
    trace.write_bytes(with_documents(data, other))
    load(trace)
