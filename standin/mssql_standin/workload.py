"""A workload that keeps changing the sample database, as a shop would.

One step is one transaction: a new order with its lines, a payment, a changed customer,
a cancelled order, a corrected key, a rolled-back mistake. The seed fixes the choices.
"""

import random
import threading
from collections.abc import Callable
from typing import Any

Connection = Any
"""A DB-API connection with autocommit off."""


class Workload:
    """Changes the sample database in random, valid steps.

    Args:
        connection: a DB-API connection to the sample database, autocommit off; used by one thread.
        seed: of the choices.
    """

    def __init__(self, connection: Connection, seed: int = 1) -> None:
        self._connection = connection
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self.steps = 0
        """Committed transactions so far."""
        self._kinds: list[tuple[Callable[[Any], bool], int]] = [
            (self._order, 8),
            (self._pay, 6),
            (self._change_customer, 4),
            (self._restock, 3),
            (self._cancel, 2),
            (self._renumber_line, 1),
            (self._mistake, 1),
        ]

    def step(self) -> None:
        """Run one transaction."""
        kinds, weights = zip(*self._kinds, strict=True)
        cursor = self._connection.cursor()
        if self._random.choices(kinds, weights)[0](cursor):
            self._connection.commit()
            self.steps += 1
        else:
            self._connection.rollback()
        cursor.close()

    def run(self, rate: float, stop: threading.Event) -> None:
        """Step `rate` times a second until told to stop."""
        while not stop.wait(self._random.uniform(0.5, 1.5) / rate):
            self.step()

    def _pick(self, cursor: Any, statement: str) -> Any:
        rows = cursor.execute(statement).fetchall()
        return self._random.choice(rows) if rows else None

    def _order(self, cursor: Any) -> bool:
        customer = self._pick(cursor, "SELECT TOP (50) id FROM dbo.customers ORDER BY id DESC")
        products = cursor.execute("SELECT TOP (20) sku, price FROM dbo.products ORDER BY sku").fetchall()
        cursor.execute(
            "INSERT dbo.orders (customer_id, ordered_at) OUTPUT inserted.id VALUES (?, SYSDATETIMEOFFSET())",
            customer[0],
        )
        order = cursor.fetchone()[0]
        for line, (sku, price) in enumerate(self._random.sample(products, self._random.randint(1, 4)), start=1):
            quantity = self._random.randint(1, 9)
            cursor.execute(
                "INSERT dbo.order_lines (order_id, line, sku, quantity, price) VALUES (?, ?, ?, ?, ?)",
                (order, line, sku, quantity, price),
            )
            cursor.execute(
                "UPDATE dbo.products SET stock = CASE WHEN stock > ? THEN stock - ? ELSE 100 END WHERE sku = ?",
                (quantity, quantity, sku),
            )
        return True

    def _pay(self, cursor: Any) -> bool:
        order = self._pick(cursor, "SELECT TOP (50) id FROM dbo.orders WHERE state = 'new' ORDER BY id DESC")
        if order is None:
            return False
        cursor.execute("UPDATE dbo.orders SET state = 'paid', paid_at = GETDATE() WHERE id = ?", order[0])
        return True

    def _change_customer(self, cursor: Any) -> bool:
        customer = self._pick(cursor, "SELECT TOP (50) id FROM dbo.customers ORDER BY id")
        cursor.execute(
            "UPDATE dbo.customers SET credit = credit + ?, notes = ? WHERE id = ?",
            (self._random.randint(-20, 20), self._random.choice((None, "called", "prefers e-mail ✉")), customer[0]),
        )
        return True

    def _restock(self, cursor: Any) -> bool:
        cursor.execute(
            "UPDATE dbo.products SET stock = stock + 10, price = price * 1.01 WHERE stock < ?",
            self._random.randint(5, 40),
        )
        return True

    def _cancel(self, cursor: Any) -> bool:
        order = self._pick(cursor, "SELECT TOP (50) id FROM dbo.orders ORDER BY id DESC")
        if order is None:
            return False
        cursor.execute("DELETE dbo.order_lines WHERE order_id = ?", order[0])
        cursor.execute("DELETE dbo.orders WHERE id = ?", order[0])
        return True

    def _renumber_line(self, cursor: Any) -> bool:
        line = self._pick(
            cursor, "SELECT TOP (50) order_id, line FROM dbo.order_lines WHERE line < 100 ORDER BY order_id DESC"
        )
        if line is None:
            return False
        cursor.execute("UPDATE dbo.order_lines SET line = line + 100 WHERE order_id = ? AND line = ?", tuple(line))
        return True

    def _mistake(self, cursor: Any) -> bool:
        cursor.execute("DELETE dbo.order_lines WHERE quantity > 5")
        return False
