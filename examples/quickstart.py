"""Ridge regression with one penalty exp(x_j) per feature, learned on validation data.

python examples/quickstart.py
"""

import jax.numpy as jnp
import numpy as np

import biloop as bl


def main(steps: int = 300) -> bl.Run:
    rng = np.random.default_rng(0)
    A, V = rng.normal(size=(2, 40, 20))  # training and validation inputs
    truth = np.where(np.arange(20) < 5, 1.0, 0.0)  # only five features matter
    b, t = (Z @ truth + rng.normal(size=40) for Z in (A, V))

    def inner(x, y, A, b):
        return 0.5 * jnp.mean((A @ y - b) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    def outer(x, y, V, t):
        return 0.5 * jnp.mean((V @ y - t) ** 2)

    problem = bl.Problem(inner, outer, inner_data=(A, b), outer_data=(V, t))
    method = bl.AID(inner=bl.GradientDescent(step_size=0.2, steps=10), linear=bl.CG(steps=10))
    descent = bl.Projected(1.0, onto=bl.Box(-6.0, 1.0))  # bounded penalties: 0.2 stays below 2/L
    run = bl.solve(problem, jnp.full(20, -3.0), jnp.zeros(20), method, outer=descent, steps=steps)

    value = run.trace["value"]
    print(run.message)
    print(f"{run.steps} steps, {run.cost.gradients} gradients, {run.cost.products} products")
    print(f"validation loss {value[0]:.4f} → {value[-1]:.4f}")
    return run


if __name__ == "__main__":
    main()
