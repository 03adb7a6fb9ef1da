"""Traces: where the time of a model goes, operator by operator.

    monitor (host process) -> artifacts and readings -> parser -> operators -> result

A **monitor** watches the iterations of one window in the runtime's host: it contributes options to
the session before it is opened, and its artifacts are read after the session is released. Each
source has a parser of its own: QNN's profiling CSV and, at level detail, the vendor's QHAS summary;
the profile of ONNX Runtime; the profiling info of OpenVINO. All give the same `Trace` (`result`),
whatever went wrong: its status says how much of it can be believed.

`result`, `operators` and the parsers need no NumPy; what reads ONNX files or opens sessions runs in
a host process.
"""
