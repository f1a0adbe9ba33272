"""What the pages say of other libraries: their code is run where they are installed.

Where hypergradients come out on both sides, they are compared; where a loop is run, the x that it
ends at.
"""

import re
from importlib.util import find_spec

import pytest

from . import documents
from .documents import ROOT, Block, blocks

TENSORS = """
import numpy as np, torch
X, t, V, s = (torch.from_numpy(np.array(a)) for a in (*problem.inner_data, *problem.outer_data))
x, w0 = torch.tensor(-1.0, requires_grad=True), torch.zeros(20, requires_grad=True)
inner = lambda x, w: ((X @ w - t) ** 2).mean() + x.exp() * (w**2).sum()
outer = lambda w: ((V @ w - s) ** 2).mean()
"""
OURS = "import jax; theirs = jax.grad(validation)(-1.0)"
NEUMANN = """
neumann = bl.AID(bl.GradientDescent(0.1, steps=20), bl.Neumann(0.1, 20))
run = bl.solve(*start, neumann, outer=0.3, steps=300)"""
CONJUGATE = "run = bl.solve(*start, bl.AID(descent, bl.CG(steps=10)), outer=0.3, steps=200)"

# The module that must be there, what comes before and after their code, and what it must print.
PAGES = {
    "jaxopt": ("jaxopt", "x = -1.0", f"{OURS}; print(theirs)", -1.603),
    "optimistix": ("optimistix", "x = -1.0", f"{OURS}; print(theirs)", -1.603),
    "torchopt": ("torchopt", TENSORS, "print(h.item())", -1.53),
    "higher": ("higher", TENSORS, "print(h.item())", -1.41),
    "betty": ("betty", TENSORS, f"{NEUMANN}; print(upper.module.value.item() - run.x)", 0.0),
    "boat": ("boat_torch", TENSORS, f"{CONJUGATE}; print(hyper.value.item() - run.x)", 0.0),
    "hypertorch": (
        "hypergrad.hypergradients",
        TENSORS,
        "print(hparams[0].item() - run.x)",
        0.0,
    ),
    "grid_search": ("sklearn", "", "print(search.best_score_ > 0.2)", True),
    "optuna": ("optuna", "", "print(best > run.value)", True),
}


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_their_code_does_what_ours_does(page, tmp_path):
    module, before, after, expected = PAGES[page]
    if not installed(module):
        pytest.skip(f"{module} is not installed: make test-peers has what a registry has")
    path = ROOT / f"docs/coming_from/{page}.md"
    text = path.read_text(encoding="utf-8")
    theirs = "\n".join(re.findall(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    pieces = [*blocks(text), Block(1, f"{before}\n{theirs}\n{after}", "")]
    printed = documents.run(path, pieces, tmp_path)[-1].split()[-1]
    if expected is True:
        assert printed == "True"
    else:
        assert float(printed) == pytest.approx(expected, abs=0.006 if expected else 1e-4)


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
