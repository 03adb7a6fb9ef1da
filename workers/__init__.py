"""Workers: build one model. Engines, stage pipeline, store, process supervision, verification.

    cell --> stages ----(key)--> store: hit -> outputs by digest
                |                  ^
                | miss             | outputs, hashed while they are stored
                v                  |
             host client ==JSON lines==> host process (engine; torch/onnx live only there)
                |
                v
          package folder (model files + modelmill.json + build.json) --> verify --> the flows

A stage is keyed before it runs: the digest of {engine and tool versions, stage, effective
parameters, input digests}. Equal keys are equal work and run once, whichever target asks.

The process of the sweep never imports torch, onnx or an engine: an engine is an entry point
(group `modelmill.engines`) that only its host process loads, possibly in another interpreter.
`workers.engine` and `workers.host` therefore use the standard library alone and run on any
Python from 3.10 on. The parent supervises: time limit and memory ceiling per stage, the whole
process tree killed, output drained into the cell's log, restart after a crash.

Where to look: `build/` (a cell in, a package out), `store/`, `host/`, `sources/`, the engines,
`runtimes/`, `compile/`, `measure/`, `verify/` (the gate and its own process) and
`attest/`.

The room imports `machine` and `matrix`, nothing else of ours.
"""
