import pytest


@pytest.fixture(params=["reference", "native"])
def codec(request):
    """Each codec's name. Where the kernel was not built, tests with it fail."""
    return request.param
