"""What the loops have in common: the rule that ends them, and step sizes that they find."""
