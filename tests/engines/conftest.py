import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A client of two single-threaded worker processes; they import this checkout."""
    import dask
    import distributed

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        with (
            # How long a worker tries to reach one that was killed.
            dask.config.set({"distributed.comm.timeouts.connect": "3s"}),
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
                local_directory=str(tmp_path_factory.mktemp("scratch")),
            ) as made,
            distributed.Client(made, set_as_default=False) as client,
        ):
            yield client
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
