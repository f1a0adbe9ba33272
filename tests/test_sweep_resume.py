"""A sweep that was killed goes on to the same bits, and refuses what is another sweep."""

import os
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.files import read_npz, write_npz
from biloop.sweeps import driver, plan

from .sweeping import METHOD, Y, same_bits, sweep


class Killed(BaseException):
    pass


def test_a_sweep_that_was_killed_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    whole = sweep(batch=3)
    update, moments = driver._Watch.update, []

    def killed_in_the_second_batch(self, finished, running, k, steps):
        moments.append((finished, k))
        if finished == 3 and k == 10:
            raise Killed

    monkeypatch.setattr(driver._Watch, "update", killed_in_the_second_batch)
    with pytest.raises(Killed):
        sweep(batch=3, checkpoint=tmp_path, every=5)
    moments.clear()
    monkeypatch.setattr(
        driver._Watch, "update", lambda self, *here: moments.append(here) or update(self, *here)
    )
    resumed = sweep(checkpoint=tmp_path, every=5)  # in the batches it began with
    same_bits(resumed, whole)
    assert min(k for finished, _, k, _ in moments if finished == 3) > 5
    assert not [here for here in moments if here[0] == 0]

    moments.clear()
    again = sweep(checkpoint=tmp_path)
    assert not moments
    same_bits(again, whole)
    np.testing.assert_array_equal(again["seconds"], resumed["seconds"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pairs": [(0.1, 0.05), (0.02, 0.2)]}, "other axes"),
        ({"seeds": [1, 2]}, "other axes"),
        ({"epsilon": 1e-3}, "another epsilon"),
        ({"v0": jnp.ones_like(Y)}, "another v0"),
        ({"method": bl.AID(METHOD.inner, METHOD.linear, warm_start_v=False)}, "another method"),
    ],
)
def test_another_sweep_is_refused(tmp_path, change, words):
    sweep(checkpoint=tmp_path, steps=3)
    with pytest.raises(ValueError, match=words):
        sweep(checkpoint=tmp_path, **({"steps": 3} | change))
    longer = sweep(checkpoint=tmp_path, steps=5)
    assert [run.steps for run in longer.runs] == [5] * 8


def test_what_ran_out_of_memory_on_its_way_is_begun_anew_in_halves(tmp_path, monkeypatch):
    """The checkpoint of the wide batch is not in the way of the narrow ones."""
    run_batch = driver.run_batch

    def short_of_memory(batch, *rest):
        runs = run_batch(batch, *rest)
        if batch.width > 4:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return runs

    monkeypatch.setattr(driver, "run_batch", short_of_memory)
    halved = sweep(checkpoint=tmp_path, steps=3)
    for run, whole in zip(halved.runs, sweep(steps=3).runs, strict=True):
        np.testing.assert_allclose(run.x, whole.x, rtol=1e-12)


def test_a_damaged_plan_is_refused(tmp_path):
    sweep(checkpoint=tmp_path, steps=1)
    file = tmp_path / plan.FILE
    _, meta = read_npz(file)
    ((program, cells, width),) = meta["plan"]
    crafted = [
        {"plan": found}
        for found in (
            None,
            3,
            [],
            [[program, cells]],
            [[program, cells, 2**40]],  # as many lanes as take all memory
            [[program, cells, "8"]],
            [[program + 1, cells, width]],
            [[program, cells[1:], width]],
            [[program, [*cells, cells[0]], width + 1]],
            [[program, cells, len(cells) - 1]],
            [[program, ["x"], width]],
        )
    ]
    for content in (b"nonsense", *crafted):
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            write_npz(file, {}, meta | content)
        with pytest.raises(ValueError, match=r"damaged.*Delete the folder to start the sweep anew"):
            sweep(checkpoint=tmp_path, steps=1)
    write_npz(file, {}, {"plan": meta["plan"]})
    with pytest.raises(ValueError, match="belongs to another sweep"):
        sweep(checkpoint=tmp_path, steps=1)


KILLED = textwrap.dedent(
    """
    import sys
    import tests.conftest
    from tests.sweeping import sweep
    print("started", flush=True)
    sweep(steps=int(sys.argv[2]), batch=3, checkpoint=sys.argv[1], every=50)
    print("finished", flush=True)
    """
)


@pytest.mark.slow
def test_sigkill_at_any_moment(tmp_path):
    steps, deaths = 30_000, 0
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    for wait in (2.0, 2.5, 3.0, 3.5, 600.0):
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(steps)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout.readline() == b"started\n"
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                process.kill()
                deaths += 1
            else:
                break
    assert process.returncode == 0
    assert deaths > 0
    same_bits(sweep(steps=steps, checkpoint=tmp_path), sweep(steps=steps, batch=3))
