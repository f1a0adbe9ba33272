"""The draws of torch, and the data of Sow et al. that are made of them.

The numbers are what torch 2.13.0 prints on an x86 CPU. Its float32 logarithm and cosine are not
those of NumPy, and neither is the same on all machines: hence 1e-6, about eight units in the last
place; three are the most that was seen in 400 000 draws.
"""

import numpy as np
import pytest

import biloop as bl

CLOSE = {"rtol": 1e-6, "atol": 0}


TORCH = {
    # fewer than 16: pairs in double precision
    (0, (5,)): "1.54099607 -0.293428898 -2.17878938 0.568431258 -1.08452237",
    # one block
    (0, (4, 4)): "-1.12583983 -1.1523602 -0.250578582 -0.433878809 0.848710358 0.692009151 "
    "-0.31601277 -2.11521935 0.322274923 -1.26333475 0.349983186 0.30813393 0.119841509 1.2376579 "
    "1.11677718 -0.247278154",
    # one block and a tail: of the first block only what the tail does not overwrite is left
    (0, (20,)): "-1.12583983 -1.1523602 -0.250578582 -0.433878809 0.598839462 -1.55509508 "
    "-0.34136039 1.85300612 0.468096405 -0.157712445 1.44366014 0.266049415 1.38936615 1.58633423 "
    "0.946298361 -0.843676746 0.931826591 1.25900924 2.00498056 0.0537369028",
    (12345, (3, 7)): "-1.47980773 0.487305999 -3.01279378 0.443855196 0.359756202 -0.542859495 "
    "0.430742532 -1.92567003 -0.214522406 -1.26199472 -0.128154814 -0.373714328 1.0682683 "
    "-0.930010319 0.114245027 -0.445028126 0.522417665 0.605769932 0.747196436 0.154222086 "
    "-0.348695815",
}


@pytest.mark.parametrize(("seed", "shape"), TORCH)
def test_draws_are_those_of_torch(seed, shape):
    values = bl.data.torch_normal(seed).normal(shape)
    assert values.dtype == np.float32
    assert values.shape == shape
    expected = [float(number) for number in TORCH[seed, shape].split()]
    np.testing.assert_allclose(values.ravel(), expected, **CLOSE)


def test_draws_of_different_lengths_follow_each_other_as_in_torch():
    """The second number of a pair waits for the next short draw, also beyond a long one."""
    draw = bl.data.torch_normal(7).normal
    np.testing.assert_allclose(draw((3,)), [-0.146795094, 0.786141276, 0.94682163], **CLOSE)
    assert draw((0, 4)).shape == (0, 4)
    second = [[-1.114344, 1.69079018, -0.894827902], [-0.355625033, 1.23238575, 0.138172656]]
    np.testing.assert_allclose(draw((2, 3)), second, **CLOSE)
    np.testing.assert_allclose(draw((16,))[[0, -1]], [0.198445052, -0.356722534], **CLOSE)
    np.testing.assert_allclose(draw(()), -1.68219852, **CLOSE)
    np.testing.assert_allclose(draw(()), 2.45054126, **CLOSE)


def test_seeds_are_those_of_torch():
    """It takes 64 bits, also negative ones, and uses 32."""
    expected = {
        -1: [-2.66429758, -1.0910486, 0.451447427],
        5: [1.84232986, 0.518887162, -1.71192133],
        2**32 + 5: [1.84232986, 0.518887162, -1.71192133],
        np.int64(5 - 2**32): [1.84232986, 0.518887162, -1.71192133],
    }
    with pytest.raises(TypeError, match="integer"):
        bl.data.torch_normal(0.5)
    for seed, values in expected.items():
        np.testing.assert_allclose(bl.data.torch_normal(seed).normal((16,))[:3], values, **CLOSE)


# shape, first and last value, sum and sum of absolute values
SOW = {
    "H_true": ((64, 128), -1.12583983, -0.185628295, -67.34599372, 6530.69696389),
    "w_true": ((128,), 0.265157282, 0.363137335, -0.8267365468, 101.63947778),
    "X_T": ((500, 64), -0.419739008, -1.22426021, -306.09404896, 25635.29899446),
    "noise_T": ((500,), 0.20690313, -0.437317699, 10.33151746, 396.67783326),
    "X_V": ((500, 64), -1.44545376, 1.31677902, -140.40195198, 25591.34572469),
    "noise_V": ((500,), 0.545003295, -0.0099167265, -39.68632548, 419.23156117),
    "w_0": ((128,), -0.546856701, 0.754260242, -10.35857043, 111.88036014),
    "H_0": ((64, 128), 0.913181305, -0.922121584, 115.71378993, 6479.09799772),
}


def test_the_data_of_sow_et_al():
    draws = bl.data.sow(0)
    for name, (shape, first, last, total, absolute) in SOW.items():
        values = getattr(draws, name)
        assert values.shape == shape
        assert values.dtype == np.float32
        np.testing.assert_allclose(values.ravel()[[0, -1]], [first, last], **CLOSE)
        exact = values.astype(np.float64)
        assert np.abs(exact).sum() == pytest.approx(absolute, rel=1e-7)
        assert exact.sum() == pytest.approx(total, abs=1e-7 * absolute)


def test_the_targets_of_sow_et_al():
    """Against X H_true w_true + 0.1 noise in double precision from what torch drew."""
    draws = bl.data.sow(0)
    assert draws.Y_T.dtype == draws.Y_V.dtype == np.float32
    np.testing.assert_allclose(
        draws.Y_T[[0, 1, -1]], [-34.8464001, -15.166966, -123.99442], rtol=2e-6
    )
    np.testing.assert_allclose(
        draws.Y_V[[0, 1, -1]], [18.0058086, -61.4281483, 130.000158], rtol=2e-6
    )


def test_every_seed_draws_other_data():
    draws = bl.data.sow(3)
    np.testing.assert_allclose(draws.H_true.ravel()[[0, -1]], [-0.076644294, -0.908047676], **CLOSE)
    np.testing.assert_allclose(draws.H_0.ravel()[[0, -1]], [1.94850981, 2.31983566], **CLOSE)
    np.testing.assert_allclose(
        draws.Y_T[[0, 1, -1]], [93.279674, -20.0390029, -23.0340463], rtol=2e-6
    )
