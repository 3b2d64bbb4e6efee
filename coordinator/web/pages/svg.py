"""SVG as text. Every value is escaped; nothing has a style of its own, so that the page needs no inline style."""

from collections.abc import Iterable

from markupsafe import Markup, escape

from muster.coordinator.observability.views.formatting import harmless


def element(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """One element. `class_` stands for class, `_` in other names for a hyphen; attributes that are None are left out.

    >>> element("text", "a<b", x=1, class_="n", text_anchor="end")
    Markup('<text x="1" class="n" text-anchor="end">a&lt;b</text>')
    """
    written = "".join(
        f' {"class" if key == "class_" else key.replace("_", "-")}="{escape_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(map(escape_value, children))
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>")


def escape_value(value: object) -> Markup:
    """Escaped; what others chose, without what would turn the writing of those who read it.

    >>> escape_value("a<b\u202e")
    Markup('a&lt;b\\\\u202e')
    """
    return escape(harmless(value) if type(value) is str else value)


def join_parts(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def short(number: float) -> str:
    """A coordinate, without digits that nobody sees.

    >>> short(12.0), short(3.14159), short(0.004)
    ('12', '3.14', '0')
    """
    return f"{number:.2f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """Of the picture's width, which the page decides.

    >>> percent(0.5), percent(1 / 3)
    ('50%', '33.33%')
    """
    return short(100 * share) + "%"
