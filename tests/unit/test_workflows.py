"""The workflows, issue templates and pre-commit hooks are valid, and use what the repository has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def commands(workflow: Path) -> list[str]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w -]*?):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)) | {
        name
        for line in re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for name in line.split()
    }


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_the_makefile_has(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] == {"contents": "read"}
    assert True in document, "`on`, which YAML 1.1 reads as true"
    called = [command.split() for command in commands(workflow) if command.startswith("make ")]
    assert called, "a workflow does what people can do"
    for words in called:
        assert {word for word in words[1:] if "=" not in word} <= make_targets(), words
    for job in document["jobs"].values():
        assert job["runs-on"].startswith("ubuntu-")
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_every_check_that_was_promised_runs() -> None:
    run = " ".join(command for workflow in WORKFLOWS for command in commands(workflow))
    for target in (
        "make lint",
        "make docs",
        "make test TESTS=tests/unit",
        "make test TORCH",
        "make check-layout",
    ):
        assert target in run
    matrix = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())["jobs"]["cpu"]["strategy"][
        "matrix"
    ]
    assert matrix == {"python": ["3.11", "3.13"]}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_has_what_github_asks_for(template: Path) -> None:
    document = yaml.safe_load(template.read_text())
    assert {"name", "description", "body"} <= set(document)
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in document["body"])


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
