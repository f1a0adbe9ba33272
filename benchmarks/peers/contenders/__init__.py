"""Who is compared: a file per contender, each with `prepare(instance, device) -> Contender`.

This file imports none of them, so that the parent process needs none of their packages.
"""

from typing import Literal, NamedTuple


class Entry(NamedTuple):
    """A contender: its file, its name in tables, and the packages whose versions are reported.

    `warm_adjoint` is False where the Q-loop starts at v = 0 in every outer step because the
    library does not return v. `note` says in a few words how it differs from the others.
    """

    module: str
    title: str
    family: Literal["biloop", "JAX", "PyTorch", "floor"]
    packages: tuple[str, ...]
    warm_adjoint: bool = True
    note: str = ""


CONTENDERS = {
    "biloop": Entry("biloop_obvious", "biloop", "biloop", ("jax",)),
    "biloop-shipped": Entry(
        "biloop_shipped",
        "biloop, shipped problem",
        "biloop",
        ("jax",),
        note="layout chosen",
    ),
    "jax": Entry("jax_by_hand", "JAX by hand", "JAX", ("jax",), note="no checks, no record"),
    "jaxopt": Entry("jaxopt_solver", "jaxopt", "JAX", ("jaxopt", "jax"), False),
    "optimistix": Entry(
        "optimistix_minimise", "optimistix", "JAX", ("optimistix", "lineax", "jax"), False
    ),
    "torch": Entry("torch_by_hand", "PyTorch by hand", "PyTorch", ("torch",)),
    "hypertorch": Entry(
        "hypertorch_style", "hypertorch's loops", "PyTorch", ("torch",), False, "written here"
    ),
    "torchopt": Entry("torchopt_implicit", "TorchOpt", "PyTorch", ("torchopt", "torch"), False),
    "higher": Entry("higher_innerloop", "higher", "PyTorch", ("higher", "torch")),
    "betty": Entry("betty_engine", "betty", "PyTorch", ("betty-ml", "torch"), False),
    "c": Entry("c_kernel", "C, fused, X read once", "floor", ()),
}
