"""Notifications as a row of the manifest holds them: a text that several of them carry is written once.

Each notification about a table of a snapshot names all tables of it (`data_collections`). A round of a thousand tables has a
thousand of them. Written out they would be as many names as the square of the tables: 25 MB in a row that every reader of the
manifest reads. Such a text is written beside the notifications, and they refer to it by its number.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc_assets.core.notification import Notification
from cdc_assets.ledger.codec import decode, encode

_NOTICES: Final = "notifications"
_TEXTS: Final = "texts"
_NUMBER: Final = "text"
_LONG: Final = 100
"""Texts of fewer characters are written in place."""


def encode_notices(notifications: Sequence[Notification]) -> dict[str, Any]:
    """Fields of a row's detail."""
    seen = Counter(text for entry in notifications for text in entry.data.values() if len(text) >= _LONG)
    texts = [text for text, times in seen.items() if times > 1]
    numbers = {text: number for number, text in enumerate(texts)}

    def short(data: Mapping[str, str]) -> dict[str, Any]:
        return {name: {_NUMBER: numbers[text]} if text in numbers else text for name, text in data.items()}

    written = [{**encode(entry), "data": short(entry.data)} for entry in notifications]
    return {_NOTICES: written, **({_TEXTS: texts} if texts else {})}


def decode_notices(detail: Mapping[str, Any]) -> tuple[Notification, ...]:
    """Inverse of `encode_notices`; none if the row has none."""
    texts = detail.get(_TEXTS, ())

    def whole(data: Mapping[str, Any]) -> dict[str, str]:
        return {name: texts[text[_NUMBER]] if isinstance(text, dict) else text for name, text in data.items()}

    written = detail.get(_NOTICES, ())
    return decode(tuple[Notification, ...], [{**entry, "data": whole(entry["data"])} for entry in written])
