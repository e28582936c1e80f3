"""How much memory a program takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def peak_bytes(folder: Path, code: str) -> int:
    """Run Python code in a folder, in a process of its own, and return its peak of memory."""
    code = (
        "from tfrecord_io import *\n"
        f"{code}\n"
        "status = open('/proc/self/status').read()\n"
        "print(int(status.partition('VmHWM:')[2].split()[0]) * 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    return int(done.stdout.splitlines()[-1])
