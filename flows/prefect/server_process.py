"""The embedded Prefect API server as a process: lives exactly as long as its standard input.

Started by `flows.prefect.server` with the argument PORT. Its owner holds the other end of the pipe;
when that closes, on purpose or because the owner was killed, the server ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

FORCED_EXIT_AFTER = 15.0


def main(port: int) -> None:
    """Serve on loopback until standard input ends."""
    # Ctrl-C reaches the whole group of the terminal; the owner alone decides when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(
            "prefect.server.api.server:create_app",
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


if __name__ == "__main__":
    main(int(sys.argv[1]))
