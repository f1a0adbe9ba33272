"""MAML inside of `solve` beside iMAML as jaxopt's documentation has it: seconds and losses.

    python benchmarks/few_shot.py [--steps 1000] [--tasks 25] [--theirs 10] [--maxiter 20]

Both learn 25 tasks (sines of random amplitude and phase, six points to learn from and six to judge
by) in a network of 1 – 20 – 20 – 20 – 1 with swish, in float64, with optax.adam(1e-3).

jaxopt: `LBFGS(maxiter=2000, tol=1e-12)` on loss + 0.005 ‖y − x‖², implicit gradients, inner
solutions kept, tasks side by side by vmap (the notebook unrolls four). Here: five steps of gradient
descent from x, differentiated. Each is judged by its own way of adapting, on the tasks it was
trained on and on 200 new ones. Compilation is not counted.

jaxopt's solver does not get to 1e-12 on some of the tasks, and spends its 2000 iterations in every
outer step: seconds for each. So `--theirs` steps are run there, and the ratio is that of a step.
With `--maxiter 20` it is given as many as a step that is to be fast can have.
"""

import argparse
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

import biloop as bl

SHOTS, PULL, SIZES = 6, 1e-2, (1, 20, 20, 20, 1)
STEP, STEPS = 0.02, 5


def sine(key: Any) -> Any:
    a, b, c = jax.random.split(key, 3)
    amplitude = jax.random.uniform(a, minval=0.1, maxval=0.5)
    phase = jax.random.uniform(b, minval=0.5, maxval=jnp.pi)
    X = jax.random.uniform(c, (2 * SHOTS,), minval=-5.0, maxval=5.0)
    Y = amplitude * jnp.sin(phase * X)
    return (X[:SHOTS], Y[:SHOTS]), (X[SHOTS:], Y[SHOTS:])


def network(key: Any) -> Any:
    keys = jax.random.split(key, len(SIZES) - 1)
    return [
        {"W": jax.random.normal(k, (a, b)) * a**-0.5, "b": jnp.zeros(b)}
        for k, a, b in zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    ]


def loss(y: Any, X: Any, Y: Any) -> Any:
    z = X[:, None]
    for layer in y[:-1]:
        z = jax.nn.swish(z @ layer["W"] + layer["b"])
    return jnp.mean(((z @ y[-1]["W"] + y[-1]["b"])[:, 0] - Y) ** 2)


def maml(x: Any, train: Any, new: Any, steps: int) -> tuple[float, float, float]:
    """Seconds, the loss on the tasks, and on new ones."""
    one = lambda x, y, X, Y: loss(y, X, Y)  # noqa: E731
    problem, held_out = (
        bl.problems.tasks(bl.Problem(one, one, *data, start=lambda x: x)) for data in (train, new)
    )
    method = bl.Tasks(bl.ITD(bl.GradientDescent(STEP, STEPS)))
    run = bl.solve(
        problem, x, problem.start(x), method, outer=optax.adam(1e-3), steps=steps, progress=False
    )
    _, _, info = jax.jit(method)(
        held_out, run.x, method.init(held_out, run.x, held_out.start(run.x)), 0
    )
    return run.seconds, run.value, float(info.value)


def imaml(x: Any, train: Any, new: Any, steps: int, most: int) -> tuple[float, float, float]:
    """The same by jaxopt."""
    import jaxopt

    def inner(y: Any, x: Any, data: Any) -> Any:
        return loss(y, *data) + PULL / 2 * jaxopt.tree_util.tree_l2_norm(
            jaxopt.tree_util.tree_sub(y, x), squared=True
        )

    solver = jaxopt.LBFGS(inner, maxiter=most, tol=1e-12)

    def outer(x: Any, y0: Any, data: Any) -> Any:
        def one(y0: Any, inner_data: Any, outer_data: Any) -> Any:
            y, _ = solver.run(y0, x, inner_data)
            return loss(y, *outer_data), y

        values, y = jax.vmap(one)(y0, *data)
        return jnp.mean(values), y

    descent = jaxopt.OptaxSolver(opt=optax.adam(1e-3), fun=outer, maxiter=steps, has_aux=True)
    repeated = lambda count: jax.tree.map(  # noqa: E731
        lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), x
    )
    y = repeated(len(train[0][0]))
    state = descent.init_state(x, y, train)
    update = jax.jit(descent.update)
    update = update.lower(x, state, y, train).compile()
    start = time.perf_counter()
    for _ in range(steps):
        x, state = update(x, state, y, train)
        y = state.aux
    jax.block_until_ready(x)
    seconds = time.perf_counter() - start
    judged = jax.jit(outer)
    on_new = judged(x, repeated(len(new[0][0])), new)[0]
    return seconds, float(judged(x, y, train)[0]), float(on_new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--theirs", type=int, default=10, help="outer steps of jaxopt")
    parser.add_argument("--maxiter", type=int, default=2000, help="of jaxopt's inner solver")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    draw = lambda seed, count: jax.vmap(sine)(jax.random.split(jax.random.key(seed), count))  # noqa: E731
    train, new = draw(0, options.tasks), draw(1, 200)
    x = network(jax.random.key(2))
    theirs = partial(imaml, most=options.maxiter)
    found = {"MAML, biloop": (maml, options.steps), "iMAML, jaxopt": (theirs, options.theirs)}
    print(f"{'':14} {'steps':>6} {'ms a step':>10} {'loss':>9} {'on new tasks':>12}")
    each = []
    for name, (way, steps) in found.items():
        took, value, on_new = way(x, train, new, steps)
        each.append(1e3 * took / steps)
        print(f"{name:14} {steps:6} {each[-1]:10.2f} {value:9.5f} {on_new:12.5f}", flush=True)
    print(f"A step of jaxopt takes {each[1] / each[0]:.0f} times as long.")


if __name__ == "__main__":
    main()
