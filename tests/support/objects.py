"""A store of objects in this process: names and bytes, and folders are the beginnings of names."""

from __future__ import annotations

from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem


class Objects(MemoryFileSystem):
    """What gcsfs makes of its store: folders cannot be made, and none is ever empty."""

    protocol = "objects"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return f"/{path.removeprefix('objects://').strip('/')}".rstrip("/")

    def unstrip_protocol(self, name: str) -> str:
        return f"objects:/{self._strip_protocol(name)}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        details = super().info(path, **options)
        return {**details, "generation": str(details.get("created"))}

    def find(self, path: str, *arguments: Any, detail: bool = False, **options: Any) -> Any:
        found = super().find(path, *arguments, **options)
        return {name: self.info(name) for name in found} if detail else found

    def cat_file(self, path: str, *limits: Any, generation: str | None = None, **more: Any) -> Any:
        if generation not in (None, self.info(path)["generation"]):
            raise FileNotFoundError(path)
        return super().cat_file(path, *limits, **more)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        pass

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass

    def rmdir(self, path: str) -> None:
        pass
