"""y*(x) as a function that JAX can differentiate."""

from biloop.inner.solution_maps.maps import SolutionMap, argmin, equilibrium, implicit

__all__ = ["SolutionMap", "argmin", "equilibrium", "implicit"]
