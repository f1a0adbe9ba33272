"""What the loops share: the rule that ends them, their status codes, step sizes that they find."""
