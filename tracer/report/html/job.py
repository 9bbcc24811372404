"""A job as one HTML page: its ranks below each other on one clock, and the tables of its report."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from tracer.analysis.cover import Cover
from tracer.analysis.fleet.in_memory import parts_in_memory
from tracer.analysis.fleet.merge import merge
from tracer.analysis.fleet.side_by_side import SideBySide, side_by_side
from tracer.analysis.job import Job, RankPart
from tracer.analysis.job.collectives import communicates
from tracer.analysis.memory_use import curve, memory_use
from tracer.analysis.step_times import Claims
from tracer.base.visible import LONGEST, visible
from tracer.report.fleet_page import in_words, sections
from tracer.report.html.chains import Texts
from tracer.report.html.columns import of_table, packed
from tracer.report.html.frame import MOST_ROWS, SHARED_SCRIPTS, environment_of, render_frame
from tracer.report.html.sections import Part, to_html
from tracer.report.html.timeline import highest
from tracer.report.job_page import heading, job_tables
from tracer.report.job_tables import Tables, cause, group_name, host_work, ranks_in_words
from tracer.report.page import paragraphs, percent
from tracer.report.text import count, duration

_SCRIPTS = (*SHARED_SCRIPTS, "tracks.js", "job.js")
_BUCKETS = 4_000  # of the curves of a rank
_MOST_PARTS = 40_000
_OF_MEETINGS = ("number", "step", "bytes", "ranks", "last", "late_ns", "wait_ns")
_OF_MESSAGES = ("rank", "sender", "begin_ns", "end_ns", "sent_ns", "bytes", "step")


def render_job(job: Job, name: str, rows: int | None = None) -> str:
    """The page, with one newline at its end. `name` is the folder; tables have the figures of job_page."""
    parts = parts_in_memory(job, name)
    tables = job_tables(job, name, merge(parts))
    found = side_by_side(parts, tables)
    shown = sections(tables, rows or MOST_ROWS)
    return render_frame(
        "job.html.j2",
        _SCRIPTS,
        name=heading(job, name),
        title=name,
        pictures=[("ranks-picture", "Ranks side by side")],
        parts=[Part(title.lower().replace(" ", "-"), title, 2, to_html(text)) for title, text in shown],
        packed={"job-data": packed_job(job, found, tables)},
        environment=visible(environment_of(job.parts[0].trace), LONGEST),
        words=Markup(to_html(paragraphs(*in_words(tables)))),
        note=_note(found),
    )


def packed_job(job: Job, found: SideBySide, tables: Tables) -> str:
    """The text for the page: columns `steps.*`, `parts.*`, `calls.*`, `meetings.*` and `messages.*`.

    Times are ns since the picture begins, `rank` is a place in the ranks of `meta`. Texts are numbers.
    """
    places = {rank: place for place, rank in enumerate(found.offsets)}
    texts = Texts()
    shown = [part for part in job.parts if part.rank in places]
    meta = {
        "texts": texts.texts,
        "ranks": [_rank(part, found, tables) for part in shown],
        "wall_ns": found.end_ns - found.begin_ns,
    }

    def placed(rows: pl.DataFrame, *moments: str) -> pl.DataFrame:
        return rows.with_columns(
            pl.col("rank").replace_strict(places, return_dtype=pl.Int64),
            *(pl.col(name) - found.begin_ns for name in moments),
        )

    steps = placed(found.steps, "start_ns", "end_ns").with_columns(
        pl.Series("phase", texts.of(found.steps["phase"]), pl.Int64)
    )
    columns = of_table("steps", steps)
    columns |= of_table("parts", _parts(shown, found, places, texts))
    columns |= of_table("calls", placed(found.calls, "start_ns", "end_ns"))
    columns |= of_table("meetings", _meetings(found, tables, texts))
    messages = placed(found.messages, "begin_ns", "end_ns", "sent_ns")
    columns |= of_table("messages", _messages(messages, texts))
    return packed(columns, meta)


def _note(found: SideBySide) -> str:
    """What the picture leaves out, in sentences."""
    words = []
    if found.begin_ns == found.end_ns:
        words.append("These traces have no step, collective or message to draw.")
    if found.without_clock:
        who = ranks_in_words(found.without_clock, True)
        words.append(f"{who} left out: how their clocks differ is not known.")
    if found.steps["step"].n_unique() < found.all_steps:
        numbers = found.steps["step"].sort().to_list()
        words.append(
            f"Steps {numbers[0]:,} to {numbers[-1]:,} of {found.all_steps:,}: ranks waited longest in them."
        )
    if found.ranks_left_out:
        words.append(f"{count(found.ranks_left_out, 'rank')} with shorter waits left out.")
    if found.calls_left_out:
        words.append(f"{count(found.calls_left_out, 'call')} with shorter waits left out.")
    return " ".join(words)


def _rank(part: RankPart, found: SideBySide, tables: Tables) -> dict[str, Any]:
    """The number of a rank, its title, and of each _BUCKETS-th of the picture by device the most bytes, and
    for how many ns the GPU ran other kernels than those of NCCL, in which it may wait; [] without a GPU.
    """
    of_rank = pl.col("rank") == part.rank
    row = tables["ranks"].filter(of_rank).row(0, named=True)
    stages = tables["stages"].filter(of_rank & (pl.col("wall_ns") > 0)).to_dicts()
    words = []
    if row["waited_ns"]:
        words.append(f"waited {duration(row['waited_ns'])}")
    if row["times_last"]:
        words.append(f"others waited {duration(row['others_waited_ns'])} for it")
    words += [f"bubbles {percent(one['waited_ns'] / one['wall_ns'])} of its steps" for one in stages]
    offset = found.offsets[part.rank]
    edges = np.linspace(found.begin_ns - offset, found.end_ns - offset, _BUCKETS + 1).astype(np.int64)
    memory = {
        visible(use.device, LONGEST): highest(curve(part.trace, part.process, use.device), edges)
        for use in memory_use(part.trace)
        if use.process == part.process
    }
    work = part.trace.gpu_activities.filter((pl.col("process") == part.process) & ~communicates())
    work = work.drop_nulls(["start_ns", "end_ns"])
    cover = Cover.of(work["start_ns"].to_numpy(), work["end_ns"].to_numpy())
    busy = cover.within(edges[:-1], edges[1:]).tolist() if len(work) else []
    title = f"rank {part.rank} on {part.host or '?'}" + (f": {', '.join(words)}" if words else "")
    return {"rank": part.rank, "title": visible(title, LONGEST), "memory": memory, "busy": busy}


def _parts(parts: list[RankPart], found: SideBySide, places: dict[int, int], texts: Texts) -> pl.DataFrame:
    """What the time of each step is counted for: rank, part, start_ns, length_ns; the longest of many."""
    schema = dict.fromkeys(("rank", "part", "start_ns", "length_ns"), pl.Int64)
    rows = [pl.DataFrame(schema=schema)]
    for part in parts:
        shift = found.offsets[part.rank] - found.begin_ns
        claims = Claims.of(part.trace, part.process)
        own = found.steps.filter(pl.col("rank") == part.rank).select("start_ns", "end_ns")
        for begin, end in own.iter_rows():
            pieces = claims.pieces(begin - found.offsets[part.rank], end - found.offsets[part.rank])
            rows.append(
                pl.DataFrame(
                    {
                        "rank": [places[part.rank]] * len(pieces),
                        "part": texts.of(pieces["part"]),
                        "start_ns": pieces["start_ns"] + shift,
                        "length_ns": pieces["end_ns"] - pieces["start_ns"],
                    },
                    schema,
                )
            )
    longest = pl.concat(rows).sort("length_ns", descending=True, maintain_order=True).head(_MOST_PARTS)
    return longest.sort("rank", "start_ns")


def _meetings(found: SideBySide, tables: Tables, texts: Texts) -> pl.DataFrame:
    rows = found.meetings
    known = tables["groups"].select("group", "description").drop_nulls().unique("group")
    described = dict(known.iter_rows())
    groups = [_plain(group_name(group, described.get(group))) for group in rows["group"]]
    return pl.DataFrame(
        {
            **{name: texts.of(rows[of]) for name, of in (("op", "op"), ("line", "source"))},
            "group": texts.of(pl.Series(groups, dtype=pl.String)),
            "why": texts.of(pl.Series(_whys(rows.to_dicts()), dtype=pl.String)),
            "came_ns": rows["came_ns"] - found.begin_ns,
            **{name: rows[name] for name in _OF_MEETINGS},
        }
    )


def _whys(rows: list[dict[str, Any]]) -> list[str | None]:
    """Why ranks waited in each collective, in order; None: they hardly did, or it was not looked for.

    A rank that came late to the collective before as well may have lost the time before that.
    """
    found: list[str | None] = []
    before: tuple[int | None, int, str | None] = (None, 0, None)
    for row in rows:
        why = said = _why(row)
        if row["is_late"] and row["excess_ns"] is None:
            last, late_ns, reason = before
            if last == row["last"] and late_ns >= row["late_ns"] / 2 and reason:
                why, said = reason, f"it came late to the collective before, too: {reason}"
        found.append(said)
        before = (row["last"], row["late_ns"] or 0, why)
    return found


def _why(row: dict[str, Any]) -> str | None:
    if row["missing"]:
        return f"{ranks_in_words(row['missing'], True)} had not reached it when the job was dumped"
    if row["last"] is None:
        return "not matched across ranks"
    return _plain(cause({**row, "op": row["cause_op"]})) if row["is_late"] else None


def _messages(rows: pl.DataFrame, texts: Texts) -> pl.DataFrame:
    did = [
        _plain(f"{host_work(row, None)} took {duration(row['did_ns'])} before it was sent")
        if row["did_ns"]
        else None
        for row in rows.to_dicts()
    ]
    return pl.DataFrame(
        {
            **{name: rows[name] for name in _OF_MESSAGES},
            **{name: texts.of(rows[of]) for name, of in (("line", "received_at"), ("sent_at", "sent_at"))},
            "why": texts.of(pl.Series(did, dtype=pl.String)),
        }
    )


def _plain(text: str) -> str:
    """Markdown of a sentence as text."""
    return text.replace("`", "")
