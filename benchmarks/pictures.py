"""The pictures of README.md, from the recording in tests/data: `make pictures`.

tree.svg is what `tracer tree` prints on a terminal. report.png is a part of what `tracer report` writes, in a
browser as wide as GitHub's pages. It needs chromium and npm; without them the file is left as it is.
"""

from __future__ import annotations

import html
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from rich.console import Console
from rich.text import Text

TRACE = "tests/data/gpu.trace.xz"
TREE = ["tree", TRACE, "--source", "sample.py:33", "--op", "cublas*", "--step", "2"]
REPORT = ["report", TRACE, "--steady", "--op", "addmm", "--paths", "1"]
TEXTS = ["--source-from", "tests/gpu"]  # the trace has no texts of lines
PART = "### 1."  # of the report: the heading of the hottest path, up to the next heading
COLUMNS = 116
WIDTH = 1012  # pixels of a page on GitHub
MERMAID = "mermaid@11.12.0"
WORK = Path("build/pictures")

PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ font: 16px/1.5 "DejaVu Sans", sans-serif; margin: 24px 32px; color: #1f2328; background: white }}
h3 {{ font-size: 1.25em }}
code {{ font: 13px "DejaVu Sans Mono", monospace; background: #eff1f3; padding: 2px 4px }}
pre {{ font: 12px/1.45 "DejaVu Sans Mono", monospace; background: #f6f8fa; padding: 12px; overflow: hidden }}
pre code {{ font: inherit; background: none; padding: 0 }} pre.mermaid {{ background: white; padding: 0 }}
</style>{body}<script src="mermaid.js"></script><script>
mermaid.initialize({{startOnLoad: false, theme: "default"}});
const bottom = () => Math.ceil(document.body.getBoundingClientRect().bottom + 24);
mermaid.run().then(() => document.title = "height " + bottom());
</script>"""


def tracer(arguments: list[str], **environment: str) -> str:
    command = [str(Path(sys.executable).parent / "tracer"), *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def draw_tree(picture: Path) -> None:
    text = tracer([*TREE, *TEXTS], COLUMNS=str(COLUMNS), FORCE_COLOR="1", TERM="xterm-256color")
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in text.splitlines():
        console.print(Text.from_ansi(line), no_wrap=True)
    console.save_svg(str(picture), title="tracer tree " + " ".join(TREE[1:]), unique_id="tree")


def draw_report(picture: Path) -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "pack", "--silent", MERMAID, "--pack-destination", WORK], check=True)
    packed = next(WORK.glob("mermaid-*.tgz"))
    script = ["tar", "-xzf", str(packed), "-O", "package/dist/mermaid.min.js"]
    (WORK / "mermaid.js").write_bytes(subprocess.run(script, check=True, stdout=subprocess.PIPE).stdout)
    page = WORK / "report.html"
    page.write_text(PAGE.format(body=as_html(part_of_report())))
    titled = browse(page, "--dump-dom", f"--window-size={WIDTH},3000")
    found = re.search(r"<title>height (\d+)</title>", titled)
    if found is None:
        sys.exit(f"the diagram of {page} was not drawn")
    browse(page, f"--screenshot={picture.resolve()}", f"--window-size={WIDTH},{found[1]}")


def part_of_report() -> str:
    report = tracer([*REPORT, *TEXTS])
    start = report.index(f"\n{PART}")
    end = re.search(r"\n#{2,3} ", report[start + 2 :])
    return report[start : start + 2 + end.start()] if end else report[start:]


def as_html(markdown: str) -> str:
    """The folded tree is shown open, since a picture cannot be clicked on."""
    text = str(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
    text = text.replace("<details>", "<details open>")
    return re.sub(
        r'<pre><code class="language-mermaid">(.*?)</code></pre>',
        lambda found: f'<pre class="mermaid">{html.escape(html.unescape(found[1]))}</pre>',
        text,
        flags=re.S,
    )


def browse(page: Path, *options: str) -> str:
    command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=20000"]
    ran = subprocess.run(
        [*command, *options, page.resolve().as_uri()], check=True, capture_output=True, text=True
    )
    return ran.stdout


def main() -> None:
    folder = Path("docs/pictures")
    folder.mkdir(exist_ok=True)
    draw_tree(folder / "tree.svg")
    missing = [tool for tool in ("chromium", "npm") if not shutil.which(tool)]
    if missing:
        print(f"report.png is left as it is: {' and '.join(missing)} not found; apt-get install chromium npm")
    else:
        draw_report(folder / "report.png")


if __name__ == "__main__":
    main()
