"""Machines whose clock is wrong, and one that is cut off from everything."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.fleets.machines import LIMIT, Fleet, start_fleet, wait_for
from tests.sweeps.command import model

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.name != "posix", reason="PostgreSQL is started by its POSIX tools"),
]

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long off(void) { const char *t = getenv("CLOCK_OFF"); return t ? atol(t) : 0; }
int clock_gettime(clockid_t id, struct timespec *ts) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, ts);
    if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += off();
    return code;
}
int gettimeofday(struct timeval *tv, void *tz) {
    struct timespec ts;
    int code = clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec; tv->tv_usec = ts.tv_nsec / 1000;
    return code;
}
time_t time(time_t *t) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (t) *t = ts.tv_sec;
    return ts.tv_sec;
}
"""


NEAR, FAR = "10.213.7.1", "10.213.7.2"
SPACE = "mill-far"


@pytest.fixture(scope="module")
def fleet(prefect_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with start_fleet(
        prefect_template, tmp_path_factory.mktemp("works"), MODELMILL_HEARTBEAT="2"
    ) as made:
        yield made


def release(hold: Path) -> None:
    Path(f"{hold}.go").touch()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="makes a library that shifts the clock")
def test_clocks_that_are_a_minute_off(fleet: Fleet, tmp_path: Path) -> None:
    """The database's clock counts: no lease is lost, and nobody waits a minute for anybody."""
    fleet.keep()
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    command = ["gcc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "clock.c"), "-ldl"]
    subprocess.run(command, check=True)
    fleet.machine("early", LD_PRELOAD=str(library), CLOCK_OFF="-60")
    fleet.machine("late", "--sweeps", "0", LD_PRELOAD=str(library), CLOCK_OFF="60")
    fleet.ready("early", "late")
    hold = fleet.project.folder / "hold-clock"
    act = {"quantize": f"wait:{hold}"}
    catalog = fleet.project.catalog(
        model("clock/a", act=act), model("clock/b", act={"quantize": f"wait:{hold}-b"})
    )
    with fleet.sweep(catalog, "clock") as order:
        # Both machines take part: each has one of the two models.
        wait_for(lambda: hold.exists() and Path(f"{hold}-b").exists())
        holders = fleet.project.holders("clock")
        assert {fleet.of(one.pid) for one in holders} == {"early", "late"}
        beats = {one.model: one.renewed_at for one in holders}
        wait_for(
            lambda: all(one.renewed_at > beats[one.model] for one in fleet.project.holders("clock"))
        )
        for one in fleet.project.holders("clock"):
            assert 0 < one.expires_at - one.renewed_at <= 4.01
        release(hold)
        release(Path(f"{hold}-b"))
        ran = order.end(LIMIT)
    assert (ran.code, ran.err) == (0, ""), ran
    assert fleet.lost("clock") == []
    fleet.check(catalog, "clock")


def can_make_namespaces() -> bool:
    """Root may, where the kernel and its tools let it."""
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", f"{SPACE}-try"], capture_output=True)
    subprocess.run(["ip", "netns", "del", f"{SPACE}-try"], capture_output=True)
    return made.returncode == 0


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def far_away() -> Iterator[None]:
    """A network of its own, with one line to ours."""
    ip("netns", "add", SPACE)
    try:
        ip("link", "add", "mill-near", "type", "veth", "peer", "name", "mill-far", "netns", SPACE)
        ip("addr", "add", f"{NEAR}/30", "dev", "mill-near")
        ip("link", "set", "mill-near", "up")
        inside = ("netns", "exec", SPACE, "ip")
        ip(*inside, "addr", "add", f"{FAR}/30", "dev", "mill-far")
        ip(*inside, "link", "set", "mill-far", "up")
        ip(*inside, "link", "set", "lo", "up")
        yield
    finally:
        ip("netns", "del", SPACE)
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", "mill-near")


@contextmanager
def relayed(port: int) -> Iterator[None]:
    """What listens on loopback listens on our end of the line too."""
    with closing(socket.create_server((NEAR, port))) as listener, ExitStack() as ends:

        def pump(one: socket.socket, other: socket.socket) -> None:
            pair = {one: other, other: one}
            with suppress(OSError, ValueError), one, other:
                while True:
                    for ready in select.select(list(pair), [], [])[0]:
                        data = ready.recv(65536)
                        if not data:
                            return
                        pair[ready].sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    caller, _address = listener.accept()
                    with suppress(OSError):
                        called = socket.create_connection(("127.0.0.1", port))
                        threading.Thread(target=pump, args=(caller, called), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        ends.callback(thread.join)
        ends.callback(listener.shutdown, socket.SHUT_RDWR)
        yield


@pytest.mark.skipif(not can_make_namespaces(), reason="needs root and network namespaces")
def test_a_machine_that_is_cut_off(fleet: Fleet) -> None:
    """Its model is taken over; when the line is back, what it has made meanwhile is refused."""
    fleet.keep()
    database = fleet.database.port
    with far_away(), relayed(fleet.prefect.port), relayed(database):
        # Process ids of its own as well: nobody here can see that its processes live.
        under = ["ip", "netns", "exec", SPACE]
        under += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        fleet.machine("near")
        far = fleet.machine(
            "far",
            "--sweeps",
            "0",
            under=under,
            PREFECT_API_URL=fleet.prefect.url.replace("127.0.0.1", NEAR),
            MODELMILL_STATE=fleet.project.url.replace("127.0.0.1", NEAR),
        )
        fleet.ready("near", "far")
        holds = {f"cut/{name}": fleet.project.folder / f"hold-cut-{name}" for name in "ab"}
        catalog = fleet.project.catalog(
            *(model(name, act={"quantize": f"wait:{hold}"}) for name, hold in holds.items())
        )
        with fleet.sweep(catalog, "cut") as order:
            wait_for(lambda: all(hold.exists() for hold in holds.values()))
            here = {process.pid for process in fleet.machines["near"].project.processes()}
            held = {one.model.partition(":")[0]: one for one in fleet.project.holders("cut")}
            (theirs,) = [name for name, one in held.items() if one.pid not in here]
            (ours,) = set(held) - {theirs}
            assert held[ours].host != held[theirs].host
            slots = [process.pid for process in far.slots()]
            ip("link", "set", "mill-near", "down")
            release(holds[ours])
            taken = fleet.holder("cut", theirs, after=held[theirs].token)
            assert taken.host == held[ours].host
            (loss,) = fleet.lost("cut")
            assert (loss.data or {})["why"] == "expired"
            release(holds[theirs])
            ran = order.end(LIMIT)
            assert (ran.code, ran.err) == (0, ""), ran
            assert any(psutil.pid_exists(pid) for pid in slots), "it works on, alone"
            ip("link", "set", "mill-near", "up")
            wait_for(lambda: not any(psutil.pid_exists(pid) for pid in slots))
        fleet.check(catalog, "cut")
        far.lose_power()
        fleet.machines["near"].lose_power()
