"""biloop.torch: hypergradients against PyTorch's own, the way back, and what it refuses.

All but the first tests need PyTorch and torchax, which `make test-torch` installs.
"""

import re
import subprocess
import sys
from importlib.util import find_spec

import jax
import numpy as np
import pytest

import biloop as bl

from . import documents

WITHOUT = """
import sys
sys.modules[{module!r}] = None
try:
    import biloop.torch
except ImportError as error:
    print(error)
"""

torch = pytest.importorskip("torch") if find_spec("torch") else None
needs_both = pytest.mark.skipif(
    torch is None or find_spec("torchax") is None, reason="make test-torch installs PyTorch"
)
if torch is not None and find_spec("torchax") is not None:
    from torch import nn

    from biloop.torch import torch_problem


def test_without_pytorch_it_says_what_to_install():
    script = WITHOUT.format(module="torch")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert said.startswith("biloop.torch needs PyTorch and torchax: pip install 'biloop[torch]'")


@pytest.mark.skipif(torch is None, reason="make test-torch installs PyTorch")
def test_without_torchax_it_says_what_to_install():
    script = WITHOUT.format(module="torchax")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert said.startswith("biloop.torch needs PyTorch and torchax: pip install 'biloop[torch]'")


def modules():
    """One of each kind, from 16 numbers to one; in double precision."""
    torch.manual_seed(0)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps, self.last = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 1)

        def forward(self, a):
            return self.last(self.steps(a.reshape(-1, 4, 4))[0][:, -1])

    class Attentive(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.last = nn.Linear(8, 1)

        def forward(self, a):
            return self.last(self.layer(a.reshape(-1, 2, 8)).mean(1))

    kinds = {
        "linear": nn.Linear(16, 1),
        "layers": nn.Sequential(nn.Linear(16, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 1)),
        "convolution": nn.Sequential(
            nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(8, 1)
        ),
        "batch norm": nn.Sequential(
            nn.Linear(16, 5), nn.BatchNorm1d(5), nn.Softplus(), nn.Linear(5, 1)
        ),
        "recurrent": Recurrent(),
        "attentive": Attentive(),
    }
    return {name: kind.double() for name, kind in kinds.items()}


def inner(x, net, a, t):
    squares = torch.stack([(p**2).sum() for p in net.parameters()])
    return ((net(a) - t) ** 2).mean() + x.exp() @ squares[:2]


def outer(x, net, a, t):
    return ((net(a) - t) ** 2).mean()


def samples(seed):
    rng = np.random.default_rng(seed)
    return tuple(torch.from_numpy(rng.normal(size=shape)) for shape in ((12, 16), (12, 1)))


NAMES = ["linear", "layers", "convolution", "batch norm", "recurrent", "attentive"]


@needs_both
@pytest.mark.filterwarnings("ignore")  # of PyTorch and of torchax
@pytest.mark.parametrize("name", NAMES)
def test_hypergradients_are_those_of_pytorch(name):
    """Through one inner step, which takes second derivatives of the loss."""
    net = modules()[name]
    train, test = samples(0), samples(1)
    x = torch.tensor([-1.0, 0.5], dtype=torch.float64, requires_grad=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        names, parameters = zip(*net.named_parameters(), strict=True)
        slopes = torch.autograd.grad(inner(x, net, *train), parameters, create_graph=True)
        after = {n: p - 0.1 * d for n, p, d in zip(names, parameters, slopes, strict=True)}
        scores = torch.func.functional_call(net, after, (test[0],))
        (expected,) = torch.autograd.grad(((scores - test[1]) ** 2).mean(), x)

    found = torch_problem(net, inner, outer, x.detach(), train, test)
    method = bl.ITD(bl.GradientDescent(0.1, steps=1))
    h, _, _ = method(found.problem, found.x0, method.init(found.problem, found.x0, found.y0), 0)
    np.testing.assert_allclose(h, expected.numpy(), rtol=1e-9, atol=1e-12)


@needs_both
@pytest.mark.filterwarnings("ignore")
def test_the_result_goes_back_into_the_module():
    """Ridge regression, whose minimum is known."""
    net, train, test = nn.Linear(16, 1, bias=False).double(), samples(0), samples(1)

    def ridge(x, net, a, t):
        return ((net(a) - t) ** 2).sum() + x.exp() * (net.weight**2).sum()

    found = torch_problem(net, ridge, outer, torch.zeros((), dtype=torch.float64), train, test)
    run = bl.solve(found.problem, found.x0, found.y0)
    assert found.load(run.y) is net
    a, t = (part.numpy() for part in train)
    w = np.linalg.solve(a.T @ a + np.exp(float(run.x)) * np.eye(16), a.T @ t[:, 0])
    np.testing.assert_allclose(net.weight.detach().numpy()[0], w, rtol=1e-3, atol=1e-5)
    x = found.tensors(run.x)
    assert isinstance(x, torch.Tensor)
    np.testing.assert_allclose(outer(x, net, *test).item(), run.value, rtol=1e-6)


@needs_both
@pytest.mark.filterwarnings("ignore")
def test_frozen_parameters_and_buffers_are_constants():
    net = nn.Sequential(nn.Linear(16, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    net[0].requires_grad_(False)
    found = torch_problem(net, outer, outer, torch.zeros(1), samples(0), samples(1))
    assert sorted(found.y0) == ["1.bias", "1.weight", "2.bias", "2.weight"]
    means = net[1].running_mean.clone()
    value = found.problem.outer(found.x0, found.y0, *found.problem.outer_data)
    np.testing.assert_array_equal(net[1].running_mean, means)
    np.testing.assert_allclose(value, outer(None, net, *samples(1)).item(), rtol=1e-12)
    with pytest.raises(ValueError, match="y must have the parameters"):
        found.load({"2.bias": found.y0["2.bias"]})


@needs_both
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"module": "net"}, "module must be a torch.nn.Module, got 'net'"),
        ({"dropout": True}, "A loss draws random numbers.*module.eval"),
        ({"inner": lambda x, net, a, t: net(a)}, "inner must return a tensor with one number"),
        (
            {"inner": lambda x, net, a, t: net(a).sum() if net(a).sum() > 0 else x.sum()},
            "inner asks for the value of a tensor.*torch.where",
        ),
        ({"frozen": True}, "No parameter of the module requires a gradient"),
    ],
)
def test_what_it_refuses(change, complaint):
    net = nn.Linear(16, 1).double()
    if change.pop("dropout", False):
        net = nn.Sequential(net, nn.Dropout(0.5))
    if change.pop("frozen", False):
        net.requires_grad_(False)
    given = {"module": net, "inner": inner, "outer": outer, "x0": torch.zeros(2)} | change
    with pytest.raises((TypeError, ValueError), match=complaint):
        torch_problem(**given, inner_data=samples(0), outer_data=samples(1))


@needs_both
def test_the_page_does_what_it_says(tmp_path):
    page = documents.ROOT / "docs/howto/pytorch.md"
    (code,) = re.findall(
        r"^```py\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    (printed,) = documents.run(page, [documents.Block(1, code, "")], tmp_path)
    ours, theirs = map(float, printed.split())
    assert abs(ours - theirs) < 1e-5
    assert ours < 0.5  # the variance of the noise is 0.25


@needs_both
def test_double_precision_is_asked_for():
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        torch_problem(nn.Linear(16, 1).double(), inner, outer, torch.zeros(2))
