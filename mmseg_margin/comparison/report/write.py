"""Writes the report of a comparison."""

from collections.abc import Sequence
from pathlib import Path

from mmseg_margin.atomic_write import atomic_write_text

from .comparison import BASELINE, Comparison, load_comparison
from .curves import curves_section
from .distribution import distribution_section
from .document import Block, Code, Document, Section, Table
from .examples import Sample, examples_section
from .html_page import render_html
from .markdown import render_markdown
from .tables import class_table, cost_table, difference_table, overall_table
from .verdict import missing_runs, verdict

REPORT_FOLDER = 'report'


def write_report(out: Path, samples: Sequence[Sample] = ()) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    Args:
        out: The folder of the comparison, which may be incomplete.
        samples: Name, image file and label file of the tested images; the
            labels are class indices, 255 where there is none. Predictions
            are found by the name. Without samples there is no mosaic.

    Returns:
        The path of the page.
    """
    comparison = load_comparison(out)
    study = comparison.study
    folder = out / REPORT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        _results_section(comparison),
        Section('IoU of each class', [class_table(comparison)]),
        curves_section(comparison, folder),
        examples_section(comparison, out, samples, folder),
        distribution_section(comparison, folder),
        Section('Cost', [cost_table(comparison)]),
        _settings_section(comparison),
    ]
    document = Document(
        'Comparison of objectives',
        f'{study.config}, {study.iterations:,} iterations, '
        f'seeds: {", ".join(map(str, study.seeds))}',
        verdict(comparison),
        missing_runs(comparison),
        [section for section in sections if section],
    )
    atomic_write_text(folder / 'report.md', render_markdown(document))
    page = folder / 'index.html'
    atomic_write_text(page, render_html(document))
    return page


def _results_section(comparison: Comparison) -> Section:
    differences = difference_table(comparison)
    return Section(
        'Results',
        [
            overall_table(comparison),
            differences
            or f'There is no result of {BASELINE} to compare the others with.',
        ],
    )


def _settings_section(comparison: Comparison) -> Section:
    study = comparison.study
    rows = {
        'config': study.config,
        'iterations': f'{study.iterations:,}',
        'seeds': ', '.join(map(str, study.seeds)),
        'start from': study.init or 'the initialisation of the config',
        **study.versions,
    }
    losses = [f'{name}: {loss}' for name, loss in study.losses.items()]
    blocks: list[Block] = [
        Table(
            'What all runs have in common, and the versions.',
            ['setting', 'value'],
            [[name, value] for name, value in rows.items()],
            numeric=False,
        ),
        'The command:',
        Code(study.command),
        'The objectives:',
        Code('\n'.join(losses)),
    ]
    return Section('Settings', blocks)
