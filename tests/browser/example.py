"""A comparison whose every number is known: curves in closed form."""

import copy

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="owned()"> & <!-- \'"'
TARGET = 1e-4


def run(rate, N, Q, rows=120, shift=0.0):
    """‖∇Φ‖² = rate^k, value 2 + rate^k, N + 2 gradients and Q + 1 products a step."""
    ks = list(range(rows))
    return {
        "k": ks,
        "gradients": [(k + 1) * (N + 2) for k in ks],
        "products": [(k + 1) * (Q + 1) for k in ks],
        "seconds": [(k + 1) * (N + Q + 3) * 1e-4 for k in ks],
        "value": [2.0 + shift + rate**k for k in ks],
        "grad_norm2": [rate**k if k % 2 == 0 else None for k in ks],
        "inner_residual": [0.5 * rate**k for k in ks],
        "linear_residual": [None if Q == 0 else 0.25 * rate**k for k in ks],
    }


def scheme(name, N, Q, rates, status="converged"):
    seeds = [run(rate, N, Q) for rate in rates]
    middle = seeds[len(seeds) // 2]
    at = next(
        (j for j, g in enumerate(middle["grad_norm2"]) if g is not None and g <= TARGET), None
    )
    reached = {
        f"{key}_to_target": None if at is None else middle[key][at]
        for key in ("gradients", "products", "seconds")
    }
    last = {key: middle[key][-1] for key in ("gradients", "products", "seconds", "value")}
    ends = [seed["grad_norm2"][-2] for seed in seeds]
    return {
        "name": name,
        "code": f"bl.schemes.something(N={N}, Q={Q})",
        "N": N,
        "Q": Q or None,
        "outer_step": 0.1,
        "status": status,
        "cause": "The step is too long." if status == "diverged" else "",
        "steps": 120,
        **last,
        "grad_norm2": middle["grad_norm2"][-2],
        **reached,
        "spread": {"grad_norm2": [min(ends), max(ends)]},
        "seeds": seeds,
    }


def example():
    """Four schemes, one of which diverges; a grid with a hole; one certificate."""
    wild = scheme("No-loop ITD", 1, 0, (1.5, 1.6, 1.7), "diverged")
    return copy.deepcopy(
        {
            "title": "Loops on an example",
            "problem": {
                "name": "example",
                "dim_x": 20,
                "dim_y": 12345,
                "samples": None,
                "description": "Curves in closed form.",
            },
            "target": TARGET,
            "budget": 50_000,
            "settings": {"seeds": "0, 1, 2", "kappa": 8.0},
            "versions": {"biloop": "0", "jax": "0"},
            "command": "biloop compare example --report out.html",
            "python": "import biloop as bl\n\nbl.compare(problem, x0, y0)",
            "verdict": ["The N-loop pays: 2 times cheaper.", "The Q-loop does not."],
            "recommendation": "run = bl.solve(problem, x0, y0, bl.schemes.n_loop(10, …))",
            "schemes": [
                scheme("No-loop AID", 1, 1, (0.96, 0.95, 0.94), "budget spent"),
                scheme("N-loop AID", 10, 1, (0.85, 0.8, 0.75)),
                scheme("Q-loop AID", 1, 10, (0.9, 0.89, 0.88)),
                wild,
            ],
            "grid": {
                "N": [1, 10],
                "Q": [1, 10, 100],
                "cost": [[None, 2000.0, 4000.0], [1000.0, 1500.0, 8000.0]],
            },
            "certificates": [
                {
                    "scheme": "N-loop AID",
                    "statement": "Corollary 1",
                    "K": [1, 10, 100],
                    "bound": [100.0, 10.0, 1.0],
                    "measured": [1.0, 0.5, 0.1],
                }
            ],
        }
    )


def hostile():
    """The same with text that wants to be markup, wherever a user has a say."""
    payload = example()
    payload["title"] = payload["recommendation"] = HOSTILE
    payload["command"] = payload["python"] = HOSTILE
    payload["verdict"] = [HOSTILE]
    payload["problem"] |= {"name": HOSTILE, "description": HOSTILE}
    payload["settings"] = payload["versions"] = {HOSTILE: HOSTILE}
    payload["certificates"][0] |= {"scheme": HOSTILE, "statement": HOSTILE}
    for each in payload["schemes"]:
        each |= {"name": HOSTILE, "code": HOSTILE, "N": HOSTILE}
    return payload
