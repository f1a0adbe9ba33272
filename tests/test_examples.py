"""The examples and the skeletons of CONTRIBUTING.md run, and show what they say they show."""

import functools
import importlib.util
import re
import struct
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .helpers import COLUMNS

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETONS = {
    section.partition("\n")[0]: code
    for section in re.split(r"^## ", CONTRIBUTING, flags=re.M)
    for code in re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
}
BUDGET = 1000


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def png_size(path):
    """Width and height, with the checks of a decoder that knows signature and header only."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[12:16] == b"IHDR"
    assert content[-8:-4] == b"IEND"
    return struct.unpack(">II", content[16:24])


@pytest.fixture(scope="module")
def cleaning():
    return load("data_cleaning")


@pytest.fixture(scope="module")
def rows(cleaning):
    return cleaning.compare(BUDGET)


def test_cleaning_tells_noisy_from_clean_samples(rows):
    *learned, uniform, oracle = rows
    assert len(learned) == 6
    assert oracle.accuracy > uniform.accuracy
    for row in learned:
        assert row.noisy < 0.5 < row.clean, row.name
        # Any learned weights beat uniform ones once the inner problem is solved with them.
        assert row.solved < uniform.solved, row.name


def test_cleaning_gives_every_scheme_the_same_budget(cleaning, rows):
    costs = {"AID No-loop": (3, 2), "AID N-loop": (22, 2), "AID Q-loop": (3, 21)}
    costs |= {"AID N-Q-loop": (22, 21), "ITD No-loop": (3, 2), "ITD N-N-loop": (22, 40)}
    for row in rows[:-2]:
        gradients, products = costs[row.name]
        assert row.run.status is bl.Status.BUDGET_SPENT
        assert row.run.cost == (gradients * row.run.steps, products * row.run.steps)
        assert BUDGET <= row.run.cost.total < BUDGET + gradients + products


def test_cleaning_reports_every_scheme_and_draws_them(cleaning, rows, tmp_path):
    table, conclusion = cleaning.table(rows), cleaning.conclusion(rows)
    assert [line[:16].strip() for line in table.splitlines()[3:]] == [row.name for row in rows]
    best = min(rows[:-2], key=lambda row: row.validation)
    assert conclusion.startswith(f"Lowest validation loss at this cost: {best.name},")
    width, height = png_size(cleaning.draw(rows, tmp_path / "new" / "figure.png"))
    assert width >= 800
    assert height >= 400


def test_cleaning_conclusion_follows_from_the_numbers(cleaning, rows):
    plain, *others = rows
    won = [plain._replace(validation=0.01), *others]
    assert "AID No-loop, 0.0100" in cleaning.conclusion(won)
    assert "no loop pays here" in cleaning.conclusion(won)
    lost = [plain._replace(validation=others[0].validation * 9), *others]
    assert "no loop pays here" not in cleaning.conclusion(lost)


def test_cleaning_step_size_is_stable(cleaning):
    data = cleaning.load()
    L = cleaning.largest_eigenvalue(data.training[0])
    x = jnp.full(len(data.noisy), 30.0)  # all weights 1
    gradient = jax.grad(lambda W: cleaning.inner(x, W, *data.training))
    for scale in (0.0, 0.1, 1.0):
        W = scale * jax.random.normal(jax.random.key(0), (10, 65))
        _, product = jax.linearize(gradient, W)
        assert L / 9 < bl.estimate.extremes(product, W).largest.ritz <= L


def test_cleaning_labels_are_wrong_where_it_says(cleaning, monkeypatch):
    data, again = cleaning.load(), cleaning.load()
    assert abs(data.noisy.mean() - cleaning.NOISE) < 0.05
    np.testing.assert_array_equal(data.training[1], again.training[1])
    monkeypatch.setattr(cleaning, "NOISE", 0.0)
    clean = cleaning.load()
    differs = np.any(data.training[1] != clean.training[1], axis=1)
    np.testing.assert_array_equal(differs, data.noisy)


def test_figure_of_the_readme_is_small_enough():
    figure = ROOT / "docs" / "figures" / "data_cleaning.png"
    assert png_size(figure)[0] >= 800
    assert figure.stat().st_size < 150_000


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2, 3))])
def test_quickstart(seed):
    """What the first screen claims holds on data that neither level has seen."""
    groups, one = load("quickstart").main(seed).values()
    assert groups.run.status is one.run.status is bl.Status.CONVERGED
    assert groups.test_error < 0.6 * one.test_error


def test_minimax_is_gradient_descent_ascent():
    """The comparison with the loop written by hand is asserted in the example itself."""
    minimax = load("minimax")
    gaps = minimax.main(gradients=300)
    assert set(gaps) == {1, 10}
    # Both have made most of the way, and none is below the closed form of the minimum.
    assert all(-1e-12 <= gap < 0.1 for gap in gaps.values())


def test_minimax_closed_form_is_the_minimum():
    minimax = load("minimax")
    game = minimax.random_game()
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=20)
        assert minimax.worst_case(x, game) > minimax.lowest(game)


@pytest.mark.slow
def test_lasso_path(tmp_path):
    """Gradient steps end where the path is lowest, and two penalties lead below it."""
    example = load("lasso_path")
    path, lasso, net = found = example.main(points=40)
    inside = slice(5, -5)
    slopes = np.gradient(path.error, path.x)[inside]
    np.testing.assert_allclose(path.slope[inside], slopes, atol=0.1 * np.abs(slopes).max())
    assert lasso.value <= path.error.min() + 1e-3
    assert net.value < lasso.value
    assert lasso.status is net.status is bl.Status.CONVERGED
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_few_shot_learns_to_learn(tmp_path, monkeypatch):
    example = load("few_shot")
    monkeypatch.setattr(example, "HELD_OUT", 10)
    runs, held_out = example.learn(steps=60, every=60, width=10)
    assert set(runs) == {"MAML", "ANIL", "iMAML"}
    for run in runs.values():
        assert not run.status.failed
        assert run.value < run.watched["held out"][0]
    example.draw(runs, held_out, tmp_path / "few_shot.png")
    assert png_size(tmp_path / "few_shot.png") == (1350, 540)


@pytest.mark.slow
def test_minibatches_clean_labels_in_fewer_passes(tmp_path):
    example = load("minibatch_cleaning")
    images = example.load(small=True)
    assert 0.4 < images.wrong.mean() < 0.5  # of half of the labels one in ten is drawn again
    runs = example.learn(images, passes=20)
    sampled, full = (runs[name] for name in ("batches of 64", "all images"))
    assert sampled.status is full.status is bl.Status.BUDGET_SPENT
    assert sampled.value < full.value
    weights = np.asarray(sampled.x)
    assert weights[images.wrong].mean() < 0 < weights[~images.wrong].mean()
    assert png_size(example.draw(runs, images, tmp_path / "figure.png")) == (1350, 540)


@pytest.mark.slow
def test_which_text_chooses_that_of_the_language_wanted(tmp_path):
    example = load("which_text")
    texts = example.load(small=True)
    found = example.learn(texts, steps=400)
    assert list(texts.sources)[int(np.argmax(found.shares))] == "Shakespeare"
    assert found.run.watched["held out"][-1] < found.equal
    assert png_size(example.draw(found, texts, tmp_path / "figure.png")) == (1350, 540)


@pytest.mark.slow
def test_distillation(tmp_path):
    example = load("distillation")
    found = example.main(steps=8, samples=300)
    assert found.before + 0.1 < found.after
    assert found.run.value < 0.6 * found.run.trace["value"][0]
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
@pytest.mark.parametrize("flax", [False, True])
def test_sample_weights_of_a_network(tmp_path, flax):
    if flax:
        pytest.importorskip("flax")  # in the bench extra
    example = load("sample_weights")
    data = example.load(150, 100, embedded=True)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        found = example.learn(data, flax, steps=12)
    assert found.run.x[data.wrong].mean() < found.run.x[~data.wrong].mean() - 0.5
    assert found.accuracy > found.uniform
    assert png_size(example.draw(data, found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_architecture(tmp_path):
    example = load("architecture")
    found = example.main(steps=5, samples=100)
    assert set(found) == {"DARTS", "one step, Adam", "AID"}
    for each in found.values():
        assert not each.run.status.failed
        assert each.run.value < each.run.trace["value"][0]
        assert np.all(np.abs(each.run.x) > 0)  # a softmax moves all of its logits
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_sources_of_a_transformer(tmp_path):
    example = load("sources")
    found = example.main("tiny", steps=30)
    for run in found.runs.values():
        assert not run.status.failed
        assert run.watched["held out"][-1] < run.watched["held out"][0]
    np.testing.assert_array_equal(found.runs["equal"].x, 0.0)
    shares = jax.nn.softmax(found.runs["AID"].x)
    assert shares[0] + shares[1] > shares[3] + shares[4]  # text, and not digits or random letters
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_support_vectors(tmp_path):
    example = load("support_vectors")
    found = example.main(points=25)
    slopes = np.gradient(found.value, found.x)
    assert np.median(np.abs(found.slope - slopes)) < 0.1 * np.abs(slopes).max()
    # Φ has kinks where a sample becomes a support vector: the one that stops the run is told.
    assert found.run.value <= found.value.min() + 5e-3
    assert 0 < found.support.min() < found.support.max() <= 60
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_equilibrium_model(tmp_path):
    example = load("equilibrium_model")
    found = example.main(samples=400, states=15, steps=60)
    assert found.run.trace["value"][-1] < 0.5 * found.run.trace["value"][0]
    assert found.accuracy > 0.6
    assert all(sizes[-1] < 1e-2 * sizes[0] for sizes in found.residuals.values())
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_sparse_coding(tmp_path):
    example = load("sparse_coding")
    found = example.main(samples=100, atoms=8, steps=30)
    learned, fixed = (each.run.trace["value"] for each in found)
    assert learned[0] == pytest.approx(fixed[0])
    assert learned[-1] < fixed[-1] < fixed[0]
    assert 0.05 < found.learned.zeros < 1
    assert png_size(example.draw(found, tmp_path / "figure.png"))[0] >= 800


@pytest.mark.slow
def test_pytrees_resume_to_the_same_bits():
    resumed, at_once = load("pytrees").main(steps=40)
    assert resumed.steps == at_once.steps == 40
    assert jax.tree.structure(resumed.x) == jax.tree.structure(at_once.x)
    for a, b in zip(*map(jax.tree.leaves, (resumed.x, at_once.x)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert at_once.trace["value"][-1] < at_once.trace["value"][0]


def test_contributing_has_a_skeleton_for_each_piece():
    assert list(SKELETONS) == ["An inner solver", "A linear solver", "A method", "A problem"]
    assert CONTRIBUTING.count("```python") == len(SKELETONS)


@functools.cache
def executed(title):
    """The names that a skeleton leaves behind; its own assertions hold."""
    names = {"__name__": "skeleton"}
    exec(compile(SKELETONS[title], f"CONTRIBUTING.md, {title}", "exec"), names)
    return names


@pytest.mark.parametrize("title", SKELETONS)
def test_skeleton_of_contributing_runs(title):
    assert "bl" in executed(title)


def test_skeletons_work_inside_aid_and_itd():
    """A newcomer copied from the skeleton passes through the pipeline."""
    inner = executed("An inner solver")["ClippedDescent"](0.1, 300)
    linear = executed("A linear solver")["SteepestDescent"](300)
    problem, x, y = executed("A problem")["ridge"]()

    def hypergradient(method):
        h, _, info = eqx.filter_jit(method)(problem, x, method.init(problem, x, y), 0)
        assert int(info.result) == bl.Status.COMPLETED
        return h

    for method in (bl.AID(inner, linear), bl.ITD(inner)):
        np.testing.assert_allclose(hypergradient(method), hypergradient(bl.Exact()), rtol=1e-6)


def test_notation_has_every_public_word():
    notation = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", notation))
    assert set(bl.__all__) - words == set()
    assert set(COLUMNS) - words == set()


def test_group_ridge(tmp_path):
    example = load("group_ridge")
    model, errors = example.compare()
    _, ours, common = sorted(errors.values())
    assert ours == errors["GroupRidgeCV, five penalties"]
    assert ours < 0.85 * common
    example.plot(model, errors, tmp_path / "figure.png")
    assert png_size(tmp_path / "figure.png")
