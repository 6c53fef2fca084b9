"""A results folder, or a tar of one, in; the folder to read from, unpacked where nothing lands outside, out."""

import shutil
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

from artifact.errors import InputError


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files of ``archive`` under ``folder``; TarError for a link or what would land outside.

    By hand, because the first releases of Python 3.11 cannot have ``extractall`` refuse those.
    """
    for member in archive:
        target = (folder / member.name).resolve()
        content = archive.extractfile(member) if member.isfile() else None
        if not target.is_relative_to(folder) or (content is None and not member.isdir()):
            raise tarfile.TarError(f"{member.name} is a link, or lies outside")
        if content is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            with content, target.open("wb") as file:
                shutil.copyfileobj(content, file)


def opened(other: Path, stack: ExitStack) -> Path:
    """Return the results folder at ``other``; one in a tar is unpacked for as long as ``stack`` is open.

    Raises InputError for what is neither, and for a tar that holds several.
    """
    if other.is_dir():
        return other
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    try:
        with tarfile.open(other) as archive:
            _unpack(archive, folder.resolve())
    except (OSError, tarfile.TarError) as error:
        raise InputError(f"{other}: neither a folder nor a tar that can be unpacked ({error})") from None
    found = sorted(folder.rglob("parts"), key=lambda path: len(path.parts))
    if len(found) > 1 and len(found[0].parts) == len(found[1].parts):
        raise InputError(f"{other}: holds more than one results folder; unpack it and merge each")
    return found[0].parent if found else folder
