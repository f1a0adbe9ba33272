"""What is wrong with a run on batches that seems to have ended well, alone and in a sweep."""

import jax.numpy as jnp

import biloop as bl


def test_batches_too_steep_for_a_step_are_told_by_sweeps_too():
    """A sample of sixteen has 30 times the curvature: y is thrown away, and comes back."""
    steep = jnp.ones(16).at[3].set(30.0)
    problem = bl.Problem(
        lambda x, y, a: jnp.mean(a) * jnp.sum(y**2) / 2 - x @ y,
        lambda x, y, t: jnp.mean(t) * jnp.sum((y - 1) ** 2) / 2 + jnp.sum(x) / 1000,
        inner_data=(steep,),
        outer_data=(jnp.ones(4),),
    )
    method = bl.schemes.soba((1, 4), 0.3, 0.1, key=1)
    given = problem, jnp.ones(3), jnp.zeros(3), method
    swept = bl.sweep(*given, over={"outer": [1e-3, 2e-3]}, steps=200)
    for outer, run in zip([1e-3, 2e-3], swept.runs, strict=True):
        alone = bl.solve(*given, outer=outer, steps=200)
        assert run.status is alone.status is bl.Status.DIVERGED
        assert run.message == alone.message
        assert "The inner step size 0.3 is above the largest stable one on some" in run.message
    healthy = bl.schemes.soba((1, 4), 0.05, 0.05, key=1)
    run = bl.sweep(*given[:3], healthy, over={"outer": [1e-3]}, steps=200).runs[0]
    assert run.status is bl.Status.COMPLETED
