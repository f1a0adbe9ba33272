"""What the README shows is what happens: its code runs, and prints what stands beneath it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def words(text):
    """Whitespace does not count, and neither do digits beyond the second."""
    return [re.sub(r"(\d\.\d)\d+", r"\1…", word) for word in text.split()]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Run all blocks in one fresh interpreter with JAX as a user has it; split what they print."""
    mark = "-- next block --"
    blocks = [code for code, _ in CODE.findall(README)]
    script = f"\nprint({mark!r})\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path_factory.mktemp("readme"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(mark)


def test_the_readme_prints_what_it_says(printed):
    claims = [claim for _, claim in CODE.findall(README)]
    assert len(claims) == len(printed)
    assert sum(map(bool, claims)) >= 2
    for claim, output in zip(claims, printed, strict=True):
        if claim:
            assert words(output) == words(claim)


def test_the_example_of_the_first_screen_is_ten_lines():
    code = CODE.findall(README)[0][0]
    lines = [line for line in code.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 10


def test_links_and_make_targets_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:`|^    )make ([a-z-]+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_version_is_in_the_changelog():
    import biloop

    assert f"## {biloop.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
