"""The report of a comparison in a real browser: what a reader sees, and what the controls do."""

import math

import pytest

from biloop.report.comparison_html import write
from biloop.schedules.arguments import short
from tests.browser.example import HOSTILE, TARGET, example, hostile
from tests.browser.webdriver import CHROMIUM, DRIVER, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="needs chromium and chromedriver on PATH (Debian: chromium, chromium-driver)",
    ),
]
CHARTS = ("grad_norm2", "value", "inner_residual", "linear_residual")
MIDDLE = 1  # the seed that is drawn thick, of the three of each scheme
# Where the ticks of an axis are, and the points of a thick curve, in the units of the drawing.
TICKS = """
    const texts = [...document.querySelectorAll(arguments[0] + " .drawing > text")];
    const wanted = texts.filter((text) => text.getAttribute("text-anchor") === arguments[1]);
    return wanted.map((text) => [text.textContent, +text.getAttribute(arguments[2])]);
"""
POINTS = """
    const lines = [...document.querySelectorAll(arguments[0] + " .curve:not(.thin) .line")];
    const line = lines.find((line) => line.parentNode.dataset.id === arguments[1]);
    return [...line.getAttribute("d").matchAll(/[ML]([-\\d.]+) ([-\\d.]+)/g)]
      .map((match) => [Number(match[1]), Number(match[2])]);
"""


@pytest.fixture(scope="module")
def window():
    with browser() as it:
        yield it


@pytest.fixture
def page(window, tmp_path):
    """The example, opened anew; whatever a test does, nothing may be thrown or printed."""
    window.prefer("light")
    window.open(write(tmp_path / "report.html", example()))
    yield window
    assert window.console() == []


def texts(window, selector):
    return window.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )


def count(window, selector):
    return window.run("return document.querySelectorAll(arguments[0]).length", selector)


def shown(window, key):
    """The schemes whose curves a chart has."""
    ids = window.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) => Number(e.dataset.id))",
        f"#{key} .curve",
    )
    return sorted({*ids})


def number(label):
    """The number that a tick stands for."""
    label = label.replace("\u202f", "")
    if label.startswith("10") and label[2:].strip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹") == "" and label[2:]:
        return 10.0 ** int(label[2:].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    return float(label)


def pixels(window, key, anchor, axis, log):
    """The map from data to the drawing that the ticks of an axis tell a reader."""
    ticks = window.run(TICKS, f"#{key}", anchor, axis)
    forward = math.log10 if log else float
    (a, pa), *_, (b, pb) = ((forward(number(text)), at) for text, at in ticks)
    shift = 0 if axis == "x" else 4  # letters stand a little below their line
    return lambda value: (pa + (forward(value) - a) / (b - a) * (pb - pa)) - shift


def click_switch(window, selector):
    window.click(f"{selector} i")


def tooltip(window, key):
    """What the tooltip says, or None."""
    return window.run(
        """const tip = document.querySelector(arguments[0] + " .tooltip");
        if (tip.hidden) return null;
        const facts = [...tip.querySelectorAll("dt")];
        return {scheme: tip.querySelector("strong").textContent,
                ...Object.fromEntries(facts.map((e) => [e.textContent, e.nextSibling.textContent]))}
        """,
        f"#{key}",
    )


# what is there


def test_every_section_is_filled(page):
    payload = example()
    assert texts(page, "h1") == [payload["title"]]
    assert texts(page, "#verdict li") == payload["verdict"]
    assert texts(page, "#verdict code") == [payload["recommendation"]]
    assert texts(page, "#reproduce code") == [payload["command"], payload["python"]]
    assert "12\u202f345" in texts(page, "#facts dd")
    for key in CHARTS:
        seeds = 3 if key in ("grad_norm2", "value") else 1
        schemes = 3 if key == "linear_residual" else 4  # ITD has no linear system
        assert count(page, f"#{key} .curve") == seeds * schemes
    assert count(page, "#theory .curve") == 2
    assert texts(page, "#theory figure .note") == [
        "Corollary 1",
        "At K = 100 the bound is 10 times the measured mean.",
    ]


def test_nothing_is_loaded(page):
    assert page.run("return performance.getEntriesByType('resource').length") == 0


def test_numbers_are_written_as_in_the_terminal(page):
    values = [0.0, 1.0, 0.05, 2.5, 1.84e-4, 2.13e8, 999.6, 0.00123, 123456.0, -3.21e-7, 1e-300]
    assert page.run("return arguments[0].map((v) => short(v))", values) == [*map(short, values)]
    assert page.run("return short(null)") == "–"


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(("key", "scheme"), [("grad_norm2", 1), ("value", 2)])
def test_curves_are_where_the_axes_say(page, key, scheme, log):
    if page.run("return document.querySelector(arguments[0]).checked", f"#{key} input") != log:
        click_switch(page, f"#{key}")
    seed = example()["schemes"][scheme]["seeds"][MIDDLE]
    rows = [j for j, y in enumerate(seed[key]) if y is not None]
    points = page.run(POINTS, f"#{key}", str(scheme))
    x = pixels(page, key, "middle", "x", log=True)
    y = pixels(page, key, "end", "y", log)
    for j, (px, py) in ((rows[0], points[0]), (rows[-1], points[-1])):
        assert px == pytest.approx(x(seed["gradients"][j] + seed["products"][j]), abs=1)
        assert py == pytest.approx(y(seed[key][j]), abs=1)


def test_the_target_is_a_line(page):
    (at,) = page.run("return [document.querySelector('.guide').getAttribute('y1')]")
    assert float(at) == pytest.approx(pixels(page, "grad_norm2", "end", "y", True)(TARGET), abs=1)
    assert count(page, ".guide") == 1


def test_a_scheme_that_diverges_does_not_flatten_the_others(page):
    y = pixels(page, "value", "end", "y", False)
    assert y(3.0) < 100  # the largest value of the others is near the top
    assert min(py for _, py in page.run(POINTS, "#value", "3")) < 0  # and this one leaves the chart


# what the controls do


def test_the_axis_of_cost_can_be_switched(page):
    seed = example()["schemes"][1]["seeds"][MIDDLE]
    before = page.run(POINTS, "#value", "1")
    labels = {"gradients": "gradients", "products": "products", "seconds": "seconds"}
    for key, label in {**labels, "k": "outer steps k"}.items():
        page.click(f"#progress input[value={key}] + span")
        assert texts(page, "#value .x-label") == [f"{label}, logarithmic"]
        points, x = page.run(POINTS, "#value", "1"), pixels(page, "value", "middle", "x", True)
        assert points[-1][0] == pytest.approx(x(seed[key][-1]), abs=1)
    page.click("#progress input[value=cost] + span")
    assert page.run(POINTS, "#value", "1") == before
    assert texts(page, "#inner_residual .x-label") == ["outer steps k, logarithmic"]  # its own


def test_scales_can_be_switched(page):
    click_switch(page, "#progress .toolbar .switch:nth-of-type(1)")
    assert texts(page, "#grad_norm2 .x-label") == ["gradients + products"]
    assert page.run(TICKS, "#value", "middle", "x")[0][0] == "0"
    click_switch(page, "#grad_norm2")
    ticks = [number(text) for text, _ in page.run(TICKS, "#grad_norm2", "end", "y")]
    assert ticks == pytest.approx([ticks[0] + j * (ticks[1] - ticks[0]) for j in range(len(ticks))])


def test_seeds_can_be_hidden(page):
    assert count(page, "#grad_norm2 .thin") == 8
    click_switch(page, "#progress .toolbar .switch:nth-of-type(2)")
    assert count(page, "#grad_norm2 .thin") == 0
    assert count(page, "#grad_norm2 .curve") == 4


def test_the_legend_hides_a_scheme_everywhere(page):
    page.click("#progress .legend button:nth-child(2)")
    for key in ("grad_norm2", "value", "inner_residual"):
        assert shown(page, key) == [0, 2, 3]
    pressed = "return [...document.querySelectorAll('.legend button')].map((b) => b.ariaPressed)"
    assert page.run(pressed) == ["true", "false", "true", "true"] * 2
    page.click("#residuals .legend button:nth-child(2)")
    assert shown(page, "value") == [0, 1, 2, 3]
    page.double_click("#progress .legend button:nth-child(3)")
    assert shown(page, "value") == [2]
    page.double_click("#progress .legend button:nth-child(3)")
    assert shown(page, "value") == [0, 1, 2, 3]


def test_the_mouse_reads_a_curve(page):
    seed = example()["schemes"][1]["seeds"][MIDDLE]
    page.run("document.querySelector('#value').scrollIntoView({block: 'center'})")
    j = 20
    cost = seed["gradients"][j] + seed["products"][j]
    x, y = (pixels(page, "value", a, b, log) for a, b, log in (("middle", "x", 1), ("end", "y", 0)))
    _, _, width, height = page.run(
        "return document.querySelector('#value .drawing').getAttribute('viewBox').split(' ')"
    )
    assert tooltip(page, "value") is None
    here = (x(cost) - float(width) / 2, y(seed["value"][j]) - float(height) / 2)
    page.mouse("#value .drawing", (0, 0), here)
    assert tooltip(page, "value") == {
        "scheme": "N-loop AID",
        "seed": "2 of 3",
        "k": str(j),
        "gradients": str(seed["gradients"][j]),
        "products": str(seed["products"][j]),
        "seconds": short(seed["seconds"][j]),
        "value": short(seed["value"][j], 4),
        "‖∇Φ‖²": short(seed["grad_norm2"][j]),
        "inner residual": short(seed["inner_residual"][j]),
        "linear residual": short(seed["linear_residual"][j]),
    }
    page.mouse("h1", (0, 0))
    assert tooltip(page, "value") is None


def test_the_keyboard_reads_a_curve(page):
    page.run("document.querySelector('#grad_norm2 .drawing').focus()")
    page.press("Right")
    assert tooltip(page, "grad_norm2")["scheme"] == "No-loop AID"
    page.press("Right", "Right")
    assert tooltip(page, "grad_norm2")["k"] == "4"  # ‖∇Φ‖² is known at every second k
    page.press("Down")
    assert tooltip(page, "grad_norm2")["scheme"] == "N-loop AID"
    page.press("Tab")
    assert tooltip(page, "grad_norm2") is None


def test_a_drag_zooms_and_a_double_click_goes_back(page):
    before = page.run(POINTS, "#grad_norm2", "1")
    page.mouse("#grad_norm2 .drawing", (-50, -50), (60, 80), drag=True)
    assert page.run(POINTS, "#grad_norm2", "1") != before
    page.click("#grad_norm2 .show-all")
    assert page.run(POINTS, "#grad_norm2", "1") == before
    page.mouse("#grad_norm2 .drawing", (-50, -50), (60, 80), drag=True)
    page.run("document.querySelector('#grad_norm2 .drawing').focus()")
    page.press("Escape")
    assert page.run(POINTS, "#grad_norm2", "1") == before


def test_the_table_sorts_by_any_column(page):
    names = "#schemes tbody th"
    by_cost = ["N-loop AID", "Q-loop AID", "No-loop AID", "No-loop ITD"]
    assert texts(page, names) == by_cost
    page.click("#schemes [data-key=cost_to_target] button")
    # What was never reached stays last.
    assert texts(page, names) == ["Q-loop AID", "N-loop AID", "No-loop AID", "No-loop ITD"]
    assert page.run("return document.querySelector('[aria-sort=descending]').dataset.key") == (
        "cost_to_target"
    )
    page.click("#schemes [data-key=name] button")
    assert texts(page, names) == sorted(by_cost)


def test_the_code_of_each_scheme_unfolds(page):
    page.click("#schemes summary")
    codes = [scheme["code"] for scheme in example()["schemes"]]
    assert texts(page, "#schemes details[open] code") == codes


def test_the_heat_map_has_every_cost(page):
    assert texts(page, "#grid thead th") == ["", "Q = 1", "Q = 10", "Q = 100"]
    assert texts(page, "#grid tbody tr:first-child > *") == [
        "N = 1",
        "not reached",
        "2\u202f0002 times",
        "4\u202f0004 times",
    ]
    assert texts(page, "#grid .cheapest") == ["1\u202f000cheapest"]


def test_code_can_be_copied(page):
    page.command("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    page.click("#verdict button")
    found = "return navigator.clipboard.readText()"
    assert page.run(found) == example()["recommendation"]
    assert texts(page, "#verdict button") == ["copied"]


# other readers and other payloads


def test_light_dark_and_narrow(page, tmp_path):
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    page.screenshot(tmp_path / "light.png")
    page.prefer("dark")
    assert page.run(colour) != light
    page.screenshot(tmp_path / "dark.png")
    narrow = page.screenshot(tmp_path / "narrow.png", width=800)
    assert narrow == 800  # nothing makes the page itself scroll sideways
    for name in ("light", "dark", "narrow"):
        assert (tmp_path / f"{name}.png").stat().st_size > 50_000


def test_it_prints_in_light_colours(page):
    page.prefer("dark")
    page.command("Emulation.setEmulatedMedia", media="print")
    assert page.run("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.run("return getComputedStyle(document.querySelector('.choice')).display") == "none"
    page.command("Emulation.setEmulatedMedia", media="")


def test_hostile_text_is_shown_and_not_run(window, tmp_path):
    window.open(write(tmp_path / "hostile.html", hostile()))
    assert window.run("return document.title") == HOSTILE
    assert texts(window, "h1") == [HOSTILE]
    assert texts(window, "#verdict code") == [HOSTILE]
    assert count(window, "img") == 0
    assert count(window, "script") == 2
    assert shown(window, "value") == [0, 1, 2, 3]
    assert window.console() == []


def test_a_comparison_with_little_in_it(window, tmp_path):
    payload = example()
    payload |= {
        "grid": None,
        "certificates": [],
        "verdict": [],
        "recommendation": "",
        "command": "",
    }
    payload["schemes"] = payload["schemes"][:2]
    payload["schemes"][0] |= {"seeds": [], "spread": {}, "value": None, "outer_step": "auto"}
    payload["schemes"][1]["seeds"] = payload["schemes"][1]["seeds"][:1]
    seed = payload["schemes"][1]["seeds"][0]
    payload["schemes"][1]["seeds"] = [{key: column[:1] for key, column in seed.items()}]
    window.open(write(tmp_path / "little.html", payload))
    assert count(window, "#grid") == count(window, "#theory") == count(window, "#verdict pre") == 0
    assert count(window, "#reproduce pre") == 1
    assert shown(window, "value") == [1]
    assert count(window, "#progress .toolbar .switch") == 1  # no choice between seeds
    window.click("#progress .legend button:nth-child(2)")
    assert texts(window, "#value .empty") == ["nothing to draw"]
    assert window.console() == []
