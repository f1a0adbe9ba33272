"""Seconds per step of sampled methods beside scans of the same arithmetic, written by hand.

SOBA, SABA, SRBA and stocBiO on ijcnn1 (B = 64), SOBA and SABA on data cleaning of MNIST (B = 64);
SABA from 100 to 10 000 blocks of 64 rows; and 250 runs (25 step sizes × 10 seeds) in one sweep
beside single runs, each beside by hand as well. The references draw blocks from hashes of the key,
as the library does, update their tables in place and keep nothing of a step but f on its rows and
‖h‖. For information, the same on duty: with what a library owes, which is what it costs whoever has
it. Every row comes once in a pass, residuals are kept, what is not finite is taken back and ends
the run, and so does a budget, by exact counts of rows. All run in one process in turns, by a clock
that waits for the device; the minimum of each counts.

    BILOOP_DATA=folder python benchmarks/sampled.py
    BILOOP_DATA=folder python benchmarks/sampled.py --only scans blocks lanes cleaning
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl
from biloop.samples.chance import once, shuffled

B, STEP, TURNS = 64, 0.1, 5
PERIOD, N, Q = 100, 10, 10


def best_of(functions: dict[str, Callable[[], float]], turns: int = TURNS) -> dict[str, float]:
    """The least seconds of each, in alternating turns after one that compiles."""
    for function in functions.values():
        function()
    seconds = [{name: function() for name, function in functions.items()} for _ in range(turns)]
    return {name: min(turn[name] for turn in seconds) for name in functions}


def clock(function: Callable, *arguments) -> float:
    """Seconds until the result is there."""
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


# --- scans by hand ------------------------------------------------------------------------------


def block(key: jax.Array, t: jax.Array, count: int) -> jax.Array:
    """A block at random; a hash, since a draw of jax.random takes longer than a small step."""
    word = jax.random.key_data(key)[-1] + t.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return ((word ^ (word >> 16)) % jnp.uint32(count)).astype(jnp.int32)


def size(a: jax.Array) -> jax.Array:
    """‖a‖."""
    return jnp.sqrt(jnp.sum(a**2))


class Scan:
    """The arithmetic of a method on a problem: directions on rows i and j, and a scan of steps."""

    def __init__(self, problem: bl.Problem) -> None:
        self.g, self.f = problem.inner, problem.outer
        self.data = problem.inner_data, problem.outer_data
        self.weighted = problem.per_sample is not None
        self.counts = problem.inner_samples // B, problem.outer_samples // B
        self.inner_step = STEP

    def blocks(self, key, k, several):
        """The inner blocks of step k as a function of their place, and its outer block."""
        inner, outer = self.counts
        if not several:
            return (lambda _: block(key, 2 * k, inner)), block(key, 2 * k + 1, outer)
        first = k * (N + Q + 2)
        return (lambda i: block(key, first + i, inner)), block(key, first + N, outer)

    def inner_rows(self, data, x, i):
        """The data of block i, and x as the loss takes it."""
        cut = lambda a: lax.dynamic_slice_in_dim(a, i * B, B) if a.ndim else a  # noqa: E731
        return tuple(map(cut, data)), (cut if self.weighted else lambda x: x)

    def gradient(self, data, i, x, y):
        rows, cut = self.inner_rows(data, x, i)
        return jax.grad(lambda y: self.g(cut(x), y, *rows))(y)

    def linearised(self, data, i, x, y):
        rows, cut = self.inner_rows(data, x, i)
        return jax.vjp(lambda x, y: jax.grad(lambda y: self.g(cut(x), y, *rows))(y), x, y)

    def outer(self, data, j, x, y):
        rows = tuple(lax.dynamic_slice_in_dim(a, j * B, B) for a in data)
        return jax.value_and_grad(self.f, (0, 1))(x, y, *rows)

    def parts(self, data, ij, point):
        """What is summed over inner rows, over outer rows, and f."""
        x, y, v = point
        g_y, transpose = self.linearised(data[0], ij[0], x, y)
        cross, Hv = transpose(v)
        value, (f_x, f_y) = self.outer(data[1], ij[1], x, y)
        return (g_y, Hv, cross), (f_y, f_x), value

    def everywhere(self, data, point):
        """The same on the first ⌊n/B⌋ B rows."""
        x, y, v = point
        n, m = (count * B for count in self.counts)
        rows, outer_rows = tuple(a[:n] for a in data[0]), tuple(a[:m] for a in data[1])
        g_y, transpose = jax.vjp(lambda x, y: jax.grad(self.g, 1)(x, y, *rows), x, y)
        cross, Hv = transpose(v)
        value, (f_x, f_y) = jax.value_and_grad(self.f, (0, 1))(x, y, *outer_rows)
        return (g_y, Hv, cross), (f_y, f_x), value

    def start(self, kind, x, y):
        """What the first step is given beside x, y and v."""
        inner, outer = (y, y, x), (y, x)
        zeros = partial(jax.tree.map, jnp.zeros_like)
        if kind == "SRBA":
            return zeros((inner, outer)), (x, y, jnp.zeros_like(y))
        if kind == "SABA":
            sides = zip((inner, outer), self.counts, strict=True)
            return [
                (zeros(p), jax.tree.map(lambda a, n=n: jnp.zeros((n, *a.shape), a.dtype), p))
                for p, n in sides
            ]
        return ()

    def step(self, kind, data, key, carry, k):
        (x, y, v), own = carry
        if kind == "stocBiO":
            return self.stocbio(data, key, carry, k)
        inner_block, outer_block = self.blocks(key, k, several=False)
        point, ij = (x, y, v), [inner_block(0), outer_block]
        if kind == "SRBA":
            d, last = own

            def change():
                new, old = self.parts(data, ij, point), self.parts(data, ij, last)
                return *jax.tree.map(lambda d, a, b: d + a - b, d, new[:2], old[:2]), new[2]

            inner, outer, value = lax.cond(
                k % PERIOD == 0, lambda: self.everywhere(data, point), change
            )
            own = (inner, outer), point
        else:
            inner, outer, value = self.parts(data, ij, point)
        if kind == "SABA":
            found, kept = [], []
            for new, (mean, table), i, n in zip((inner, outer), own, ij, self.counts, strict=True):
                row = lax.cond(  # or XLA copies the table in each step
                    i >= 0,
                    lambda t=table, i=i: jax.tree.map(lambda a: a[i], t),
                    lambda m=mean: m,
                )
                change = jax.tree.map(jnp.subtract, new, row)
                found.append(jax.tree.map(jnp.add, mean, change))
                mean = jax.tree.map(lambda m, c, n=n: m + c / n, mean, change)
                write = lambda t, a, b, i=i: lax.dynamic_update_index_in_dim(t, a + 0 * b, i, 0)  # noqa: E731
                kept.append((mean, jax.tree.map(write, table, new, row)))
            (inner, outer), own = found, kept
        (g_y, Hv, cross), (f_y, f_x) = inner, outer
        h = f_x - cross
        point = x - STEP * h, y - self.inner_step * g_y, v - STEP * (Hv - f_y)
        return (point, own), (value, h, g_y)

    def stocbio(self, data, key, carry, k):
        (x, y, _), own = carry
        inner, outer = self.blocks(key, k, several=True)
        y, last = self.descend(lambda i, y: self.gradient(data[0], inner(i), x, y), y)
        value, (f_x, f_y) = self.outer(data[1], outer, x, y)

        def term(i, pair):
            total, r = pair
            _, transpose = self.linearised(data[0], inner(N + 1 + i), x, y)
            return total + r, r - STEP * transpose(r)[1]

        # Q + 1 terms, of which the last needs no product after it.
        total, r = lax.fori_loop(0, Q, term, (jnp.zeros_like(y), f_y))
        v = STEP * (total + r)
        _, transpose = self.linearised(data[0], inner(N), x, y)
        h = f_x - transpose(v)[0]
        return ((x - STEP * h, y, v), own), (value, h, last)

    def descend(self, gradient, y):
        """N steps; nobody asks for the last gradient."""
        return lax.fori_loop(0, N, lambda i, y: y - STEP * gradient(i, y), y), None

    def compiled(self, kind: str, steps: int) -> Callable:
        return jax.jit(partial(self.run, kind, steps))

    def run(self, kind: str, steps: int, x, y, data, key, inner_step=STEP):
        self.inner_step = inner_step
        carry = (x, y, jnp.zeros_like(y)), self.start(kind, x, y)

        def step(carry, k):
            carry, (value, h, _) = self.step(kind, data, key, carry, k)
            return carry, (value, size(h))

        return lax.scan(step, carry, jnp.arange(steps))

    def lanes(self, kind: str, steps: int) -> Callable:
        """The same for many keys and inner steps: a table is read by lanes of their own blocks."""
        run = partial(self.run, kind, steps)

        def all_lanes(x, y, data, keys, inner_steps, *limits):
            return jax.vmap(lambda key, step: run(x, y, data, key, step, *limits))(
                keys, inner_steps
            )

        return jax.jit(all_lanes)


class OnDuty(Scan):
    """The same with what a library owes."""

    def blocks(self, key, k, several):
        inner, outer = self.counts
        other = jax.random.wrap_key_data(jax.random.key_data(key) ^ jnp.uint32(1))
        draws = N + 1 + Q
        places = k * draws + jnp.arange(draws, dtype=jnp.int32) if several else k

        def drawn():
            one = partial(shuffled, key, count=inner)
            return (jax.vmap(one)(places) if several else one(places)), shuffled(other, k, outer)

        i, j = once(drawn, k)  # or XLA draws them again for each entry of the rows
        return (lambda place: i[place] if several else i), j

    def descend(self, gradient, y):
        """N steps and the last gradient."""
        y = lax.fori_loop(0, N - 1, lambda i, y: y - STEP * gradient(i, y), y)
        last = gradient(N - 1, y)
        return y - STEP * last, last

    def rows(self, kind, k):
        """The inner and outer rows and those of products that a step draws."""
        full, times = self.counts, (N, 2, Q + 1) if kind == "stocBiO" else (1, 2, 2)
        few = jnp.array(times) * B
        if kind != "SRBA":
            return few
        n, m = (count * B for count in full)
        return jnp.where(k % PERIOD == 0, jnp.array([n, 2 * m, 2 * n]), 2 * few)

    def run(self, kind, steps, x, y, data, key, inner_step, most, budget):
        self.inner_step = inner_step
        n, m = len(data[0][0]), len(data[1][0])
        sizes = jnp.array([n, m, n])

        def step(carry):
            k, before, numbers, counts, (whole, rows), _ = carry
            (point, own), (value, h, residual) = self.step(kind, data, key, before, k)
            row = jnp.stack([value, size(h), size(residual), size(point[2])])
            fine = jnp.all(jnp.isfinite(row)) & jnp.isfinite(jnp.sum(0 * point[0]))
            point = jax.tree.map(lambda new, old: jnp.where(fine, new, old), point, before[0])
            drawn = self.rows(kind, k)
            rows = rows + drawn
            spent = whole + rows // sizes, rows % sizes
            passes = jnp.sum(spent[0] + spent[1] / sizes)
            write = lambda column, new: lax.dynamic_update_index_in_dim(column, new, k, 0)  # noqa: E731
            entry = jnp.concatenate([drawn, jnp.array([0, 0, 1]) * fine])
            ends = ~fine | (passes >= budget)
            return k + 1, (point, own), write(numbers, row), write(counts, entry), spent, ends

        zero, none = jnp.zeros((), jnp.int32), jnp.zeros(3, jnp.int32)
        record = jnp.zeros((steps, 4)), jnp.zeros((steps, 6), jnp.int32)
        begin = (x, y, jnp.zeros_like(y)), self.start(kind, x, y)
        start = (zero, begin, *record, (none, none), jnp.zeros((), bool))
        return lax.while_loop(lambda c: (c[0] < most) & (c[0] < steps) & ~c[-1], step, start)


METHODS = {
    "SOBA": lambda key=0: bl.schemes.soba(B, STEP, STEP, key=key),
    "SABA": lambda key=0: bl.schemes.saba(B, STEP, STEP, key=key),
    "SRBA": lambda key=0: bl.schemes.srba(B, STEP, STEP, period=PERIOD, key=key),
    "stocBiO": lambda key=0: bl.schemes.stocbio(B, STEP, STEP, N=N, Q=Q, key=key),
}


def beside_scans(name: str, kinds: dict[str, int]) -> None:
    """A line for each method: microseconds per step here and by hand."""
    found = bl.problems.load(name)
    problem, x, y = found.problem, found.x0, found.y0
    scan, key = Scan(problem), jax.random.key(0)
    for kind, steps in kinds.items():
        by_hand, method = scan.compiled(kind, steps), METHODS[kind]()
        on_duty = OnDuty(problem).compiled(kind, steps)
        solve = partial(bl.solve, problem, x, y, method, outer=STEP, steps=steps, progress=False)
        times = best_of(
            {
                "hand": partial(clock, by_hand, x, y, scan.data, key),
                "duty": partial(clock, on_duty, x, y, scan.data, key, STEP, steps, 1e9),
                "biloop": lambda solve=solve: solve().seconds,
            }
        )
        each = {who: 1e6 * seconds / steps for who, seconds in times.items()}
        ratio, floor = each["biloop"] / each["hand"], each["duty"] / each["hand"]
        print(
            f"{name:15} {kind:8} {each['biloop']:9.2f} µs a step, by hand {each['hand']:9.2f} µs: "
            f"{ratio:.2f}; by hand on duty {each['duty']:9.2f} µs: {floor:.2f}",
            flush=True,
        )


def over_blocks(steps: int = 5_000, counts: tuple[int, ...] = (100, 1000, 10_000)) -> None:
    """SABA's microseconds per step, which should not depend on the number of blocks.

    The data of 10 000 blocks are not in the cache, for which any method has to wait: SOBA and SABA
    by hand stand beside it.
    """

    def inner(x, y, X, t):
        return 0.5 * jnp.mean((X @ y - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    def outer(x, y, X, t):
        return 0.5 * jnp.mean((X @ y - t) ** 2)

    rng, runs, start = np.random.default_rng(0), {}, jnp.zeros(22)
    for blocks in counts:
        X = jnp.asarray(rng.normal(size=(B * blocks, 22)), jnp.float32)
        t = X[:, 0] + jnp.asarray(rng.normal(size=len(X)), jnp.float32)
        problem = bl.Problem(inner, outer, (X, t), (X, t))
        for name in ("SABA", "SOBA"):
            method = METHODS[name]()
            solve = partial(bl.solve, problem, start, start, method, outer=STEP, steps=steps)
            runs[name, blocks] = lambda solve=solve: solve(progress=False).seconds
        scan, key = Scan(problem), jax.random.key(0)
        by_hand = scan.compiled("SABA", steps)
        runs["by hand", blocks] = partial(clock, by_hand, start, start, scan.data, key)
    each = {key: 1e6 * seconds / steps for key, seconds in best_of(runs, turns=15).items()}
    for name in ("SABA", "by hand", "SOBA"):
        told = ", ".join(f"{blocks} blocks {each[name, blocks]:.2f} µs" for blocks in counts)
        ratio = each[name, counts[-1]] / each[name, counts[0]]
        print(f"{name:8} {told}: {ratio:.2f} from the first to the last", flush=True)


def many_lanes(steps: int = 512, sizes: int = 25, seeds: int = 10) -> None:
    """A sweep over step sizes and seeds beside as many single runs, of which a few are timed."""
    found = bl.problems.load("ijcnn1")
    problem, x, y = found.problem, found.x0, found.y0
    grid, scan = np.geomspace(0.01, 0.3, sizes), Scan(problem)
    keys = jax.vmap(jax.random.key)(jnp.repeat(jnp.arange(seeds), sizes))
    inner_steps = jnp.tile(jnp.asarray(grid, jnp.float32), seeds)
    for kind in ("SOBA", "SABA"):
        method = METHODS[kind]()

        def sweep(method=method):
            result = bl.sweep(
                problem, x, y, method, outer=STEP, steps=steps, progress=False,
                over={"inner_step": list(grid)}, seeds=range(seeds),
            )  # fmt: skip
            return sum(run.seconds for run in result.runs)

        def single(method=method):
            return bl.solve(problem, x, y, method, outer=STEP, steps=steps, progress=False).seconds

        by_hand, on_duty = scan.lanes(kind, steps), OnDuty(problem).lanes(kind, steps)
        given = x, y, scan.data, keys, inner_steps
        hand, duty = partial(clock, by_hand, *given), partial(clock, on_duty, *given, steps, 1e9)
        times = best_of({"sweep": sweep, "single": single, "hand": hand, "duty": duty})
        every = sizes * seeds * times["single"]
        print(
            f"{kind}: {sizes * seeds} lanes {times['sweep']:.2f} s, a run {times['single']:.4f} s: "
            f"{times['sweep'] / every:.2f} of single runs; by hand {times['hand']:.2f} s: "
            f"{times['hand'] / every:.2f}; by hand on duty {times['duty'] / every:.2f}",
            flush=True,
        )


PARTS = {
    "scans": partial(
        beside_scans, "ijcnn1", {"stocBiO": 2_000, "SOBA": 20_000, "SABA": 20_000, "SRBA": 10_000}
    ),
    "blocks": over_blocks,
    "lanes": many_lanes,
    "cleaning": partial(beside_scans, "cleaning-mnist", {"SOBA": 500, "stocBiO": 50}),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    for part in parser.parse_args().only:
        PARTS[part]()
