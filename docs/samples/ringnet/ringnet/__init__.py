"""A small image classifier of our own, and how modelmill exports it."""
