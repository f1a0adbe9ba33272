"""Losses of PyTorch modules as a `Problem`, by torchax, which runs PyTorch's operations in JAX.

    g(x, y) = inner(x, module with parameters y, *inner_data),   f likewise

The losses are PyTorch code; what is solved is an ordinary problem.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from biloop.problem import Problem

__all__ = ["TorchProblem", "torch_problem"]

_INSTALL = "biloop.torch needs PyTorch and torchax: pip install 'biloop[torch]'"

try:
    torch: Any = importlib.import_module("torch")
    _ops: Any = importlib.import_module("torch._ops")
except ImportError:
    raise ImportError(f"{_INSTALL} (PyTorch is not installed).") from None


@contextmanager
def _named_dimensions() -> Iterator[None]:
    """Overloads for named dimensions, which torchax 0.0.13 lists and PyTorch 2.13 has no more.

    They only stand in tables of torchax, as names of what nobody can call.
    """
    packet = _ops.OpOverloadPacket
    found = packet.__getattr__

    def get(self: Any, key: str) -> Any:
        try:
            return found(self, key)
        except AttributeError:
            if "dimname" in key.lower() or "names" in key:
                return f"{self}.{key}"
            raise

    packet.__getattr__ = get
    try:
        yield
    finally:
        packet.__getattr__ = found


def _imported() -> Any:
    """torchax with its tables loaded, or a sentence."""
    try:
        with _named_dimensions():
            torchax = importlib.import_module("torchax")
            torchax.default_env()
    except ModuleNotFoundError as missing:
        raise ImportError(f"{_INSTALL} ({missing}).") from None
    except (AttributeError, ImportError, RuntimeError) as reason:
        raise ImportError(
            f"The installed torchax does not work with PyTorch {torch.__version__} "
            f"({type(reason).__name__}: {reason}). {_INSTALL} has versions that do."
        ) from None
    return torchax


_torchax = _imported()


class _Loss(torch.nn.Module):
    """A loss that sees its module with the parameters that it is called with."""

    def __init__(self, loss: Callable[..., Any], module: Any) -> None:
        super().__init__()
        self.loss, self.module = loss, module

    def forward(self, x: Any, *data: Any) -> Any:
        return self.loss(x, self.module, *data)


class _Function(eqx.Module):
    """A loss as a function of arrays; what is not tuned in the module are leaves of it."""

    constants: dict[str, Array]
    loss: _Loss = eqx.field(static=True)

    def __call__(self, x: PyTree, y: dict[str, Array], *data: PyTree) -> Float[Array, ""]:
        env = _torchax.default_env()
        key = env.prng_key
        both = {f"module.{name}": leaf for name, leaf in (self.constants | y).items()}
        with _as_torch(env), env.override_property(prng=key):
            x, both, data = env.j2t_iso((x, both, data))
            value = env.t2j_iso(torch.func.functional_call(self.loss, both, (x, *data)))
            drawn = env.prng_key is not key
        if drawn:
            raise ValueError(
                "A loss draws random numbers, which would be the same in every step. Switch "
                "Dropout off (module.eval()), and make random inputs part of the data."
            )
        return value


@contextmanager
def _as_torch(env: Any) -> Iterator[None]:
    """Operations of PyTorch, with its rules of promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"), env:
        yield


@dataclass(frozen=True, eq=False)
class TorchProblem:
    """A problem whose y are the parameters of a module, where to start, and the way back."""

    problem: Problem
    x0: PyTree
    y0: dict[str, Array]
    module: Any

    def load(self, y: PyTree) -> Any:
        """The module with y (`run.y`) as its parameters."""
        state = self.tensors(dict(y))
        if state.keys() != self.y0.keys():
            raise ValueError(f"y must have the parameters {list(self.y0)}, got {list(state)}.")
        self.module.load_state_dict(state, strict=False)  # buffers stay as they are
        return self.module

    def tensors(self, tree: PyTree) -> Any:
        """Arrays (`run.x`) as tensors."""
        return jax.tree.map(lambda leaf: torch.from_numpy(np.array(leaf)), tree)


def torch_problem(
    module: Any,
    inner: Callable[..., Any],
    outer: Callable[..., Any],
    x0: PyTree,
    inner_data: tuple = (),
    outer_data: tuple = (),
) -> TorchProblem:
    """Losses in PyTorch as a problem in JAX.

    Parameters
    ----------
    module : torch.nn.Module
        The model. Its parameters that require gradients are y; the others, and its buffers, are
        constants: BatchNorm in training mode keeps no running means.
    inner, outer : functions of (x, module, *data)
        Losses in PyTorch. The module that they are given has the parameters to judge.
    x0 : tensor, or pytree of them
        The outer variable to start from.
    inner_data, outer_data : tuples of tensors
        What the losses are given; the first axis are samples.

    Examples
    --------
    >>> import torch
    >>> from biloop.torch import torch_problem
    >>> inner = lambda x, net, A, t: ((net(A) - t) ** 2).mean() + x.exp() * (net.weight**2).sum()
    >>> outer = lambda x, net, A, t: ((net(A) - t) ** 2).mean()
    >>> data = torch.randn(20, 3), torch.randn(20, 1)
    >>> found = torch_problem(torch.nn.Linear(3, 1), inner, outer, torch.zeros(()), data, data)
    >>> run = bl.solve(found.problem, found.x0, found.y0, steps=5)
    >>> net = found.load(run.y)
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {module!r}.")
    parameters = dict(module.named_parameters())
    y0 = {name: _array(p) for name, p in parameters.items() if p.requires_grad}
    if not y0:
        raise ValueError("No parameter of the module requires a gradient: nothing to fit.")
    rest = {n: p for n, p in parameters.items() if n not in y0} | dict(module.named_buffers())
    constants = {name: _array(leaf) for name, leaf in rest.items()}
    x0, *data = (jax.tree.map(_array, part) for part in (x0, tuple(inner_data), tuple(outer_data)))
    functions = [_Function(constants, _Loss(loss, module)) for loss in (inner, outer)]
    for name, function, arguments in zip(("inner", "outer"), functions, data, strict=True):
        try:
            shape = jax.eval_shape(function, x0, y0, *arguments)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
            raise ValueError(
                f"{name} asks for the value of a tensor (in an `if`, by .item()), which "
                f"is not known when it is compiled: use torch.where."
            ) from None
        if getattr(shape, "shape", None) != ():
            raise ValueError(f"{name} must return a tensor with one number, got {shape}.")
    return TorchProblem(Problem(*functions, *data), x0, y0, module)


def _array(leaf: Any) -> Array:
    """A tensor (or number) as an array."""
    if not isinstance(leaf, torch.Tensor):
        return jnp.asarray(leaf)
    array = jnp.asarray(leaf.detach().cpu().numpy())
    if array.dtype.name != str(leaf.dtype).removeprefix("torch."):
        if leaf.dtype == torch.float64:
            raise ValueError(
                "A tensor is float64: jax.config.update('jax_enable_x64', True) first."
            )
        if leaf.dtype.is_floating_point:
            raise ValueError(f"Tensors of {leaf.dtype} are not supported, got one.")
    return array
