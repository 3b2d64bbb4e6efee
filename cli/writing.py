"""How the screen writes figures: short, and each at home in its column."""

from rich.cells import cell_len, set_cell_size

SHORT_STATES = {"PreparingRebalance": "Preparing", "CompletingRebalance": "Completing"}
CALM = {"Stable": "green", "Empty": "dim", "Dead": "dim"}


def state_style(state: str) -> str:
    return CALM.get(state, "bold yellow")


def number(count: float | None) -> str:
    """
    >>> number(None), number(950), number(12_345), number(1_234_567), number(45_600_000_000)
    ('-', '950', '12.3k', '1.2M', '45.6G')
    """
    if count is None:
        return "-"
    size, unit = float(count), ""
    for larger in ("k", "M", "G", "T"):
        if abs(size) < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f}" if not unit else f"{size:.1f}{unit}"


def rate(records_s: float | None) -> str:
    """
    >>> rate(None), rate(0.0), rate(-120.0), rate(2_500.0), rate(0.44), rate(-0.02), rate(9.96)
    ('-', '0/s', '-120/s', '+2.5k/s', '+0.4/s', '0/s', '+10/s')
    """
    if records_s is None:
        return "-"
    if abs(records_s) < 0.05:
        return "0/s"
    if abs(records_s) < 9.95:
        return f"{records_s:+.1f}/s"
    sign = "+" if records_s > 0 else ""
    return f"{sign}{number(records_s)}/s"


def eta(seconds: float | None) -> str:
    """
    >>> eta(None), eta(0.0), eta(42.0), eta(95.0), eta(7_500.0), eta(200_000.0), eta(1e9)
    ('-', '0s', '42s', '1m35s', '2h05m', '2d7h', 'long')
    """
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600}h" if whole < 8_640_000 else "long"


def cell(text: str, width: int, right: bool = False) -> str:
    """Exactly so wide on a terminal, whatever letters there are; what is cut off is marked.

    >>> cell("abc", 5), cell("abc", 5, right=True), cell("abcdef", 4), cell("日本語", 5)
    ('abc  ', '  abc', 'abc~', '日本~')
    """
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "~"
    return " " * (width - cell_len(text)) + text if right else set_cell_size(text, width)
