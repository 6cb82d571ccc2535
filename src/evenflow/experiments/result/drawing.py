"""Charts as SVG, by Matplotlib. The only module that knows it: an engine never needs it, so it is an extra of the package."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenflow.experiments.result.chart import Bars, Chart, Curves, Whose
from evenflow.monitor.benchmark import cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES: Final = (5.6, 5.0)
DASHES: Final[dict[Whose, str]] = {"ours": "-", "paper": "--", "law": ":"}
OPACITY: Final[dict[Whose, float]] = {"ours": 1.0, "paper": 0.45, "law": 0.7}
HOW_TO_INSTALL: Final = "pip install 'evenflow[experiments]'"


def can_draw() -> bool:
    """Whether the extra is installed."""
    return find_spec("matplotlib") is not None


def draw(chart: Chart, path: Path) -> None:
    """Write the chart as SVG. The same chart gives the same bytes with the same version of Matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text: it can be searched, and the file is a tenth of the size.
    with matplotlib.rc_context({"svg.hashsalt": "evenflow", "svg.fonttype": "none", "font.size": 9.0}):
        width, height = PANEL_INCHES
        columns = min(chart.per_row or len(chart.panels), len(chart.panels))
        rows = -(-len(chart.panels) // columns)
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        figure.suptitle(chart.title, fontsize=10.0)
        places = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in places[len(chart.panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(places, chart.panels):
            if isinstance(panel, Bars):
                _bars(axes, panel)
            else:
                _curves(axes, panel)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _curves(axes: Axes, panel: Curves) -> None:
    colours = iter(f"C{number}" for number in range(len(panel.lines)))
    colour = "black"
    for line in panel.lines:
        colour = next(colours) if line.whose == "ours" else colour
        drawn = axes.plot(line.x, line.y, color=colour, linestyle=DASHES[line.whose], alpha=OPACITY[line.whose], label=line.label)
        if line.points:
            drawn[0].set(marker="o", markersize=4.0)
    for mark in panel.marks:
        axes.axvline(mark.x, color="grey", linewidth=0.8)
        axes.annotate(mark.label, (mark.x, 0.02), xycoords=("data", "axes fraction"), rotation=90.0, color="grey", ha="right")
    if panel.log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0.0)
    axes.set_xlabel(panel.x_label)
    _finish(axes, panel.title, panel.y_label)


def _bars(axes: Axes, panel: Bars) -> None:
    width = 0.8 / len(panel.values)
    for place, (label, whose, values) in enumerate(panel.values):
        at = [category + (place - (len(panel.values) - 1) / 2) * width for category in range(len(panel.categories))]
        drawn = axes.bar(at, values, width, label=label, alpha=OPACITY[whose])
        axes.bar_label(drawn, fmt=partial(cell, small=".4g"), fontsize=8.0)
    axes.set_xticks(range(len(panel.categories)), panel.categories)
    _finish(axes, panel.title, panel.y_label)


def _finish(axes: Axes, title: str, y_label: str) -> None:
    axes.set_title(title, fontsize=9.0)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, linewidth=0.3)
    # Below, where it hides nothing.
    axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=2, frameon=False)
