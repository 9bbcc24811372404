"""What a report says of single device kernels, and what it leaves out."""

from __future__ import annotations

import re

from cuda_frames import CudaBuilder
from frames import hop

from tracer.report.reading import Reading
from tracer.report.report import render

F32 = "torch.float32"


def adds(*calls: dict[str, int]) -> CudaBuilder:
    """An op call for each of `calls`: the time of each kernel that it launches, by name."""
    builder = CudaBuilder()
    both = builder.signature(([1 << 20], F32), ([1 << 20], F32))
    for number, kernels in enumerate(calls):
        builder.calls(hop("aten::add.Tensor", "CUDA", inputs=both, self_ns=9000))
        start = builder.rows[number]["start_ns"]
        for name, time in kernels.items():
            call = builder.api("cudaLaunchKernel", "launch", start, start + 500, hop=number)
            builder.kernel(name, start + 1000, start + 1000 + time, call, grid=(512, 1, 1))
    return builder


def report(builder: CudaBuilder) -> str:
    return render(Reading(builder.cuda_trace(), "t", only="kernels"))


def launches(text: str) -> list[str]:
    return re.findall(r"^- launch: (.*?)\n- ", text.replace("\n  ", " "), re.MULTILINE | re.DOTALL)


def labels(text: str, kernel: str) -> list[str]:
    """What stands behind the name in each row of a table that has the kernel."""
    rows = [line for line in text.splitlines() if line.startswith("|") and f"`{kernel}`" in line]
    return [re.findall(rf"`{kernel}`(?: \((.*?)\))?", row)[0] for row in rows]


def test_a_kernel_that_an_op_launches_alone_makes_all_of_the_output() -> None:
    assert launches(report(adds({"my_add": 9000}))) == [
        "grid 512, block 128: 65,536 threads for an output of 1048576, 16 elements a thread"
    ]


def test_one_of_several_kernels_need_not_make_all_of_the_output() -> None:
    text = report(adds({"my_copy": 8000, "my_add": 9000}))
    assert (
        launches(text) == ["grid 512, block 128: 65,536 threads; the output of the whole op is 1048576"] * 2
    )


def test_rows_of_one_kernel_beside_different_others_say_which_calls_they_are_of() -> None:
    text = report(adds({"my_add": 9000}, {"my_copy": 8000, "my_add": 9500}))
    assert labels(text, "my_add") == ["in calls of 17.5 us", "in calls of 9.0 us"] * 2
    assert labels(text, "my_copy") == ["", ""]


def test_a_name_does_not_repeat_the_bytes_that_the_table_has() -> None:
    builder = adds({"my_add": 90_000}, {"my_add": 70_000})
    expanded = builder.signature(([1 << 20], F32), ([1 << 20], F32), device="cuda:0")
    builder.rows[1]["inputs"] = expanded
    for tensor in builder.tensors:
        if tensor["id"] == expanded:
            tensor |= {"device": "cpu", "stride": [0]}
    found = labels(report(builder), "my_add")
    assert found[:2] == ["12.0 MiB", "4.0 MiB, with an expanded input"]
    assert found[2:] == ["", "with an expanded input"]
