"""The examples of the guides in docs/guide run, in order, and warn of nothing."""

import importlib.util
import re
from pathlib import Path

import pytest

GUIDES = sorted((Path(__file__).parents[1] / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_examples(guide, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    found = re.findall(
        r"^```python( \w+)?\n(.*?)^```$", guide.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found
    names = {}
    for needs, block in found:
        if not needs or importlib.util.find_spec(needs.strip()):
            exec(compile(block, str(guide), "exec"), names)
    assert list(recwarn) == []
