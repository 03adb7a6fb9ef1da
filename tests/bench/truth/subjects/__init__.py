"""The models under test, a module for each kind."""
