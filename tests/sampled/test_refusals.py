"""What is refused, with the numbers."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.cli.main import main

from .common import everything, inner, outer, regression, samples

GD, RICHARDSON = bl.GradientDescent(0.1, 2), bl.Richardson(0.1, 2)


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (0, ValueError, "batch must be an integer of at least 1, got 0"),
        (-3, ValueError, "batch must be an integer of at least 1, got -3"),
        (2.5, TypeError, "batch must be an integer of at least 1, got 2.5"),
        ("64", TypeError, "batch must be an integer"),
        (True, TypeError, "batch must be an integer"),
        ((4, 0), ValueError, "got 0"),
    ],
)
def test_batches_that_are_none(batch, error, words):
    with pytest.raises(error, match=words):
        bl.schemes.soba(batch, 0.1, 0.1)
    with pytest.raises(error, match=words):
        bl.Uniform(batch[1] if isinstance(batch, tuple) else batch)


@pytest.mark.parametrize("sampler", [bl.Blocks, bl.Uniform])
def test_batches_that_do_not_fit_the_data(sampler):
    problem, x, y = regression()
    with pytest.raises(ValueError, match="A batch of 25 is larger than inner_data, which has 24"):
        bl.schemes.soba((sampler(25), None), 0.1, 0.1).init(problem, x, y)
    with pytest.raises(ValueError, match="A batch of 21 is larger than outer_data, which has 20"):
        bl.schemes.soba((None, sampler(21)), 0.1, 0.1).init(problem, x, y)
    nowhere = bl.Problem(lambda x, y, d: y @ y, outer, ({"A": np.ones(3)},), problem.outer_data)
    with pytest.raises(ValueError, match=r"no samples in inner_data.*batch=\(4, None\)"):
        bl.schemes.soba((sampler(4), 4), 0.1, 0.1).init(nowhere, x, y)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_a_mean_is_one_at_any_scale(scale):
    """In the first units a sum would differ by less than rounding in the second."""
    problem, x, y = regression()
    method = bl.schemes.soba((4, None), 0.1, 0.1)

    def scaled(x, y, X, t):
        return scale * jnp.mean((X @ y - t) ** 2)

    def summed(x, y, X, t):
        return len(t) * scaled(x, y, X, t)

    data = problem.inner_data, problem.outer_data
    method.init(bl.Problem(scaled, outer, *data), x, y)
    with pytest.raises(ValueError, match="inner must be a mean"):
        method.init(bl.Problem(summed, outer, *data), x, y)

    def penalised(x, y, X, t):  # by one penalty for each row, of which y = 0 shows nothing
        return scaled(x, y, X, t) + scale * len(t) * y @ y

    with pytest.raises(ValueError, match="inner must be a mean"):
        method.init(bl.Problem(penalised, outer, *data), x, jnp.zeros_like(y))


@pytest.mark.parametrize("sampler", [bl.Blocks(4), bl.Uniform(5)], ids=["blocks", "uniform"])
@pytest.mark.parametrize("n", [24, 23])
def test_a_loss_that_is_a_sum(sampler, n):
    problem, x, y = regression(n=n)

    def summed(x, y, X, t):
        return 0.5 * jnp.sum((X @ y - t) ** 2)

    wrong = bl.Problem(summed, outer, problem.inner_data, problem.outer_data)
    method = bl.schemes.soba((sampler, None), 0.1, 0.1)
    with pytest.raises(ValueError, match=r"inner must be a mean.*jnp.mean instead of jnp.sum"):
        method.init(wrong, x, y)
    wrong = bl.Problem(inner, summed, problem.inner_data, problem.outer_data)
    with pytest.raises(ValueError, match="outer must be a mean over its samples: on 20 of them"):
        bl.solve(wrong, x, y, bl.schemes.soba((None, 4), 0.1, 0.1), outer=0.1, steps=1)
    with pytest.raises(ValueError, match="outer must be a mean"):
        bl.sweep(
            wrong, x, y, bl.schemes.soba((None, 4)), outer=0.1, steps=1, over={"outer": [0.1, 0.2]}
        )
    data = problem.inner_data, problem.outer_data
    # All rows, or one block that is all of them, follow the sum that was given.
    bl.schemes.soba((n, None), 0.1, 0.1).init(bl.Problem(summed, outer, *data), x, y)


def test_entries_of_x_for_each_sample_that_are_not_marked():
    problem, _, y = regression()

    def weighted(x, y, X, t):
        return jnp.mean(x * (X @ y - t) ** 2) + y @ y

    unmarked = bl.Problem(weighted, outer, problem.inner_data, problem.outer_data)
    told = r"inner can be .* on all samples, but not on a batch of 4: .*per_sample=lambda x: x"
    with pytest.raises(ValueError, match=told):
        bl.solve(unmarked, jnp.ones(24), y, bl.schemes.soba(4), outer=0.1, steps=1)


def test_rows_of_x_that_are_not_those_of_the_data():
    problem, _, y = regression()
    weighted = bl.Problem(
        lambda x, y, X, t: jnp.mean(x * (X @ y - t) ** 2),
        lambda x, y: y @ y,
        problem.inner_data,
        per_sample=True,
    )
    method = bl.schemes.soba((4, None), 0.1, 0.1)
    with pytest.raises(ValueError, match=r"shape \(1,\), but there are 24 inner samples"):
        method.init(weighted, jnp.ones(1), y)


ESTIMATORS = {
    "saga": (bl.Saga(), "Saga keeps a value for each block of rows, but Uniform"),
    "zero sarah": (bl.ZeroSarah(0.1), "ZeroSarah keeps a value for each block"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_that_need_blocks(name):
    estimator, words = ESTIMATORS[name]
    uniform = bl.Samples(bl.Blocks(4), bl.Uniform(4))
    for make in (
        lambda: bl.SingleLoop(uniform, 0.1, 0.1, estimator),
        lambda: bl.SampledAID(GD, RICHARDSON, uniform, estimator),
        lambda: bl.Penalty(uniform, 0.1, 10.0, estimator=estimator),
        lambda: bl.Matrices(uniform, 0.1, 1.0, estimator),
    ):
        with pytest.raises(ValueError, match=words):
            make()


@pytest.mark.parametrize(
    "linear", [bl.CG(3), bl.Chebyshev(L=2.0, mu=1.0, steps=3), bl.Dense()], ids=repr
)
def test_linear_loops_that_need_one_matrix(linear):
    with pytest.raises(TypeError, match=f"another H, which {type(linear).__name__}"):
        bl.SampledAID(GD, linear, samples())
    with pytest.raises(TypeError, match="another H"):
        bl.SingleLoop(samples(), 0.1, linear=linear)


@pytest.mark.parametrize(
    ("inner_loop", "linear", "error", "words"),
    [
        (bl.NewtonCG(), RICHARDSON, TypeError, "single gradient steps.*NewtonCG"),
        (bl.GradientDescent("auto", 2), RICHARDSON, ValueError, '"auto" measures curvature'),
        (bl.GradientDescent(0.1, "auto"), RICHARDSON, ValueError, '"auto" measures curvature'),
        (bl.GradientDescent(0.1, 2, 1e-3), RICHARDSON, ValueError, "tolerance cannot end Gradient"),
        (bl.Optax(optax.adam(0.1), 2, 1e-3), RICHARDSON, ValueError, "tolerance cannot end Optax"),
        (GD, bl.Richardson("auto", 2), ValueError, '"auto" measures curvature'),
        (GD, bl.Richardson(0.1, "auto"), ValueError, '"auto" measures curvature'),
        (GD, bl.Richardson(0.1, 2, 1e-3), ValueError, "tolerance cannot end Richardson"),
        (GD, bl.Neumann(0.1, 2, 1e-3), ValueError, "tolerance cannot end Neumann"),
    ],
)
def test_loops_that_judge_a_batch(inner_loop, linear, error, words):
    with pytest.raises(error, match=words):
        bl.SampledAID(inner_loop, linear, samples())
    if linear is RICHARDSON:
        with pytest.raises(error, match=words.replace("single gradient steps.*", "")):
            bl.Evolution(inner_loop, samples())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bl.SingleLoop(bl.Blocks(4), 0.1, 0.1), "samples must be Samples"),
        (lambda: bl.SampledAID(GD, RICHARDSON, 64), "samples must be Samples"),
        (lambda: bl.Penalty(None, 0.1, 10.0), "samples must be Samples"),
        (lambda: bl.Evolution(GD, 64), "samples must be Samples"),
        (lambda: bl.Matrices(64, 0.1, 1.0, bl.Plain()), "samples must be Samples"),
        (lambda: bl.SingleLoop(samples(), 0.1), "needs the step size of v"),
        (lambda: bl.SingleLoop(samples(), 0.1, 0.1, linear=bl.Neumann(0.1, 3)), "one of the two"),
        (lambda: bl.SingleLoop(samples(), 0.1, 0.1, {"y": bl.Plain()}), "must have one estimator"),
        (lambda: bl.SingleLoop(samples(), 0.1, 0.1, {"yvxx": bl.Plain()}), "must have one"),
        (lambda: bl.SingleLoop(samples(), 0.1, 0.1, {"yv": bl.Plain(), "x": 3}), "an estimator"),
        (lambda: bl.SingleLoop(samples(), 0.1, 0.1, "plain"), "estimators must be an estimator"),
        (lambda: bl.SingleLoop(samples(), -0.1, 0.1), "inner_step must be .* greater than 0"),
        (lambda: bl.Storm(1.5), "weight must be above 0 and at most 1, got 1.5"),
        (lambda: bl.MovingAverage(0.0), "weight must be .*greater than 0, got 0"),
        (lambda: bl.ZeroSarah(-1), "weight must be"),
        (lambda: bl.Recursive(), "either a period or a probability"),
        (lambda: bl.Recursive(3, 0.1), "either a period or a probability"),
        (lambda: bl.Recursive(0), "period must be an integer of at least 1"),
        (lambda: bl.Recursive(probability=1.5), "probability must be above 0 and at most 1"),
        (lambda: bl.Differences(0.0), "radius must be"),
        (lambda: bl.RandomNeumann(0.1, 0), "terms must be an integer of at least 1"),
        (lambda: bl.Penalty(samples(), 0.1, 0.0), "multiplier must be"),
        (lambda: bl.Penalty(samples(), 0.1, 1.0, central=1), "central must be True or False"),
        (lambda: bl.Evolution(GD, samples(), 0), "directions must be"),
    ],
)
def test_arguments(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def with_loop(inner):
    return [
        bl.SampledAID(inner, RICHARDSON, samples()),
        bl.Evolution(inner, samples()),
        bl.Barrier(inner, 0.1),
    ]


@pytest.mark.parametrize("which", range(3), ids=["SampledAID", "Evolution", "Barrier"])
def test_loops_for_another_kind_of_problem(which):
    """FixedPoint takes ∇_y g for y − T(x, y), a step of length one that may lead anywhere."""
    problem, x, y = regression()
    for loop in (bl.FixedPoint(3), bl.Anderson(3)):
        with pytest.raises(TypeError, match=f"{type(loop).__name__} cannot take a problem whose"):
            with_loop(loop)[which].init(problem, x, y)


def test_a_barrier_does_not_see_a_proximal_map():
    problem, x, y = regression()
    boxed = dataclasses.replace(problem, prox=bl.prox.Box(0.0, 0.1))
    for loop in (GD, bl.FISTA(0.1, 3)):
        with pytest.raises(TypeError, match="Barrier cannot take a problem whose y minimises g"):
            bl.Barrier(loop, 0.1).init(boxed, x, y)


def test_matrices_are_for_small_y():
    _problem, x, _ = regression()
    wide = bl.Problem(lambda x, y: y @ y, lambda x, y: y @ y)
    with pytest.raises(ValueError, match="at most 512 entries; this one has 513"):
        bl.Matrices(everything(), 0.1, 1.0, bl.Plain()).init(wide, x, jnp.zeros(513))


def test_runs_that_read_more_into_a_batch_than_it_says():
    problem, x, y = regression()
    method = bl.schemes.soba((4, 5), 0.1, 0.1)
    with pytest.raises(TypeError, match="which are on other rows here"):
        bl.solve(problem, x, y, method, steps=5)
    with pytest.raises(ValueError, match=r"epsilon = 0.001 cannot be compared with h on a batch"):
        bl.solve(problem, x, y, method, outer=0.1, steps=5, epsilon=1e-3)
    with pytest.raises(ValueError, match=r"epsilon = 0.001 cannot be compared with h on a batch"):
        bl.sweep(problem, x, y, method, outer=0.1, steps=5, epsilon=1e-3, seeds=range(2))
    for measure in (0, 2.5):
        with pytest.raises((TypeError, ValueError), match="measure must be an integer of at least"):
            bl.solve(problem, x, y, method, outer=0.1, steps=5, measure=measure)
    with pytest.raises(ValueError, match="measure is a value to watch"):
        bl.solve(problem, x, y, method, outer=0.1, steps=5, measure=5, watch=lambda x, y: 0.0)
    for budget in (0, -1.5, bl.Cost(1, 0)):
        with pytest.raises(ValueError, match="must be a finite number greater than 0"):
            bl.solve(problem, x, y, method, outer=0.1, steps=5, budget=budget)


def test_schedules_that_give_no_number():
    problem, x, y = regression()
    bad = lambda k: jnp.where(k < 2, 1, -1)  # noqa: E731
    method = bl.SampledAID(GD, bl.Richardson(0.1, bad), samples())
    run = bl.solve(problem, x, y, method, outer=0.1, steps=5)
    assert (run.status, run.steps) == (bl.Status.BAD_SCHEDULE, 2)
    assert min(np.diff(run.trace["product_samples"])) >= 0
    for method in (
        bl.SampledAID(bl.GradientDescent(0.1, lambda k: -k), RICHARDSON, samples()),
        bl.Penalty(samples(), 0.1, 10.0, steps=lambda k: -k),
        bl.Evolution(bl.GradientDescent(0.1, lambda k: -k), samples()),
    ):
        state = method.init(problem, x, y)
        _, _, info = eqx.filter_jit(method)(problem, x, state, jnp.asarray(3))
        assert int(info.result) == bl.Status.BAD_SCHEDULE
        assert min(map(int, info.samples)) >= 0


def test_a_batch_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    solve = ["solve", "cleaning-digits", "--outer", "0.1", "--steps", "2"]
    assert main([*solve, "--batch", "5", "--method", "soba"]) == 0
    assert "batch_value" in capsys.readouterr().out
    trace = bl.Trace.load(tmp_path / "trace.npz")
    np.testing.assert_array_equal(trace["inner_samples"], [5, 10])
    assert main([*solve, "--batch", "5", "--method", "n-loop"]) == 2
    assert "n-loop sees all in each step" in capsys.readouterr().err
