"""What other processes of the same user see of our credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine.children import module_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

CHILD = """
import os, subprocess, sys
from pathlib import Path

def seen(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().decode()

print(os.environ["FEED_TOKEN"], os.environ["PLAIN"])
print("x-secret" in seen(os.getpid()), "PLAIN=x-plain" in seen(os.getpid()))
read = "import os, sys; sys.stdout.write(os.environ['FEED_TOKEN'])"
print(subprocess.run([sys.executable, "-c", read], capture_output=True, text=True).stdout)
"""


@pytest.mark.parametrize("hidden", [True, False])
def test_a_credential_is_known_to_us_and_our_children_alone(hidden: bool, tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(CHILD, encoding="utf-8")
    command = module_command("looks") if hidden else [sys.executable, "-m", "looks"]
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "FEED_TOKEN": "x-secret",
        "OTHER_PASSWORD": "",
        "PLAIN": "x-plain",
    }
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["x-secret x-plain", f"{not hidden} True", "x-secret"]
