"""Flows: the command line, the sweep loop, and the only Prefect code; they wire the other rooms.

A sweep is a line with no way back:

    settings -> plan (matrix) -> seed (state, feed) -> slots -> index -> summary, exit code

A slot is a loop of plain functions: lease a model, build and verify its cells (workers), publish
and read back (feed), record (state), release the local bytes, take the next model. Prefect starts
the slots, shows every model as a task run and cancels; it never decides who builds what.

The commands that need no build (`plan`, `status`, `feed`, `pull`) import neither Prefect nor
anything heavy.
"""
