"""Random constants and parameters for the property tests."""

import math

from hypothesis import settings
from hypothesis import strategies as st

from biloop.theory import Constants, Start


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(math.log(low), math.log(high)).map(math.exp)


@st.composite
def constants(draw: st.DrawFn, max_kappa: float = 2.0**16, with_zeros: bool = True) -> Constants:
    L = draw(log_uniform(1e-2, 1e2))
    kappa = draw(log_uniform(1.0, max_kappa))
    size = log_uniform(1e-2, 1e2)
    maybe_zero = st.one_of(st.just(0.0), size) if with_zeros else size
    return Constants(L, L / kappa, draw(maybe_zero), draw(maybe_zero))


starts = st.builds(
    Start, gap=log_uniform(1e-2, 1e2), y_distance=log_uniform(1e-2, 1e2), v_norm=st.just(0.0)
)
# step sizes as a fraction of 1/L, loop lengths on a logarithmic scale
fractions = log_uniform(1e-3, 1.0)
loops = log_uniform(1.0, 1e5).map(round)
small_loops = st.integers(1, 30)
lams = log_uniform(1e-4, 10.0)
# formulas are cheap: five times the examples that compiled code gets
many = settings(max_examples=120, deadline=None)
