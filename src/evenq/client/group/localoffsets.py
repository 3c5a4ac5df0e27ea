"""Offsets of one member in a file, for broadcasting: every member is somewhere else, and no broker keeps that.

The file is where Java's client looks for it and reads as Java writes it: ``<folder>/<client id>/<group>/offsets.json``
with a ``.bak`` beside it. Whatever moment the machine stops at, one of the two is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection
from pathlib import Path

from evenq.client.group.starting import StartingPoint
from evenq.client.group.starts import Start
from evenq.client.net.session import Session
from evenq.errors import ProtocolError, RemoteError
from evenq.model import MessageQueue
from evenq.protocol.bodies import QueueOffsets

__all__ = ["DEFAULT_FOLDER", "LocalOffsets", "OffsetFile"]

log = logging.getLogger(__name__)

DEFAULT_FOLDER = Path("~/.rocketmq_offsets")


class OffsetFile:
    """A table of offsets on disk, replaced as a whole.

    >>> import tempfile
    >>> file = OffsetFile(Path(tempfile.mkdtemp()) / "offsets.json")
    >>> file.write({MessageQueue("orders", "broker-a", 0): 7}); file.read()
    {MessageQueue(topic='orders', broker='broker-a', queue_id=0): 7}
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backup = path.with_name(path.name + ".bak")

    def read(self) -> dict[MessageQueue, int]:
        """What was written last; nothing where there is no file, or none that can be read."""
        for path in (self._path, self._backup):
            try:
                return QueueOffsets.decode(path.read_bytes()).offset_table
            except FileNotFoundError:
                continue
            except ProtocolError as error:
                log.error("offsets in %s cannot be read: %s", path, error)
        return {}

    def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Returns when it is on disk. What was there before becomes the backup."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        with new.open("wb") as file:
            file.write(QueueOffsets(offset_table=offsets).encode())
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            # a second name rather than another: there is a whole file under the first at every moment
            backup = self._backup.with_name(self._backup.name + ".new")
            backup.unlink(missing_ok=True)
            os.link(self._path, backup)
            backup.replace(self._backup)
        new.replace(self._path)
        self._sync_folder()

    def _sync_folder(self) -> None:
        """A rename counts after a power cut only once the folder itself is on disk."""
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class LocalOffsets:
    """The offsets of one member. They are kept in memory and written every now and then, and at the end.

    ``named`` members have the same client id after a restart, so they find their file again.
    """

    def __init__(self, session: Session, group: str, point: StartingPoint, folder: Path, *, named: bool) -> None:
        self._session = session
        self._point = point
        self._file = OffsetFile(folder.expanduser() / session.client_id / group / "offsets.json")
        self._offsets: dict[MessageQueue, int] | None = None
        self._unwritten = False
        if not named:
            log.warning("group %s broadcasts without an instance name: a restart begins anew", group)

    async def find(self, queues: Collection[MessageQueue], *, until_still: bool) -> dict[MessageQueue, Start]:
        known = await self._known()
        found = {queue: Start(offset, True) for queue in queues if (offset := known.get(queue)) is not None}
        rest = [queue for queue in queues if queue not in found]
        asked = zip(rest, await asyncio.gather(*map(self._ask, rest)), strict=True)
        return found | {queue: start for queue, start in asked if start is not None}

    async def stored(self, queue: MessageQueue) -> int | None:
        return (await self._known()).get(queue)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        if self._offsets is not None:
            self._offsets[queue] = offset
            self._unwritten = True

    def may_be_lost(self, queue: MessageQueue) -> bool:
        """Never: no broker keeps them."""
        return False

    async def store_again(self, queue: MessageQueue, offset: int) -> int:
        await self.store(queue, offset)
        return offset

    async def write(self) -> None:
        """Bring to disk what is not there yet."""
        if self._offsets is not None and self._unwritten:
            self._unwritten = False
            try:
                await asyncio.to_thread(self._file.write, dict(self._offsets))
            except OSError as error:
                self._unwritten = True
                log.error("offsets could not be written: %s", error)

    async def _known(self) -> dict[MessageQueue, int]:
        """The offsets, read from the file with the first call."""
        if self._offsets is None:
            read = await asyncio.to_thread(self._file.read)
            # another call may have been faster, and offsets have been stored since
            if self._offsets is None:
                self._offsets = read
        return self._offsets

    async def _ask(self, queue: MessageQueue) -> Start | None:
        name = f"question where to begin in {queue}"
        try:
            address = self._session.routes.address_of(queue)
            start = Start(await self._point.unstored(self._session.remote, address, queue), False)
        except RemoteError as error:
            self._session.outages.failed(name, error)
            return None
        self._session.outages.ended(name)
        return start
