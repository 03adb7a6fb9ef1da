"""Keys for signatures."""
