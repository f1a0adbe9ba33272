"""Methods that draw rows."""
