"""Print the tables of this folder and draw its pictures.

    python docs/results/summarise.py 600 camvid steel clothing instrument

reads ``light/600-camvid*.json`` and so on, kept copies of the
``report/results.json`` that ``compare`` writes. ``camvid=FILE`` adds the runs
of another such file, or replaces those of the same objective and seed.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from mmseg_margin.comparison.tables import mean_cell, mean_difference, signed
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.pictures import BLUE, RED, picture

HERE = Path(__file__).parent / 'light'
SAME = ('iterations', 'class_counts')
ABSENT = ('\u2013', '\u2013')


def read(schedule: str, texts: list[str]) -> dict[str, dict]:
    """Records by their data sets, given as ``NAME`` or ``NAME=FILE``."""
    records: dict[str, dict] = {}
    for text in texts:
        data, _, file = text.partition('=')
        kept = HERE.glob(f'{schedule}-{data}*.json')
        paths = [Path(file)] if file else sorted(kept, key=lambda p: p.stem)
        for path in paths or [HERE / f'{schedule}-{data}.json']:
            found = json.loads(path.read_text('utf-8'))
            record = records.setdefault(data, found | {'runs': {}})
            if any(found['common'][k] != record['common'][k] for k in SAME):
                raise SystemExit(f'{path} has other {SAME} of {data}.')
            done = [run for run in found['runs'] if run['metrics']]
            record['runs'] |= {(r['name'], r['seed']): r for r in done}
    return records


def frame_of(records: dict[str, dict]) -> pd.DataFrame:
    """A row for each objective, data set and seed."""
    rows = []
    for data, record in records.items():
        for (name, seed), run in record['runs'].items():
            row = dict(run['metrics'], objective=name, data=data, seed=seed)
            if fitted := run.get('fitted'):
                row['fitted mIoU'] = fitted['metrics']['mIoU']
            rows.append(row)
    return pd.DataFrame(rows).set_index(['objective', 'data', 'seed'])


def over_seeds(values: pd.Series) -> pd.DataFrame:
    """Means over the seeds: a row for each objective, a column for data."""
    means = values.groupby(['objective', 'data'], sort=False).mean()
    return means.unstack('data')[values.index.unique('data')]


def differences(values: pd.Series) -> pd.DataFrame:
    """To cross-entropy with the same seed, averaged over the seeds."""
    runs = values.index.droplevel('objective')
    baseline = values.loc['ce'].reindex(runs).to_numpy()
    return over_seeds(values - baseline)


def cells(pairs: pd.DataFrame) -> list[tuple[str, str]]:
    """Mean of each row with its interval, and the lowest; none for zeros."""
    texts = []
    for _, row in pairs.iterrows():
        found = mean_difference(row)
        text = f'**{found}**' if found and found.sign else str(found)
        texts.append((text, signed(row.min())) if row.any() else ABSENT)
    return texts


def metric_table(values: pd.Series, gains: pd.Series | None) -> pd.DataFrame:
    """What the README shows of a metric."""
    means = over_seeds(values)
    ranks = means.rank(ascending=False).mean(axis=1)
    table = pd.DataFrame({'average rank': ranks.map('{:.2f}'.format)})
    pairs = differences(values)
    table[['difference to ce', 'worst difference']] = cells(pairs)
    if gains is not None:
        table[['gain by fitting', 'smallest gain']] = cells(over_seeds(gains))
    table['mean'] = means.mean(axis=1, skipna=False).map('{:.2f}'.format)
    texts = values.groupby(['objective', 'data']).agg(mean_cell)
    table[list(means)] = texts.unstack('data')[list(means)]
    return table.loc[ranks.sort_values(kind='stable').index]


def print_table(title: str, table: pd.DataFrame) -> None:
    print(f'\n## {title}\n\n| objective | {" | ".join(table)} |')
    print('|---|' + '---:|' * len(table.columns))
    for row in table.itertuples():
        print(f'| {" | ".join(row)} |')


def draw_summary(frame: pd.DataFrame, path: Path) -> None:
    """Differences to cross-entropy: a dot for each data set, and the mean."""
    pairs = differences(frame['mIoU'])
    pairs = pairs.loc[pairs.mean(axis=1).sort_values().index]
    with picture(path, 8, 1.4 + 0.34 * len(pairs)) as figure:
        axes = figure.subplots()
        axes.plot(pairs, pairs.index, 'o', color=BLUE, alpha=0.75)
        means = np.array([mean_difference(row) for row in pairs.to_numpy()])
        xerr = means[:, 2] - means[:, 0]
        axes.errorbar(means[:, 0], pairs.index, xerr=xerr, fmt='D', c=RED)
        axes.axvline(0, color='black', linewidth=0.8)
        axes.set_xlabel('mIoU, difference to ce in points')


def draw_offsets(records: dict[str, dict], path: Path) -> None:
    """Fitted offsets of cross-entropy beside Algorithm 1's."""
    with picture(path, 10, 3 * len(records)) as figure:
        column = figure.subplots(len(records), squeeze=False)[:, 0]
        for axes, (data, record) in zip(column, records.items(), strict=True):
            counts = np.array(record['common']['class_counts'])
            order = np.argsort(-counts, kind='stable')
            classes = [record['common']['classes'][k] for k in order]
            rho_0k, rho_k0 = OffsetSettings().offsets(counts)
            bars = np.where(counts > 0, rho_k0 - rho_0k, np.nan)[order]
            bars -= np.nanmean(bars)
            axes.bar(classes, bars, color='#cccccc')
            for (name, _), run in record['runs'].items():
                if name == 'ce' and run.get('fitted'):
                    offsets = np.array(run['fitted']['offsets'])[order]
                    axes.plot(offsets - offsets.mean(), 'o', color=BLUE)
            axes.tick_params('x', rotation=90)
            if np.nanmax(abs(bars)) > 10:
                axes.set_yscale('symlog', linthresh=10, linscale=2)
            axes.set(title=data, ylabel='offset less its mean')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('schedule', help='600, 2400, finetune or scratch')
    parser.add_argument('data', nargs='+', metavar='NAME[=FILE]')
    parser.add_argument('--draw', type=Path, help='folder for the pictures')
    args = parser.parse_args()
    records = read(args.schedule, args.data)
    frame = frame_of(records)
    for metric in ('mIoU', 'mIoU_tail', 'fitted mIoU'):
        if metric in frame:
            gains = frame[metric] - frame['mIoU'] if 'fit' in metric else None
            print_table(metric, metric_table(frame[metric], gains))
    if args.draw:
        draw_summary(frame, args.draw / 'summary.png')
        draw_offsets(records, args.draw / 'offsets.png')
