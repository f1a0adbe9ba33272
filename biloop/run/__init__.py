"""From an outer step to a run: the compiled loop, the host around it, and what it records."""
