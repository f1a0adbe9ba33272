"""The protocol of the outer step, x ← step(x, h), and the steps that need nothing else."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from biloop.compilation import Built, Made, as_transformation
from biloop.schedules import Schedule, as_number, number_at, positive
from biloop.schedules.arguments import Described
from biloop.vectors import add_scaled


class OuterStep(Described):
    """A way to move x along −h. A new one is `init` and `step`."""

    @abstractmethod
    def init(self, x: PyTree) -> PyTree:
        """What the first step is given as state, `()` for nothing."""

    @abstractmethod
    def step(
        self, x: PyTree, h: PyTree, value: Float[Array, ""], state: PyTree
    ) -> tuple[PyTree, PyTree, Bool[Array, ""]]:
        """The next x, the state for it, and whether x was accepted.

        `value` is f(x, y^N), or NaN where the method failed at x: then h means nothing. A step that
        does not accept x goes back to before it and on from there.
        """

    def accepted(self, state: PyTree) -> tuple[PyTree, Float[Array, ""]] | None:
        """The point that the step would go back to, and f there; None if it never goes back."""
        return None

    def slope(self, x: PyTree, h: PyTree) -> PyTree:
        """What of h can be followed from x: all of it, unless x is kept in a set."""
        return h

    def begun(self, state: PyTree, length: Float[Array, ""]) -> PyTree:
        """The first state where other steps have led to x, of which the last went so far."""
        return state

    def on_batches(self, step: "OuterStep") -> "OuterStep":
        """What moves x while h is known on batches: `step`, if this one finds its size by f."""
        return step if self.finds_its_size else self

    @property
    def is_projected(self) -> bool:
        """Whether x is kept in a set, on whose border ∇Φ need not vanish."""
        return False

    @property
    def finds_its_size(self) -> bool:
        """Whether it looks for its own step size, so that a run that stands still is at its end."""
        return False


class GradientStep(OuterStep):
    """x ← x − β h, the outer step of Algorithms 1 and 2.

    Parameters
    ----------
    step_size : number
        β.

    Examples
    --------
    >>> step = bl.GradientStep(0.1)  # what outer=0.1 is
    >>> x, h = jnp.ones(2), jnp.array([1.0, 2.0])
    >>> x, state, accepted = step.step(x, h, 0.0, step.init(x))
    >>> print(x)
    [0.9 0.8]
    """

    step_size: Float[Array, ""] = eqx.field(converter=positive("outer step size"))

    def init(self, x):
        return ()

    def step(self, x, h, value, state):
        return add_scaled(x, -self.step_size, h), state, jnp.ones((), bool)


class ScheduledStep(OuterStep):
    """x ← x − β_k h with a schedule of k, such as `schedules.Power(0.1, -0.6)` or `(0.1, -0.6)`.

    Parameters
    ----------
    step_size : schedule of k, or a pair
        β_k.

    Examples
    --------
    >>> step = bl.ScheduledStep((0.1, -0.5))
    >>> x, h = jnp.ones(2), jnp.array([1.0, 2.0])
    >>> x, state, accepted = step.step(x, h, 0.0, step.init(x))
    >>> print(x)
    [0.9 0.8]
    """

    step_size: Schedule = eqx.field(converter=as_number("outer step size"))

    def init(self, x):
        return jnp.zeros((), jnp.int32)

    def step(self, x, h, value, state):
        beta = number_at(self.step_size, state)
        return add_scaled(x, -beta, h), state + 1, jnp.ones((), bool)


class OptaxStep(OuterStep):
    """Any optax transformation that needs gradients, or also the value, e.g. `optax.adam(1e-2)`.

    Two transformations that are made alike share a program, into which their numbers are compiled.
    Those of `Built(optax.adam, {"learning_rate": 0.01})` are arguments of it, so that `sweep` can
    vary "outer.transformation.options['learning_rate']" without compiling.

    Parameters
    ----------
    transformation : optax.GradientTransformation or Built
        One that wants a line search is refused.

    Examples
    --------
    >>> step = bl.OptaxStep(optax.adam(0.1))  # what outer=optax.adam(0.1) is
    >>> x, h = jnp.ones(2), jnp.array([1.0, 2.0])
    >>> x, state, accepted = step.step(x, h, 0.0, step.init(x))
    >>> print(x)
    [0.9 0.9]
    """

    transformation: Made | Built = eqx.field(converter=as_transformation("OptaxStep"))

    def init(self, x):
        state = self.transformation.init(x)
        try:
            jax.eval_shape(lambda: self.step(x, x, jnp.zeros(()), state))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"This optax transformation cannot be the outer step: {str(error).rstrip('.')}. "
                f"Those that evaluate the objective themselves (a line search, optax.lbfgs) "
                f'cannot; use outer="auto".'
            ) from error
        return state

    def step(self, x, h, value, state):
        updates, state = self.transformation.update(h, state, x, value)
        moved = jax.tree.map(lambda x, u: x + u.astype(x.dtype), x, updates)
        return moved, state, jnp.ones((), bool)
