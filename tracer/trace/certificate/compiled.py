"""Calls of compiled code, whose work no hop shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracer.trace.certificate.counts import count_in, in_words


def compiled_calls(
    documents: Mapping[int, dict[str, Any]], stated: Mapping[int, dict[str, Any]]
) -> tuple[int, bool]:
    """How often processes called code of torch.compile or AOTInductor, and whether that is all of them.

    `documents` are those of each process, `stated` the certificates of those that stopped in order; another
    process left only a note of its first call.
    """
    calls = sum(count_in(certificate, "compiled_calls") for certificate in stated.values())
    noted = [process for process, of_process in documents.items() if "compiled" in of_process]
    killed = [process for process in noted if process not in stated]
    return calls + len(killed), not killed


def in_a_sentence(calls: int, all_of_them: bool) -> str:
    """The sentence about them in the certificate."""
    times = f"{'' if all_of_them else 'at least '}{in_words(calls, 'call')}"
    return (
        f"{times} of code compiled by torch.compile or AOTInductor: its kernels are not recorded as hops, "
        "but the ops that ran on fake tensors to compile it are"
    )
