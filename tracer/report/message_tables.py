"""Messages between two ranks, and what waiting for them takes of a step, as sentences and tables."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracer.report.job_tables import (
    LINE,
    Columns,
    Tables,
    host_work,
    line_cell,
    number_of,
    rows_table,
    text_of,
    time_of,
)
from tracer.report.page import paragraphs, percent
from tracer.report.text import count, duration, size

_WAITED = """\
A receiver waits from its call until the sender sends, but not beyond the next op that it runs itself; on the
GPU from the begin of its kernel to that of the sender's. **Share**: of the time of its steps. Waits at once
count once."""


def most_waiting(tables: Tables, job: str, of: str) -> str:
    """The rank that waited for messages for the largest part of its steps, and for whom; "" if none did.

    `of` names the job, if there are several.
    """
    stages = _stages(tables).filter((pl.col("job") == job) & (pl.col("waited_ns") > 0))
    if stages.is_empty():
        return ""
    row = stages.sort("share", "waited_ns", "rank", descending=[True, True, False]).row(0, named=True)
    messages = tables["messages"].filter(pl.col("job") == job)
    ways = _way_back(messages, stages, row["rank"])
    if not ways:
        return ""
    lines = ways[-1]
    senders = ", which waited for rank ".join(str(one["sender"]) for one in ways)
    at = f"{line_cell(lines['sent_at'], None)} -> {line_cell(lines['received_at'], None)}"
    ranks = tables["ranks"].filter((pl.col("job") == job) & (pl.col("rank") == row["rank"]))
    stages_of = _linked(messages, row["rank"])
    usual = "".join(_own_in_words(len(stages_of), one) for one in ranks.head(1).to_dicts())
    share = f", {percent(row['share'])} of its {count(row['steps'], 'step')}" if row["steps"] else ""
    did = f"There {host_work(lines, None)} took {duration(lines['did_ns'])} before it sent."
    return (
        f"**Rank {row['rank']}{of} waited for messages**: {duration(row['waited_ns'])} in all{share}, "
        f"most for rank {senders}: {at}. {did if lines['did_ns'] else ''}{usual}".rstrip()
    )


def _way_back(messages: pl.DataFrame, stages: pl.DataFrame, rank: int) -> list[dict[str, Any]]:
    """The messages that a rank waited for most, then those that their sender waited for, if that is half or
    more of what took its time before it sent (with gloo the wait is a part of that).
    """
    of_stages = {row["rank"]: row for row in stages.iter_rows(named=True)}
    ways: list[dict[str, Any]] = []
    seen: set[int] = set()
    while rank not in seen and rank in of_stages:
        seen.add(rank)
        if ways and 2 * of_stages[rank]["waited_ns"] < (ways[-1]["did_ns"] or 0):
            break
        sender = of_stages[rank]["most_from"]
        here = messages.filter((pl.col("receiver") == rank) & (pl.col("sender") == sender))
        ways += here.head(1).to_dicts()
        rank = sender
    return ways


def _linked(messages: pl.DataFrame, rank: int) -> set[int]:
    """The ranks of the pipeline of a rank: a job may have several, whose first stage may receive nothing."""
    pairs = set(messages.select("sender", "receiver").iter_rows())
    found, added = {rank}, {rank}
    while added:
        added = {other for pair in pairs if set(pair) & found for other in pair} - found
        found |= added
    return found


def _own_in_words(ranks: int, schedule: dict[str, Any]) -> str:
    """What the schedule itself leaves idle, where ranges tell it. `schedule` is a row of `ranks`."""
    if schedule["splits_backward"]:
        return " This schedule splits its backward (zero-bubble): what it leaves idle itself is unknown."
    here = schedule["stages_here"] or 1
    own = own_bubble(ranks, schedule["microbatches"], here)
    if own is None:
        return ""
    if here > 1:
        return f" Interleaved 1F1B of {here} such stages a rank leaves {percent(own)}."
    return f" GPipe and 1F1B of these stages leave {percent(own)}."


def own_bubble(ranks: int, microbatches: int | None, here: int = 1) -> float | None:
    """The share of a step that GPipe and 1F1B leave idle, with `here` stages of equal length on each rank.

    Source: Huang et al., GPipe (2019), and Narayanan et al., Megatron-LM (2021): (p - 1) / (v m + p - 1).
    """
    if ranks < 2 or here < 1 or microbatches is None or microbatches < 1:
        return None
    return (ranks - 1) / (here * microbatches + ranks - 1)


def messages_table(tables: Tables, most: int) -> str:
    """Stages, the one that waited most first, and the lines between which messages went."""
    stages = _stages(tables).sort("share", "waited_ns", "job", "rank", descending=[True, True, False, False])
    of_stages: Columns = {
        "share:": lambda row: percent(row["share"]) if row["steps"] else "",
        "waited:": time_of("waited_ns"),
        "steps:": number_of("steps"),
        "received:": number_of("received"),
        "not matched:": lambda row: f"{row['unmatched']:,}" if row["unmatched"] else "",
        "rank": text_of("rank"),
        "most for rank": text_of("most_from"),
    }
    of_lines: Columns = {
        "waited in all:": time_of("total_ns"),
        "median:": time_of("wait_ns"),
        "times:": number_of("times"),
        "bytes:": lambda row: "" if row["bytes"] is None else size(row["bytes"]),
        "from": text_of("sender"),
        "to": text_of("receiver"),
        "sent at": lambda row: line_cell(row["sent_at"]),
        "received at": lambda row: line_cell(row["received_at"]),
        "what the sender did before": lambda row: (
            f"{host_work(row, LINE)}: {duration(row['did_ns'])}" if row["did_ns"] else ""
        ),
    }
    found = rows_table(tables, stages, most, of_stages)
    return paragraphs(_WAITED, found, rows_table(tables, tables["messages"], most, of_lines)) if found else ""


def _stages(tables: Tables) -> pl.DataFrame:
    """With the `share` of the time in steps that a rank waited: 0 where it recorded none."""
    share = pl.when(pl.col("wall_ns") > 0).then(pl.col("waited_ns") / pl.col("wall_ns")).otherwise(0.0)
    return tables["stages"].with_columns(share=share)
