"""Errors of Prefect's client as one line with a next step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.exceptions import ObjectNotFound

from matrix.errors import Exit, MillError


class NoServer(MillError):
    """The Prefect server does not answer, or refuses us."""

    exit_code = Exit.UNUSABLE


@contextmanager
def reached() -> Iterator[None]:
    """Turn the errors of Prefect's client into one line."""
    url = os.environ.get("PREFECT_API_URL", "")
    shown = httpx.URL(url).copy_with(userinfo=None) if url else "PREFECT_API_URL (not set)"
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        hint = "set PREFECT_API_AUTH_STRING or PREFECT_API_KEY" if code in {401, 403} else ""
        raise NoServer(f"the Prefect server at {shown} answers {code}", hint=hint) from None
    except ObjectNotFound:
        raise NoServer(
            f"the Prefect server at {shown} has no such pool", hint="run modelmill deploy first"
        ) from None
    except (httpx.HTTPError, RuntimeError) as error:
        raise NoServer(
            f"the Prefect server at {shown} cannot be reached: {error}",
            hint="start it, or check PREFECT_API_URL",
        ) from None
