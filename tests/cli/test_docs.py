"""The documents hold together: links lead somewhere, every decision is listed, the README's query can be built, words are explained."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from evenflow.cli.app import app
from evenflow.world.flow_file import load

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]*)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r'<a id="([^"]+)"></a>')
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
WORDS = (
    "dataflow", "query network", "box", "stream", "segment", "partition", "key group", "replica", "site", "epoch", "frame",
    "membership", "plan", "feeder", "retention", "take-over", "catch-up", "copy", "move", "checkpoint unit", "capture", "paste",
    "watermark", "selectivity",
)  # fmt: skip


def test_links_lead_somewhere() -> None:
    links = [(document, target) for document in DOCUMENTS for target in LINK.findall(document.read_text(encoding="utf-8"))]
    assert len(links) > 200
    assert [f"{document.relative_to(ROOT)}: {target}" for document, target in links if not (document.parent / target).exists()] == []


def anchors_of(text: str) -> set[str]:
    """What GitHub makes of a page's headings: their text in small letters without marks of Markdown and of punctuation, dashes for blanks;
    a heading that is there again gets a number. And what the page names itself, by `<a id=...>`."""
    text = FENCE.sub("", text)
    found: dict[str, int] = {}
    for heading in HEADING.findall(text):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        again = found.get(slug, -1) + 1
        found[slug] = again
        if again:
            found[f"{slug}-{again}"] = 0
    return {*found, *NAMED.findall(text)}


def test_anchors_are_made_as_github_does() -> None:
    text = "# A `b_c`, and *d*!\n\n```\n# no heading\n```\n## [Where](there.md) it is\n### `x.py` (2 & 3) ###\n"
    text += '## Twice\n<a id="here"></a>\n## Twice\n'
    assert anchors_of(text) == {"a-b_c-and-d", "where-it-is", "xpy-2--3", "twice", "twice-1", "here"}


def test_links_into_a_page_name_a_heading_of_it() -> None:
    """A link whose anchor is nowhere leads to the head of the page, and nobody notices."""
    pages = [*DOCUMENTS, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    links = [(document, *found) for document, text in texts.items() for found in ANCHOR.findall(FENCE.sub("", text))]
    assert len(links) > 100
    headings = {document: anchors_of(text) for document, text in texts.items()}
    lost = []
    for document, target, anchor in links:
        page = (document.parent / target).resolve() if target else document
        if page.suffix == ".md" and anchor not in headings.get(page, ()):
            lost.append(f"{document.relative_to(ROOT)}: {target}#{anchor}")
    assert lost == []


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"(docs/{page.name})" not in readme] == []


def test_what_the_pages_say_was_measured_is_what_was_recorded() -> None:
    checked = subprocess.run([sys.executable, "tools/gen_measured.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    pages = [path.name for path in (ROOT / "docs" / "decisions").glob("0*.md")]
    assert pages and [name for name in pages if f"({name})" not in index] == []


def test_the_glossary_has_every_word_once_with_its_source() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    for word in WORDS:
        rows = [line for line in lines if line.startswith(f"| {word} |")]
        assert len(rows) == 1, word
        assert re.search(r"\b(FT|FH|FL|HW|BO|EF)\b", rows[0].split("|")[3]), word


def test_the_glossary_tells_two_meanings_of_a_word_apart() -> None:
    """One word, one meaning; where there are two, each says of what."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            word, meaning, *_ = line.removeprefix("| ").split(" | ")
            found.setdefault(word, []).append(meaning)
    twice = {word: meanings for word, meanings in found.items() if len(meanings) > 1}
    assert len(found) > 150 and [word for word, meanings in twice.items() if not all(m.startswith("of ") for m in meanings)] == []


def test_the_query_in_the_readme_can_be_built(tmp_path: Path) -> None:
    code = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    before, main, program = code.partition('if __name__ == "__main__":\n')
    drawing = [line.strip() for line in program.splitlines() if re.match(r"    (flow|packets|sessions|stats)\b", line)]
    assert main and "ef.Engine(spark" in program, "the example starts an engine"
    path = tmp_path / "readme_query.py"
    path.write_text("\n".join([before, *drawing, "def dataflow():", "    return flow", ""]))
    assert "SessionTracker" in load(path, []).build().to_text()


def test_every_command_that_a_page_shows_is_one() -> None:
    """Goal: what a reader copies is no wrong usage. Method: the commands of all blocks, read as the command line reads them."""
    shown = 0
    for document in DOCUMENTS:
        for block in re.findall(r"```(?:bash|sh|console)?\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
            lines = (re.sub(r"\s#\s.*$", "", line) for line in block.replace("\\\n", " ").splitlines())
            for command in (part.strip() for line in lines for part in re.split(r"&&|\|", line)):
                if command.startswith("evenflow ") and "  " not in command and "--version" not in command:
                    _, *words = shlex.split(command)
                    known: Any = get_command(app)
                    while hasattr(known, "commands"):
                        known, words = known.commands[words[0]], words[1:]
                    known.make_context("", words)
                    shown += 1
    assert shown > 10


def test_every_command_is_on_the_page_of_the_command_line() -> None:
    """A command that no page names is found by nobody. Method: each command's name in backquotes, behind `evenflow` or by itself."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    missing = []
    waiting: list[tuple[list[str], Any]] = [([], get_command(app))]
    while waiting:
        path, known = waiting.pop()
        waiting += [([*path, name], command) for name, command in getattr(known, "commands", {}).items()]
        if path and not re.search(rf"`(?:evenflow )?(?:{' '.join(path)}|{path[-1]})[ `]", page):
            missing.append(" ".join(path))
    assert missing == []


def test_every_fault_names_tests_that_are_there() -> None:
    rows = [line for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    faults = [row for row in rows[1:] if not re.fullmatch(r"\| \*\*[\w ]+\*\* \| \| \|", row) and not row.startswith("| ---")]
    assert len(faults) > 20
    for fault in faults:
        named = re.findall(r"`(tests/\S+\.py)::(\w+)`", fault)
        assert named, f"no test: {fault}"
        for path, test in named:
            assert f"\ndef {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {test}"
