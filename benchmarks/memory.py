"""How much memory this process has held at most, as Linux counts it (VmHWM).

Mapped file pages count too, though they are the page cache's. `ru_maxrss` would not do: a child
starts with its parent's.
"""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc/self")


def _status(key: str) -> int:
    for line in (_PROC / "status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def reset_peak() -> int:
    """Begin a new measurement; return the bytes held now."""
    (_PROC / "clear_refs").write_text("5")
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the most bytes held since the process, or a new measurement, began."""
    return _status("VmHWM")
