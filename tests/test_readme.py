"""README.md's examples, in order: Python runs, and the command line ends well."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PROGRAM = f"{sys.executable} -c 'from tfrecord_io.cli import main; main()'"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_two_commands_come_first():
    assert blocks("console")[0] == "make demo\nmake test\n"
    assert README.read_text().index("make demo") < 100


def test_examples(tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    python = blocks("python")
    names = {}
    # The command line is shown on the data set as it is before the examples of damage.
    damaging = next(index for index, block in enumerate(python) if ".write_bytes(" in block)
    before, after = python[:damaging], python[damaging:]
    for block in before:
        exec(compile(block, str(README), "exec"), names)
    commands = [
        line
        for block in blocks("console")
        for line in block.splitlines()
        if line.startswith("tfrecord-io ")
    ]
    assert len(commands) >= 8
    for line in commands:
        done = subprocess.run(
            line.replace("tfrecord-io", PROGRAM, 1),
            shell=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(README.parent)},
        )
        assert (done.returncode, done.stderr) == (0, ""), line
    assert (tmp_path / "rows.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "flights.parquet").is_file()
    for block in after:
        exec(compile(block, str(README), "exec"), names)
    assert list(recwarn) == []
