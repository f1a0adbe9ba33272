"""What the drawn rows say, and nothing else."""

from biloop.samples.estimators.base import Estimator, Evaluations


class Plain(Estimator):
    """d = new. Unbiased; its variance is that of a batch.

    Examples
    --------
    >>> samples = bl.Samples(bl.Blocks(8), bl.Blocks(8))
    >>> bl.SingleLoop(samples, 0.1, 0.1, bl.Plain()).estimators
    {'yvx': Plain()}
    """

    def init(self, direction, blocks):
        return ()

    def __call__(self, draw, state, k):
        return draw.new(), (), Evaluations(1)
