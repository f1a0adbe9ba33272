"""Ridge regression with a penalty for every ten features, learned on validation data.

Judged on data that neither level has seen, beside one penalty for all features, tuned the same way.

    python examples/quickstart.py
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import biloop as bl


class Outcome(NamedTuple):
    """A run, and the error of its model on test data."""

    run: bl.Run
    test_error: float


def data(key, samples):
    """Ten of a hundred features matter."""
    X = jax.random.normal(key, (samples, 100))
    noise = jax.random.normal(jax.random.fold_in(key, 1), (samples,))
    return X, X[:, :10].sum(axis=1) + noise


def fit(y, X, t):
    return jnp.mean((X @ y - t) ** 2)


def ridge(x, y, X, t):
    return fit(y, X, t) + jnp.exp(jnp.repeat(x, 100 // x.size, total_repeat_length=100)) @ y**2


def validation_error(x, y, X, t):
    return fit(y, X, t)


def main(seed: int = 0) -> dict[str, Outcome]:
    keys = jax.random.split(jax.random.key(seed), 3)
    train, validation, test = map(data, keys, (120, 120, 10_000))
    problem = bl.Problem(ridge, validation_error, inner_data=train, outer_data=validation)
    found = {}
    for name, penalties in (("a penalty for every ten features", 10), ("one penalty for all", 1)):
        run = bl.solve(problem, jnp.zeros(penalties), jnp.zeros(100))
        found[name] = Outcome(run, float(fit(run.y, *test)))
        print(f"{name}: test error {found[name].test_error:.2f}. {run.message} {run.cost}")
    return found


if __name__ == "__main__":
    main()
