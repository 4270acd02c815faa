"""The error tree tells whether to try again."""

import inspect

import pytest

from cdc_assets import errors


def test_every_class_is_drawn_in_the_tree_and_is_either_retryable_or_terminal() -> None:
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if kind.__module__ != errors.__name__ or kind is errors.CdcError:
            continue
        assert name in (errors.__doc__ or ""), f"draw {name} at the top of errors.py"
        assert kind.retryable == issubclass(kind, errors.RetryableError)
        assert issubclass(kind, errors.RetryableError) != issubclass(kind, errors.TerminalError)


@pytest.mark.parametrize("address", ["http://cdc:s3@cret!@db", "mongodb://cdc:a@one:27017,cdc:s3cret!@two:27017/shop"])
def test_no_part_of_a_password_in_an_address_is_shown(address: str) -> None:
    shown = str(errors.InvalidValueError("address", address, "another", "correct it"))
    assert "cret!" not in shown
    assert shown.endswith("Next: correct it.")
