"""The cases of jaxopt's documentation on implicit differentiation, there and here, side by side.

    python -m benchmarks.jaxopt_cases [--turns 20] [--case lasso]

For each case the hypergradients of both, how far they are apart, the seconds of one call after
compilation (the smallest of many, in turns), and the lines that a user writes. Both solve their
inner problem as far as double precision allows. Needs the packages of the extra `bench`.
"""
# ruff: noqa: E731 - as short as a user would write it, on both sides

import argparse
import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np
from jaxopt import objective
from sklearn import datasets, model_selection, preprocessing

import biloop as bl

normal_cg = partial(jaxopt.linear_solve.solve_normal_cg, tol=1e-12, maxiter=1000)
TIGHT = {"tol": 1e-12, "maxiter": 100_000, "implicit_diff_solve": normal_cg}


class Case(NamedTuple):
    """The same function of x twice, and where it is differentiated."""

    theirs: Callable[..., jax.Array]
    ours: Callable[..., jax.Array]
    x: jax.Array
    data: tuple


# --- ridge regression, with a solver of one's own (implicit_diff/ridge_reg_implicit_diff.py) ------


def ridge_theirs(x, X, t, V, s):
    def ridge(w, l2reg, X, t):
        return 0.5 * jnp.mean((X @ w - t) ** 2) + 0.5 * l2reg * jnp.sum(w**2)

    @jaxopt.implicit_diff.custom_root(jax.grad(ridge), solve=normal_cg)
    def solve(w, l2reg, X, t):
        return jnp.linalg.solve(X.T @ X + len(t) * l2reg * jnp.eye(X.shape[1]), X.T @ t)

    w = solve(None, jnp.exp(x), X, t)
    return jnp.mean((V @ w - s) ** 2)


def ridge_ours(x, X, t, V, s):
    def ridge(x, w, X, t):
        return 0.5 * jnp.mean((X @ w - t) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(w**2)

    @bl.implicit(ridge)
    def solve(x, w, X, t):
        return jnp.linalg.solve(X.T @ X + len(t) * jnp.exp(x) * jnp.eye(X.shape[1]), X.T @ t)

    w = solve(x, jnp.zeros(X.shape[1]), X, t)
    return jnp.mean((V @ w - s) ** 2)


# --- ridge regression, with a solver of the library (implicit_diff.rst) ---------------------------


def argmin_theirs(x, X, t, V, s):
    def ridge(w, l2reg, X, t):
        return jnp.mean((X @ w - t) ** 2) + 0.5 * l2reg * jnp.sum(w**2)

    solver = jaxopt.LBFGS(fun=ridge, **TIGHT)
    w = solver.run(jnp.zeros(X.shape[1]), jnp.exp(x), X, t).params
    return jnp.mean((V @ w - s) ** 2)


def argmin_ours(x, X, t, V, s):
    def ridge(x, w, X, t):
        return jnp.mean((X @ w - t) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(w**2)

    w = bl.argmin(ridge)(x, jnp.zeros(X.shape[1]), X, t)
    return jnp.mean((V @ w - s) ** 2)


# --- the lasso (implicit_diff/lasso_implicit_diff.py) ---------------------------------------------


def lasso_theirs(x, X, t, V, s):
    prox = jaxopt.prox.prox_lasso
    solver = jaxopt.ProximalGradient(fun=objective.least_squares, prox=prox, **TIGHT)
    w = solver.run(jnp.zeros(X.shape[1]), jnp.exp(x), (X, t)).params
    return jnp.mean((V @ w - s) ** 2)


def lasso_ours(x, X, t, V, s):
    fit = lambda x, w, X, t: 0.5 * jnp.mean((X @ w - t) ** 2)
    solver = bl.argmin(fit, prox=bl.prox.L1(jnp.exp))
    w = solver(x, jnp.zeros(X.shape[1]), X, t)
    return jnp.mean((V @ w - s) ** 2)


# --- sparse coding, a dictionary for a task (implicit_diff/sparse_coding.py) ----------------------


def task_loss(codes, labels):
    logits = jnp.sum(codes, axis=1)
    return jnp.sum(jax.nn.softplus(logits) - labels * logits)


def coding_theirs(dictionary, data, labels):
    loss = lambda codes, dictionary, data: 0.5 * jnp.sum((data - codes @ dictionary) ** 2)
    prox = jaxopt.prox.prox_elastic_net
    solver = jaxopt.ProximalGradient(fun=loss, prox=prox, **TIGHT)
    codes = solver.run(jnp.zeros((74, 7)), [0.01, 0.01], dictionary, data).params
    return task_loss(codes, labels)


def coding_ours(dictionary, data, labels):
    loss = lambda dictionary, codes, data: 0.5 * jnp.sum((data - codes @ dictionary) ** 2)
    prox = bl.prox.ElasticNet(0.01, 0.0001)
    codes = bl.argmin(loss, prox=prox)(dictionary, jnp.zeros((74, 7)), data)
    return task_loss(codes, labels)


# --- the dual of a multiclass SVM (constrained/multiclass_linear_svm.py) --------------------------


def svm_theirs(x, X, Y, V, S):
    prox = jaxopt.prox.make_prox_from_projection(jax.vmap(jaxopt.projection.projection_simplex))
    svm = objective.multiclass_linear_svm_dual
    dual = lambda b, l2, data: svm(b, l2, data) + jnp.sum(b**2)
    solver = jaxopt.ProximalGradient(fun=dual, prox=prox, **TIGHT)
    b = solver.run(jnp.full(Y.shape, 1 / 3), None, jnp.exp(x), (X, Y)).params
    return jnp.mean((V @ (X.T @ (Y - b)) / jnp.exp(x) - S) ** 2)


def svm_ours(x, X, Y, V, S):
    weights = lambda x, b, X, Y: X.T @ (Y - b) / jnp.exp(x)
    penalty = lambda x, b, X, Y: 0.5 * jnp.exp(x) * jnp.sum(weights(x, b, X, Y) ** 2)
    dual = lambda x, b, X, Y: penalty(x, b, X, Y) - jnp.sum((1 - Y) * b) + jnp.sum(b**2)
    b = bl.argmin(dual, prox=bl.prox.Simplex())(x, jnp.full(Y.shape, 1 / 3), X, Y)
    return jnp.mean((V @ weights(x, b, X, Y) - S) ** 2)


# --- dataset distillation (notebooks/implicit_diff/dataset_distillation) --------------------------


def distil_theirs(images, X, labels):
    loss = objective.l2_multiclass_logreg
    solver = jaxopt.LBFGS(fun=loss, **TIGHT)
    w = solver.run(jnp.zeros((X.shape[1], 10)), 0.1, (images, jnp.arange(10))).params
    return loss(w, 0.0, (X, labels))


def distil_ours(images, X, labels):
    loss = lambda w, l2reg, X, t: objective.l2_multiclass_logreg(w, l2reg, (X, t))
    model = bl.argmin(lambda images, w: loss(w, 0.1, images, jnp.arange(10)))
    w = model(images, jnp.zeros((X.shape[1], 10)))
    return loss(w, 0.0, X, labels)


# --- a fixed point (fixed_point/deep_equilibrium_model.py, without its convolutions) --------------


def equilibrium_theirs(x, inputs, targets):
    layer = lambda y, x, inputs: jnp.tanh(y @ x["W"] + inputs @ x["U"])
    solver = jaxopt.AndersonAcceleration(layer, ridge=1e-14, **TIGHT)
    y = solver.run(jnp.zeros((len(inputs), 30)), x, inputs).params
    return jnp.mean((y @ x["V"] - targets) ** 2)


def equilibrium_ours(x, inputs, targets):
    layer = lambda x, y, inputs: jnp.tanh(y @ x["W"] + inputs @ x["U"])
    y = bl.equilibrium(layer)(x, jnp.zeros((len(inputs), 30)), inputs)
    return jnp.mean((y @ x["V"] - targets) ** 2)


# --- the data, as there where they can be had -----------------------------------------------------


def diabetes():
    X, t = datasets.load_diabetes(return_X_y=True)
    X = preprocessing.normalize(X)
    X, V, t, s = model_selection.train_test_split(X, t, test_size=0.33, random_state=0)
    return X, t, V, s


def cases() -> dict[str, Case]:
    rng = np.random.default_rng(0)
    regression = diabetes()
    signals, dictionary, codes = datasets.make_sparse_coded_signal(
        n_samples=74, n_components=7, n_features=13, n_nonzero_coefs=3, random_state=0
    )
    signals = 0.1 * signals + 1e-4 * rng.normal(size=(74, 13))
    labels = (codes[:, :3].sum(axis=1) > 0).astype(float)
    X, y = datasets.make_classification(
        n_samples=40, n_features=5, n_informative=3, n_classes=3, random_state=0
    )
    Y = np.eye(3)[y]
    digits = datasets.load_digits()
    images = rng.normal(size=(10, 64)) / 8
    pixels = digits.data / 16, digits.target
    W = rng.normal(size=(30, 30))
    net = {"W": 0.9 * W / np.linalg.norm(W, 2), "U": rng.normal(size=(5, 30)) / 2}
    net |= {"V": rng.normal(size=(30, 2)) / 5}
    inputs, targets = rng.normal(size=(50, 5)), rng.normal(size=(50, 2))
    found = {
        "ridge, own solver": (ridge_theirs, ridge_ours, 1.0, regression),
        "ridge, argmin": (argmin_theirs, argmin_ours, 1.0, regression),
        "lasso": (lasso_theirs, lasso_ours, 0.0, regression),
        "sparse coding": (coding_theirs, coding_ours, dictionary + 0.05, (signals, labels)),
        "multiclass SVM": (svm_theirs, svm_ours, 3.0, (X[:20], Y[:20], X[20:], Y[20:])),
        "distillation": (distil_theirs, distil_ours, images, pixels),
        "equilibrium": (equilibrium_theirs, equilibrium_ours, net, (inputs, targets)),
    }
    arrays = lambda tree: jax.tree.map(jnp.asarray, tree)
    return {name: Case(a, b, arrays(x), arrays(data)) for name, (a, b, x, data) in found.items()}


# --- measuring ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One case: relative differences, milliseconds, seconds to compile, and lines."""

    case: str
    apart: float
    off: tuple[float, float]
    milliseconds: tuple[float, float]
    compile: tuple[float, float]
    lines: tuple[int, int]


def lines_of(function: Callable) -> int:
    return sum(bool(line.strip()) for line in inspect.getsource(function).splitlines())


def along(function: Callable, x, data, step: float = 1e-5) -> tuple[float, jax.Array]:
    """The slope along a random direction by central differences, and the direction."""
    rng = np.random.default_rng(1)
    d = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), x)
    move = lambda size: jax.tree.map(lambda a, b: a + size * b, x, d)
    high, low = (function(move(size), *data) for size in (step, -step))
    return float(high - low) / (2 * step), d


def measure(name: str, case: Case, turns: int) -> Row:
    h, compiled, gradients = [], [], []
    for function in (case.theirs, case.ours):
        gradient = jax.jit(jax.value_and_grad(function))
        began = time.perf_counter()
        h.append(jax.block_until_ready(gradient(case.x, *case.data))[1])
        compiled.append(time.perf_counter() - began)
        gradients.append(gradient)
    best = [np.inf, np.inf]
    for _ in range(turns):
        for i, gradient in enumerate(gradients):
            began = time.perf_counter()
            jax.block_until_ready(gradient(case.x, *case.data))
            best[i] = min(best[i], time.perf_counter() - began)
    slope, d = along(jax.jit(case.ours), case.x, case.data)
    flat = [np.concatenate([np.ravel(a) for a in jax.tree.leaves(each)]) for each in (*h, d)]
    off = [abs(flat[i] @ flat[2] - slope) / abs(slope) for i in (0, 1)]
    apart = np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[0])
    return Row(
        name, float(apart), (off[0], off[1]), (1e3 * best[0], 1e3 * best[1]),
        (compiled[0], compiled[1]), (lines_of(case.theirs), lines_of(case.ours)),
    )  # fmt: skip


def main(turns: int = 20, only: str | None = None) -> list[Row]:
    print("Pairs of numbers: jaxopt, biloop. Off: from central differences.\n")
    print("| case | apart | off | milliseconds | ratio | compiling, s | lines |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name, case in cases().items():
        if only is not None and only not in name:
            continue
        row = measure(name, case, turns)
        (their_off, our_off), (a, b), (c, d) = row.off, row.milliseconds, row.compile
        print(
            f"| {name} | {row.apart:.0e} | {their_off:.0e}, {our_off:.0e} | {a:.3f}, {b:.3f} | "
            f"{a / b:.1f} | {c:.1f}, {d:.1f} | {row.lines[0]}, {row.lines[1]} |",
            flush=True,
        )
        rows.append(row)
    return rows


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--case")
    arguments = parser.parse_args()
    main(arguments.turns, arguments.case)
