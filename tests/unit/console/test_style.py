"""The colours of the console can be read: WCAG's AA, in the light and in the dark scheme."""

import re
from pathlib import Path

import pytest

from leadline import console

CSS = (Path(console.__file__).parent / "static" / "console.css").read_text()
TEXT = [
    *((text, ground) for text in ("ink", "dim", "accent", "bad") for ground in ("page", "panel")),
    *((text, "track") for text in ("ink", "dim", "accent")),
    ("accent-ink", "accent"),
    *((kind, f"{kind}-soft") for kind in ("accent", "good", "warn", "bad")),
    *(("ink", f"{kind}-soft") for kind in ("accent", "warn", "bad")),
    ("on-bar", "leads-0"),
    ("on-bar", "leads-1"),
    ("on-light-bar", "in-sync-0"),
    ("on-light-bar", "in-sync-1"),
]
CONTROLS = [("field", "panel"), ("field", "page"), ("accent", "page")]  # borders and focus: 3:1 is enough


def schemes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    colours = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", block)) for block in (light, dark)]
    return {"light": colours[0], "dark": colours[0] | colours[1]}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    channels = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_controls_stand_out_from_their_ground(scheme: str) -> None:
    colours = schemes()[scheme]
    weak = [
        f"{one} on {other}: {ratio:.2f}"
        for pairs, least in ((TEXT, 4.5), (CONTROLS, 3.0))
        for one, other in pairs
        if (ratio := contrast(colours[one], colours[other])) < least
    ]
    assert not weak


def test_nothing_comes_from_elsewhere() -> None:
    folder = Path(console.__file__).parent
    for path in [*folder.rglob("*.html"), *folder.rglob("*.css"), *folder.rglob("*.js"), *folder.rglob("*.svg")]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(src|href)=.?(https?:)?//|url\(|@import|innerHTML = ", text), path
