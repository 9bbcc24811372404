"""Ranks of one job side by side: their collectives, who came last and why, where their paths part."""

from __future__ import annotations

from tracer.analysis.job.part import RankPart
from tracer.analysis.job.ranks import Job, JobError, job_of

__all__ = ["Job", "JobError", "RankPart", "job_of"]
