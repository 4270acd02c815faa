"""What is computed once for each object does not wait for another object of its class."""

import threading

from cdc_assets.core.kept import kept


class Page:
    def __init__(self, go: threading.Event) -> None:
        self.go, self.asked = go, 0

    @kept
    def rows(self) -> int:
        """Computed once."""
        self.asked += 1
        assert self.go.wait(30)
        return self.asked


def open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


def test_value_is_computed_once_for_each_object() -> None:
    first, second = Page(open_gate()), Page(open_gate())
    assert (first.rows, first.rows, second.rows) == (1, 1, 1)
    assert Page.rows.__doc__ == "Computed once."


def test_one_object_that_waits_lets_others_of_its_class_go_on() -> None:
    slow = Page(threading.Event())
    thread = threading.Thread(target=lambda: slow.rows, daemon=True)
    thread.start()
    found = list[int]()
    other = threading.Thread(target=lambda: found.append(Page(open_gate()).rows), daemon=True)
    other.start()
    other.join(10)
    slow.go.set()
    thread.join(10)
    assert found == [1]
