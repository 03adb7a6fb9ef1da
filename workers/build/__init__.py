"""Building a cell: the stage graph, its keys and budgets, and the package that comes out."""
