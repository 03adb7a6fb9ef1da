"""The host: a warm child process that serves one object, one request at a time.

    owner process                                    child process (any interpreter >= 3.10)
    client.EngineHost --> process.HostProcess ==JSON lines on a private pipe==> child.py
         |                     |                          |  stdout, stderr --> the cell's log
         |                     +-- children.ProcessTree   +-- service.EngineService --> engine
         +-- watch: time, memory, output, cancel

The child loads what takes seconds to import (torch, onnx, a vendor's runtime) once, and may die
of it: a crash, a hang, a flood of output or a full memory costs one request and is classified by
the owner. The child lives no longer than its owner: end of file on its pipe ends it at once.

`child` and `service` run inside foreign interpreters: standard library only there.
"""
