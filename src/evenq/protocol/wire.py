"""The ground of all typed headers and bodies: values that are frozen, made by keyword, and camel case on the wire."""

from __future__ import annotations

from typing import Annotated, Any, dataclass_transform

import msgspec

__all__ = ["Int32", "Int64", "Wire"]

# Java's int and long: a number that would not fit is refused where it enters, not where it is packed.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _WireMeta(msgspec.StructMeta):
    """Makes every subclass frozen and by keyword without its saying so: msgspec inherits neither setting."""

    def __new__(mcls, *args: Any, **config: Any) -> Any:
        return super().__new__(mcls, *args, **{"frozen": True, "kw_only": True} | config)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Wire(msgspec.Struct, metaclass=_WireMeta, frozen=True, rename="camel"):
    """A value whose fields have the camel case of their names on the wire."""
