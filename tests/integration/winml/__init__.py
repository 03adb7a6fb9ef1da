"""The winml engine against the real winml-cli: `pytest -m winml`."""
