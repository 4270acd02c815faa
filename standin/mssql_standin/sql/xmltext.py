"""The xml type: text is checked for well-formedness and written back as SQL Server stores it.

What it drops: the XML declaration, blanks between elements, the difference between `<a></a>` and `<a/>`, CDATA
marks (their text is escaped). Fragments with several roots are allowed, document types are not. No type or schema checks.
"""

from typing import Any
from xml.parsers import expat

from mssql_standin.errors import SqlError

_ROOT = "stand-in"


class _Writer:
    """Writes expat's events back as text."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.open = False
        self.text: list[str] = []
        self.preserve = [False]

    def _close(self) -> None:
        if self.open:
            self.out.append(">")
            self.open = False

    def _flush(self) -> None:
        text = "".join(self.text)
        self.text.clear()
        if text and (text.strip(" \t\r\n") or self.preserve[-1]):
            self._close()
            self.out.append(_escape(text))

    def start(self, name: str, attributes: list[str]) -> None:
        """An opening tag."""
        self._flush()
        self._close()
        pairs = list(zip(attributes[::2], attributes[1::2], strict=True))
        space = dict(pairs).get("xml:space")
        self.preserve.append(space == "preserve" if space else self.preserve[-1])
        self.out.append(f"<{name}" + "".join(f' {key}="{_escape(value, True)}"' for key, value in pairs))
        self.open = True

    def end(self, name: str) -> None:
        """A closing tag."""
        self._flush()
        self.preserve.pop()
        if self.open:
            self.out.append("/>")
            self.open = False
        else:
            self.out.append(f"</{name}>")

    def other(self, text: str) -> None:
        """A comment or processing instruction."""
        self._flush()
        self._close()
        self.out.append(text)


def _escape(text: str, attribute: bool = False) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        text.replace('"', "&quot;").replace("\n", "&#xA;").replace("\t", "&#x9;")
        if attribute
        else text.replace("\r", "&#xD;")
    )


def _refuse(*_: Any) -> None:
    raise SqlError(
        6359,
        "Parsing XML with internal subset DTDs not allowed. Use CONVERT with style option 2 to enable limited internal subset DTD support.",
    )


def normalized(text: str) -> str:
    """The text as an xml column gives it back.

    Raises:
        SqlError: 9400 when it is not well-formed, 9420 for half of a surrogate pair, 6359 for a document type.
    """
    body = text.lstrip("\ufeff")
    stripped = body.lstrip()
    if stripped.startswith("<?xml") and "?>" in stripped:
        body = stripped.split("?>", 1)[1]
    if "<" not in body and "&" not in body:
        return body
    writer = _Writer()
    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.StartElementHandler = writer.start
    parser.EndElementHandler = writer.end
    parser.CharacterDataHandler = writer.text.append
    parser.CommentHandler = lambda data: writer.other(f"<!--{data}-->")
    parser.ProcessingInstructionHandler = lambda target, data: writer.other(f"<?{target} {data}?>")
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(f"<{_ROOT}>{body}</{_ROOT}>", True)
    except expat.ExpatError as error:
        raise SqlError(
            9400, f"XML parsing: line {error.lineno}, character {error.offset}, {expat.ErrorString(error.code)}"
        ) from error
    except UnicodeEncodeError as error:  # half of a surrogate pair
        place = error.start - len(_ROOT) - 1
        raise SqlError(9420, f"XML parsing: line 1, character {place}, illegal xml character") from error
    whole = "".join(writer.out)
    return whole[len(_ROOT) + 2 : -len(_ROOT) - 3] if whole.endswith(f"</{_ROOT}>") else ""
