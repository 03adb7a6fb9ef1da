"""State databases with something in them."""
