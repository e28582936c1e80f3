"""The emulator of Google's store, with a condition of the store's that it does not know.

``ifGenerationMatch=0`` makes an object only if there is none of its name, and is answered with 412
otherwise: https://cloud.google.com/storage/docs/request-preconditions
"""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from http.server import HTTPServer
from typing import Any

from gcp_storage_emulator.__main__ import main
from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects
from gcp_storage_emulator.storage import Storage

_upload = objects._multipart_upload


def _upload_if(request: Any, response: Any, storage: Any) -> None:
    # Requests are answered one after the other.
    if request.query.get("ifGenerationMatch") == ["0"]:
        with contextlib.suppress(NotFound):
            storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
            response.status = HTTPStatus.PRECONDITION_FAILED
            return
    _upload(request, response, storage)


if __name__ == "__main__":
    objects._multipart_upload = _upload_if
    # Of more connections at once than the usual 5, the system lets some wait for a second.
    HTTPServer.request_queue_size = 128
    # What there is, for a restart: all of it as text, each time that an object changes.
    Storage._write_config_to_file = lambda self: None
    main()
