"""Runtimes: what can execute a model on this machine, each kind in a host process of its own.

    pool (owner) --JSON lines--> host process: service --> ort | ov --> session
       |                                          |
       chooses the runtime of a target            discovers, opens, runs, counts nodes, releases

A kind of runtime (`kinds`) is a package with its way to open sessions; a runtime (`found.Runtime`)
is one execution provider on one device that a kind has found here. A vendor library that crashes
or hangs takes its own process along and nothing else, and may live in another interpreter.

The service answers operations by name (`discover`, `measure`, `join`): compiling, tracing and
benchmarking are further operations on the same sessions.

`kinds`, `found` and `pool` are the owner's side; `service`, `ort`, `ov`, `values` and
`compare` run in the child and import numpy and the runtimes only there.
"""
