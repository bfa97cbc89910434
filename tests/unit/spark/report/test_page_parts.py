"""Parts of the cards of a report: text is escaped, cells are HTML already."""

from leadline.spark.report import page_parts, plots


def test_text_is_escaped() -> None:
    assert page_parts.lead("<b>") == '<p class="lead">&lt;b&gt;</p>'
    assert page_parts.note("a & b") == '<p class="note">a &amp; b</p>'


def test_a_name_may_be_broken_behind_its_punctuation_and_is_escaped() -> None:
    assert page_parts.breakable("eu-1.orders_<b>:9092") == "eu-<wbr>1.<wbr>orders_&lt;b&gt;:<wbr>9092"
    assert page_parts.breakable("plain") == "plain"


def test_a_card_has_an_address() -> None:
    assert page_parts.card("orders", 3, "Size", "<p></p>") == (
        '<article class="card" id="orders-3"><h3>Size</h3><p></p></article>'
    )


def test_a_plot_is_drawn_for_both_widths() -> None:
    widths: list[int] = []

    def draw(width: int) -> str:
        widths.append(width)
        return f"<svg {width}>"

    assert page_parts.plot(draw) == f'<div class="plot"><svg {plots.WIDE}><svg {plots.NARROW}></div>'
    assert widths == [plots.WIDE, plots.NARROW]


def test_a_table_keeps_the_html_of_its_cells() -> None:
    table = page_parts.table(["name", "size"], [["<a>x</a>", "1"], ["y", "2"]])
    assert "<th>name</th><th>size</th>" in table
    assert "<tr><td><a>x</a></td><td>1</td></tr><tr><td>y</td><td>2</td></tr>" in table
