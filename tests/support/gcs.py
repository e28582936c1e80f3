"""The emulator of Google's store, with what it does not know of the generations of objects.

``ifGenerationMatch=0`` makes an object only if there is none of its name, and is answered with 412
otherwise: https://cloud.google.com/storage/docs/request-preconditions

``generation`` asks for one of an object, and is answered with 404 once there is another one:
https://cloud.google.com/storage/docs/json_api/v1/objects/get
"""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from http.server import HTTPServer
from typing import Any

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.storage import Storage

_upload = objects._multipart_upload
_download = objects.download


def _upload_if(request: Any, response: Any, storage: Any) -> None:
    # Requests are answered one after the other.
    if request.query.get("ifGenerationMatch") == ["0"]:
        with contextlib.suppress(NotFound):
            storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
            response.status = HTTPStatus.PRECONDITION_FAILED
            return
    _upload(request, response, storage)


def _download_of(request: Any, response: Any, storage: Any) -> None:
    asked = request.query.get("generation")
    with contextlib.suppress(NotFound):
        found = storage.get_file_obj(request.params["bucket_name"], request.params["object_id"])
        if asked not in (None, [found["generation"]]):
            response.status = HTTPStatus.NOT_FOUND
            return
    _download(request, response, storage)


if __name__ == "__main__":
    objects._multipart_upload = _upload_if
    objects.download = _download_of
    # Of more connections at once than the usual 5, the system lets some wait for a second.
    HTTPServer.request_queue_size = 128
    # What there is, for a restart: all of it as text, each time that an object changes.
    Storage._write_config_to_file = lambda self: None

    # Takes the functions as they are now.
    from gcp_storage_emulator.__main__ import main

    main()
