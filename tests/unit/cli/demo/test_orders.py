"""The records of the demo: plausible orders, some of them broken."""

import json
from collections import Counter
from itertools import islice

from leadline.cli.demo.orders import BROKEN, BUSIEST, MENU, SHOPS, orders


def test_orders_are_json_with_a_total_that_is_the_sum_of_their_items() -> None:
    for number, (key, value) in enumerate(islice(orders(), BROKEN - 1), start=1):
        order = json.loads(value)
        assert (order["order"], order["shop"]) == (number, key)
        assert order["total"] == round(sum(MENU[item] for item in order["items"]), 2)


def test_one_order_in_so_many_is_cut_off() -> None:
    values = [value for _, value in islice(orders(), 4 * BROKEN)]
    assert [n for n, value in enumerate(values, start=1) if not value.endswith(b"}")] == [
        BROKEN * n for n in range(1, 5)
    ]


def test_one_shop_is_far_busier_than_the_others() -> None:
    counts = Counter(key for key, _ in islice(orders(), 5000))
    (busiest, most), (_, second) = counts.most_common(2)
    assert (busiest, set(counts)) == (BUSIEST, set(SHOPS))
    assert most > 10 * second
