"""Names and phrases that were given up for better ones do not come back."""

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "cdc_assets"

GIVEN_UP = frozenset(
    [
        "obey",
        "strangers",
        "part_with",
        "take_leave",
        "set_aside",
        "end_old_lives",
        "speak",
        "glance",
        "mend",
        "begin_anew",
        "takes_in",
        "Finding",
        "may_pass",
        "calm",
        "make_room",
        "open_doors",
        "close_doors",
        "meeting",
        "attend",
        "told",
        "settle",
        "judge",
        "apart",
        "unseen",
        "Walk",
        "not_made",
        "given_by",
        "untimely",
        "tell_changes",
        "runs_behind",
        "nothing_between",
        "wake",
        "of_this_life",
    ]
)
"""Names without leading underscores."""
PHRASES = (
    "gone on with",
    "mended",
    "walked along",
    "last look",
    "by the looks",
    "was not told",
    "as it was told",
    "has brought it to",
    "stands still",
    "knocks",
    "is as due",
)
"""Which are in no text of the code."""


def tokens(kinds: frozenset[int]) -> Iterator[tuple[Path, tokenize.TokenInfo]]:
    for path in ROOT.rglob("*.py"):
        with path.open("rb") as file:
            yield from ((path, token) for token in tokenize.tokenize(file.readline) if token.type in kinds)


def test_names_that_were_given_up_are_gone() -> None:
    found = {
        f"{path.name}:{token.start[0]} {token.string}"
        for path, token in tokens(frozenset({tokenize.NAME}))
        if token.string.strip("_") in GIVEN_UP
    }
    assert not found


def test_phrases_that_were_given_up_are_in_no_text() -> None:
    phrase = re.compile(r"\b(?:" + "|".join(words.replace(" ", r"\s+") for words in PHRASES) + r")\b", re.IGNORECASE)
    texts = tokens(frozenset({tokenize.STRING, tokenize.COMMENT}))
    found = [
        f"{path.name}:{text.start[0]} {match[0]}" for path, text in texts for match in phrase.finditer(text.string)
    ]
    assert not found
