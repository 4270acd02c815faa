"""Names and rows of a database do not command the terminal that shows them."""

from io import StringIO

import pytest
from rich.table import Table
from rich.text import Text

from cdc_assets.cli import console

EVIL = "orders\x1b[2J\x1b]52;c;Y3VybA==\x07\r\x9b31m\u202etxt"


@pytest.mark.parametrize("colours", [False, True])
def test_names_with_control_characters_are_shown_and_do_nothing(colours: bool) -> None:
    file = StringIO()
    shown = type(console.out)(
        file=file, force_terminal=colours, highlight=False, color_system="standard" if colours else None
    )
    table = Table("name")
    table.add_row(Text(EVIL, "bold red"))
    shown.print(table)
    shown.print(Text(f"{EVIL}\nnext\tline"), soft_wrap=True)
    shown.print(EVIL, markup=False, style="cyan")
    told = file.getvalue()
    assert told.count("�[2J�]52") == 3
    assert "next" in told.splitlines()[-2]
    assert not [code for code in ("\x1b[2J", "\x1b]", "\x07", "\r", "\x9b", "\u202e") if code in told]
    assert ("\x1b[36m" in told) is colours
