"""The folder between a worker and its slots."""

from __future__ import annotations

from pathlib import Path

from flows.fleet.orders import Orders


def test_a_fresh_worker_lets_its_slots_work(tmp_path: Path) -> None:
    orders = Orders.make(tmp_path / "orders")
    assert not orders.draining
    assert not orders.stopping


def test_orders_are_seen_from_another_process(tmp_path: Path) -> None:
    orders, slot = Orders.make(tmp_path / "orders"), Orders(tmp_path / "orders")
    orders.drain()
    assert slot.draining
    assert not slot.stopping
    orders.stop()
    assert slot.stopping


def test_a_busy_slot_holds_the_worker_until_it_ends(tmp_path: Path) -> None:
    orders = Orders.make(tmp_path / "orders")
    with Orders(tmp_path / "orders").busy():
        assert len(orders.working()) == 1
        assert not orders.wait_until_idle(0.0)
    assert orders.wait_until_idle(0.0)


def test_a_slot_that_was_killed_holds_nobody(tmp_path: Path) -> None:
    orders = Orders.make(tmp_path / "orders")
    (orders.folder / "busy-1").write_text("1 another-start")
    (orders.folder / "busy-2").write_text("rubbish")
    assert orders.working() == []


def test_slots_of_a_worker_that_was_killed_drain(tmp_path: Path) -> None:
    orders = Orders.make(tmp_path / "orders")
    (orders.folder / "owner").write_text("1 another-start")
    assert orders.draining
    (orders.folder / "owner").unlink()
    assert orders.draining
