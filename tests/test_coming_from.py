"""What the pages say of other libraries: their code is run where they are installed.

Where hypergradients come out on both sides, they are compared.
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

# The module that must be there, what comes before and after their code, and what it must print.
PAGES = {
    "jaxopt": ("jaxopt", "x = -1.0", f"{OURS}; print(theirs)", -1.603),
    "optimistix": ("optimistix", "x = -1.0", f"{OURS}; print(theirs)", -1.603),
    "torchopt": ("torchopt", TENSORS, "print(h.item())", -1.53),
    "higher": ("higher", TENSORS, "print(h.item())", -1.41),
    "grid_search": ("sklearn", "", "print(search.best_score_ > 0.2)", True),
    "optuna": ("optuna", "", "print(best > run.value)", True),
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_their_code_does_what_ours_does(page, tmp_path):
    module, before, after, expected = PAGES[page]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make bench has it")
    path = ROOT / f"docs/coming_from/{page}.md"
    text = path.read_text(encoding="utf-8")
    theirs = "\n".join(re.findall(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    pieces = [*blocks(text), Block(1, f"{before}\n{theirs}\n{after}", "")]
    printed = documents.run(path, pieces, tmp_path)[-1].split()[-1]
    if expected is True:
        assert printed == "True"
    else:
        assert float(printed) == pytest.approx(expected, abs=0.006)
