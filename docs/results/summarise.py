"""Print the tables of this folder's page and draw its pictures.

    python docs/results/summarise.py

reads ``light/*.json``, kept copies of ``compare``'s ``report/results.json``.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from mmseg_margin.comparison.tables import mean_cell, signed
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.pictures import BLUE, GREY, ORANGE, RED, picture

RECORDS = Path(__file__).parent / 'light'
FOUR = ['camvid', 'steel', 'clothing', 'instrument']
TWO = FOUR[:2]
CE, SUM = 'ce', 'ce:0.25+jml:0.75'
LINES = {'jaccard': BLUE, SUM: ORANGE, 'margin': RED}


def recorded(schedule: str | int, names: list[str] = FOUR) -> list[str]:
    """The data sets on which a schedule was run."""
    return [x for x in names if (RECORDS / f'{schedule}-{x}.json').exists()]


def read_frame(schedule: str | int, names: list[str]) -> pd.DataFrame:
    """A row for each objective, data set and seed."""
    rows = []
    for data in names:
        record = (RECORDS / f'{schedule}-{data}.json').read_bytes()
        for run in json.loads(record)['runs']:
            row = {'name': run['name'], 'data': data, 'seed': run['seed']}
            row['mIoU'] = run['metrics']['mIoU']
            row['tail mIoU'] = run['metrics']['mIoU_tail']
            if fitted := run['fitted']:
                row['fitted mIoU'] = fitted['metrics']['mIoU']
                row['gain by fitting'] = row['fitted mIoU'] - row['mIoU']
            rows.append(row)
    return pd.DataFrame(rows).set_index(['name', 'data', 'seed'])


def lead(values: pd.Series, name: str, other: str) -> pd.DataFrame:
    """Differences of two objectives: data sets by the seeds of both."""
    pairs = (values[name] - values[other]).unstack('seed')
    return pairs.loc[values.index.unique('data')].dropna(axis=1)


def lead_cell(values: pd.Series, name: str, other: str) -> str:
    """Mean of the differences, and its 95 % interval.

    Seeds of one data set are not independent, so data sets are drawn first.
    """
    pairs = lead(values, name, other).to_numpy()
    random, (D, S) = np.random.default_rng(0), pairs.shape
    data = random.integers(D, size=(20_000, D, 1))
    seeds = random.integers(S, size=(len(data), D, S))
    means = pairs[data, seeds].mean((1, 2))
    low, high = map(signed, np.percentile(means, [2.5, 97.5]))
    return signed(pairs.mean()) + f' \\[{low}, {high}\\]' * (pairs.size > 1)


def metric_table(values: pd.Series) -> pd.DataFrame:
    """Means of the objectives, and their leads over the two baselines."""
    runs = values.groupby(['name', 'data'], sort=False)
    means = runs.mean().unstack().mean(axis=1).sort_values(ascending=False)
    table = pd.DataFrame({'mean': means.map('{:.2f}'.format)})
    for title, other in (('lead over ce', CE), ('over the sum', SUM)):
        if other in means:
            table[title] = [lead_cell(values, x, other) for x in means.index]
            table.loc[other, title] = '\u2013'
    return table.join(runs.agg(mean_cell).unstack())


def print_table(title: str, table: pd.DataFrame) -> None:
    print(f'\n## {title}\n\n| | {" | ".join(table)} |')
    print('|---|' + '---:|' * len(table.columns))
    for row in table.itertuples():
        print(f'| {" | ".join(map(str, row))} |')


def print_schedule(schedule: str) -> None:
    """Objectives with all seeds, and all objectives with the common ones."""
    names = recorded(schedule)
    frame = read_frame(schedule, names)
    seeds = frame.groupby('name')['mIoU'].count() // len(names)
    for n in sorted(seeds.unique(), reverse=True):
        chosen = frame.loc[seeds.index[seeds >= n]].query('seed < @n')
        for metric in frame:
            title = f'{schedule}: {metric}, {n} seed(s)'
            print_table(title, metric_table(chosen[metric]))


def draw_lengths(frames: dict[int, pd.Series], path: Path) -> None:
    """The lead over cross-entropy: means as lines, seeds as dots."""
    with picture(path, 9, 3.6) as figure:
        both = figure.subplots(1, 2, sharey=True)
        for axes, data in zip(both, TWO, strict=True):
            lengths = [x for x in frames if data in recorded(x)]
            for name, colour in LINES.items():
                leads = [lead(frames[x], name, CE).loc[data] for x in lengths]
                leads = pd.DataFrame(leads, lengths)
                axes.plot(leads.mean(axis=1), c=colour, label=name)
                axes.plot(leads, '.', c=colour)
            axes.axhline(0, color=GREY)
            axes.set_xscale('log', base=2)
            axes.set_xticks(lengths, map('{:,}'.format, lengths))
            axes.set(title=data, xlabel='iterations', ylabel='lead over ce')
        both[1].legend(frameon=False)


def draw_offsets(path: Path) -> None:
    """Fitted offsets of cross-entropy beside Algorithm 1's."""
    with picture(path, 10, 12) as figure:
        for axes, data in zip(figure.subplots(4), FOUR, strict=True):
            record = json.loads((RECORDS / f'600-{data}.json').read_bytes())
            counts = np.array(record['common']['class_counts'])
            order = np.argsort(-counts, kind='stable')
            rho_0k, rho_k0 = OffsetSettings().offsets(counts)
            bars = np.where(counts > 0, rho_k0 - rho_0k, np.nan)[order]
            bars -= np.nanmean(bars)
            classes = np.array(record['common']['classes'])[order]
            axes.bar(classes, bars, color='#cccccc')
            for run in (x for x in record['runs'] if x['name'] == CE):
                offsets = np.array(run['fitted']['offsets'])[order]
                axes.plot(offsets - offsets.mean(), 'o', color=BLUE)
            axes.tick_params('x', rotation=90)
            scale = 'symlog' if np.nanmax(abs(bars)) > 10 else 'linear'
            axes.set(title=data, ylabel='offset - mean', yscale=scale)


def main(folder: Path = RECORDS) -> None:
    for schedule in ('600', '2400', 'softness600', 'finetune', 'scratch'):
        print_schedule(schedule)
    found = {x: recorded(x, TWO) for x in (300, 600, 1200, 2400, 4800)}
    frames = {x: read_frame(x, found[x])['mIoU'] for x in found if found[x]}
    table = pd.DataFrame(index=[f'{x:,}' for x in frames])
    for name, other in (*((name, CE) for name in LINES), ('jaccard', SUM)):
        cells = [lead_cell(frames[x], name, other) for x in frames]
        table[f'{name} over {other}'] = cells
    print_table('mIoU by length', table)
    draw_lengths(frames, folder / 'lengths.png')
    draw_offsets(folder / 'offsets.png')


if __name__ == '__main__':
    main()
