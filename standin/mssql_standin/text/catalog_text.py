"""Expression text as SQL Server's catalogue shows it: `((1))`, `('new')`, `(getdate())`, `([a]+[b])`."""

from mssql_standin.text.lexer import Kind, Token, tokenize

_KEYWORDS = frozenset(
    """
    AND OR NOT NULL IS IN LIKE BETWEEN CASE WHEN THEN ELSE END AS CAST CONVERT TRY_CAST TRY_CONVERT COLLATE EXISTS SELECT FROM WHERE ESCAPE
    """.split()  # noqa: SIM905 - a word list reads better as text
)
_NILADIC = frozenset({"CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "USER"})


def catalog_text(text: str) -> str:
    """The text in catalogue form: names in brackets, functions in lower case, numbers and the whole in parentheses."""
    tokens = _stripped(tokenize(text))
    body = "".join(_piece(tokens, place) for place in range(len(tokens)))
    return f"({body})"


def _stripped(tokens: list[Token]) -> list[Token]:
    """Without parentheses around the whole."""
    while len(tokens) > 2 and tokens[0].text == "(" and _closing(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _closing(tokens: list[Token]) -> int:
    depth = 0
    for place, token in enumerate(tokens):
        if token.kind is Kind.SIGN:
            depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            return place
    return -1


def _piece(tokens: list[Token], place: int) -> str:
    token = tokens[place]
    before = tokens[place - 1] if place else None
    following = tokens[place + 1] if place + 1 < len(tokens) else None
    if token.kind is Kind.NUMBER:
        in_type = _inside_type(tokens, place)
        return token.text if in_type else f"({token.text})" if not _signed(tokens, place) else f"{token.text})"
    if token.kind is Kind.SIGN and token.text in "+-" and _is_sign(tokens, place):
        return f"({token.text}"
    if token.kind is Kind.NAME:
        return f"[{token.value.replace(']', ']]')}]"
    if token.kind is not Kind.WORD:
        return token.text
    upper = token.upper
    if upper in _NILADIC:
        return "getdate()" if upper == "CURRENT_TIMESTAMP" else f"{upper.lower()}()"
    if following is not None and following.text == "(" and upper not in _KEYWORDS:
        return token.text.lower()
    if upper in _KEYWORDS or (before is not None and before.upper == "AS"):
        return _spaced(tokens, place)
    if (
        (following is not None and following.text == ".")
        or before is None
        or before.text != "("
        or not _date_part(tokens, place)
    ):
        return f"[{token.text}]"
    return token.text


def _spaced(tokens: list[Token], place: int) -> str:
    """A keyword with the blanks it needs."""
    token = tokens[place]
    if token.upper in ("CAST", "CONVERT", "TRY_CAST", "TRY_CONVERT"):
        return token.upper
    if token.upper not in _KEYWORDS:
        return f"[{token.text.lower()}]"
    left = " " if place and tokens[place - 1].text != "(" else ""
    right = " " if place + 1 < len(tokens) and tokens[place + 1].text not in (")", ",") else ""
    return f"{left}{token.upper}{'' if right and place + 1 < len(tokens) and tokens[place + 1].upper in _KEYWORDS else right}"


def _date_part(tokens: list[Token], place: int) -> bool:
    """The first word in `datepart(year, …)` is no column."""
    return place >= 2 and tokens[place - 2].upper in (
        "DATEPART",
        "DATEADD",
        "DATEDIFF",
        "DATENAME",
        "DATEDIFF_BIG",
        "CONVERT",
        "TRY_CONVERT",
    )


def _inside_type(tokens: list[Token], place: int) -> bool:
    """A number in `varchar(30)` or `decimal(10,2)` behind AS or CONVERT( stays bare."""
    depth = 0
    for back in range(place - 1, 0, -1):
        text = tokens[back].text
        depth += (text == ")") - (text == "(")
        if depth < 0:
            owner = back - 1
            return owner > 0 and (tokens[owner - 1].upper == "AS" or (tokens[owner - 1].text == "(" and owner > 1
                                  and tokens[owner - 2].upper in ("CONVERT", "TRY_CONVERT")))  # fmt: skip
    return False


def _is_sign(tokens: list[Token], place: int) -> bool:
    """A sign before a number that has no left operand."""
    if place + 1 >= len(tokens) or tokens[place + 1].kind is not Kind.NUMBER:
        return False
    if place == 0:
        return True
    before = tokens[place - 1]
    return before.kind is Kind.SIGN and before.text != ")"


def _signed(tokens: list[Token], place: int) -> bool:
    return place > 0 and tokens[place - 1].text in ("+", "-") and _is_sign(tokens, place - 1)
