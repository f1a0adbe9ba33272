"""Many tasks at once: MAML, ANIL, iMAML and closed forms, drawn tasks, and their account."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl

from .helpers import stepped

T, SHOTS, STEPS, ALPHA = 4, 6, 3, 0.1


def sine(key):
    """A task: a few points of a sine to learn from, and others to judge by."""
    a, b, c = jax.random.split(key, 3)
    amplitude, phase = 0.5 + 2 * jax.random.uniform(a), 3 * jax.random.uniform(b)
    X = jax.random.uniform(c, (2 * SHOTS, 1), minval=-3.0, maxval=3.0)
    Y = amplitude * jnp.sin(X[:, 0] + phase)
    return (X[:SHOTS], Y[:SHOTS]), (X[SHOTS:], Y[SHOTS:])


def predict(w, X):
    return jnp.tanh(X @ w["W"] + w["b"][None]) @ w["a"]


def loss(w, X, Y):
    return jnp.mean((predict(w, X) - Y) ** 2)


def network(key, width=5):
    a, b, c = jax.random.split(key, 3)
    return {
        "W": jax.random.normal(a, (1, width)),
        "b": jax.random.normal(b, (width,)),
        "a": jax.random.normal(c, (width,)),
    }


@jax.jit
def drawn():
    tasks = jax.vmap(sine)(jax.random.split(jax.random.key(1), T))
    return *tasks, network(jax.random.key(0))


INNER, OUTER, X0 = drawn()
MAML = bl.problems.tasks(
    bl.Problem(
        lambda x, y, X, Y: loss(y, X, Y), lambda x, y, X, Y: loss(y, X, Y), INNER, OUTER,
        start=lambda x: x,
    )
)  # fmt: skip
Y0 = MAML.start(X0)
ITD = bl.ITD(bl.GradientDescent(ALPHA, STEPS))


def adapted(x, y, X, Y):
    for _ in range(STEPS):
        y = jax.tree.map(lambda a, d: a - ALPHA * d, y, jax.grad(loss)(y, X, Y))
    return y


@jax.jit
def adapted_to_all(x):
    return jax.vmap(lambda X, Y: adapted(x, x, X, Y))(*INNER)


@jax.jit
def maml_by_hand(x, inner=INNER, outer=OUTER):
    each = jax.vmap(lambda i, o: loss(adapted(x, x, *i), *o))(inner, outer)
    return jnp.mean(each)


maml_slope = jax.jit(jax.grad(maml_by_hand))


def close(found, expected, rtol=1e-10):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13), found, expected
    )


@pytest.mark.parametrize("method", [ITD, bl.Tasks(ITD)], ids=["joint", "each"])
def test_maml_is_the_gradient_through_the_unrolled_loop(method):
    h, state, info = stepped(method, MAML, X0, Y0)
    close(h, maml_slope(X0))
    close(state.y, adapted_to_all(X0))
    np.testing.assert_allclose(info.value, maml_by_hand(X0), rtol=1e-12)
    assert tuple(map(int, info.cost)) == (STEPS + 2, 2 * STEPS)


def test_anil_adapts_the_head_alone():
    def inner(x, y, X, Y):
        return loss(x | {"a": y}, X, Y)

    anil = bl.problems.tasks(bl.Problem(inner, inner, INNER, OUTER, start=lambda x: x["a"]))
    method = bl.Tasks(ITD)
    h, state, _ = stepped(method, anil, X0, anil.start(X0))
    assert state.y.shape == (T, 5)

    def by_hand(x):
        def one(i, o):
            y = x["a"]
            for _ in range(STEPS):
                y = y - ALPHA * jax.grad(inner, argnums=1)(x, y, *i)
            return inner(x, y, *o)

        return jnp.mean(jax.vmap(one)(INNER, OUTER))

    close(h, jax.jit(jax.grad(by_hand))(X0))


# --- ridge tasks, whose solutions are known -------------------------------------------------------

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, T, 8, 3)) * np.array([1.0, 3.0, 0.2, 1.0])[:, None, None]
C, D = RNG.normal(size=(2, T, 8))
LAM = 0.7


def ridge(x, y, A, c):
    return 0.5 * jnp.sum((A @ y - c) ** 2) + 0.5 * LAM * jnp.sum((y - x) ** 2)


def error(x, y, B, d):
    return 0.5 * jnp.sum((B @ y - d) ** 2)


@jax.jit
def imaml_by_hand(x):
    def one(A, c, B, d):
        y = jnp.linalg.solve(A.T @ A + LAM * jnp.eye(3), A.T @ c + LAM * x)
        return error(x, y, B, d)

    return jnp.mean(jax.vmap(one)(A, C, B, D))


imaml_slope = jax.jit(jax.grad(imaml_by_hand))
IMAML = bl.problems.tasks(bl.Problem(ridge, error, (A, C), (B, D), start=lambda x: x))
POINT = jnp.asarray([0.3, -0.2, 1.0])


def test_imaml_is_the_closed_form_and_each_task_ends_its_own_loop():
    loops = bl.GradientDescent("auto", 500, tolerance=1e-12), bl.CG(20, tolerance=1e-12)
    method, alone = bl.Tasks(bl.AID(*loops)), bl.AID(*loops)
    h, state, info = stepped(method, IMAML, POINT, IMAML.start(POINT))
    assert info.result == bl.Status.COMPLETED
    close(h, imaml_slope(POINT), rtol=1e-9)
    np.testing.assert_allclose(info.value, imaml_by_hand(POINT), rtol=1e-10)

    counts = []
    share = lambda x, y, B, d: error(x, y, B, d) / T  # noqa: E731
    first = lambda x: x  # noqa: E731
    for t in range(T):
        one = bl.Problem(ridge, share, (A[t], C[t]), (B[t], D[t]), start=first)
        _, own, told = stepped(alone, one, POINT, POINT)
        counts.append(tuple(map(int, told.cost)))
        close(jax.tree.map(lambda leaf: leaf[t], (state.each.y, state.each.v)), (own.y, own.v))  # noqa: B023
    assert len(set(counts)) > 1  # loops of different lengths, of which the longest is counted
    assert tuple(map(int, info.cost)) == tuple(np.max(counts, axis=0))


def test_nothing_needs_to_be_set_for_tasks_either():
    problem = bl.problems.tasks(bl.Problem(ridge, error, (A, C), (B, D)))
    run = bl.solve(problem, POINT, jnp.zeros((T, 3)))
    assert run.status is bl.Status.CONVERGED
    assert jnp.linalg.norm(imaml_slope(run.x)) < 1e-3 * jnp.linalg.norm(imaml_slope(POINT))
    with pytest.raises(TypeError, match="for the method to say"):
        bl.solve(IMAML, POINT, IMAML.start(POINT))


def test_loops_that_begin_anew_do_not_measure_themselves():
    run = bl.solve(IMAML, POINT, IMAML.start(POINT), bl.Tasks(bl.schemes.auto()), steps=60)
    small = jnp.linalg.norm(imaml_slope(run.x)) < 1e-3 * jnp.linalg.norm(imaml_slope(POINT))
    assert small or run.status is not bl.Status.CONVERGED


def features(x, X):
    return jnp.tanh(X @ x)


def fit(x, w, X, t):
    return 0.5 * jnp.sum((features(x, X) @ w - t) ** 2) + 0.5 * LAM * jnp.sum(w**2)


def judged(x, w, X, t):
    return jnp.mean((features(x, X) @ w - t) ** 2)


def head(x, X, t):
    return bl.problems.ridge_head(features(x, X), t, LAM)


HEADS = bl.problems.tasks(bl.Problem(fit, judged, (A, C), (B, D)))


# fewer features than samples, and more
@pytest.mark.parametrize("width", [pytest.param(4, marks=pytest.mark.slow), 12])
def test_a_head_in_closed_form_is_that_of_argmin(width):
    x = jnp.asarray(RNG.normal(size=(3, width)))
    ystar = bl.argmin(fit)

    def by_argmin(x):
        one = lambda A, C, B, D: judged(x, ystar(x, jnp.zeros(width), A, C), B, D)  # noqa: E731
        return jnp.mean(jax.vmap(one)(A, C, B, D))

    method = bl.Tasks(bl.ClosedForm(head))
    h, state, info = stepped(method, HEADS, x, jnp.zeros((T, width)))
    close(h, jax.jit(jax.grad(by_argmin))(x), rtol=1e-7)
    assert info.result == bl.Status.COMPLETED
    wrong = bl.Tasks(bl.ClosedForm(lambda x, X, t: 1.1 * head(x, X, t)))
    _, _, info = stepped(wrong, HEADS, x, state.y)
    assert info.result == bl.Status.UNCONVERGED


# --- in a run -------------------------------------------------------------------------------------


def solve(steps, *, draw=sine, batch=3, key=0, **options):
    method = run_method(draw, batch, key)
    return bl.solve(MAML, X0, Y0, method, outer=optax.adam(1e-2), steps=steps, **options)


def run_method(draw=sine, batch=3, key=0):
    return bl.Tasks(ITD, batch=batch, draw=draw, key=key)


def test_a_run_on_new_tasks_ends_with_the_value_of_those_held_out(tmp_path):
    run = solve(40)
    np.testing.assert_allclose(run.value, maml_by_hand(run.x), rtol=1e-10)
    close(run.y, adapted_to_all(run.x))
    assert run.value < maml_by_hand(X0)

    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3)
    first = maml_by_hand(X0, *jax.vmap(sine)(keys))
    np.testing.assert_allclose(run.trace["batch_value"][0], first, rtol=1e-10)
    still = bl.solve(MAML, X0, Y0, run_method(), outer=1e-12, steps=3)
    assert len(set(still.trace["batch_value"].round(6))) == 3  # other tasks in each step
    # in evaluations on the T tasks of the problem
    np.testing.assert_allclose(run.cost, (40 * (STEPS + 2) * 3 / T, 40 * 2 * STEPS * 3 / T))

    solve(20, checkpoint=tmp_path / "run")
    resumed = solve(40, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(resumed.trace["batch_value"], run.trace["batch_value"])
    jax.tree.map(np.testing.assert_array_equal, resumed.x, run.x)
    assert solve(3, key=1).trace["batch_value"][0] != run.trace["batch_value"][0]


def test_a_watched_run_sees_the_y_that_belongs_to_x():
    def watch(x, y):
        return float(jnp.mean(jax.vmap(loss)(y, *OUTER)))

    run = solve(4, watch=watch, watch_every=2)
    np.testing.assert_allclose(run.watched["value"][0], maml_by_hand(X0), rtol=1e-10)
    np.testing.assert_allclose(run.watched["value"][-1], maml_by_hand(run.x), rtol=1e-10)


def test_some_of_the_tasks_are_drawn_and_only_theirs_move():
    tasks = bl.Problem(ridge, error, (A, C), (B, D))  # y is carried on
    problem, y0 = bl.problems.tasks(tasks), jnp.zeros((T, 3))
    method = bl.Tasks(bl.AID(bl.GradientDescent(0.01, 5), bl.CG(3)), batch=2, key=3)
    h, after, info = stepped(method, problem, POINT, y0)
    moved = np.flatnonzero(np.any(after.y != y0, axis=1))
    assert len(moved) == 2
    some = bl.Tasks(method.method)
    part = bl.problems.tasks(bl.Problem(ridge, error, (A[moved], C[moved]), (B[moved], D[moved])))
    expected, same, _ = stepped(some, part, POINT, y0[:2])
    close(h, expected)
    close(after.y[moved], same.y)
    assert int(info.samples.inner) == 2 * 7
    run = bl.solve(problem, POINT, y0, method, outer=1e-3, steps=6)
    np.testing.assert_allclose(
        run.value, jnp.mean(jax.vmap(partial(error, run.x))(run.y, B, D)), rtol=1e-12
    )


def test_maml_may_settle_where_its_inner_loops_do_not():
    run = bl.solve(MAML, X0, Y0, bl.Tasks(ITD), steps=30)
    assert not run.status.failed
    assert run.status is not bl.Status.UNCONVERGED
    close(run.value, maml_by_hand(run.x))


@pytest.mark.slow
def test_an_equilibrium_and_a_prox_for_each_task():
    one = bl.Problem(ridge, error, (A, C), (B, D), prox=bl.prox.L1(0.1))
    method = bl.Tasks(bl.schemes.auto(kind="proximal"))
    problem = bl.problems.tasks(one)
    _, state, _ = stepped(method, problem, POINT, jnp.zeros((T, 3)))
    ystar = bl.argmin(ridge, prox=bl.prox.L1(0.1))
    for t in range(T):
        close(state.y[t], ystar(POINT, jnp.zeros(3), A[t], C[t]), rtol=2e-2)
    layer = lambda x, y, A, c: 0.5 * jnp.tanh(y + A.T @ c) * x  # noqa: E731
    deep = bl.problems.tasks(bl.Problem.fixed_point(layer, error, (A, C), (B, D)))
    method = bl.Tasks(bl.AID(bl.FixedPoint(60), bl.GMRES(10)))
    _, state, _ = stepped(method, deep, POINT, jnp.zeros((T, 3)))
    close(state.y, jax.vmap(partial(layer, POINT))(state.y, A, C), rtol=1e-8)


def test_what_is_no_task_is_refused():
    one = bl.Problem(ridge, error, (A, C), (B, D))
    with pytest.raises(TypeError, match="no problem of many tasks"):
        bl.Tasks(ITD).init(one, POINT, POINT)
    with pytest.raises(ValueError, match="4 in inner_data and 2 in outer_data"):
        bl.problems.tasks(bl.Problem(ridge, error, (A, C), (B[:2], D[:2])))
    marked = bl.Problem(ridge, error, (A, C), (B, D), per_sample=lambda x: x)
    with pytest.raises(ValueError, match="tasks have x in common"):
        bl.problems.tasks(marked)
    drawn = bl.Tasks(ITD, batch=2, draw=sine)
    with pytest.raises(ValueError, match="give the problem a start"):
        drawn.init(bl.problems.tasks(one), POINT, jnp.zeros((T, 3)))
    with pytest.raises(ValueError, match="data of one task"):
        drawn.init(IMAML, POINT, jnp.zeros((T, 3)))
    with pytest.raises(ValueError, match="how many tasks"):
        bl.Tasks(ITD, draw=sine)
    with pytest.raises(TypeError, match="draws rows itself"):
        bl.Tasks(bl.Tasks(ITD, batch=2))
    with pytest.raises(ValueError, match="larger than inner_data"):
        bl.Tasks(ITD, batch=9).init(MAML, X0, Y0)


def test_heads_in_closed_form_run_in_solve():
    """Their costs are Python's integers, and the run's are of 32 bits."""
    ridge = lambda x, y, X, Y: jnp.sum((X @ y - Y) ** 2) + jnp.exp(x) * jnp.sum(y**2)  # noqa: E731
    one = bl.Problem(ridge, lambda x, y, X, Y: jnp.mean((X @ y - Y) ** 2), INNER, OUTER)
    heads = bl.Tasks(bl.ClosedForm(lambda x, X, Y: bl.problems.ridge_head(X, Y, jnp.exp(x))))
    run = bl.solve(bl.problems.tasks(one), 0.0, jnp.zeros((T, 1)), heads, outer=0.1, steps=2)
    assert run.status == bl.Status.COMPLETED
    assert (run.cost.gradients, run.cost.products) == (6, 2)
