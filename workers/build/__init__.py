"""Builds a cell: the stage graph, its keys and budgets, and the package."""
