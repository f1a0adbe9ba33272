"""Many tasks as one problem: y holds what is learned for each, x what they share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from biloop.methods.each_task import joined
from biloop.problem import Problem


def tasks(problem: Problem) -> Problem:
    """The problem of many tasks, from that of one with the data of all.

    g(x, y) = Σ_t g_t(x, y_t),   f(x, y) = mean over t of f_t(x, y_t)

    Arrays that stand directly in `inner_data` and `outer_data` have an entry for each task, pytrees
    are common to all. y has a leading axis of tasks; a start y⁰(x), a proximal map, an equilibrium
    and metrics are those of one task. `Tasks(method)` then has loops for each task, and draws some
    of the tasks, or new ones, in every outer step.

    Parameters
    ----------
    problem : Problem
        That of one task, with the data of all.

    Examples
    --------
    >>> def error(x, y, X, t):
    ...     return jnp.mean((X @ y - t) ** 2)
    >>> data = X.reshape(4, 10, 3), t.reshape(4, 10)  # 4 tasks of 10 samples
    >>> problem = bl.problems.tasks(bl.Problem(error, error, data, data, start=lambda x: x))
    >>> maml = bl.Tasks(bl.ITD(bl.GradientDescent(step_size=0.1, steps=2)))
    >>> run = bl.solve(problem, y0, problem.start(y0), maml, outer=0.1, steps=10)
    >>> run.y.shape  # a model for each task
    (4, 3)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"tasks is made from the Problem of one task, got {problem!r}.")
    counts = {problem.inner_samples, problem.outer_samples} - {0}
    if len(counts) != 1:
        raise ValueError(
            f"inner_data and outer_data must have an entry for each task, and as many; there are "
            f"{problem.inner_samples} in inner_data and {problem.outer_samples} in outer_data."
        )
    if problem.per_sample is not None:
        raise ValueError("per_sample marks rows of x for samples, and tasks have x in common.")
    return joined(problem, counts.pop())


def ridge_head(
    features: Float[Array, "n d"], targets: Float[Array, "n ..."], penalty: Float[Array, ""] | float
) -> Float[Array, "d ..."]:
    """argmin_W ½ ‖features W − targets‖² + ½ penalty ‖W‖², in closed form.

    By the smaller of the d × d and the n × n system: few samples have few equations. For
    `ClosedForm`, on features that x makes (L. Bertinetto et al., 2019, R2-D2,
    https://arxiv.org/abs/1805.08136).

    Parameters
    ----------
    features : array (samples, d)
    targets : array (samples, …)
    penalty : number
        Greater than 0.

    Examples
    --------
    >>> W = bl.problems.ridge_head(X, t, penalty=1.0)
    >>> bool(jnp.abs(X.T @ (X @ W - t) + W).max() < 1e-4)  # the gradient
    True
    """
    n, d = features.shape
    flat = targets.reshape(n, -1)
    shift = jnp.asarray(penalty, features.dtype)
    solve = lambda A, b: jax.scipy.linalg.solve(A, b, assume_a="pos")  # noqa: E731
    if n < d:
        gram = features @ features.T + shift * jnp.eye(n, dtype=features.dtype)
        weights = features.T @ solve(gram, flat)
    else:
        gram = features.T @ features + shift * jnp.eye(d, dtype=features.dtype)
        weights = solve(gram, features.T @ flat)
    return weights.reshape(d, *targets.shape[1:])
