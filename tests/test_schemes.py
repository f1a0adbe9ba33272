"""The paper's names give the paper's loops."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.schedules import step_count
from biloop.schemes import BY_NAME

from .helpers import random_quadratic

S = {"inner_step": 0.1, "linear_step": 0.05}


def loops(method):
    return method.inner.steps(0), method.linear.steps(0)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (bl.schemes.no_loop(**S), (1, 1)),
        (bl.schemes.no_loop(**S, Q=2), (1, 2)),
        (bl.schemes.n_loop(N=20, **S), (20, 1)),
        (bl.schemes.q_loop(Q=20, **S), (1, 20)),
        (bl.schemes.n_q_loop(N=20, Q=15, **S), (20, 15)),
        # ⌈10 ln 10⌉ = ⌈23.03⌉
        (bl.schemes.n_loop(kappa=10.0, **S), (24, 1)),
        (bl.schemes.q_loop(kappa=10.0, **S), (1, 24)),
        (bl.schemes.n_q_loop(kappa=10.0, **S), (24, 24)),
        (bl.schemes.aid_bio(kappa=10.0, inner_step=0.1), (24, 24)),
    ],
)
def test_aid_schemes(method, expected):
    assert isinstance(method, bl.AID)
    assert loops(method) == expected
    assert float(method.inner.step_size) == 0.1
    assert method.warm_start_y
    assert method.warm_start_v
    if isinstance(method.linear, bl.Richardson):
        assert float(method.linear.step_size) == 0.05


def test_itd_schemes():
    assert bl.schemes.itd_no_loop(0.1).inner.steps(0) == 1
    assert bl.schemes.n_n_loop(N=20, inner_step=0.1).inner.steps(0) == 20
    assert bl.schemes.n_n_loop(kappa=10.0, inner_step=0.1).inner.steps(0) == 24
    assert bl.schemes.itd_bio(N=7, inner_step=0.1).inner.steps(0) == 7


def test_theorem_two_starts_the_adjoint_at_zero():
    assert not bl.schemes.n_q_loop(N=2, Q=2, **S, warm_start_v=False).warm_start_v


def test_ba_grows_its_inner_loop():
    """N_k = ⌈(k + 1)^¼ / 2⌉: 1 up to k = 15, then 2; counted in the run's cost."""
    quadratic = random_quadratic()
    method = bl.schemes.ba(Q=3, **S)
    run = bl.solve(quadratic.problem, *quadratic.start(), method, outer=0.01, steps=20)
    per_step = np.diff(run.trace["gradients"], prepend=0)
    np.testing.assert_array_equal(per_step, [3] * 16 + [4] * 4)
    np.testing.assert_array_equal(np.diff(run.trace["products"], prepend=0), 4)
    assert not method.warm_start_v


def test_loop_size_is_at_least_one():
    assert bl.schemes.loop_size(1.0) == 1
    assert bl.schemes.loop_size(np.e) == 3


@pytest.mark.parametrize("kappa", [0.5, -1.0, float("nan"), float("inf")])
def test_bad_condition_numbers_are_refused(kappa):
    with pytest.raises(ValueError, match="kappa"):
        bl.schemes.loop_size(kappa)


def test_loops_are_given_once():
    with pytest.raises(ValueError, match="either N or kappa"):
        bl.schemes.n_loop(**S)
    with pytest.raises(ValueError, match="either N or kappa"):
        bl.schemes.n_loop(N=3, kappa=2.0, **S)


def test_gradient_descent_ascent_is_a_special_case():
    """f = −g with Q = 0: x follows −∇_x f at the y that the N-loop reached, which is GDA."""
    g = lambda x, y: 0.5 * jnp.sum(y**2) - y @ (x + 1.0) - 0.3 * x @ x  # noqa: E731
    problem = bl.Problem(inner=g, outer=lambda x, y: -g(x, y))
    x, y = jnp.asarray([1.0, -2.0]), jnp.zeros(2)
    for N in (1, 5):
        method = bl.AID(
            bl.GradientDescent(step_size=0.3, steps=N), bl.Richardson(step_size=0.3, steps=0)
        )
        run = bl.solve(problem, x, y, method, outer=0.1, steps=10)
        x_ref, y_ref = np.asarray(x), np.asarray(y)
        for _ in range(10):
            for _ in range(N):
                y_ref = y_ref - 0.3 * (y_ref - x_ref - 1.0)
            x_ref = x_ref - 0.1 * (y_ref + 0.6 * x_ref)
        np.testing.assert_allclose(run.x, x_ref, rtol=1e-12)
        assert run.cost.products == 10  # the cross product with v = 0


def test_hoag_has_decreasing_tolerances_for_both_loops():
    """ε_k = 0.1 (k + 1)^−2 unless said otherwise."""
    method = bl.schemes.hoag()
    assert isinstance(method.inner.step_size, bl.BarzilaiBorwein)
    for loop in (method.inner, method.linear):
        assert loop.steps(0) == 1000
        np.testing.assert_allclose([loop.tolerance(k) for k in (0, 1, 9)], [0.1, 0.025, 0.001])
    other = bl.schemes.hoag(0.2, scale=1.0, power=-1.0, most=7)
    assert float(other.inner.step_size) == 0.2
    for loop in (other.inner, other.linear):
        assert loop.steps(0) == 7
        assert float(loop.tolerance(3)) == 0.25


def test_hoag_reaches_its_tolerances():
    quadratic = random_quadratic()
    run = bl.solve(quadratic.problem, *quadratic.start(), bl.schemes.hoag(), outer=0.05, steps=12)
    epsilon = 0.1 / np.arange(1, 13) ** 2
    for loop in ("inner", "linear"):
        assert np.all(run.trace[f"{loop}_residual"] <= epsilon)
        assert np.any(run.trace[f"{loop}_residual"] > 0.05 * epsilon)  # no more than asked for


def test_auto_passes_its_share_to_both_loops():
    for method, share, most in (
        (bl.schemes.auto(), 0.1, 1000),
        (bl.schemes.auto(0.03, most=50), 0.03, 50),
    ):
        assert isinstance(method.inner, bl.NewtonCG)
        assert isinstance(method.linear, bl.CG)
        for loop in (method.inner, method.linear):
            assert (float(loop.steps.share), loop.steps.most) == (share, most)
    assert float(bl.Adaptive().share) == 0.1
    # Where h says little without the support, and for equilibria, the square of it.
    proximal = bl.schemes.auto(0.5, most=7, kind="proximal")
    equilibrium = bl.schemes.auto(0.5, most=7, kind="equilibrium")
    shares = [
        (float(loop.steps.share), loop.steps.most)
        for method in (proximal, equilibrium)
        for loop in (method.inner, method.linear)
    ]
    assert shares == [(0.25, 140), (0.5, 7), (0.25, 7), (0.25, 7)]


@pytest.mark.slow
def test_a_smaller_share_costs_more():
    quadratic = random_quadratic(q=20, kappa=100.0)

    def cost(share):
        method = bl.schemes.auto(share)
        return bl.solve(quadratic.problem, *quadratic.start(), method, outer=0.01, steps=5).cost

    assert cost(1e-6).products > 1.2 * cost(0.3).products


@pytest.mark.parametrize(
    ("name", "powers", "others"),
    [  # of y and v, of x, and of what else changes with k, as their papers have them
        ("SOBA", (-2 / 5, -3 / 5), {}),
        ("FSLA", (-1 / 2, -1 / 2), {"weight": -1 / 2}),
        ("BSA", (-1 / 2, -1 / 2), {}),
        ("TTSA", (-2 / 5, -3 / 5), {}),
        ("SUSTAIN", (-1 / 3, -1 / 3), {"weight": -2 / 3}),
        ("MRBO", (-1 / 3, -1 / 3), {"weight": -2 / 3}),
        ("F2SA", (-4 / 7, -5 / 7), {"multiplier": 1 / 7}),
        ("F2SA-2", (-4 / 7, -5 / 7), {"multiplier": 1 / 7}),
        ("F3SA", (-2 / 5, -3 / 5), {"multiplier": 1 / 5, "weight": -4 / 5}),
    ],
)
def test_published_powers_of_k(name, powers, others):
    scheme = BY_NAME[name]
    assert scheme.schedules == pytest.approx(powers)
    defaults = inspect.signature(scheme.function).parameters
    found = {argument: defaults[argument].default for argument in ("inner_step", *others)}
    expected = {"inner_step": powers[0]} | others
    assert {argument: p for argument, (_, p) in found.items()} == pytest.approx(expected)


def test_who_is_compared_by_default():
    """On full batches those of the paper and BA; on batches those that are raced."""
    full = {name for name, scheme in BY_NAME.items() if "batch" not in scheme.arguments}
    assert {name for name in full if not BY_NAME[name].compared} == {
        "AID-BiO", "ITD-BiO", "HOAG", "BOME", "T1–T2", "DARTS",
    }  # fmt: skip
    loops = {f"{name} AID on batches" for name in ("No-loop", "N-loop", "Q-loop")}
    single = {"SOBA", "MA-SOBA", "SABA", "SRBA", "F2SA"}
    assert {name for name in BY_NAME if BY_NAME[name].raced} == {
        *loops,
        *single,
        "AmIGO",
        "stocBiO",
        "Adaptive on batches",
    }


def test_the_inner_loop_of_bsa_grows_with_the_root_of_k():
    steps = bl.schemes.bsa(batch=4).inner.steps
    assert [step_count(steps, k) for k in (0, 1, 3, 4, 8, 99)] == [1, 2, 2, 3, 3, 10]


OTHER = {
    "N": 5, "Q": 5, "T": 4, "batch": 7, "directions": 3, "inner_step": 0.3, "kappa": 50.0, "key": 5,
    "kind": "equilibrium", "linear_step": 0.4, "max_steps": 9, "most": 77, "mu": 0.25,
    "multiplier": 3.0, "period": 7, "power": -1.0, "probability": 0.3, "radius": 0.03, "scale": 0.7,
    "share": 0.3, "strength": 0.9, "terms": 6, "warm_start_v": False, "warm_start_y": False,
    "weight": 0.4, "y_step": 0.2,
}  # fmt: skip


@pytest.mark.parametrize(
    "scheme",
    [f for name, f in inspect.getmembers(bl.schemes, inspect.isfunction) if name != "loop_size"],
    ids=lambda scheme: scheme.__name__,
)
def test_every_argument_makes_another_method(scheme):
    """None is taken and forgotten, or handed on as its default."""
    names = inspect.signature(scheme).parameters
    needed = {"inner_step": 0.1, "linear_step": 0.1, "N": 3, "Q": 3, "mu": 0.5, "batch": 6}
    needed = {name: value for name, value in needed.items() if name in names}

    def parts(**given):
        leaves, structure = jax.tree.flatten(scheme(**{**needed, **given}))
        is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)  # noqa: E731
        data = [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]
        return structure, [np.asarray(leaf).tolist() for leaf in data]

    for name in set(names) - {"kappa"}:
        assert parts(**{name: OTHER[name]}) != parts(), name
    if "kappa" in names:  # in place of the lengths
        del needed["N" if "N" in needed else "Q"]
        needed.pop("Q", None)
        assert parts(kappa=OTHER["kappa"]) != parts(kappa=5.0)
