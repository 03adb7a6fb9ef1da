"""Runtimes: what can execute a model on this machine, each kind in a host process of its own.

    pool (owner) --JSON lines--> host process: service --> ort | ov --> session
       |                                          |
       chooses the runtime of a target            discovers, opens, runs, counts nodes, releases

A kind of runtime is a package and its way to open sessions; a runtime is an execution
provider on a device that a kind has found on this machine. A vendor library that crashes or hangs
takes down its own process and nothing else, and may live in another interpreter.

The service answers operations by name: `discover`, `measure`, `join` and further ones that compile,
trace and benchmark with the same sessions.

`runtime` and `pool` run in the owner's process; `service`, `ort`, `ov` and `values`
run in the host process and import numpy and the runtimes only there.
"""
