"""Print the tables of this folder and draw its pictures.

    python docs/results/summarise.py 600 camvid steel clothing instrument

reads ``light/600-camvid.json`` and so on, which are kept copies of the
``report/results.json`` that ``compare`` writes.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from mmseg_margin.functional import OffsetSettings
from mmseg_margin.report.numbers import ABSENT, mean_difference, signed
from mmseg_margin.report.pictures import BLUE, RED, picture

HERE = Path(__file__).parent / 'light'


def read(schedule: str, data: str) -> dict:
    path = HERE / f'{schedule}-{data}.json'
    return json.loads(path.read_text('utf-8'))


def frame_of(schedule: str, names: list[str]) -> pd.DataFrame:
    """A row for each objective, data set and seed."""
    rows = []
    for data in names:
        for run in read(schedule, data)['runs']:
            row = {'objective': run['name'], 'data': data, 'seed': run['seed']}
            row |= run['metrics']
            if fitted := run.get('fitted'):
                row['fitted mIoU'] = fitted['metrics']['mIoU']
                row['gain'] = row['fitted mIoU'] - row['mIoU']
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


def cells(row: pd.Series) -> list[str]:
    """Mean difference with its interval over the data sets, and the worst."""
    found = mean_difference(row)
    if found is None or not row.any():
        return [ABSENT, ABSENT]
    text = f'**{found}**' if found.sign else str(found)
    return [text, signed(row.min())]


def metric_table(values: pd.Series, gains: pd.Series | None) -> pd.DataFrame:
    """What the README shows of a metric."""
    means = over_seeds(values)
    deviations = values.groupby(['objective', 'data']).std().unstack('data')
    ranks = means.rank(ascending=False).mean(axis=1)
    table = pd.DataFrame({'average rank': ranks.map('{:.2f}'.format)})
    pairs = differences(values)
    titles = ['difference to ce', 'worst difference']
    table[titles] = [cells(pairs.loc[name]) for name in table.index]
    if gains is not None:
        pairs = over_seeds(gains)
        titles = ['gain by fitting', 'smallest gain']
        table[titles] = [cells(pairs.loc[name]) for name in table.index]
    table['mean'] = means.mean(axis=1, skipna=False).map('{:.2f}'.format)
    for data in means:
        table[data] = [
            f'{means.loc[name, data]:.2f} ± {deviations.loc[name, data]:.2f}'
            for name in table.index
        ]
    return table.loc[ranks.sort_values(kind='stable').index]


def print_table(title: str, table: pd.DataFrame) -> None:
    print(f'\n## {title}\n\n| objective | {" | ".join(table)} |')
    print('|---|' + '---:|' * len(table.columns))
    for row in table.itertuples():
        print(f'| {" | ".join(row)} |'.replace(' ± nan', ''))


def draw_summary(frame: pd.DataFrame, path: Path) -> None:
    """Differences to cross-entropy: a dot for each data set, and the mean."""
    pairs = differences(frame['mIoU'])
    pairs = pairs.loc[pairs.mean(axis=1).sort_values().index]
    places = np.arange(len(pairs))
    with picture(path, 8, 1.4 + 0.34 * len(pairs)) as figure:
        axes = figure.subplots()
        for data in pairs:
            axes.scatter(pairs[data], places, s=22, color=BLUE, alpha=0.75)
        means = [mean_difference(row) for row in pairs.to_numpy()]
        xerr = [each.high - each.mean for each in means]
        axes.errorbar(pairs.mean(axis=1), places, xerr=xerr, fmt='D', c=RED)
        axes.set_yticks(places, pairs.index)
        axes.axvline(0, color='black', linewidth=0.8)
        axes.set_xlabel('mIoU, difference to ce in points')


def draw_offsets(schedule: str, names: list[str], path: Path) -> None:
    """Fitted offsets of cross-entropy beside Algorithm 1's."""
    with picture(path, 10, 3 * len(names)) as figure:
        column = figure.subplots(len(names), squeeze=False)[:, 0]
        for axes, data in zip(column, names, strict=True):
            record = read(schedule, data)
            counts = np.array(record['common']['class_counts'])
            order = np.argsort(-counts, kind='stable')
            settings = OffsetSettings(absent_class='zero')
            rho_0k, rho_k0 = settings.offsets(counts)
            bars = np.where(counts > 0, rho_k0 - rho_0k, np.nan)
            bars = (bars - np.nanmean(bars))[order]
            runs = [run for run in record['runs'] if run['name'] == 'ce']
            offsets = np.array([run['fitted']['offsets'] for run in runs])
            offsets -= offsets.mean(axis=1, keepdims=True)
            places = np.arange(len(order))
            axes.bar(places, bars, color='#cccccc', label='Algorithm 1')
            y, yerr = offsets.mean(0)[order], offsets.std(0, ddof=1)[order]
            axes.errorbar(places, y, yerr, fmt='o', label='fitted')
            classes = [record['common']['classes'][k] for k in order]
            axes.set_xticks(places, classes, rotation=90, fontsize=8)
            if np.nanmax(abs(bars)) > 10:
                axes.set_yscale('symlog', linthresh=10, linscale=2)
            axes.set(title=data, ylabel='offset less its mean')
            axes.legend()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('schedule', help='600, 2400, finetune or scratch')
    parser.add_argument('data', nargs='+', help='names of the data sets')
    parser.add_argument('--draw', type=Path, help='folder for the pictures')
    args = parser.parse_args()
    frame = frame_of(args.schedule, args.data)
    for metric in ('mIoU', 'mIoU_tail', 'fitted mIoU'):
        if metric in frame:
            gains = frame['gain'] if metric == 'fitted mIoU' else None
            print_table(metric, metric_table(frame[metric], gains))
    if args.draw:
        draw_summary(frame, args.draw / 'summary.png')
        draw_offsets(args.schedule, args.data, args.draw / 'offsets.png')
