"""hypertorch's problems, there and here: the same hypergradients, and what each call takes.

    python -m benchmarks.hypertorch_cases [--turns 10] [--hypertorch folder]

hypertorch (R. Grazzi, L. Franceschi, M. Pontil and S. Salzo, On the iteration complexity of
hypergradient computation, 2020) is no package of the registry (what has its name there is for
hypergraphs). With a folder that holds its `hypergrad`, from github.com/prolearner/hypertorch, its
own functions are called; otherwise those below, written in PyTorch as the paper defines them.
They are compared on its two examples: logistic regression
with a penalty for each weight, and an equilibrium model ("RNN-style"), here on scikit-learn's
digits. Both sides do the same T evaluations of the map and K steps for the adjoint, in double
precision. "by hand" are the same evaluations and products in JAX with nothing else around them, no
residual and no check: what no call here can be below. Needs the packages of the extra `bench`.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from sklearn.datasets import load_digits

import biloop as bl

# --- the four functions of hypertorch, by Algorithms 1 and 2 of the paper -------------------------

Tensors = list[torch.Tensor]
Map = Callable[[Tensors, Tensors], Tensors]
Loss = Callable[[Tensors, Tensors], torch.Tensor]


def iterated(fp_map: Map, params: Tensors, hparams: Tensors, T: int) -> Tensors:
    """T evaluations of the map, each detached from the last."""
    for _ in range(T):
        params = [w.detach().requires_grad_(True) for w in fp_map(params, hparams)]
    return params


def outer_gradients(params: Tensors, hparams: Tensors, outer: Loss) -> tuple[Tensors, Tensors]:
    value = outer(params, hparams)
    found = torch.autograd.grad(value, params + hparams, allow_unused=True)
    filled = [
        torch.zeros_like(w) if g is None else g
        for g, w in zip(found, params + hparams, strict=True)
    ]
    return filled[: len(params)], filled[len(params) :]


def finish(mapped: Tensors, hparams: Tensors, v: Tensors, direct: Tensors) -> Tensors:
    """∂_λ f + (∂_λ T)ᵀ v."""
    found = torch.autograd.grad(mapped, hparams, grad_outputs=v, allow_unused=True)
    return [d if g is None else g + d for g, d in zip(found, direct, strict=True)]


def fixed_point(params: Tensors, hparams: Tensors, K: int, fp_map: Map, outer: Loss) -> Tensors:
    """v ← (∂_w T)ᵀ v + ∇_w f, K times."""
    f_w, f_h = outer_gradients(params, hparams, outer)
    mapped = fp_map(params, hparams)
    v = [torch.zeros_like(w) for w in params]
    for _ in range(K):
        pulled = torch.autograd.grad(mapped, params, grad_outputs=v, retain_graph=True)
        v = [a + b for a, b in zip(pulled, f_w, strict=True)]
    return finish(mapped, hparams, v, f_h)


def CG_normaleq(params: Tensors, hparams: Tensors, K: int, fp_map: Map, outer: Loss) -> Tensors:
    """K steps of conjugate gradients on (I − J)(I − Jᵀ) v = (I − J) ∇_w f, J = ∂_w T."""
    f_w, f_h = outer_gradients(params, hparams, outer)
    mapped = fp_map(params, hparams)

    def transposed(v: Tensors) -> Tensors:
        pulled = torch.autograd.grad(mapped, params, grad_outputs=v, retain_graph=True)
        return [a - b for a, b in zip(v, pulled, strict=True)]

    def forwards(v: Tensors) -> Tensors:
        ones = [torch.ones_like(w).requires_grad_(True) for w in params]
        again = fp_map(params, hparams)
        pulled = torch.autograd.grad(again, params, grad_outputs=ones, create_graph=True)
        pushed = torch.autograd.grad(pulled, ones, grad_outputs=v)
        return [a - b for a, b in zip(v, pushed, strict=True)]

    def dot(a: Tensors, b: Tensors) -> torch.Tensor:
        return sum((x * y).sum() for x, y in zip(a, b, strict=True))

    def plus(a: Tensors, s: Any, b: Tensors) -> Tensors:
        return [x + s * y for x, y in zip(a, b, strict=True)]

    v = [torch.zeros_like(w) for w in params]
    r = p = forwards(f_w)
    rr = dot(r, r)
    for _ in range(K):
        Ap = forwards(transposed(p))
        a = rr / dot(p, Ap)
        v, r = plus(v, a, p), plus(r, -a, Ap)
        rr, old = dot(r, r), rr
        p = plus(r, rr / old, p)
    return finish(mapped, hparams, v, f_h)


def reverse_unroll(params: Tensors, hparams: Tensors, T: int, fp_map: Map, outer: Loss) -> Tensors:
    """The derivative of T evaluations, with their graph."""
    for _ in range(T):
        params = fp_map(params, hparams)
    return list(torch.autograd.grad(outer(params, hparams), hparams))


# --- its problems, twice --------------------------------------------------------------------------


class Example(NamedTuple):
    """A map, a loss and where to start, in PyTorch and here."""

    fp_map: Map
    outer: Loss
    params: Tensors
    hparams: Tensors
    problem: bl.Problem
    x: Any
    y: jax.Array
    T: int
    K: int


def logistic(samples: int = 500, features: int = 20) -> Example:
    """examples/logistic_regression: its sizes and step size, T = 100."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2 * samples, features))
    noise = 0.1 * rng.normal(size=2 * samples)
    t = (X @ rng.normal(size=features) + noise > 0).astype(float)
    X, V, t, s = X[:samples], X[samples:], t[:samples], t[samples:]
    Xt, Vt, tt, st = map(torch.from_numpy, (X, V, t, s))
    entropy = torch.nn.functional.binary_cross_entropy_with_logits

    def torch_map(params, hparams):
        (w,) = params
        loss = entropy(Xt @ w, tt) + 0.5 * (hparams[0] * w**2).sum()
        return [w - 0.1 * torch.autograd.grad(loss, w, create_graph=True)[0]]

    def torch_outer(params, hparams):
        return entropy(Vt @ params[0], st)

    def loss(w, X, t):
        z = X @ w
        return jnp.mean(jax.nn.softplus(z) - t * z)

    def step(x, w, X, t):
        return w - 0.1 * jax.grad(lambda w: loss(w, X, t) + 0.5 * jnp.sum(x * w**2))(w)

    def outer(x, w, V, s):
        return loss(w, V, s)

    problem = bl.Problem.fixed_point(step, outer, (X, t), (V, s))
    params = [torch.zeros(features, dtype=torch.float64, requires_grad=True)]
    hparams = [torch.ones(features, dtype=torch.float64, requires_grad=True)]
    return Example(
        torch_map, torch_outer, params, hparams, problem,
        jnp.ones(features), jnp.zeros(features), 100, 20,
    )  # fmt: skip


def equilibrium(samples: int, states: int) -> Example:
    """examples/Equilibrium models, on digits: y = tanh(yA + xB + c), T = K = 20."""
    digits = load_digits()
    X, t = digits.data[:samples] / 16, digits.target[:samples]
    rng = np.random.default_rng(0)
    A = rng.normal(size=(states, states))
    shapes = ((64, states), (states,), (states, 10))
    rest = [0.1 * rng.normal(size=shape) for shape in shapes] + [np.zeros(10)]
    values = [0.7 * A / np.linalg.norm(A, 2), *rest]
    Xt, tt = torch.from_numpy(X), torch.from_numpy(t)

    def torch_map(params, hparams):
        A, B, c = hparams[:3]
        return [torch.tanh(params[0] @ A + Xt @ B + c)]

    def torch_outer(params, hparams):
        return torch.nn.functional.cross_entropy(params[0] @ hparams[3] + hparams[4], tt)

    def layer(x, y, X):
        A, B, c = x[:3]
        return jnp.tanh(y @ A + X @ B + c)

    def outer(x, y, t):
        scores = jax.nn.log_softmax(y @ x[3] + x[4])
        return -jnp.mean(jnp.take_along_axis(scores, t[:, None], axis=1))

    problem = bl.Problem.fixed_point(layer, outer, (X,), (t,))
    hparams = [torch.from_numpy(v.copy()).requires_grad_(True) for v in values]
    params = [torch.zeros(samples, states, dtype=torch.float64, requires_grad=True)]
    start = jnp.zeros((samples, states))
    return Example(
        torch_map, torch_outer, params, hparams, problem,
        [jnp.asarray(v) for v in values], start, 20, 20,
    )  # fmt: skip


EXAMPLES: dict[str, Callable[[], Example]] = {
    "logistic regression": logistic,
    "equilibrium, 50 digits, 30 states": lambda: equilibrium(50, 30),
    "equilibrium, 1000 digits, 200 states": lambda: equilibrium(1000, 200),
}


def pairs(e: Example, theirs: Any) -> dict[str, tuple[Callable[[], Tensors], bl.Method]]:
    """Each function of hypertorch as a call, and the method that does the same."""
    T, K = e.T, e.K

    def implicit(function: Callable[..., Tensors]) -> Callable[[], Tensors]:
        def call() -> Tensors:
            params = iterated(e.fp_map, e.params, e.hparams, T)
            return function(params, e.hparams, K, e.fp_map, e.outer)

        return call

    def unrolled() -> Tensors:
        if theirs is None:
            return reverse_unroll(e.params, e.hparams, T, e.fp_map, e.outer)
        params = e.params
        for _ in range(T):
            params = e.fp_map(params, e.hparams)
        return theirs.reverse_unroll(params, e.hparams, e.outer, set_grad=False)

    def of(name: str, written: Callable[..., Tensors]) -> Callable[..., Tensors]:
        """Theirs to the end of its K steps, if it is there."""
        return written if theirs is None else partial(getattr(theirs, name), tol=0, set_grad=False)

    inner = bl.FixedPoint(steps=T)
    return {
        "fixed_point": (
            implicit(of("fixed_point", fixed_point)),
            bl.AID(inner, bl.Richardson(1.0, steps=K)),
        ),
        "CG_normaleq": (
            implicit(of("CG_normaleq", CG_normaleq)),
            bl.AID(inner, bl.NormalEquations(bl.CG(steps=K))),
        ),
        "reverse_unroll": (
            unrolled,
            bl.ITD(inner, memory="store"),
        ),
    }


def by_hand(e: Example, function: str) -> Callable[[Any, Any, Any], Any]:
    """The arithmetic of one of them in JAX: h of (problem, x, y)."""

    def call(problem: bl.Problem, x: Any, y: Any) -> Any:
        def apply(x: Any, y: Any) -> Any:
            return problem.inner(x, y, *problem.inner_data)

        def outer(x: Any, y: Any) -> Any:
            return problem.outer(x, y, *problem.outer_data)

        def iterate(x: Any) -> Any:
            return jax.lax.scan(lambda y, _: (apply(x, y), None), y, None, length=e.T)[0]

        if function == "reverse_unroll":
            return jax.grad(lambda x: outer(x, iterate(x)))(x)
        found = iterate(x)
        direct, b = jax.grad(outer, argnums=(0, 1))(x, found)
        _, pull = jax.vjp(lambda y: apply(x, y), found)
        _, push = jax.linearize(lambda y: apply(x, y), found)
        if function == "fixed_point":
            v = jax.lax.fori_loop(0, e.K, lambda _, v: pull(v)[0] + b, jnp.zeros_like(b))
        else:
            v, r = jnp.zeros_like(b), b - push(b)

            def step(_: Any, carry: Any) -> Any:
                v, r, p, rr = carry
                q = p - pull(p)[0]
                Ap = q - push(q)
                a = rr / jnp.vdot(p, Ap)
                v, r = v + a * p, r - a * Ap
                new = jnp.vdot(r, r)
                return v, r, r + new / rr * p, new

            v = jax.lax.fori_loop(0, e.K, step, (v, r, r, jnp.vdot(r, r)))[0]
        _, across = jax.vjp(lambda x: apply(x, found), x)
        return jax.tree.map(jnp.add, direct, across(v)[0])

    return call


# --- measuring ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Milliseconds there, here and by hand, and how far the hypergradients are apart."""

    example: str
    function: str
    theirs: float
    ours: float
    bare: float
    apart: float


def smallest(call: Callable[[], Any], turns: int) -> float:
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e3 * min(times)


def measure(name: str, e: Example, turns: int, package: Any = None) -> list[Row]:
    rows = []
    for function, (theirs, method) in pairs(e, package).items():
        state = method.init(e.problem, e.x, e.y)
        compiled = jax.jit(lambda p, x, s, method=method: method(p, x, s, 0)[0])
        h = jax.block_until_ready(compiled(e.problem, e.x, state))
        flat = np.concatenate([np.ravel(a) for a in jax.tree.leaves(h)])
        truth = np.concatenate([np.ravel(g.detach().numpy()) for g in theirs()])
        apart = np.linalg.norm(flat - truth) / np.linalg.norm(truth)
        bare = jax.jit(by_hand(e, function))
        h = jax.block_until_ready(bare(e.problem, e.x, e.y))
        again = np.concatenate([np.ravel(a) for a in jax.tree.leaves(h)])
        assert np.linalg.norm(again - truth) < 1e-9 * np.linalg.norm(truth), function
        ours = lambda: jax.block_until_ready(compiled(e.problem, e.x, state))  # noqa: B023, E731
        alone = lambda: jax.block_until_ready(bare(e.problem, e.x, e.y))  # noqa: B023, E731
        times = (smallest(call, turns) for call in (theirs, ours, alone))
        row = Row(name, function, *times, apart=float(apart))
        rows.append(row)
        print(
            f"| {name} | {function} | {row.theirs:.2f} | {row.ours:.2f} | {row.bare:.2f} | "
            f"{row.theirs / row.ours:.1f} | {row.theirs / row.bare:.1f} | {row.apart:.0e} |",
            flush=True,
        )
    return rows


def main(turns: int = 10, only: str | None = None, folder: str | None = None) -> list[Row]:
    package = None
    if folder is not None:
        sys.path.insert(0, folder)
        package = importlib.import_module("hypergrad")
    print(
        "| example | function | PyTorch, ms | biloop, ms | by hand, ms | ratio | at most | apart |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rows: list[Row] = []
    for name, example in EXAMPLES.items():
        if only is None or only in name:
            rows += measure(name, example(), turns, package)
    return rows


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--case")
    parser.add_argument("--hypertorch", help="the folder with hypertorch's own hypergrad")
    arguments = parser.parse_args()
    main(arguments.turns, arguments.case, arguments.hypertorch)
