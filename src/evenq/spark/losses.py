"""Messages that are gone before they were read."""

from __future__ import annotations

import logging
from collections.abc import Callable

from evenq.client.read.reading import raise_loss
from evenq.errors import OffsetsLost
from evenq.spark.options import ReadOptions

__all__ = ["on_loss"]

log = logging.getLogger(__name__)


def on_loss(options: ReadOptions) -> Callable[[OffsetsLost], None]:
    """What to do about messages that are gone."""
    return raise_loss if options.fail_on_data_loss else _log_loss


def _log_loss(loss: OffsetsLost) -> None:
    log.warning("%s", loss)
