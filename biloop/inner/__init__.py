"""The N-loop: y ≈ y*(x). One method per file."""
