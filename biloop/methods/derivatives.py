"""How products with second derivatives of g are had: exactly, damped, by Gauss–Newton, …

Each says what it costs and what h is biased by.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from biloop.methods.unroll_bytes import fits, predict_products, tree_bytes
from biloop.oracles import (
    Adjoint,
    Product,
    SampleCount,
    StepSize,
    adjoint,
    gauss_newton,
    gradient_and_products,
    inner_gradients,
    products_again,
)
from biloop.problem import Composite, Problem, refuse_kind
from biloop.schedules import positive
from biloop.schedules.arguments import Described, as_flag, not_negative
from biloop.vectors import add_scaled, norm, scaled, subtract

_LARGE = 100  # times the bytes of data, x and y: more is not kept


class Derivatives(Described):
    """∇_y g, and the products v ↦ ∇²_y g v and v ↦ ∇_x∇_y g v."""

    @abstractmethod
    def __call__(self, problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, Product, Product]:
        """The gradient and both products at (x, y)."""

    def price(self, rows: int) -> SampleCount:
        """What one product on so many rows costs."""
        return SampleCount(products=rows)

    def adjoint(
        self, problem: Problem, x: PyTree, y: PyTree, f_y: PyTree, step: StepSize | None
    ) -> Adjoint:
        """The system of the adjoint at (x, y); `step` is that of a proximal map."""
        _, hessian, cross = self(problem, x, y)
        return Adjoint(hessian, f_y, cross)

    def check(self, problem: Problem) -> None:
        """Refuse a problem that it is not for."""
        refuse_kind(problem, ("minimum",), type(self).__name__, "Use Autodiff(), the default.")


class Autodiff(Derivatives):
    """Exact products.

    Both from one linearisation, whose intermediate values (the activations of a network, and what
    their derivatives need) are kept for as long as the Q-loop goes. With `recompute=True` each
    product makes them anew, forward over reverse: it needs no more memory than a few gradients and
    takes about twice the time. "auto" recomputes where what would be kept is predicted not to fit
    into half of the memory that is free when the program is made.

    Parameters
    ----------
    recompute : bool or "auto"
        Whether intermediate values are made anew for each product.

    Examples
    --------
    >>> loops = bl.GradientDescent(step_size=0.3, steps=30), bl.CG(3)
    >>> bl.AID(*loops, derivatives=bl.Autodiff(recompute=True)).derivatives
    Autodiff(recompute=True)
    """

    recompute: bool | str = eqx.field(
        default="auto", static=True, converter=lambda r: _as_choice(r)
    )

    def __call__(self, problem, x, y):
        if self.recomputes(problem, x, y):
            return products_again(problem, x, y)
        return gradient_and_products(problem, x, y)

    def predict_bytes(self, problem: Problem, x: PyTree, y: PyTree) -> dict[str, int]:
        """The bytes over the data that products need: kept, and with recomputation.

        Found by tracing; nothing is computed or compiled.
        """
        return predict_products(problem, x, y)

    def recomputes(self, problem: Problem, x: PyTree, y: PyTree) -> bool:
        """Whether products at (x, y) are made anew, each time."""
        if isinstance(self.recompute, bool):
            return self.recompute
        # Tracing takes time, which a problem that is small by any measure need not spend.
        if problem.kind != "minimum" or fits(_LARGE * tree_bytes((problem, x, y))):
            return False
        bytes_of = self.predict_bytes(problem, x, y)
        return not fits(bytes_of["keep"]) and bytes_of["recompute"] < bytes_of["keep"]

    def adjoint(self, problem, x, y, f_y, step):
        if self.recomputes(problem, x, y):
            _, hessian, cross = products_again(problem, x, y)
            return Adjoint(hessian, f_y, cross)
        return adjoint(problem, x, y, f_y, step)

    def check(self, problem):
        if self.recompute is True:
            refuse_kind(problem, ("minimum",), "Autodiff(recompute=True)", "Use Autodiff().")


def _as_choice(given: Any) -> bool | str:
    return given if isinstance(given, str) and given == "auto" else as_flag("recompute")(given)


class Damped(Derivatives):
    """Exact products, with H + δI in the place of H: sound wherever δ > −λ_min(H).

    v = (∇²_y g + δI)⁻¹ ∇_y f

    This is the adjoint of min_y g(x, y) + δ/2 ‖y − y_k‖², which stays close to where y is
    (Rajeswaran et al., 2019, iMAML). It costs nothing; relative to the exact v the bias is
    about δ/(μ + δ), in directions of curvature μ. `CG(…, indefinite="damp")` finds a δ by itself.

    Parameters
    ----------
    damping : number
        δ.

    Examples
    --------
    >>> loops = bl.GradientDescent(step_size=0.3, steps=30), bl.CG(3)
    >>> method = bl.AID(*loops, derivatives=bl.Damped(0.1))
    >>> h, state, info = method(problem, x0, method.init(problem, x0, y0), 0)
    >>> print(f"{h:.3f}")  # 0.468 without
    0.441
    """

    damping: Float[Array, ""] = eqx.field(converter=positive("damping"))

    def __call__(self, problem, x, y):
        gradient, hessian, cross = gradient_and_products(problem, x, y)
        return gradient, _shifted(hessian, self.damping), cross


class GaussNewton(Derivatives):
    """JᵀSJ + ∇²_y penalty + δI in the place of H, for an inner function that is a `Composite`.

    J is the derivative of the outputs with respect to y, and S the Hessian of the loss with respect
    to the outputs: positive semidefinite where the loss is convex in them, whatever the network
    (N. Schraudolph, 2002; J. Martens, 2010). A product costs about as much as one with H. It lacks
    Σ ∇loss_i ∇²outputs_i, so that h is biased by as much as the outputs bend where the loss has a
    slope left: not at all for outputs linear in y, and little where all samples are fitted.
    ∇_x∇_y g is exact.

    Parameters
    ----------
    damping : number
        δ.

    Examples
    --------
    >>> inner = bl.Composite(
    ...     outputs=lambda x, y, X, t: jnp.tanh(X @ y),
    ...     loss=lambda x, z, X, t: jnp.mean((z - t) ** 2) / 2,
    ...     penalty=lambda x, y: jnp.exp(x) * jnp.sum(y**2) / 2,
    ... )
    >>> network = bl.Problem(inner, problem.outer, problem.inner_data, problem.outer_data)
    >>> loops = bl.GradientDescent(step_size=0.3, steps=30), bl.CG(3)
    >>> method = bl.AID(*loops, derivatives=bl.GaussNewton())
    >>> h, state, info = method(network, x0, method.init(network, x0, y0), 0)
    >>> print(f"{h:.3f}")
    0.562
    """

    damping: Float[Array, ""] = eqx.field(default=0.0, converter=not_negative("damping"))

    def __call__(self, problem, x, y):
        gradient, _, cross = gradient_and_products(problem, x, y)
        return gradient, _shifted(gauss_newton(problem, x, y), self.damping), cross

    def check(self, problem):
        refuse_kind(problem, ("minimum",), "GaussNewton", "Use Autodiff(), the default.")
        if not isinstance(problem.inner, Composite):
            raise TypeError(
                f"GaussNewton has to know where the loss begins: give "
                f"inner=bl.Composite(outputs, loss), got {problem.inner!r}."
            )


def _shifted(product: Product, damping: Float[Array, ""]) -> Product:
    return lambda v: add_scaled(product(v), damping, v)


class Differences(Derivatives):
    """Central differences of gradients along v, at a distance of `radius` on either side.

    ∇²_y g v ≈ (∇_y g(x, y + rv̂) − ∇_y g(x, y − rv̂)) ‖v‖ / 2r,   v̂ = v/‖v‖;   likewise for ∇_x g

    No second derivatives are taken; the error is of the order r² ‖∇⁴g‖, and that of rounding of the
    order ε ‖∇g‖ / r. Liu, Simonyan and Yang (2019), DARTS; Kwon et al. (2023).

    Parameters
    ----------
    radius : number
        r.

    Examples
    --------
    >>> loops = bl.GradientDescent(step_size=0.3, steps=30), bl.CG(3)
    >>> method = bl.AID(*loops, derivatives=bl.Differences(0.01))
    >>> h, state, info = method(problem, x0, method.init(problem, x0, y0), 0)
    >>> print(f"{h:.3f}")
    0.468
    """

    radius: Float[Array, ""] = eqx.field(default=1e-3, converter=positive("radius"))

    def __call__(self, problem, x, y):
        def both(v: PyTree) -> tuple[PyTree, PyTree]:
            size = norm(v)
            step = self.radius.astype(size.dtype) / jnp.where(size > 0, size, jnp.ones_like(size))
            above = inner_gradients(problem, x, add_scaled(y, step, v))
            below = inner_gradients(problem, x, add_scaled(y, -step, v))
            g_x, g_y = scaled(0.5 / step, subtract(above, below))
            return g_x, g_y

        _, gradient = inner_gradients(problem, x, y)
        return gradient, lambda v: both(v)[1], lambda v: both(v)[0]

    def price(self, rows):
        return SampleCount(inner=2 * rows)
