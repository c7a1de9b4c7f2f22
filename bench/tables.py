"""What the numbers look like: percentiles, rows, tables in Markdown that are also readable as plain text."""

import statistics
import sys
from dataclasses import dataclass, field


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, round(percent / 100 * (len(values) - 1)))]


def number(value):
    """About three digits; a missing value is a dash."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    magnitude = abs(value)
    return f"{value:,.0f}" if magnitude >= 1000 else f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"


@dataclass
class Table:
    """A title, columns, rows as lists of cells, remarks below, and the figures behind it for the JSON file."""

    title: str
    columns: list
    rows: list = field(default_factory=list)
    remarks: list = field(default_factory=list)
    data: list = field(default_factory=list)

    def add(self, *cells):
        self.rows.append([number(cell) for cell in cells])

    def add_not_run(self, name, why):
        self.rows.append([name, f"not run: {why}"] + [""] * (len(self.columns) - 2))
        self.data.append({"name": name, "not_run": why})

    def markdown(self):
        # A reason may be long: it does not set its column's width.
        widths = [max([len(row[at]) for row in [self.columns, *self.rows] if not row[at].startswith("not run")]) for at in range(len(self.columns))]
        lines = []
        for row in [self.columns, *self.rows]:
            cells = [cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))]
            lines.append("| " + " | ".join(cells) + " |")
        lines.insert(1, "|" + "|".join("-" * (width + 2) if at == 0 else "-" * (width + 1) + ":" for at, width in enumerate(widths)) + "|")
        return "\n".join(lines + ([""] if self.remarks else []) + [f"- {remark}" for remark in self.remarks])

    def show(self):
        print(f"\n{self.title}\n\n{self.markdown()}", flush=True)


def summary(times):
    """The numbers of a list of milliseconds."""
    return {
        "n": len(times),
        "min_ms": min(times),
        "p50_ms": statistics.median(times),
        "p90_ms": percentile(times, 90),
        "p95_ms": percentile(times, 95),
        "p99_ms": percentile(times, 99),
        "max_ms": max(times),
    }


def progress(text):
    """Says on a terminal what goes on; an empty text wipes it."""
    if sys.stderr.isatty():
        print(f"\r\033[2K{text[:110]}", end="", file=sys.stderr, flush=True)
