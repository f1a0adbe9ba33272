"""Costs counted while the program runs, by functions that report each of their evaluations.

The quadratic's ∇_y g and ∇f are given by hand with rules that call the host: one tick per gradient,
one per product. What is counted is what was executed, not what a formula says.
"""

from collections import Counter

import jax
import jax.numpy as jnp
import lineax as lx
import pytest

import biloop as bl

from .helpers import random_quadratic

TICKS: Counter = Counter()


def tick(name, value, *dependencies):
    """Count one evaluation when the program runs; the value goes through, so it is not removed.

    What the evaluation depends on travels along: otherwise the compiler would find out that the
    Hessian of a quadratic is the same everywhere, and not compute the points.
    """

    def on_host(value, *_):
        TICKS[name] += 1
        return value

    shape = jax.ShapeDtypeStruct(value.shape, value.dtype)
    return jax.pure_callback(on_host, shape, value, *dependencies, vmap_method="sequential")


def counting_problem(quadratic, mode):
    """A quadratic problem that counts, differentiable twice in reverse or in forward mode."""
    A, B, c, D, t, E = (jnp.asarray(a) for a in quadratic)

    def gradient(x, y):
        return tick("inner gradient", A @ y - B @ x - c)

    if mode == "reverse":
        gradient_y = jax.custom_vjp(gradient)
        gradient_y.defvjp(
            lambda x, y: (gradient(x, y), (x, y)),
            lambda xy, v: (
                -tick("cross product", B.T @ v, *xy),
                tick("Hessian product", A @ v, *xy),
            ),
        )
    else:
        gradient_y = jax.custom_jvp(gradient)
        gradient_y.defjvp(
            lambda xy, dots: (
                gradient_y(*xy),
                tick("Hessian product", A @ dots[1], *xy) - tick("cross product", B @ dots[0], *xy),
            )
        )

    def g(x, y):
        return 0.5 * y @ (A @ y) - y @ (B @ x + c)

    inner = jax.custom_vjp(g)
    inner.defvjp(
        lambda x, y: (g(x, y), (x, y)),
        lambda xy, w: (-w * (B.T @ xy[1]), w * gradient_y(*xy)),
    )

    def f(x, y):
        return 0.5 * (y - t) @ (D @ (y - t)) + 0.5 * x @ (E @ x)

    outer = jax.custom_vjp(f)
    outer.defvjp(
        lambda x, y: (f(x, y), (x, y)),
        lambda xy, w: (
            w * tick("outer gradient", E @ xy[0]),
            w * tick("outer gradient", D @ (xy[1] - t)),
        ),
    )
    return bl.Problem(inner, outer)


def run_and_count(method, K=4):
    quadratic = random_quadratic(q=5, p=3)
    x, y = quadratic.start()
    if isinstance(method, bl.ITD) and method.memory == "forward":
        ticks = step_and_count(counting_problem(quadratic, "forward"), x, y, method, K)
        run = bl.solve(quadratic.problem, x, y, method, outer=0.01, steps=K)
    else:
        run, ticks = solve_and_count(counting_problem(quadratic, "reverse"), x, y, method, K)
    assert run.status is bl.Status.COMPLETED
    return run, *ticks


def solve_and_count(problem, x, y, method, K):
    """The run, with the gradients and the products that its outer steps made.

    The callback comes after the last of them, and before the look at the last x, which is no part
    of the cost. Nor is the look around y that shows whether a linear loop with a given step
    diverges: two gradients of g, one of f.
    """
    TICKS.clear()
    seen = []
    run = bl.solve(
        problem,
        x,
        y,
        method,
        outer=0.01,
        steps=K,
        callback=lambda _: seen.append(counted()) and None,
    )
    gradients, products = seen[-1]
    given = any(loop == "linear" for loop, *_ in method.stability(jnp.inf))
    looked = given and bool(jnp.isfinite(run.trace["linear_residual"][0]))
    return run, (gradients - 3 * looked, products)


def step_and_count(problem, x, y, method, K):
    """The same by hand, for a problem that cannot be differentiated in reverse mode."""
    TICKS.clear()
    compiled, state = jax.jit(method), method.init(problem, x, y)
    for k in range(K):
        h, state, _ = compiled(problem, x, state, k)
        x = x - 0.01 * h
    return counted()


def counted():
    jax.effects_barrier()
    gradients = TICKS["inner gradient"] + TICKS["outer gradient"]
    return gradients, TICKS["Hessian product"] + TICKS["cross product"]


@pytest.mark.parametrize(("N", "Q"), [(1, 1), (1, 7), (6, 1), (5, 4)])
def test_aid_costs_what_the_paper_says(N, Q):
    """Gc = K(N + 2), MV = K(Q + 1)."""
    K = 4
    method = bl.AID(
        bl.GradientDescent(step_size=0.1, steps=N), bl.Richardson(step_size=0.1, steps=Q)
    )
    run, gradients, products = run_and_count(method, K)
    assert gradients == run.cost.gradients == K * (N + 2)
    assert products == run.cost.products == K * (Q + 1)


@pytest.mark.parametrize("N", [1, 2, 9])
def test_itd_costs_what_the_paper_says(N):
    """Gc = K(N + 2), MV = 2KN.

    The Hessian product at y^0 leads nowhere (y^0 does not depend on x), so 2N − 1 would do. For
    N = 1 the compiler sees it and leaves it out; the cost stays in the paper's units.
    """
    K = 4
    run, gradients, products = run_and_count(bl.ITD(bl.GradientDescent(step_size=0.1, steps=N)), K)
    assert gradients == run.cost.gradients == K * (N + 2)
    assert run.cost.products == 2 * K * N
    assert products == (2 * K * N if N > 1 else K)


INNER = bl.GradientDescent(step_size=0.1, steps=9)
LINEAR = bl.Richardson(step_size=0.1, steps=3)

METHODS = {
    "no Q-loop": (bl.AID(INNER, bl.Richardson(step_size=0.1, steps=0)), 11, 1),
    "cold": (bl.AID(INNER, LINEAR, warm_start_y=False, warm_start_v=False), 11, 4),
    "nesterov": (bl.AID(bl.Nesterov(step_size=0.1, momentum=0.3, steps=9), LINEAR), 11, 4),
    "heavy ball": (bl.AID(bl.HeavyBall(step_size=0.1, momentum=0.3, steps=9), LINEAR), 11, 4),
    # One product for the residual at the start, one for the cross product.
    "cg": (bl.AID(INNER, bl.CG(steps=3)), 11, 3 + 2),
    "neumann": (bl.AID(INNER, bl.Neumann(step_size=0.1, steps=3)), 11, 3 + 2),
    "dense": (bl.AID(INNER, bl.Dense()), 11, 5 + 1),
    # Nine steps in three segments: six iterates are computed again.
    "itd sqrt": (bl.ITD(INNER, memory="sqrt"), 11 + 6, 18),
    "itd truncated": (bl.ITD(INNER, truncate=2), 11, 4),
    "itd forward": (bl.ITD(INNER, memory="forward"), 11, 2 * 9 * 3),
    "itd nesterov": (bl.ITD(bl.Nesterov(step_size=0.1, momentum=0.3, steps=9)), 11, 18),
}


@pytest.mark.parametrize("name", METHODS)
def test_cost_of_one_step(name):
    method, expected_gradients, expected_products = METHODS[name]
    K = 3
    run, gradients, products = run_and_count(method, K)
    # Without a Q-loop ∇_y f leads nowhere, and the compiler leaves it out: the cost stays in units.
    unused = K if name == "no Q-loop" else 0
    assert gradients + unused == run.cost.gradients == K * expected_gradients
    assert products == run.cost.products == K * expected_products


@pytest.mark.parametrize(
    "method",
    [
        bl.AID(
            bl.GradientDescent(step_size=0.1, steps=200, tolerance=1e-3),
            bl.Richardson(step_size=0.1, steps=200, tolerance=1e-3),
        ),
        bl.AID(
            bl.GradientDescent(step_size=0.1, steps=bl.schedules.Power(2.0, 0.5)),
            bl.CG(steps=200, tolerance=bl.schedules.Power(1e-2, -1.0)),
        ),
        bl.schemes.auto(),
        bl.AID(bl.GradientDescent("auto", "auto"), bl.Richardson("auto", "auto")),
        bl.ITD(bl.GradientDescent(step_size=0.1, steps=200, tolerance=1e-3)),
        bl.ITD(bl.GradientDescent(step_size=0.1, steps=200, tolerance=1e-3), memory="sqrt"),
        bl.AID(INNER, bl.Lineax(lx.CG(rtol=1e-8, atol=1e-8))),
        pytest.param(
            bl.AID(INNER, bl.Lineax(lx.CG(rtol=1e-8, atol=1e-8, stabilise_every=2))),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            bl.AID(INNER, bl.Lineax(lx.BiCGStab(rtol=1e-8, atol=1e-8))), marks=pytest.mark.slow
        ),
        bl.AID(INNER, bl.Lineax(lx.LU())),
        bl.Exact(),
    ],
    ids=[
        "aid to tolerance",
        "aid schedules",
        "adaptive",
        "adaptive richardson",
        "itd to tolerance",
        "itd sqrt to tolerance",
        "lineax cg",
        "lineax cg stabilised",
        "lineax bicgstab",
        "lineax lu",
        "exact",
    ],
)
def test_costs_that_depend_on_the_run(method):
    run, gradients, products = run_and_count(method)
    assert gradients == run.cost.gradients
    assert products == run.cost.products
    assert run.trace.cost == run.cost


def test_after_a_failure_nothing_is_run_again():
    """A step that fails is counted, and the state before it is kept, not computed once more.

    To tell the cause takes six products, as many as y has entries, which are no part of the cost.
    """
    quadratic = random_quadratic()
    method = bl.AID(bl.GradientDescent(step_size=10.0, steps=9), LINEAR)
    problem = counting_problem(quadratic, "reverse")
    run, ticks = solve_and_count(problem, *quadratic.start(), method, 500)
    assert run.status.failed
    assert 1 < len(run.trace) < 500
    assert run.cost == (11 * len(run.trace), 4 * len(run.trace))
    assert ticks == (run.cost.gradients, run.cost.products + 6)


def test_the_last_look_costs_one_step_at_most_and_is_not_charged():
    """f, y and v at the last x; and 27 gradients of g and three of f to see whether to trust y."""
    run, gradients, products = run_and_count(bl.AID(INNER, LINEAR), K=2)
    assert run.cost == (gradients, products)
    whole = TICKS["inner gradient"] + TICKS["outer gradient"]
    assert gradients + 11 <= whole <= gradients + 11 + 30
