"""The examples of docs/guide/dask.md run, in order, and warn of nothing."""

import importlib.util
import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "dask.md"


def test_examples(tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    found = re.findall(
        r"^```python( \w+)?\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found
    names = {}
    for needs, block in found:
        if not needs or importlib.util.find_spec(needs.strip()):
            exec(compile(block, str(GUIDE), "exec"), names)
    assert list(recwarn) == []
