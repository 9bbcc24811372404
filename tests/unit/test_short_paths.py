"""How a source file is named in locks and redacted traces."""

from __future__ import annotations

import pytest

from tracer.base.paths import short_path


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/projects/net/train.py", "train.py"),
        ("/projects/net/parts/block.py", "parts/block.py"),
        ("/projects/net_old/parts/block.py", "../net_old/parts/block.py"),
        ("/projects/netting.py", "../netting.py"),
        ("/home/user/secret/helper.py", "helper.py"),
        ("/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/usr/lib/python3.11/contextlib.py", "contextlib.py"),
        ("parts/block.py", "parts/block.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_file_is_named_from_the_folder_of_the_script(file: str, short: str) -> None:
    assert short_path(file, "/projects/net", "/projects") == short


def test_without_a_folder_only_the_name_is_left() -> None:
    assert short_path("/projects/net_old/block.py", "") == "block.py"
    assert short_path("/projects/net_old/block.py", "/projects/net") == "block.py"


@pytest.mark.parametrize(
    ("folder", "short"),
    [
        ("/home/me/secret/scripts", "../parts/net.py"),
        ("/home/me/secret", "parts/net.py"),
        ("/home/shared", "parts/net.py"),
        ("/home/me/secret_too", "parts/net.py"),
        ("/", "parts/net.py"),
    ],
)
def test_the_way_to_the_current_folder_is_not_told(folder: str, short: str) -> None:
    assert short_path("/home/me/secret/parts/net.py", folder, "/home/me/secret") == short
