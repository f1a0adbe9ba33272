"""Penalties of features from few hyperparameters x, which are free numbers.

    log α_g = c + R tanh(x_g / R)                                         a penalty for each group
    log α_j = c + R tanh(x_0 / R) − γ(x_1) log((u_j + δ(x_2)) / (1 + δ))  one for each feature

e^c is the best common penalty, and e^R the most that another may differ from it. u_j is the square
of the coefficient that the common penalty gives, relative to the mean of them: small coefficients
are penalised more, the more so the larger γ ≥ 0 is, and those below √δ alike. The idea is that of
the adaptive lasso: H. Zou, The adaptive lasso and its oracle properties (2006).
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

_STEEPEST = 3.0  # γ is below it
_START = -1.6  # γ = 0.5
_SHARES = 3.0  # the standard deviation of the logit of the share of the lasso, if shrinkage is 1
_FLOOR = 0.3  # δ at the start, and where its prior is centred


class Penalties(eqx.Module):
    """From x to the penalties of the features, for all models alike or a row for each."""

    center: eqx.AbstractVar[Float[Array, ""]]
    reach: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def start(self) -> np.ndarray:
        """The x to start from."""

    @property
    @abstractmethod
    def freedom(self) -> float:
        """How many numbers are tuned."""

    @abstractmethod
    def __call__(self, x: Float[Array, " p"]) -> Float[Array, "#k d"]:
        """α of each feature."""

    @abstractmethod
    def apart(self, x: Float[Array, " p"]) -> Float[Array, ""]:
        """How far penalties are from alike: minus twice the logarithm of their prior."""

    def lasso_share(self, x: Float[Array, " p"]) -> Float[Array, ""]:
        """Of an elastic net: how much of a penalty is on |w|, the rest on ½w²."""
        return jnp.full((), 0.5)

    def _bounded(self, x: Array) -> Array:
        return self.center + self.reach * jnp.tanh(x / self.reach)


class Scaled(Penalties):
    """Given penalties times a common factor e^x."""

    center: Float[Array, ""]
    reach: Float[Array, ""]
    ratios: Float[Array, "k d"]

    def start(self):
        return np.zeros(1)

    @property
    def freedom(self):
        return 0.0

    def __call__(self, x):
        return jnp.exp(x) * self.ratios

    def apart(self, x):
        return jnp.zeros(())


class ByGroup(Penalties):
    """A penalty for each group of features; groups without features are there to fill up x."""

    center: Float[Array, ""]
    reach: Float[Array, ""]
    groups: Int[Array, " d"]
    there: Float[Array, " p"]  # 1, or 0 for a group without features

    def start(self):
        return np.zeros(len(self.there))

    def of_groups(self, x: Float[Array, " p"]) -> Float[Array, " p"]:
        """α_g."""
        return jnp.exp(self._bounded(x))

    @property
    def freedom(self):
        return float(jnp.sum(self.there))

    def __call__(self, x):
        return self.of_groups(x)[self.groups][None]

    def apart(self, x):
        mean = jnp.sum(self.there * x) / jnp.sum(self.there)
        return 2 * jnp.sum(self.there * jnp.log1p((x - mean) ** 2))


class ByPilot(Penalties):
    """A penalty for each feature, from the coefficients of the best common one."""

    center: Float[Array, ""]
    reach: Float[Array, ""]
    squares: Float[Array, "k d"]  # u

    def start(self):
        return np.array([0.0, _START, np.log(_FLOOR)])

    @property
    def freedom(self):
        return 3.0

    def __call__(self, x):
        scale, steepness, floor = x
        delta = jnp.exp(floor)
        relative = jnp.log((self.squares + delta) / (1 + delta))
        return jnp.exp(self._bounded(scale) - _STEEPEST * jax.nn.sigmoid(steepness) * relative)

    def apart(self, x):
        _, steepness, floor = x
        return (_STEEPEST * jax.nn.sigmoid(steepness)) ** 2 + (floor - np.log(_FLOOR)) ** 2


class ByPilotMixed(Penalties):
    """A penalty for each feature, x[:3], and the share of the lasso in them, x[3]."""

    center: Float[Array, ""]
    reach: Float[Array, ""]
    squares: Float[Array, "k d"]  # u

    def start(self):
        return np.append(self._pilot.start(), 0.0)

    @property
    def freedom(self):
        return 4.0

    def __call__(self, x):
        return self._pilot(x[:3])

    def apart(self, x):
        return self._pilot.apart(x[:3]) + (x[3] / _SHARES) ** 2

    def lasso_share(self, x):
        return jax.nn.sigmoid(x[3])

    @property
    def _pilot(self) -> ByPilot:
        return ByPilot(self.center, self.reach, self.squares)


def relative_squares(squares: np.ndarray, features: int) -> np.ndarray:
    """u: squares of coefficients relative to their mean over the features that are there."""
    u = np.ones_like(squares)
    means = squares[:, :features].mean(axis=1, keepdims=True)
    np.divide(squares[:, :features], means, out=u[:, :features], where=means > 0)
    return u


class Shrunk(eqx.Module):
    """f(x, y) + ½ λ · (how far penalties are from alike): a prior that they are."""

    outer: Callable[..., Float[Array, ""]]
    penalties: Penalties
    strength: Float[Array, ""]

    def __call__(self, x: Float[Array, " p"], y: PyTree, *data: PyTree) -> Float[Array, ""]:
        return self.outer(x, y, *data) + 0.5 * self.strength * self.penalties.apart(x)
