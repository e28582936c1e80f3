"""Sessions in which the format is registered."""

import pytest


@pytest.fixture(params=["classic", "connect"])
def spark(request, sessions):
    """A session of each kind, with the format registered."""
    from tfrecord_io.engines import spark as tfr_spark

    session = sessions[request.param]
    tfr_spark.register(session)
    yield session
    tfr_spark.unregister()


@pytest.fixture
def classic(sessions):
    """The classic session, with the format registered: for what the kind makes no difference to."""
    from tfrecord_io.engines import spark as tfr_spark

    tfr_spark.register(sessions["classic"])
    yield sessions["classic"]
    tfr_spark.unregister()
