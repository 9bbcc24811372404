"""The workflows, issue templates and pre-commit hooks are valid, and use what the repository has.

The workflows call the make targets of .ci/run, and CONTRIBUTING.md says which target runs where.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / ".github/workflows/checks.yml"
ACTIONS = sorted((ROOT / ".github/actions").glob("*/action.yml"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))

# Targets that a workflow calls and .ci/run does not, and why.
ONLY_IN_WORKFLOWS = {
    "test": "unit tests alone answer first; .ci/run has them in test-all",
    "test-compilers": "a job of its own; .ci/run has them in test-all",
    "test-browser": "a job of its own; .ci/run has them in test-all",
    "dist": "a release is made of it; tests/cpu/test_pip.py makes the same wheel",
    "test-aarch64": "every night: emulated, it takes ten times as long",
    "wheels": "a release is made of them: an hour of compiling for each Python",
}


def jobs(workflow: Path) -> dict[str, dict]:
    return yaml.safe_load(workflow.read_text())["jobs"]


def commands(job: dict) -> str:
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    rules = re.findall(r"^(?:\.PHONY: (.*)|([a-z][\w -]*?):(?!=).*)$", text, re.MULTILINE)
    return {name for phony, targets in rules for name in (phony or targets).split()}


def called(text: str) -> set[str]:
    """The targets that shell commands make."""
    words = r"(?<!\S)make((?: +(?:\w+='[^']*'|\w+=\S*|[\w-]+))+)"
    found = re.findall(words, re.sub(r"(^|\s)#.*", "", text))
    return {word for each in found for word in re.sub(r"'[^']*'", "", each).split() if "=" not in word}


def jobs_of_targets() -> dict[str, set[str]]:
    """Of each target the jobs that call it."""
    found: dict[str, set[str]] = {}
    for workflow in WORKFLOWS:
        for name, job in jobs(workflow).items():
            for target in called(commands(job)):
                found.setdefault(target, set()).add(name)
    return found


def in_ci_run() -> set[str]:
    return called((ROOT / ".ci/run").read_text())


def table() -> dict[str, dict[str, str]]:
    """The rows of CONTRIBUTING.md's table of checks, by target."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text().partition("## What CI runs")
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0].strip("`").removeprefix("make "): dict(zip(head, row, strict=True)) for row in rows}


def test_targets_are_read_from_commands() -> None:
    text = """\
make lint </dev/null
make check-layout LAYOUT_RELEASES='2.11 newest' docs && make demo PYTHON=python3
command -v make >/dev/null || missing+=(make)
# make gallery
if ! make cuda-check; then exit 1; fi # make fuzz
"""
    assert called(text) == {"lint", "check-layout", "docs", "demo", "cuda-check"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_the_makefile_has(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] == {"contents": "read"}
    assert True in document, "`on`, which YAML 1.1 reads as true"
    for job in jobs(workflow).values():
        assert called(commands(job)), "a job does what people can do"
        assert called(commands(job)) <= make_targets()
        assert job["runs-on"].startswith("ubuntu-")
        assert 10 <= job["timeout-minutes"] <= 120
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_actions_are_pinned() -> None:
    """By the hash of a commit, which cannot be moved as a tag can. The version behind it is for people."""
    versions: dict[str, set[str]] = {}
    for file in (*WORKFLOWS, *ACTIONS):
        for line in re.findall(r"^ *-? *uses: (.*)$", file.read_text(), re.MULTILINE):
            if line.startswith("./"):
                assert (ROOT / line / "action.yml") in ACTIONS
                continue
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
            versions.setdefault(line.partition("@")[0], set()).add(line)
    assert versions
    assert [lines for lines in versions.values() if len(lines) > 1] == []


def test_no_step_can_use_the_token_of_the_checkout() -> None:
    checkouts = [
        step
        for workflow in WORKFLOWS
        for job in jobs(workflow).values()
        for step in job["steps"]
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert len(checkouts) == sum(len(jobs(workflow)) for workflow in WORKFLOWS)
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_workflows_and_ci_run_call_the_same_targets() -> None:
    assert in_ci_run() <= jobs_of_targets().keys()
    assert jobs_of_targets().keys() - in_ci_run() == ONLY_IN_WORKFLOWS.keys()


def test_contributing_says_what_runs_where() -> None:
    rows, by_target, run = table(), jobs_of_targets(), in_ci_run()
    assert by_target.keys() | run <= rows.keys() <= make_targets()
    for target, row in rows.items():
        assert set(re.findall(r"[\w-]+", row["jobs"])) == by_target.get(target, set()), target
        assert (row[".ci/run"] != "") == (target in run), target
        assert row["holds"]
        assert re.search(r"\d|seconds", row["2 cores"]), target


def test_every_supported_python_is_tested() -> None:
    (job,) = (job for job in jobs(CHECKS).values() if "make test-all" in commands(job))
    pythons = job["strategy"]["matrix"]["python"]
    assert pythons == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert f'requires-python = ">={pythons[0]}"' in (ROOT / "pyproject.toml").read_text()
    assert f"CPython | {pythons[0]} to {pythons[-1]} " in (ROOT / "docs/versions.md").read_text()


def test_a_release_has_a_wheel_for_every_python_with_every_torch() -> None:
    (job,) = jobs(ROOT / ".github/workflows/wheels.yml").values()
    rows = {row["python"]: row["torch"].split() for row in job["strategy"]["matrix"]["include"]}
    tested = jobs(CHECKS)["test-all"]["strategy"]["matrix"]["python"]
    assert list(rows) == tested
    newest = rows[tested[-1]]
    assert newest[0] == "2.10", "the oldest that records"
    assert rows["3.10"] == newest[:-1], "torch 2.15 has no wheel for it"
    assert all(torch == newest for python, torch in rows.items() if python != "3.10")


def test_every_check_that_was_promised_runs() -> None:
    promised = {
        *("lint", "docs", "test-all", "test-compilers", "test-browser", "demo", "dist"),
        *("cuda-check", "check-layout", "check-aarch64", "sanitize-address", "wheels"),
    }
    assert promised <= jobs_of_targets().keys()
    assert "make test TESTS=tests/unit" in commands(jobs(CHECKS)["unit"])
    assert jobs(CHECKS)["arm64"]["runs-on"].endswith("-arm")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_has_what_github_asks_for(template: Path) -> None:
    document = yaml.safe_load(template.read_text())
    assert {"name", "description", "body"} <= set(document)
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in document["body"])


def test_a_bug_report_asks_for_a_redacted_trace() -> None:
    assert "`tracer pack --redact RUN.trace`" in (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text()


def test_pre_commit_has_the_versions_of_make_lint() -> None:
    (pinned,) = re.findall(r"^lint = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    used = {package for hook in hooks for package in hook.get("additional_dependencies", ())}
    assert len(used) == 3
    assert used <= set(re.findall(r'"([^"]+)"', pinned))


def test_the_changelog_has_the_version_and_an_empty_place_above() -> None:
    from tracer.base.package import VERSION

    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].startswith(f"{VERSION} (")
