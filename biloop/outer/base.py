"""The protocol of the outer step, x ← step(x, h), and the steps that need nothing else."""

from abc import abstractmethod

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Bool, Float, PyTree

from biloop.schedules import positive
from biloop.vectors import add_scaled


class OuterStep(eqx.Module):
    """A way to move x along −h. A new one is `init` and `step`."""

    @abstractmethod
    def init(self, x: PyTree) -> PyTree:
        """What the method remembers between outer steps."""

    @abstractmethod
    def step(self, x: PyTree, h: PyTree, state: PyTree) -> tuple[PyTree, PyTree]:
        """The next x and what to remember."""

    def observe(self, value: Float[Array, ""], state: PyTree) -> PyTree:
        """Take note of f(x, y^N) before the step from x, infinite after a failure."""
        return state

    def undone(self, state: PyTree) -> Bool[Array, ""] | None:
        """Whether the step was one back, to before the last; None for steps that never go back."""
        return None


class GradientStep(OuterStep):
    """x ← x − β h, the outer step of Algorithms 1 and 2."""

    step_size: Float[Array, ""] = eqx.field(converter=positive("outer step size"))

    def init(self, x):
        return ()

    def step(self, x, h, state):
        return add_scaled(x, -self.step_size, h), state


class OptaxStep(OuterStep):
    """Any optax transformation, e.g. `optax.adam(1e-2)`."""

    transformation: optax.GradientTransformation = eqx.field(static=True)

    def init(self, x):
        return self.transformation.init(x)

    def step(self, x, h, state):
        # optax mixes dtypes, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = self.transformation.update(h, state, x)
        return jax.tree.map(lambda x, u: x + u.astype(x.dtype), x, updates), state
