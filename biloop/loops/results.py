"""How steps and runs end: codes that travel through compiled code, with sentences for people.

Inside compiled code nothing raises. A step returns an integer code, the first bad one is kept with
its k, and `solve` turns it into a sentence that names the cause and the remedy.
"""

import enum
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Int

if TYPE_CHECKING:
    from biloop.run.outcome import Run

FIRST_FAILURE = 10


class Status(enum.IntEnum):
    """Why a step or a run ended. Members from 10 on are failures, and those below 0 remarks."""

    sentence: str

    def __new__(cls, code: int, sentence: str) -> "Status":
        """Attach the sentence to the integer that compiled code carries."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    NONCONVEX = (
        -2,
        "The inner Hessian is known not to be positive definite: the adjoint was damped, truncated "
        "or that of one step, so that h is biased.",
    )
    COMPLETED = 0, "All steps were done."
    UNCONVERGED = 1, "A loop stopped before its residual reached the tolerance."
    CONVERGED = 2, "The squared norm of the hypergradient reached epsilon."
    BUDGET_SPENT = 3, "The cost budget is spent."
    TIME_SPENT = 4, "The time budget is spent."
    INTERRUPTED = 5, "The run was interrupted; what was done so far is returned."
    STOPPED = (
        6,
        "The run was stopped: by its callback, because the watched value did not improve, or "
        "because a stream of data ended.",
    )
    UNDONE = 7, "The outer step led to a worse point and was taken back."
    UNCERTAIN = (
        8,
        "The squared norm of h reached epsilon, but h is not known to be accurate enough to say "
        "that ‖∇Φ‖² did: use longer loops, or tolerances.",
    )
    SETTLED = 9, "Neither f nor ‖h‖ has become smaller in the last steps."

    INNER_NOT_FINITE = (
        10,
        "The inner loop produced values that are not finite. Usually its step size is larger than "
        "2/L, with L the largest eigenvalue of the inner Hessian; otherwise g is unbounded below, "
        "or the data contain NaN.",
    )
    OUTER_NOT_FINITE = (
        11,
        "The outer function or its gradient is not finite at a finite y. Usually f divides by "
        "zero or takes the logarithm or the root of zero there, or the outer data contain NaN.",
    )
    LINEAR_NOT_FINITE = (
        12,
        "The linear loop produced values that are not finite. Usually its step size is larger than "
        "2/L, or the inner Hessian is not positive definite at the current y.",
    )
    HYPERGRADIENT_NOT_FINITE = (
        13,
        "The hypergradient is not finite although both loops are. Usually the derivative of g "
        "with respect to x is not finite (a logarithm, root or exponential of x).",
    )
    UPDATE_NOT_FINITE = (
        14,
        "The outer step produced an x that is not finite. Usually the outer step size is too "
        "large; try a tenth of it, or project x onto a bounded set.",
    )
    INDEFINITE = (
        15,
        "The inner Hessian has a direction of negative curvature, so g(x, ·) is not convex at the "
        "current y and the linear system does not define a hypergradient. Regularise g, take more "
        "inner steps, or use ITD.",
    )
    SINGULAR = (
        16,
        "The inner Hessian is singular to working precision, so y*(x) is not locally unique and "
        "the hypergradient is not defined. Add a term such as 1e-3‖y‖² to g, or use ITD.",
    )
    LINEAR_FAILED = (17, "The linear solver reported a failure of its own.")
    NEWTON_FAILED = (
        18,
        "Newton's method did not find the minimiser of g(x, ·). Start it closer (a y from a few "
        "hundred gradient steps), allow more steps, or check that g is strongly convex in y.",
    )
    DIVERGED = (
        19,
        "A loop diverges because its step size is too large for the curvature of g.",
    )

    BAD_SCHEDULE = (
        20,
        "The schedule of a loop's steps gave no number of steps (NaN or a negative number), or one "
        "beyond 10⁷, where nothing could interrupt the loop; check it at this k.",
    )
    UNBOUNDED = (
        21,
        "f changes without end, and its hypergradient grows or stays as it is: Φ has no minimum "
        "that the run could find, or the outer step size is too large. Bound x, e.g. with "
        "Projected(step, Box(low, high)).",
    )

    STREAM_FAILED = 22, "A stream gave no batch; what was done before is returned."

    @property
    def failed(self) -> bool:
        """Whether this is a failure, as opposed to a way to end well."""
        return self >= FIRST_FAILURE


Code = Int[Array, ""]


def code(status: Status) -> Code:
    """The status as the integer that compiled code carries."""
    return jnp.asarray(int(status), jnp.int32)


def code_if(condition: Array, status: Status) -> Code:
    """The status where the condition holds, else COMPLETED."""
    return jnp.where(condition, code(status), code(Status.COMPLETED))


def failure(result: Code) -> Code:
    """The code if it is a failure, else COMPLETED."""
    return jnp.where(result >= FIRST_FAILURE, result, code(Status.COMPLETED))


def first_failure(*codes: Code) -> Code:
    """The first failure in order of cause; without one NONCONVEX, then UNCONVERGED."""
    result = codes[0]
    for later in codes[1:]:
        keep = (result >= FIRST_FAILURE) | (jnp.abs(result) >= jnp.abs(later))
        result = jnp.where(keep, result, later)
    return result


class RunFailed(RuntimeError):
    """A run ended in a failure and `throw=True` was asked for; `run` holds what was done."""

    def __init__(self, run: "Run") -> None:
        """Say what the run's message says."""
        super().__init__(run.message)
        self.run = run
