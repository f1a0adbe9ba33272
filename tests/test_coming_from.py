"""What the pages say of other libraries: their code is run where they are installed.

What it prints is compared with what the page says, as for ours, and where a loop is run, the x that
it ends at.
"""

import re
from importlib.util import find_spec

import pytest

from . import documents
from .documents import ROOT, Block, blocks

TENSORS = """
import numpy as np, torch
X, t, V, s = (torch.from_numpy(np.array(a)) for a in (*problem.inner_data, *problem.outer_data))
"""

# The module that must be there, what comes before their code, and a difference to ours after it.
PAGES = {
    "jaxopt": ("jaxopt", "", ""),
    "optimistix": ("optimistix", "", ""),
    "torchopt": ("torchopt", TENSORS, ""),
    "higher": ("higher", TENSORS, ""),
    "betty": ("betty", TENSORS, "upper.module.value.item() - run.x"),
    "boat": ("boat_torch", TENSORS, "hyper.value.item() - run.x"),
    "hypertorch": ("hypergrad.hypergradients", TENSORS, "hparams[0].item() - run.x"),
    "grid_search": ("sklearn", "", ""),
    "optuna": ("optuna", "", "max(0.0, run.value - best)"),
}
THEIRS = re.compile(r"^```py\n(.*?)^```\n(?:\n?```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_their_code_does_what_ours_does(page, tmp_path):
    module, before, apart = PAGES[page]
    if not installed(module):
        pytest.skip(f"{module} is not installed: make test-peers has what a registry has")
    path = ROOT / f"docs/coming_from/{page}.md"
    text = path.read_text(encoding="utf-8")
    theirs = [Block(1, code, claim) for code, claim in THEIRS.findall(text)]
    assert apart or any(block.claim for block in theirs)
    first, last = Block(1, before, ""), Block(1, f"print({apart or 0.0})", "")
    *printed, difference = documents.run(path, [*blocks(text), first, *theirs, last], tmp_path)
    for block, output in zip(theirs, printed[-len(theirs) :], strict=True):
        if block.claim:
            assert not documents.difference(block.claim, output)
    assert float(difference) == pytest.approx(0.0, abs=1e-4)


TAB = re.compile(r"^:::{tab-item} ([^\n]*)\n```py(?:thon)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
NETWORKS = ["equinox", "flax linen", "flax nnx", "linen, with both", "nnx, with both"]


@pytest.mark.slow
@pytest.mark.parametrize("tab", NETWORKS[1:])
def test_the_tabs_of_a_network_do_alike(tab, tmp_path):
    if not installed("flax"):
        pytest.skip("flax is not installed: make test-peers")
    path = ROOT / "docs/start/network.md"
    text = path.read_text(encoding="utf-8")
    tabs = dict(TAB.findall(text))
    assert list(tabs) == NETWORKS
    pieces = [b._replace(code=tabs[tab]) if b.code == tabs["equinox"] else b for b in blocks(text)]
    printed = documents.run(path, pieces, tmp_path)
    for block, output in zip(pieces, printed, strict=True):
        assert not documents.difference(block.claim, output)
