"""Gradient descent ascent is AID without a Q-loop, for the inner function g = −f.

    min_x max_y f(x, y)   with   f(x, y) = yᵀ(Cx − d) − ½ yᵀDy + ½ λ‖x‖²

Here ∇_y f(x, y*(x)) = 0, so the adjoint is v = 0 and the hypergradient is ∇_x f: `Richardson` with
zero steps. One inner step is then gradient descent ascent, N steps are its N-loop:

    y ← y + α ∇_y f(x, y),  N times;   x ← x − β ∇_x f(x, y)

    python examples/minimax.py
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

KAPPA = 50.0  # condition number of the maximisation over y
PENALTY = 0.05
BETAS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # outer step sizes to choose from


class Game(NamedTuple):
    """C, d and the eigenvalues of the diagonal matrix D."""

    C: Any
    d: Any
    D: Any


def payoff(x: Any, y: Any, game: Game) -> Any:
    return y @ (game.C @ x - game.d) - 0.5 * y @ (game.D * y) + 0.5 * PENALTY * x @ x


def negative_payoff(x: Any, y: Any, game: Game) -> Any:
    return -payoff(x, y, game)


def random_game(size: int = 20, seed: int = 0) -> Game:
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(size, size)) / size**0.5
    d = rng.normal(size=size)
    return Game(*map(jnp.asarray, (C, d, np.geomspace(1 / KAPPA, 1, size))))


def worst_case(x: Any, game: Game) -> float:
    """Φ(x) = max_y f(x, y), in closed form."""
    C, d, D = (np.asarray(a, np.float64) for a in game)
    x = np.asarray(x, np.float64)
    return float(payoff(x, (C @ x - d) / D, Game(C, d, D)))


def lowest(game: Game) -> float:
    """min_x Φ(x), in closed form."""
    C, d, D = (np.asarray(a, np.float64) for a in game)
    hessian = (C.T / D) @ C + PENALTY * np.eye(len(d))
    return worst_case(np.linalg.solve(hessian, (C.T / D) @ d), game)


def descent_ascent(
    game: Game, x: Any, y: Any, N: int, alpha: float, beta: float, steps: int
) -> tuple[Any, Any]:
    """The textbook loop, without this library."""
    ascent = jax.jit(jax.grad(payoff, argnums=1))
    descent = jax.jit(jax.grad(payoff, argnums=0))

    def answer(x: Any, y: Any) -> Any:
        for _ in range(N):
            y = y + alpha * ascent(x, y, game)
        return y

    y = answer(x, y)
    for _ in range(steps):
        x = x - beta * descent(x, y, game)
        y = answer(x, y)
    return x, y


def main(gradients: int = 600) -> dict[int, float]:
    game = random_game()
    problem = bl.Problem(negative_payoff, payoff, inner_data=(game,), outer_data=(game,))
    x0, y0 = jnp.zeros_like(game.d), jnp.zeros_like(game.d)
    alpha = 1.0  # 1/L: the largest eigenvalue of D is 1

    def aid(N: int) -> bl.AID:
        # No linear step is ever taken: its size does not matter.
        return bl.AID(bl.GradientDescent(step_size=alpha, steps=N), bl.Richardson(1.0, steps=0))

    for N in (1, 10):
        beta, steps = 0.01, 100
        run = bl.solve(problem, x0, y0, aid(N), outer=beta, steps=steps)
        by_hand = descent_ascent(game, x0, y0, N, alpha, beta, steps)
        error = max(
            float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))
            for a, b in zip((run.x, run.y), by_hand, strict=True)
        )
        assert error < 100 * jnp.finfo(run.x.dtype).eps, error
        print(f"N = {N:2}: {steps} outer steps of AID and of GDA differ by {error:.0e} (relative)")

    print(f"\nΦ(x) − min Φ after {gradients} gradients, with the outer step size that suits each:")
    start, floor = worst_case(x0, game), lowest(game)
    best = {}
    for N in (1, 10):
        gaps = {}
        for beta in BETAS:
            # As many products as gradients is more than is needed: one in each outer step.
            budget = bl.Cost(gradients, gradients)
            run = bl.solve(problem, x0, y0, aid(N), outer=beta, steps=gradients, budget=budget)
            if not run.status.failed:
                gaps[beta] = (worst_case(run.x, game) - floor) / (start - floor)
        beta = min(gaps, key=lambda beta: gaps[beta])
        best[N] = gaps[beta]
        print(f"N = {N:2}: {best[N]:.1e} of that of x_0, with step size {beta}")
    better = min(best, key=lambda N: best[N])
    print(f"Per gradient, N = {better} is ahead on this game.")
    return best


if __name__ == "__main__":
    main()
