"""Runs what the pages "coming from …" show of other libraries, and compares what it prints.

    python -m benchmarks.coming_from

A page whose first lines say <!-- peer NAME --> has programs of NAME in its ```py blocks, with what
they print below; ours, in ```python blocks, are run by the tests. Needs the packages of the extra
`bench`; a peer that is not installed is said to be missing.
"""

import importlib.util
import re
import sys
import tempfile
from pathlib import Path

from tests.documents import Block, difference, marks, run

PAGES = Path(__file__).parents[1] / "docs" / "coming_from"
PEER = re.compile(r"^```py\n(.*?)^```\n(?:\n?```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)


def peer_blocks(text: str) -> list[Block]:
    return [
        Block(text.count("\n", 0, m.start(1)) + 1, m[1], m[2] or "") for m in PEER.finditer(text)
    ]


def judge(page: Path) -> str | None:
    """What there is to say of a page; None if it names no peer."""
    text = page.read_text(encoding="utf-8")
    peers = [mark.removeprefix("peer ") for mark in marks(text) if mark.startswith("peer ")]
    if not peers:
        return None
    if missing := [peer for peer in peers if importlib.util.find_spec(peer) is None]:
        return f"not run, {', '.join(missing)} is not installed"
    blocks = peer_blocks(text)
    with tempfile.TemporaryDirectory() as folder:
        printed = run(page, blocks, Path(folder))
    wrong = [difference(b.claim, out) for b, out in zip(blocks, printed, strict=True) if b.claim]
    found = "; ".join(filter(None, wrong))
    return f"DIFFERS: {found}" if found else f"{len(blocks)} programs print what the page says"


def main() -> bool:
    verdicts = {page.stem: judge(page) for page in sorted(PAGES.glob("*.md"))}
    for name, verdict in verdicts.items():
        if verdict is not None:
            print(f"{name}: {verdict}")
    return not any(v is not None and v.startswith("DIFFERS") for v in verdicts.values())


if __name__ == "__main__":
    sys.exit(not main())
