"""Which rows a draw has: each block once in a pass, in an order of its own, whatever transforms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .common import regression

KEY = jax.random.key(3)


def blocks_drawn(key, ts, count, size=2):
    draw = jax.jit(jax.vmap(lambda t: bl.Blocks(size)(key, t, count * size).block))
    return np.asarray(draw(jnp.asarray(ts)))


@pytest.mark.parametrize("count", [2, 3, 7, 32, 100, 781])
def test_each_block_once_in_a_pass_and_another_order_in_the_next(count):
    passes = blocks_drawn(KEY, np.arange(6 * count), count).reshape(6, count)
    for order in passes:
        np.testing.assert_array_equal(np.sort(order), np.arange(count))
    if count >= 7:
        assert len({tuple(order) for order in passes}) == 6
        assert not np.array_equal(passes[0], np.arange(count))  # not the order of the file


def chi_square(counts):
    expected = counts.sum() / counts.size
    return float(np.sum((counts - expected) ** 2) / expected)


def test_every_block_is_as_likely_at_every_place_of_a_pass():
    """A chi-square of (count − 1)² = 225 degrees of freedom: mean 225, deviation 21."""
    count, passes = 16, 4000
    found = blocks_drawn(KEY, np.arange(passes * count), count).reshape(passes, count)
    table = np.zeros((count, count))
    np.add.at(table, (np.tile(np.arange(count), passes), found.ravel()), 1)
    assert 120 < chi_square(table) < 330
    # ... and so is every pair of neighbours: 16 · 15 pairs, 239 degrees of freedom.
    pairs = np.zeros((count, count))
    np.add.at(pairs, (found[:, :-1].ravel(), found[:, 1:].ravel()), 1)
    assert np.all(np.diag(pairs) == 0)
    assert 130 < chi_square(pairs[~np.eye(count, dtype=bool)]) < 350


def test_the_cost_of_a_draw_does_not_grow_with_the_number_of_blocks():
    """The program is as long for a million blocks as for ten, and there is no array of them."""
    draw = lambda n: jax.jit(lambda t: bl.Blocks(1)(KEY, t, n).block).lower(jnp.uint32(0)).as_text()  # noqa: E731
    small, large = draw(10), draw(10**6)
    assert len(small.splitlines()) == len(large.splitlines())
    assert "1000000x" not in large


def test_uniform_rows_are_uniform():
    n, size, draws = 20, 8, 2000
    rows = jax.jit(
        jax.vmap(lambda t: bl.Uniform(size)(KEY, t, n).numbers)  # pyright: ignore
    )(jnp.arange(draws))
    assert rows.shape == (draws, size)
    assert int(rows.min()) == 0
    assert int(rows.max()) == n - 1
    for column in (0, size - 1):
        assert chi_square(np.bincount(np.asarray(rows)[:, column], minlength=n)) < 50  # 19 degrees
    # Two places of a draw, and two draws, agree as often as by chance: 1/20 of 2000.
    rows = np.asarray(rows)
    assert 60 < np.sum(rows[:, 0] == rows[:, 1]) < 140
    assert 60 < np.sum(rows[1:, 0] == rows[:-1, 0]) < 140


def test_levels_and_keys_are_independent():
    problem, _, _ = regression(n=64, m=64)
    ts = jnp.arange(1600)

    @eqx.filter_jit
    def blocks(pair):
        each = jax.vmap(lambda t: [rows.block for rows in pair.rows(problem, t)])
        products = jax.vmap(lambda t: pair.product_rows(problem, t, 0).block)(ts)
        of_one_draw = jax.vmap(lambda i: pair.product_rows(problem, 0, i).block)(ts)
        return [*each(ts), products, of_one_draw]

    def drawn(key):
        return [*map(np.asarray, blocks(bl.Samples(bl.Blocks(4), bl.Blocks(4), key)))]

    lists = [*drawn(0), *drawn(1), *drawn(jax.random.key(2))]
    for i, first in enumerate(lists):
        for second in lists[:i]:
            assert 60 < np.sum(first == second) < 140  # 1600 / 16, ± 4 deviations
    np.testing.assert_array_equal(drawn(0)[0], drawn(jax.random.key(0))[0])


def test_products_of_one_draw_meet_other_rows_than_those_of_the_next():
    problem, _, _ = regression(n=1000)
    pair = bl.Samples(bl.Uniform(2), bl.All(), 0)

    @eqx.filter_jit
    def drawn(ts, products):
        rows = lambda t, i: pair.product_rows(problem, t, i).numbers  # noqa: E731
        return jax.vmap(jax.vmap(rows, (None, 0)), (0, None))(ts, products)

    found = np.asarray(drawn(jnp.arange(20), jnp.arange(20))).reshape(400, 2)
    assert len({tuple(row) for row in found}) >= 398  # of a million pairs, hardly one comes twice


@pytest.mark.parametrize("sampler", [bl.Blocks(3), bl.Uniform(3)], ids=["blocks", "uniform"])
def test_draws_are_the_same_under_jit_and_vmap(sampler):
    data = jnp.arange(21)
    read = lambda key, t: sampler(key, t, 21)(data)  # noqa: E731
    keys = jax.random.split(KEY, 4)
    compiled = jax.jit(read)
    alone = np.array([[compiled(key, jnp.asarray(t)) for t in range(5)] for key in keys])
    np.testing.assert_array_equal(alone[1, 3], read(keys[1], 3))
    both = jax.jit(jax.vmap(jax.vmap(read, in_axes=(None, 0)), in_axes=(0, None)))
    np.testing.assert_array_equal(alone, both(keys, jnp.arange(5)))


def test_lanes_side_by_side_draw_once_for_all_that_is_read():
    """In a branch that is one for all lanes; with one for each, every entry read draws again."""
    problem, _, _ = regression(n=24)
    drawn = lambda key, t: bl.Samples(bl.Blocks(4), bl.Blocks(4), key).rows(problem, t)  # noqa: E731
    keys, ts = jax.random.split(KEY, 3), jnp.arange(5)
    both = jax.vmap(jax.vmap(drawn, in_axes=(None, 0)), in_axes=(0, None))
    for program in (jax.make_jaxpr(drawn)(KEY, 1), jax.make_jaxpr(both)(keys, ts)):
        assert str(program).count("cond[") == 1
    rows, alone = jax.jit(both)(keys, ts), jax.jit(drawn)(keys[2], ts[4])
    assert jax.tree.map(lambda a: int(a[2, 4]), rows) == jax.tree.map(int, alone)


def test_draws_go_on_beyond_32_bits():
    found = blocks_drawn(KEY, np.array([2**31 - 1, 2**32 - 2], np.uint32), 7)
    assert np.all((found >= 0) & (found < 7))


def test_keys():
    for key in (5, np.int64(5), jax.random.key(5), jax.random.PRNGKey(5)):
        made = bl.Samples(bl.All(), bl.All(), key).key
        np.testing.assert_array_equal(jax.random.key_data(made), [0, 5])
    assert repr(bl.Samples(bl.Blocks(3), bl.All())) == "Samples(Blocks(size=3), All())"
    for wrong in (0.5, "seed", True, jax.random.split(KEY), None):
        with pytest.raises(TypeError, match="key must be a"):
            bl.Samples(bl.All(), bl.All(), wrong)


def test_batches_as_schemes_take_them():
    method = bl.schemes.soba((8, None), 0.1, 0.1)
    assert (method.samples.inner, method.samples.outer) == (bl.Blocks(8), bl.All())
    method = bl.schemes.soba((bl.Uniform(4), 2), 0.1, 0.1)
    assert (method.samples.inner, method.samples.outer) == (bl.Uniform(4), bl.Blocks(2))
    pair = bl.Samples(bl.All(), bl.All(), 7)
    assert bl.schemes.soba(pair, 0.1, 0.1).samples is pair
