"""The command line in this process."""

import inspect

from click.testing import CliRunner


def runner() -> CliRunner:
    """Return one that keeps standard error apart, as click does without being asked since 8.2."""
    is_asked = "mix_stderr" in inspect.signature(CliRunner).parameters
    return CliRunner(mix_stderr=False) if is_asked else CliRunner()
