"""What is not used is not imported, and what is imported leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("azure.devops", "azure.identity", "msrest", "requests")


def loaded(code: str, home: Path) -> set[str]:
    """The modules a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    environ = {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
    environ.pop("AZURE_DEVOPS_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import feed.open, feed.publisher, feed.reader",
        (
            "from pathlib import Path; from feed.open import open_feed; "
            "open_feed('dir:x', base=Path('.'))"
        ),
        "import feed.azure",
        (
            "from feed.azure import open_azure; "
            "open_azure('https://dev.azure.com/org/project/feed', environ={})"
        ),
    ],
)
def test_the_sdk_is_loaded_by_the_first_call_only(code: str, tmp_path: Path) -> None:
    names = loaded(code, tmp_path)
    assert not [name for name in names if name.startswith(HEAVY)]


def test_other_feeds_do_not_load_this_package(tmp_path: Path) -> None:
    names = loaded(
        "from pathlib import Path; from feed.open import open_feed; "
        "import flows.cli.main; open_feed('dir:x', base=Path('.'))",
        tmp_path,
    )
    assert not [name for name in names if name.startswith(("feed.azure", *HEAVY))]


def test_loading_the_sdk_leaves_no_file_in_the_home_folder(tmp_path: Path) -> None:
    code = (
        "import os; from feed.azure import sdk; from feed.errors import Unavailable\n"
        "try: sdk.connect('http://127.0.0.1:9', lambda: ('', ''), lambda reply: None, (5, 5))\n"
        "except Exception as error: assert 'ConnectionError' in repr(error), error\n"
        "assert 'AZURE_DEVOPS_CACHE_DIR' not in os.environ"
    )
    assert "azure.devops" in loaded(code, tmp_path)
    assert list(tmp_path.iterdir()) == []
