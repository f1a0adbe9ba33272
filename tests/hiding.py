"""Where a constant can hide in a function: each place takes it and returns a loss."""

import enum
import functools
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

WEIGHT = 1.0


def in_a_partial(value):
    return functools.partial(lambda c, x, y: c * jnp.sum(y**2), value)


def function_of_a_partial(value):
    first, second = (lambda x, y, p: jnp.sum(y**p)), (lambda x, y, p: jnp.sum(jnp.abs(y) ** p))
    return functools.partial(first if value == 1 else second, p=2)


def attribute_of_a_module(value):
    settings = types.ModuleType("settings")
    settings.scale = value
    return lambda x, y: settings.scale * jnp.sum(y**2)


def function_of_a_module(value):
    mine = types.ModuleType("mine")
    mine.loss = lambda y: value * jnp.sum(y**2)
    return lambda x, y: mine.loss(y)


def attribute_of_a_class(value):
    class Settings:
        scale = value

    return lambda x, y: Settings.scale * jnp.sum(y**2)


def global_in_a_nested_function(value):
    def loss(x, y):
        return (lambda: WEIGHT * jnp.sum(y**2))()

    return types.FunctionType(loss.__code__, globals() | {"WEIGHT": value})


def changed_call(value):
    return type("Loss", (), {"__call__": lambda self, x, y: value * jnp.sum(y**2)})()


class Static(eqx.Module):
    value: float = eqx.field(static=True)

    def __call__(self, x, y):
        return self.value * jnp.sum(y**2)


class Dynamic(eqx.Module):
    value: jax.Array

    def __call__(self, x, y):
        return self.value * jnp.sum(y**2)


def in_a_set(value):
    chosen = {1, int(value)}
    return lambda x, y: sum(chosen) * jnp.sum(y**2)


def in_a_range(value):
    return lambda x, y, r=range(int(value)): len(r) * jnp.sum(y**2)


def keyword_default(value):
    def loss(x, y, *, scale=value):
        return scale * jnp.sum(y**2)

    return loss


def constant_of_the_code(value):
    return eval(f"lambda x, y: {value} * jnp.sum(y**2)", {"jnp": jnp})


def array(value):
    constant = jnp.array([1.0, value])
    return lambda x, y: jnp.vdot(constant, y**2)


def numpy_array(value):
    constant = np.array([1.0, value])
    return lambda x, y: jnp.vdot(constant, y**2)


def body_of_a_loop(value):
    def loss(x, y):
        return jax.lax.scan(lambda s, e: (s + value * e**2, None), jnp.zeros(()), y)[0]

    return jax.jit(loss)


def on_the_host(function):
    """A loss that JAX hands to Python, which it does not trace."""

    def loss(x, y):
        total = jax.lax.stop_gradient(jnp.sum(y))
        shape = jax.ShapeDtypeStruct((), y.dtype)
        return jnp.sum(y**2) + jax.pure_callback(
            lambda s: np.asarray(function(s), s.dtype), shape, total
        )

    return loss


def in_a_module_of_this_name(code, **values):
    """The function f that the code defines among these globals."""
    names = values | {"__name__": "mine"}
    exec(code, names)
    return names["f"]


def host_constant(value):
    return on_the_host(lambda s: value * s)


def host_global(value):
    return on_the_host(in_a_module_of_this_name("def f(s): return (lambda: W * s)()", W=value))


def host_function_of_a_global_function(value):
    code = "def g(s): return W * s\ndef f(s): return g(s)"
    return on_the_host(in_a_module_of_this_name(code, W=value))


def host_without_a_module(value):
    function = eval("lambda s: W * s", {"W": value})
    function.__module__ = None
    return on_the_host(function)


def host_attribute_of_a_module(value):
    outside, settings = types.ModuleType("outside"), types.ModuleType("settings")
    outside.settings, settings.scale = settings, value
    return on_the_host(lambda s: outside.settings.scale * s)


def host_attribute_of_a_class(value):
    class Settings:
        scale = value

    return on_the_host(lambda s: Settings.scale * s)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, x, y):
        return self.value * jnp.sum(y**2)

    def times(self, s):
        return self.value * s


class HostSlotted(Slotted):
    def __call__(self, s):
        return self.value * s


def host_slots(value):
    return on_the_host(HostSlotted(value))


def host_object_in_a_list(value):
    found = {"all": [Slotted(value)]}
    return on_the_host(lambda s: found["all"][0].value * s)


def host_method(value):
    return on_the_host(Slotted(value).times)


def host_method_that_call_uses(value):
    class Base:
        def scaled(self, s):
            return value * s

    class Loss(Base):
        def __call__(self, s):
            return self.scaled(s)

    return on_the_host(Loss())


def host_property_and_class_method(value):
    class Settings:
        scale = value

        @classmethod
        def found(cls):
            return cls.scale

        @property
        def half(self):
            return self.found() / 2

    settings = Settings()
    return on_the_host(lambda s: settings.half * s)


def host_set(value):
    names = {"a", "b", "c", str(value)}  # in another order in each process
    return on_the_host(lambda s: len(names) * s)


def host_compiled(value):
    compiled = jax.jit(lambda s: value * s)
    return on_the_host(lambda s: compiled(s))


def host_library_function(value):
    return on_the_host({1.0: np.sin, 2.0: np.cos}[value])


def host_namespace(value):
    settings = types.SimpleNamespace(scales=np.array([1.0, value]))
    return on_the_host(lambda s: settings.scales.sum() * s)


def host_enum(value):
    scales = enum.Enum("scales", {"large": value})
    return on_the_host(lambda s: scales.large.value * s)


PLACES = [
    in_a_partial,
    function_of_a_partial,
    attribute_of_a_module,
    function_of_a_module,
    attribute_of_a_class,
    global_in_a_nested_function,
    changed_call,
    Slotted,
    Static,
    in_a_set,
    in_a_range,
    keyword_default,
    constant_of_the_code,
    array,
    numpy_array,
    body_of_a_loop,
]
ON_THE_HOST = [
    host_constant,
    host_global,
    host_function_of_a_global_function,
    host_without_a_module,
    host_attribute_of_a_module,
    host_attribute_of_a_class,
    host_slots,
    host_object_in_a_list,
    host_method,
    host_method_that_call_uses,
    host_property_and_class_method,
    host_set,
    host_compiled,
    host_library_function,
    host_namespace,
    host_enum,
]
