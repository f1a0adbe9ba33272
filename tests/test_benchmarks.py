"""The comparison with peers: the reference is right, errors are noticed, the tables add up."""

import dataclasses
import importlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from benchmarks.peers.__main__ import main
from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.contenders.jax_losses import losses
from benchmarks.peers.document import Session, write
from benchmarks.peers.reference import derivatives, expected, relative_error
from benchmarks.peers.table import Measured, conclusion, duration, table
from benchmarks.peers.turns import TOLERANCE, Pace, Result, Worker, measure
from benchmarks.peers.works import SHORT, WORKS, Instance, Start, make, work_from_json

TINY = {"cleaning": (40, 6, 3), "quadratic": (4, 5), "representation": (12, 3, 4)}
NAMES = {"cleaning": "cleaning-20-20", "quadratic": "quadratic", "representation": "representation"}


def tiny(name, **changes):
    work = WORKS[name]
    return make(dataclasses.replace(work, sizes=TINY[work.problem], **changes))


def double(instance):
    def wide(arrays):
        return {name: a.astype(np.float64) for name, a in arrays.items()}

    start = Start(*(a.astype(np.float64) for a in instance.start))
    return Instance(instance.work, wide(instance.inner), wide(instance.outer), start)


def slope(function, at, direction, h=1e-6):
    return (function(at + h * direction) - function(at - h * direction)) / (2 * h)


@pytest.mark.parametrize("problem", TINY)
def test_the_reference_has_the_derivatives_of_the_losses(problem):
    instance = double(tiny(NAMES[problem]))
    d, loss = derivatives(instance), losses(instance)
    inner, outer = jax.jit(loss.inner), jax.jit(loss.outer)
    x, y = instance.start
    rng = np.random.default_rng(1)
    a, b, v = rng.normal(size=x.shape), rng.normal(size=y.shape), rng.normal(size=y.shape)

    def close(found, truth):
        np.testing.assert_allclose(np.sum(found), truth, rtol=1e-6, atol=1e-9)

    f_x, f_y = d.outer_gradients(x, y)
    hessian, cross = d.products(x, y)(v)
    close(d.inner_gradient(x, y) * b, slope(lambda y: inner(x, y, loss.inner_data), y, b))
    close(f_x * a, slope(lambda x: outer(x, y, loss.outer_data), x, a))
    close(f_y * b, slope(lambda y: outer(x, y, loss.outer_data), y, b))
    close(hessian * b, slope(lambda y: np.sum(d.inner_gradient(x, y) * v), y, b))
    close(cross * a, slope(lambda x: np.sum(d.inner_gradient(x, y) * v), x, a))


def test_the_reference_with_long_loops_is_the_exact_hypergradient():
    instance = double(tiny("quadratic", N=300, Q=300))
    loss = losses(instance)
    problem = bl.Problem(
        loss.inner, loss.outer, inner_data=(loss.inner_data,), outer_data=(loss.outer_data,)
    )
    exact = bl.Exact()
    h, _, _ = jax.jit(exact)(problem, loss.x, exact.init(problem, loss.x, loss.y), 0)
    itd = instance._replace(work=dataclasses.replace(instance.work, method="ITD"))
    for reference in (instance, itd):
        assert relative_error(h, expected(reference, 1)[0]) < 1e-9


def test_the_reference_of_itd_is_the_slope_of_the_unrolled_loop():
    instance = double(tiny("representation", N=7))
    work, d, (x, y0) = instance.work, derivatives(instance), instance.start
    loss = losses(instance)

    def end(x):
        y = y0
        for _ in range(work.N):
            y = y - work.step_size * d.inner_gradient(x, y)
        return float(loss.outer(jnp.asarray(x), jnp.asarray(y), loss.outer_data))

    direction = np.random.default_rng(2).normal(size=x.shape)
    (h,) = expected(instance, 1)
    np.testing.assert_allclose(np.sum(h * direction), slope(end, x, direction), rtol=1e-6)


@pytest.mark.parametrize(
    ("contender", "name", "changes"),
    [
        ("biloop", "cleaning-20-20", {"N": 3, "Q": 2}),
        ("biloop-shipped", "cleaning-20-20", {"N": 3, "Q": 2}),
        ("biloop", "representation-XH", {"N": 3}),
        ("jax", "quadratic", {"N": 2, "Q": 3}),
        ("jax", "representation", {"N": 3}),
    ],
)
def test_contenders_agree_with_the_reference(contender, name, changes):
    instance = tiny(name, **changes)
    module = importlib.import_module(f"benchmarks.peers.contenders.{CONTENDERS[contender].module}")
    found = module.prepare(instance, "cpu").hypergradients(2)
    for h, truth in zip(found, expected(instance, 2), strict=True):
        assert relative_error(h, truth) < TOLERANCE["full"]


def test_the_check_sees_an_adjoint_that_is_not_carried_over():
    instance = tiny("cleaning-20-20", N=3, Q=2)
    first, second = (expected(instance, 2, warm_adjoint=warm) for warm in (True, False))
    assert relative_error(first[0], second[0]) == 0
    assert relative_error(first[1], second[1]) > 100 * TOLERANCE["full"]


class Scripted:
    """A worker that answers what a contender would, without a process."""

    def __init__(self, name, asked, seconds=1.0, scale=1.0, setup=None, dies_after=99):
        self.name, self.asked, self.seconds, self.scale = name, asked, seconds, scale
        self.setup, self.left = setup or {}, dies_after

    def ask(self, do, work=None, steps=0, count=0):
        if do == "setup":
            self.instance = make(work_from_json(work))
            return self.setup
        if do == "check":
            truth = expected(self.instance, count, CONTENDERS[self.name].warm_adjoint)
            return {"hypergradients": [self.scale * h for h in truth]}
        self.left -= 1
        self.asked.append(self.name)
        return {"seconds": steps * self.seconds} if self.left >= 0 else {"error": "out of memory"}


def test_contenders_take_turns_and_those_that_fail_are_left_out():
    asked, said = [], []
    workers = [
        Scripted("biloop", asked, seconds=0.5),
        Scripted("jaxopt", asked, seconds=2.0),
        Scripted("torch", asked, scale=1.001),
        Scripted("torchopt", asked, setup={"missing": "not installed (no torchopt)"}),
        Scripted("higher", asked, setup={"unsupported": True}),
        Scripted("betty", asked, dies_after=3),
    ]
    results = measure(tiny("quadratic").work, workers, Pace(turns=3, seconds=0.5), said.append)
    found = {r.contender: r for r in results}
    assert list(found) == ["biloop", "jaxopt", "torch", "torchopt", "betty"]
    assert found["biloop"].seconds == [0.5] * 3
    assert found["jaxopt"].best == found["jaxopt"].median == 2.0
    assert found["torch"].error == pytest.approx(1e-3)
    assert not found["torch"].seconds
    assert "computes something else" in found["torch"].problem
    assert found["torchopt"].problem == "not installed (no torchopt)"
    assert found["betty"].problem == "out of memory"
    assert len(found["betty"].seconds) == 1
    assert asked[-8:] == ["biloop", "jaxopt", "betty"] * 2 + ["biloop", "jaxopt"]
    assert len(said) == 3


def test_a_worker_is_a_process_that_computes_what_it_should():
    work = dataclasses.replace(WORKS["gradient"], sizes=(50, 21, 10))
    worker = Worker("c", "cpu", "full")
    try:
        (result,) = measure(work, [worker], Pace(turns=2, seconds=0.001), say=print)
        assert "no attribute" in worker.ask("dance")["error"]
        assert worker.ask("setup", work=WORKS["quadratic"].as_json())["unsupported"]
    finally:
        worker.close()
    if shutil.which("cc") or shutil.which("gcc"):
        assert result.error < TOLERANCE["full"]
        assert len(result.seconds) == 2
    else:
        assert result.problem == "no compiler"


@pytest.fixture
def measured():
    def result(name, seconds, **fields):
        return Result(name, error=1e-7, compile_seconds=2.0, seconds=seconds, **fields)

    results = [
        result("biloop", [0.2, 0.1, 0.4]),
        result("jaxopt", [0.25]),
        result("torch", [30.0]),
        result("hypertorch", [20.0]),
        Result("torchopt", problem="not installed (no torchopt)"),
    ]
    return Measured(WORKS["cleaning-20-20"], results, floor=0.05, floor_is="a gradient in C")


def test_the_table_has_the_shortest_time_the_median_and_the_ratios(measured):
    head, *rows = (line.split("  ") for line in table(measured).splitlines())
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell] for row in rows}
    assert "/ shipped" not in "  ".join(head)
    assert cells["biloop"] == ["100 ms", "200 ms", "1.00", "2.00", "2.00 s", "1e-07"]
    assert cells["jaxopt"][2:4] == ["2.50", "5.00"]
    assert cells["hypertorch's loops"][2] == "200"
    assert "TorchOpt" not in cells


def test_the_conclusion_names_the_fastest_rival_and_who_is_missing(measured):
    missing, speed, floor = conclusion(measured)
    assert missing == "TorchOpt: not installed (no torchopt)."
    assert "200 × that of the fastest with PyTorch (hypertorch's loops), 2.50 × jaxopt" in speed
    assert floor == "Floor: 50.0 ms, 40 times a gradient in C."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (123.4, "123 s"),
        (1.0, "1.00 s"),
        (0.0123, "12.3 ms"),
        (9.999e-4, "1.00 ms"),
        (8.7e-6, "8.70 µs"),
    ],
)
def test_durations_have_three_digits(seconds, text):
    assert duration(seconds) == text


def test_the_page_is_written_and_a_section_added(measured, tmp_path):
    page = tmp_path / "benchmarks.md"
    session = Session("python -m benchmarks.peers", "cpu", 0.1, Pace(3, 0.2), {}, [measured])
    write(page, session, append=False)
    write(page, session, append=True)
    text = page.read_text(encoding="utf-8")
    assert text.count("# Benchmarks\n") == 1
    assert text.count("## Measured on a CPU") == 2
    assert text.count(table(measured)) == 2
    assert "relative error of 2e-05" in text


def test_works_are_what_their_names_say():
    assert set(SHORT) < set(WORKS)
    assert WORKS["cleaning-1-20"].title == "AID, data cleaning 20000×785×10, N=1, Q=20"
    assert work_from_json(WORKS["quadratic"].as_json()) == WORKS["quadratic"]
    assert [WORKS[name].passes for name in ("cleaning-20-1", "cleaning-itd-20", "product")] == [
        21,
        40,
        1,
    ]


def test_unknown_names_are_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--works", "quadratic,quartic"])
    assert stopped.value.code == 2
    assert "'quartic' is not one of gradient, product" in capsys.readouterr().err
