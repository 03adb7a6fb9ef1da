"""Measures how fast a model runs on a runtime of this machine, and where it spends its time.

    subject --> benchmark --(one session after the other)--> runtime's host: opens, warms up, runs
       |            |                                              |
       |            v                                     times of every iteration
       |        result (per graph: opening, latency, memory, nodes, samples)
       v            |
    trace           v
                comparison: two subjects, interleaved; one verdict

A `subject` is what is measured: the graphs of a package or a model file, each with its input
values in fixed shapes, and the runtime that runs them. A composite model has several graphs; each
is measured by itself. A `Protocol` says how: warm-up runs, iterations, sessions, threads.

A session begins with a new host process, in which the model is opened for the first time (cold).
Then the model is closed and opened again (warm), warmed up, and run. Vendor libraries are loaded
only in that process, so a crash, a hang or unbounded memory costs one measurement, and the `Fault`
of the result says which of them happened, with the end of the log.

A comparison opens three sessions at a time: the subject, the other one, and the other one a second
time, the null run. It runs them in small blocks in a random order that is recorded, so that drift
and heat affect all three equally. The differences between the two sessions of the same model are
noise by definition: no verdict claims a difference that is smaller (`verdict`).

The time of an emulator says nothing about the device. The runtime of every result says whether it
is `emulated`, and everything that shows a time shows this too.

`subject` and `result` are plain types, JSON through `matrix.codec`; `benchmark` and `comparison`
drive the host; `verdict` only calculates; `quiet` reserves the machine for one
measurement; `trace` gets the times of operators from a runtime's profiler, and `insight` finds in a
graph what a tuning may try. The loops that run in the host process are in `workers/runtimes`. The
flows find what the user named (a package, a cell); the state keeps the results.
"""
