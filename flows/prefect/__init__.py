"""Showing sweeps in Prefect: the server of a local one, flow runs, task runs and artifacts."""
