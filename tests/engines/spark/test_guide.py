"""The examples of docs/guide/spark.md, in order."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "spark.md"


# One example reads damage, of which a warning tells.
@pytest.mark.filterwarnings("default::tfrecord_io.errors.CorruptDataWarning")
def test_examples(classic, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 8
    names = {"spark": classic, "folder": str(tmp_path)}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
