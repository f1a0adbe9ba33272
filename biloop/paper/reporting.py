"""A method that reports ‖∇Φ(x)‖² itself, where it has a closed form."""

from jaxtyping import Array, Float

from biloop.methods import Method


class Reporting(Method):
    """Another method, which reports ‖∇Φ(x)‖² = ‖Hx − b‖² where that one reports f."""

    method: Method
    H: Float[Array, "p p"]
    b: Float[Array, " p"]

    def init(self, problem, x, y):
        return self.method.init(problem, x, y)

    def __call__(self, problem, x, state, k):
        h, state, info = self.method(problem, x, state, k)
        gradient = self.H @ x - self.b
        return h, state, info._replace(value=gradient @ gradient)
