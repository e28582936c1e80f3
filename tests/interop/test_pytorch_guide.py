"""The examples of docs/guide/pytorch.md run, in order, and warn of nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def test_examples(tmp_path):
    pytest.importorskip("torch")
    guide = (REPOSITORY / "docs" / "guide" / "pytorch.md").read_text()
    found = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    assert found
    # In a process of its own: workers are forked, and JAX warns of that where it was imported.
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(found)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
