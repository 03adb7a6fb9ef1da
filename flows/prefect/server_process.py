"""The embedded Prefect API server as a process: lives exactly as long as its standard input.

Started by `flows.prefect.server` with the argument PORT. Its owner holds the other end of the pipe;
when that closes, on purpose or because the owner was killed, the server ends. With the argument
`reports` it has the report of every sweep in a state, beside Prefect's interface. The first line
that it reads names the state: its address may hold a password.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.settings.settings import Settings

FORCED_EXIT_AFTER = 15.0


def main(port: int, *, reports: bool = False) -> None:
    """Serve on loopback until standard input ends."""
    # Ctrl-C reaches the whole group of the terminal; the owner alone decides when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = _told() if reports else None
    import uvicorn

    def application() -> Any:
        from prefect.server.api.server import create_app
        from prefect.settings import PREFECT_SERVER_API_AUTH_STRING

        app = create_app()
        # Whoever asks for a password does not want to show what fails to all users of the machine.
        if settings is not None and not PREFECT_SERVER_API_AUTH_STRING.value():
            _add_reports(app, settings)
        return app

    server = uvicorn.Server(
        uvicorn.Config(
            application,
            factory=True,
            host="127.0.0.1",
            port=port,
            log_level="error",
            lifespan="on",
            timeout_graceful_shutdown=3,
        )
    )

    def watch() -> None:
        # Not `sys.stdin`: Python aborts at its end if a thread holds the lock of that.
        while os.read(0, 4096):
            pass
        server.should_exit = True
        timer = threading.Timer(FORCED_EXIT_AFTER, os._exit, (1,))
        timer.daemon = True
        timer.start()

    threading.Thread(target=watch, daemon=True).start()
    server.run()
    os._exit(0)


def _told() -> Settings:
    """The first line that the owner writes."""
    from flows.settings.settings import Settings

    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 4096) or b"\n"
    return Settings(**json.loads(line), cwd=Path.cwd())


def _add_reports(app: Any, settings: Settings) -> None:
    """Answer `/reports/STAMP` with the report of a sweep as it is now."""
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    from flows.features import feature
    from matrix.errors import MillError

    def report(request: Request) -> Response:
        try:
            return HTMLResponse(feature("report")(settings, request.path_params["stamp"]))
        except MillError as error:
            return PlainTextResponse(f"{error}\n", status_code=404)

    app.router.routes.insert(0, Route("/reports/{stamp}", report))


if __name__ == "__main__":
    main(int(sys.argv[1]), reports=len(sys.argv) > 2)
