"""Estimators: plain where all rows are seen, unbiased where they say so, each by its formula."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from ..engines import begun, engine_of
from .common import Hand, everything, path, regression, rows_of, samples

ESTIMATORS = {
    "plain": bl.Plain(),
    "moving average": bl.MovingAverage((0.5, -0.3)),
    "storm": bl.Storm((1.0, -0.5)),
    "sarah": bl.Recursive(4),
    "page": bl.Recursive(probability=0.3),
    "saga": bl.Saga(),
    "zero sarah": bl.ZeroSarah(0.3),
    "saga for y, storm for the rest": {"y": bl.Saga(), "vx": bl.Storm(0.2)},
    "one each": {"y": bl.Recursive(5), "v": bl.ZeroSarah(0.5), "x": bl.MovingAverage(0.4)},
}


class ByHand:
    """An estimator in NumPy; `new`, `old` and `full` are functions, `block` numbers the rows."""

    def __init__(self, estimator, counts):
        self.kind, self.own = type(estimator).__name__, estimator
        self.d, self.counts = None, counts
        self.table, self.mean = [{}, {}], [0.0, 0.0]

    def __call__(self, k, new, old, full, blocks, time):
        if self.kind == "Recursive":
            self.d = full() if time else self._plus(self.d, new(), -1, old())
            return self.d
        now = new()
        weight = float(self.own.weight(k)) if "weight" in vars(self.own) else 0.0
        if self.kind == "Plain":
            return now
        if self.kind == "MovingAverage":
            first = k == 0
            self.d = (
                now
                if first
                else [(1 - weight) * a + weight * b for a, b in zip(self.d, now, strict=False)]
            )
        elif self.kind == "Storm":
            eta = 1.0 if k == 0 else weight
            past = now if k == 0 else self._plus(self.d, old(), -1, None)
            self.d = [n + (1 - eta) * p for n, p in zip(now, past, strict=False)] if k else now
        elif self.kind == "Saga":
            self.d = self._saga(now, blocks)
        elif self.kind == "ZeroSarah":
            anchor = self._saga(now, blocks)
            if k == 0:
                self.d = anchor
            else:
                moved = self._plus(self.d, now, -1, old())
                self.d = [
                    (1 - weight) * m + weight * a for m, a in zip(moved, anchor, strict=False)
                ]
        return self.d

    def _plus(self, d, a, sign, b):
        if b is None:
            return [x + sign * y for x, y in zip(d, a, strict=False)]
        return [x + y + sign * z for x, y, z in zip(d, a, b, strict=False)]

    def _saga(self, now, blocks):
        found = []
        for side, block in enumerate(blocks):
            change = now[side] - self.table[side].get(block, np.zeros_like(now[side]))
            found.append(self.mean[side] + change)
            self.mean[side] = self.mean[side] + change / self.counts[side]
            self.table[side][block] = now[side]
        return found


def by_hand(method, problem, x, y, steps, alpha, eta, beta):
    """The trajectory of `SingleLoop` in NumPy, from the rows that it draws."""
    hand, x, y = Hand(problem), np.asarray(x), np.asarray(y)
    v, last, everywhere = np.zeros_like(y), None, (np.arange(24), np.arange(20))
    each = [(n, ByHand(e, (6, 4))) for names, e in method.estimators.items() for n in names]
    for k in range(steps):
        rows, here = rows_of(method, problem, k), (x, y, v)
        blocks = rows[0][0] // 4, rows[1][0] // 5
        coin = float(jax.random.uniform(method.samples.chance(k)))
        D = {}
        for name, estimator in each:
            own = estimator.own
            time = k == 0
            if estimator.kind == "Recursive" and own.period:
                time = k % own.period == 0
            elif estimator.kind == "Recursive":
                time = k == 0 or coin < float(own.probability)
            parts = lambda rows, point, name=name: list(hand.parts(rows, point)[name])  # noqa: E731
            inner, outer = estimator(
                k,
                lambda parts=parts, rows=rows, here=here: parts(rows, here),
                lambda parts=parts, rows=rows, last=last: parts(rows, last),
                lambda parts=parts, here=here: parts(everywhere, here),
                blocks,
                time,
            )
            D[name] = outer - inner if name == "x" else inner - outer
        x, y, v, last = x - beta * D["x"], y - alpha * D["y"], v - eta * D["v"], here
        yield x, y, v, D["x"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_each_by_its_formula(name):
    problem, x, y = regression()
    method = bl.SingleLoop(samples(), 0.2, 0.15, ESTIMATORS[name])
    found = path(method, problem, x, y, 20)[:4]
    expected = by_hand(method, problem, x, y, 20, 0.2, 0.15, 0.1)
    for k, step in enumerate(expected):
        for have, want in zip(found, step, strict=True):
            np.testing.assert_allclose(have[k], want, rtol=1e-10, atol=1e-13)


@pytest.fixture(scope="module")
def plain():
    problem, x, y = regression()
    return path(bl.SingleLoop(everything(), 0.2, 0.15), problem, x, y, 50)[:4]


@pytest.mark.parametrize(
    ("name", "batch"),
    # But for the moving average: one over the past is none of the present.
    [(name, None) for name in ESTIMATORS if name != "moving average"]
    + [("saga", (24, 20)), ("one each", (24, 20))],
)
def test_with_all_rows_each_is_plain(name, batch, plain):
    estimators = ESTIMATORS[name]
    if name == "one each":
        estimators = estimators | {"x": bl.Storm(0.4)}
    problem, x, y = regression()
    rows = everything() if batch is None else samples(batch)
    found = path(bl.SingleLoop(rows, 0.2, 0.15, estimators), problem, x, y, 50)[:4]
    for have, want in zip(found, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("estimator", [bl.Plain(), bl.Saga()], ids=repr)
def test_unbiased_over_all_blocks(estimator):
    """From one state, the mean over all pairs of blocks is what all rows say, by direction."""
    problem, x, y = regression()
    method = bl.SingleLoop(samples(), 0.2, 0.15, estimator)
    state = method.init(problem, x, y)

    @jax.jit
    def step(x, state, k):
        h, state, _ = method(problem, x, state, k)
        return h, state

    for k in range(9):  # some blocks twice, some not at all
        h, state = step(x, state, k)
        x = x - 0.1 * h
    seen, ends = {}, []
    for t in range(400):  # until each pair was drawn
        pair = tuple(int(r[0]) for r in rows_of(method, problem, t))
        seen.setdefault(pair, t)
        if len(seen) == 24:
            break
    assert len(seen) == 24
    for t in seen.values():
        h, after = step(x, state._replace(draws=jnp.asarray(t, jnp.int32)), 9)
        ends.append((h, after.y, after.v))
    mean = jax.tree.map(lambda *a: sum(a) / len(a), *ends)
    whole = bl.SingleLoop(everything(), 0.2, 0.15)
    start = whole.init(problem, x, state.y)._replace(v=state.v)
    h, after, _ = jax.jit(whole)(problem, x, start, 9)
    for have, want in zip(mean, (h, after.y, after.v), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-12, atol=1e-14)
    assert np.std([np.asarray(h) for h, _, _ in ends]) > 1e-4  # each by itself is another one


def test_the_noise_of_each_falls_as_it_should():
    """At one point that does not move: SAGA and SARAH know it after a pass, STORM averages."""
    problem, x, y = regression()
    y = y + 0.3
    noise = {}
    for name in ("plain", "storm", "sarah", "saga", "zero sarah"):
        method = bl.SingleLoop(samples(), 1e-30, 1e-30, ESTIMATORS[name])
        *_, info = path(method, problem, x, y, 300, 0.0)
        truth = np.linalg.norm(Hand(problem).gradient(np.arange(24), np.asarray(x), np.asarray(y)))
        noise[name] = np.std(np.asarray(info.residuals.inner)[200:]) / truth
    assert noise["saga"] < 1e-12
    assert noise["sarah"] < 1e-12
    assert noise["zero sarah"] < 1e-12
    assert noise["storm"] < 0.6 * noise["plain"]


def copies_of(program, shape):
    """Lines of a compiled program that copy an array of that shape."""
    return [line for line in program.splitlines() if " copy(" in line and shape in line]


@pytest.mark.parametrize("estimator", [bl.Saga(), bl.ZeroSarah(0.5)], ids=repr)
def test_tables_are_updated_in_place(estimator):
    """In the loop of the compiled chunk nothing copies a table; at its entry one may be."""
    problem, x, y = regression(n=4 * 37, m=5 * 41)
    method = bl.SingleLoop(samples(), 0.1, 0.1, estimator)
    program = (
        engine_of(*begun(problem, method, 0.1, x, y))
        .lowered()
        .compile({"xla_backend_optimization_level": 2, "xla_llvm_disable_expensive_passes": False})
    )
    text = program.as_text()
    entry = text[text.index("ENTRY") :]
    for shape in ("f64[37,3]", "f64[41,3]"):
        assert shape in text
        assert not copies_of(text.replace(entry, ""), shape)


def test_states_have_tables_for_both_levels():
    problem, x, y = regression()
    method = bl.schemes.saba((4, 5), 0.1, 0.1)
    (saga,) = method.init(problem, x, y).estimates
    assert {leaf.shape for leaf in jax.tree.leaves(saga.table.content.inner)} == {(6, 3)}
    assert {leaf.shape for leaf in jax.tree.leaves(saga.table.content.outer)} == {(4, 3)}
    assert sorted(saga.table.content.inner) == ["v", "x", "y"]
    assert sorted(saga.table.content.outer) == ["v", "x"]


def test_an_estimator_of_ones_own():
    class Signs(bl.Estimator):
        """d = sign(new)."""

        def init(self, direction, blocks):
            return ()

        def __call__(self, draw, state, k):
            from biloop.samples.estimators import Evaluations

            return jax.tree.map(jnp.sign, draw.new()), (), Evaluations(1)

    problem, x, y = regression()
    method = bl.SingleLoop(samples(), 0.1, 0.1, {"y": Signs(), "vx": bl.Plain()})
    _h, state, info = eqx.filter_jit(method)(problem, x, method.init(problem, x, y), 0)
    np.testing.assert_allclose(np.abs(state.y), 0.1)
    assert info.samples.inner == 4


@pytest.mark.parametrize("estimator", [bl.Storm(0.5), bl.ZeroSarah(0.5)], ids=repr)
def test_what_looks_back_evaluates_each_batch_twice(estimator):
    problem, x, y = regression()

    def spent(chosen):
        method = bl.SingleLoop(samples(), 0.1, 0.1, chosen)
        _, _, info = eqx.filter_jit(method)(problem, x, method.init(problem, x, y), 1)
        return np.asarray(info.samples)

    np.testing.assert_array_equal(spent(estimator), 2 * spent(bl.Plain()))
