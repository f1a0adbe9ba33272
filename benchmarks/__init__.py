"""Measurements of the library; none of it is installed with it."""
