"""One of two processes that solve one problem together: one line of JSON for each finding.

python -m tests.distributed.two_processes PROCESS PORT FOLDER quick|slow|forever
"""

import contextlib
import inspect
import io
import json
import os
import signal
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_force_host_platform_device_count=2"  # beside those of the tests that start it
)

import jax
import numpy as np
import optax

import biloop as bl
import tests.conftest  # noqa: F401  strict JAX, double precision
from biloop.run import checkpoint, progress
from biloop.run.sharding import to_host
from tests.distributed.cleaning import (
    SAMPLES,
    W,
    X,
    cleaning,
    inner,
    outer,
    sampled_methods,
    samples,
    solve,
)

PROCESS, PORT, FOLDER, TASK = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
MINE = slice(PROCESS * SAMPLES // 2, (PROCESS + 1) * SAMPLES // 2)


def join():
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Older versions cannot be told to notice a dead process sooner than after 100 seconds.
    known = inspect.signature(jax.distributed.initialize).parameters
    options = {"heartbeat_timeout_seconds": 10} if "heartbeat_timeout_seconds" in known else {}
    jax.distributed.initialize(f"127.0.0.1:{PORT}", 2, PROCESS, **options)
    return jax.make_mesh((4,), ("data",))


def tell(finding, **values):
    print(json.dumps({"finding": finding} | values), flush=True)


def tell_error(finding, action, *arguments, **options):
    try:
        action(*arguments, **options)
    except (ValueError, ArithmeticError, RuntimeError, OSError) as error:
        tell(finding, type=type(error).__name__, message=str(error))


def tell_run(finding, run):
    tell(
        finding,
        status=run.status.name,
        steps=run.steps,
        x=to_host(run.x).tolist(),
        y=np.asarray(run.y).tolist(),
        seconds=run.trace["seconds"].tolist(),
        value=run.trace["value"].tolist(),
    )


def own_rows(mesh):
    """The problem of which this process holds only half of the samples, and x split with them."""
    data = ([array[MINE] for array in samples(seed)] for seed in (0, 1))
    problem = bl.Problem(inner, outer, *(bl.shard(tuple(d), mesh, local=True) for d in data))
    (x,) = bl.shard((X[MINE],), mesh, local=True)
    return problem, x


def in_process(number, action):
    """A callback that acts in one process and does nothing in the other."""
    return lambda p: action(p) if number == PROCESS else None


def runs(mesh):
    problem, x = own_rows(mesh)
    progress._PATIENCE = progress._REFRESH = 0.0
    with contextlib.redirect_stderr(io.StringIO()) as screen:
        run = solve(problem, x=x, progress=True)
    tell_run("run", run)
    tell("progress", shown=screen.getvalue().count("steps/s"))
    tell("rows", held=[len(s.data) for s in problem.inner_data[0].addressable_shards])

    written, write = [], checkpoint.write_npz
    checkpoint.write_npz = lambda *arguments: (written.append(arguments), write(*arguments))
    folder = {"checkpoint": FOLDER + "/saved", "every": 5}
    stop = in_process(1, lambda p: p.k >= 5)
    tell_run("stopped", solve(problem, x=x, callback=stop, **folder))
    tell_run("resumed", solve(problem, x=x, **folder))
    tell("checkpoints", written=len(written))

    interrupt = in_process(1, lambda p: os.kill(os.getpid(), signal.SIGINT) if p.k == 1 else None)
    tell_run("interrupted", solve(problem, x=x, callback=interrupt, steps=10**6))
    tell_run("out of time", solve(problem, x=x, steps=10**6, seconds=0.2))


def refusals(mesh):
    problem, x = own_rows(mesh)
    tell_error("callback", solve, problem, x=x, callback=in_process(1, lambda p: 1 / 0))
    tell_error("start", solve, problem, x=X + PROCESS)
    tell_error("step size", solve, problem, x=x, outer=1.0 + PROCESS)
    tell_error("limits", solve, problem, x=x, steps=20 + PROCESS)
    for name, options in other_programs(problem).items():
        tell_error(name, solve, **({"problem": problem, "x": x} | options))
    tell_error("data", bl.shard, samples(PROCESS), mesh)
    tell_error("rows in different numbers", bl.shard, (X[: 8 + 4 * PROCESS],), mesh, local=True)
    tell_error("uneven", bl.shard, (X[:7],), mesh, local=True)
    elsewhere = bl.shard((X,), jax.make_mesh((4,), ("rows",)))
    tell_error("other mesh", bl.shard, elsewhere, mesh)
    watch = [None, lambda x, y: np.sum(x)][PROCESS]
    tell_error("only one watches", solve, problem, x=x, watch=watch)
    tell_error("refused by one", solve, problem, x=x, steps=20 - 21 * PROCESS)
    tell_error("start of another shape", bl.solve, problem, x, [W, (W,)][PROCESS])
    tell_error("compare", bl.compare, problem, x, W)
    alone = [FOLDER + "/saved", FOLDER + "/nothing"][PROCESS]
    tell_error("folder", solve, problem, x=x, checkpoint=alone, every=5)
    file = FOLDER + "/file"
    open(file, "w").close()
    tell_error("no folder", solve, problem, x=x, checkpoint=file)


def other_programs(problem):
    """Runs whose arrays are the same in both processes, but not what is computed from them."""
    loops = bl.GradientDescent(0.3, steps=4), bl.Richardson(0.3, steps=3)

    def scaled(x, W, inputs, labels):
        return (1 + PROCESS) * outer(x, W, inputs, labels)

    schedule = bl.schedules.Function(lambda k: k + 1 + PROCESS)
    return {
        "other N": {"method": bl.AID(bl.GradientDescent(0.3, steps=4 + PROCESS), loops[1])},
        "other schedule": {"method": bl.AID(bl.GradientDescent(0.3, steps=schedule), loops[1])},
        "other warm start": {"method": bl.AID(*loops, warm_start_v=PROCESS == 0)},
        "other method": {"method": [bl.AID(*loops), bl.ITD(loops[0])][PROCESS]},
        "other optimizer": {"outer": optax.adam(0.01 * (1 + PROCESS))},
        "other constant": {
            "problem": bl.Problem(inner, scaled, problem.inner_data, problem.outer_data)
        },
    }


def whole_data(mesh):
    problem = bl.shard(cleaning(), mesh)
    tell_run("run", solve(problem))
    tell_run("ITD", solve(problem, bl.ITD(bl.GradientDescent(0.3, steps=4))))
    steps = bl.estimate.step_sizes(problem, X, W)
    tell("estimates", found=[steps.L, steps.mu])
    bad = bl.AID(bl.GradientDescent(100.0, steps=4), bl.Richardson(0.3, steps=3))
    run = solve(problem, bad, outer=1e6, steps=500)
    tell("failure", status=run.status.name, message=run.message)


def on_batches(mesh):
    """Rows of a batch are held by whoever has them; x is split with the samples."""
    problem, x = own_rows(mesh)
    marked = bl.Problem(inner, outer, problem.inner_data, problem.outer_data, per_sample=True)
    for name, method in sampled_methods().items():
        run = solve(marked, method, x=x)
        tell(f"{name} on batches", x=to_host(run.x).tolist(), y=np.asarray(run.y).tolist())


def forever(mesh):
    problem, x = own_rows(mesh)
    tell("started")
    solve(
        problem, x=x, outer=1e-9, steps=10**9, callback=lambda p: tell("running") if p.k else None
    )


if __name__ == "__main__":
    tasks = {"quick": (runs, refusals), "slow": (whole_data, on_batches), "forever": (forever,)}
    together = join()
    for task in tasks[TASK]:
        task(together)
