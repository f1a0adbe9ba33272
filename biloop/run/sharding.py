"""Sharding: the samples of a problem over the devices of a mesh, everything else on each of them.

A loss that is a mean over samples runs unchanged on many devices: each works on its own rows, and
what it finds, of the size of y, is added up over the devices. The rows stay where they are.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from biloop.problem import Problem
from biloop.run.processes import Processes, copy_to
from biloop.schedules import is_concrete

ProblemOrData = TypeVar("ProblemOrData", Problem, tuple)


def shard(
    what: ProblemOrData,
    mesh: Mesh,
    *,
    over: str | tuple[str, ...] | None = None,
    local: bool = False,
) -> ProblemOrData:
    """A problem with its data on the devices of `mesh`: samples split, everything else copied.

    Arrays directly in a data tuple are samples: their leading axis is split evenly over the axes
    `over` of the mesh (all of them unless given). Other pytrees, and the arrays of the functions,
    are copied to each device. An array that lies on the mesh already stays as it is, which is how
    to choose another layout: `jax.device_put` it before.

    `what` may also be a data tuple, to be sharded before it goes into a `Problem`: a problem holds
    what it is given on one device, and large data do not fit there.

    With several processes each may hold all samples and keeps its share. With `local=True` each
    holds only the rows of its own devices, equally many, and no host ever sees the others.

    Parameters
    ----------
    what : Problem or data tuple
        What to spread.
    mesh : jax.sharding.Mesh
        The devices, e.g. `jax.make_mesh((8,), ("data",))`.
    over : str or tuple of str, optional
        The axes of the mesh over which samples are split; all of them by default.
    local : bool
        Whether each process holds only the rows of its own devices.

    Examples
    --------
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    >>> spread = bl.shard(problem, mesh)
    >>> spread.inner_data[0].sharding.mesh.axis_names
    ('data',)
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, got {type(mesh).__name__}.")
    mesh = _automatic(mesh)
    rows = NamedSharding(mesh, PartitionSpec(_axes(mesh, over)))

    def spread(data: tuple[PyTree, ...], name: str) -> tuple[PyTree, ...]:
        return tuple(_spread(entry, rows, local, f"{name}[{i}]") for i, entry in enumerate(data))

    if isinstance(what, Problem):
        return replace(
            what,
            inner=place(what.inner, mesh, "inner"),
            outer=place(what.outer, mesh, "outer"),
            inner_data=spread(what.inner_data, "inner_data"),
            outer_data=spread(what.outer_data, "outer_data"),
            prox=place(what.prox, mesh, "prox"),
            is_equilibrium=what.is_equilibrium,
        )
    if not isinstance(what, tuple):
        raise TypeError(f"shard takes a Problem or a tuple of data, got {type(what).__name__}.")
    return spread(what, "data")


def mesh_of(tree: PyTree) -> Mesh | None:
    """The mesh that the arrays of a tree lie on, if any of them does."""
    for leaf in jax.tree.leaves(tree):
        if (mesh := _mesh(leaf)) is not None:
            return _automatic(mesh)
    return None


def place(tree: PyTree, mesh: Mesh | None, name: str) -> PyTree:
    """The tree on the mesh: arrays that lie there stay as they are, others go to each device.

    Refused where several processes do not give the same values.
    """
    if mesh is None:
        return tree
    new = [leaf for leaf in jax.tree.leaves(tree) if _is_array(leaf) and not _lies_on(leaf, mesh)]
    Processes(mesh).require_equal(
        _content(new),
        f"{name} differs between the processes. All of them must run the same script with the same "
        f"seeds and files; only data given with local=True may differ.",
    )
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda leaf: put(leaf, everywhere) if _is_array(leaf) else leaf, tree)


def put(array: Any, sharding: NamedSharding) -> jax.Array:
    """The array in this sharding; one that lies on the same mesh stays as it is."""
    mesh = sharding.mesh
    assert isinstance(mesh, Mesh)
    if not _lies_on(array, mesh):
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
    if array.sharding.mesh == mesh:
        return array
    # The same devices, but with axes that JAX does not shard by itself: only the label changes.
    shards = [shard.data for shard in array.addressable_shards]
    label = NamedSharding(mesh, array.sharding.spec)
    return jax.make_array_from_single_device_arrays(array.shape, label, shards)


def in_place_of(old: Any, data: np.ndarray) -> jax.Array:
    """The data where the old array lies, and bound to it only if that is.

    What is bound has a program of its own.
    """
    if not (isinstance(old, jax.Array) and old.committed):
        return jax.device_put(data)
    if isinstance(old.sharding, NamedSharding):
        return put(data, old.sharding)
    return jax.device_put(data, old.sharding)


def layout_of(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Where the arrays of a placed tree lie; None without a mesh."""
    return None if mesh is None else jax.tree.map(lambda leaf: leaf.sharding, tree)


def pin(tree: PyTree, layout: PyTree) -> PyTree:
    """Bring traced arrays to where they shall lie, rather than where the compiler finds it best.

    At the end of a chunk: within it the compiler may keep an x_i where sample i is.
    """
    return tree if layout is None else lax.with_sharding_constraint(tree, layout)


def to_host(array: Any) -> np.ndarray:
    """The array in the memory of this host, parts that lie on other hosts included."""
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        assert isinstance(array.sharding, NamedSharding)
        array = copy_to(NamedSharding(array.sharding.mesh, PartitionSpec()))(array)
    return np.asarray(array)


def _automatic(mesh: Mesh) -> Mesh:
    """The mesh with axes over which JAX shards by itself; jax.make_mesh may give explicit ones."""
    return Mesh(mesh.devices, mesh.axis_names)


def _axes(mesh: Mesh, over: str | tuple[str, ...] | None) -> tuple[str, ...]:
    axes = mesh.axis_names if over is None else (over,) if isinstance(over, str) else tuple(over)
    if unknown := [axis for axis in axes if axis not in mesh.axis_names]:
        raise ValueError(f"The mesh has no axis {unknown[0]!r}; its axes are {mesh.axis_names}.")
    return axes


def _spread(entry: PyTree, rows: NamedSharding, local: bool, where: str) -> PyTree:
    """Samples by rows, anything else to each device."""
    mesh = rows.mesh
    assert isinstance(mesh, Mesh)
    if not _is_array(entry) or entry.ndim == 0:
        return place(entry, mesh, where)
    if _lies_on(entry, mesh):
        return put(entry, rows)
    parts = mesh.size // rows.shard_shape((mesh.size,))[0]
    if not local:
        Processes(mesh).require_equal(
            _content([entry]),
            f"{where} differs between the processes. Load it alike in all of them (the same files, "
            f"order and seeds), or give each its own rows with local=True.",
        )
        _check_even(len(entry), parts, where)
        return put(entry, rows)
    Processes(mesh).require_equal(
        [f"{entry.shape} {entry.dtype}".encode()],
        f"The processes hold parts of {where} that differ in shape or dtype; this one has "
        f"{entry.dtype}{list(entry.shape)}. Each must have equally many rows: drop some, or add "
        f"rows that have weight zero in the loss.",
    )
    places = rows.addressable_devices_indices_map((parts,)).values()
    mine = len({index[0].start for index in places if index is not None})
    _check_even(len(entry), mine, f"{where} of this process")
    shape = (len(entry) // mine * parts, *entry.shape[1:])
    return jax.make_array_from_process_local_data(rows, np.asarray(entry), shape)


def _check_even(count: int, parts: int, where: str) -> None:
    """Refuse samples that cannot be split evenly: padding them would change means."""
    rest = count % parts
    if rest:
        fewer = f"drop {rest} to keep {count - rest}, or " if count > parts else ""
        raise ValueError(
            f"{where} has {count} samples, which do not split evenly over {parts} devices: {fewer}"
            f"add {parts - rest} to make {count + parts - rest}. Samples that are added change a "
            f"mean unless the loss gives them weight zero, so shard adds none by itself."
        )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _mesh(leaf: Any) -> Mesh | None:
    there = isinstance(leaf, jax.Array) and is_concrete(leaf)
    sharding = leaf.sharding if there else None
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else None
    return mesh if isinstance(mesh, Mesh) else None


def _lies_on(leaf: Any, mesh: Mesh) -> bool:
    """Whether the array is spread over the same devices under the same names of axes.

    One that lies elsewhere is refused if this process cannot move it.
    """
    other = _mesh(leaf)
    if other is None:
        return False
    if other.axis_names == mesh.axis_names and np.array_equal(other.devices, mesh.devices):
        return True
    if not leaf.is_fully_addressable:
        raise ValueError(
            f"An array of shape {leaf.shape} lies on another mesh, with parts in other processes: "
            f"{other}. Use one mesh for all arrays."
        )
    return False


def _content(arrays: list[Any]) -> Iterator[bytes | memoryview]:
    """The shapes and bits of arrays that this process has in full."""
    for array in arrays:
        yield f"{array.shape}{array.dtype}".encode()
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def bound(state: PyTree, arrays: PyTree) -> PyTree:
    """The state as a chunk returns it: on the device to which some array is bound, if one is.

    Otherwise the second chunk would be another program than the first.
    """
    leaves = (leaf for leaf in jax.tree.leaves(arrays) if isinstance(leaf, jax.Array))
    device = next((leaf.sharding for leaf in leaves if leaf.committed), None)
    if device is None or not device.is_fully_addressable or len(device.device_set) > 1:
        return state  # a mesh has a layout
    put = lambda leaf: leaf if leaf.committed else jax.device_put(leaf, device)  # noqa: E731
    return jax.tree.map(put, state)
