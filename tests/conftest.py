import pytest

from tfrecord_io.errors import MissingDependencyError


@pytest.fixture(params=["reference", "native"])
def codec(request):
    """Each codec's name; native is left out only where the kernel was not built."""
    from tfrecord_io.codec import get_codec

    try:
        get_codec(request.param)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    return request.param
