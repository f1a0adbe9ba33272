"""y*(x) as a function that JAX can differentiate."""

from biloop.solution_maps.maps import SolutionMap, argmin, equilibrium, implicit

__all__ = ["SolutionMap", "argmin", "equilibrium", "implicit"]
