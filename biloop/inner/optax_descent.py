"""Any optax transformation that needs only gradients, as the inner method."""

import equinox as eqx
import jax

from biloop.compilation import Built, Made, as_transformation
from biloop.inner.base import Descent
from biloop.schedules import Schedule, as_steps, as_tolerance
from biloop.schedules.arguments import as_flag


class Optax(Descent):
    """An optax transformation as the inner method, e.g. `Optax(optax.adam(1e-2), steps=20)`.

    Parameters
    ----------
    transformation : optax.GradientTransformation or Built
        Two transformations that are made alike share a program, into which their numbers are
        compiled. Those of `Built(optax.adam, {"learning_rate": 0.01})` are arguments of it.
    steps, tolerance
        As for `GradientDescent`.
    carry_state : bool
        Whether the optimizer's state goes on from one outer step to the next. By default it starts
        anew, so that each loop minimises g(x, ·) by itself.

    Examples
    --------
    >>> solver = bl.Optax(optax.sgd(0.5, momentum=0.3), steps=40)
    >>> y, state, info = solver(problem, x0, y0, solver.init(y0), 0)
    >>> print(np.asarray(y).round(3))
    [ 0.838 -0.453  0.096]
    """

    transformation: Made | Built = eqx.field(converter=as_transformation("Optax"))
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)
    carry_state: bool = eqx.field(default=False, static=True, converter=as_flag("carry_state"))

    def nothing(self, y):
        state = self.transformation.init(y)
        try:
            jax.eval_shape(lambda: self.transformation.update(y, state, y))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"This optax transformation cannot be the inner method: {str(error).rstrip('.')}. "
                f"Those that evaluate the objective themselves (a line search, optax.lbfgs) "
                f"cannot; use bl.NewtonCG()."
            ) from error
        return state if self.carry_state else ()

    def start(self, y, kept):
        return kept if self.carry_state else self.transformation.init(y)

    def keep(self, state):
        return state if self.carry_state else ()

    def step(self, gradient, y, state):
        d = gradient(y)
        updates, state = self.transformation.update(d, state, y)
        return jax.tree.map(lambda y, u: y + u.astype(y.dtype), y, updates), state, d
