"""Runs in files and folders, and arrays of their figures."""

import pytest

from mmseg_margin.comparison.runs import (
    load_results,
    mean_over_seeds,
    run_folder,
    save_runs,
)
from mmseg_margin.errors import SettingError
from mmseg_margin.report.numbers import mean_difference
from tests.comparison import invented

MIOU = {
    'short/a': {'ce': (50, 52), 'lovasz': (53, 55), 'margin': (56, 56)},
    'short/b': {'ce': (60, 60), 'lovasz': (63, 61), 'margin': (59, 61)},
    'long/a': {'ce': (54, None), 'lovasz': (54, 56)},
}


def test_a_file_holds_the_same_runs_as_the_folder(tmp_path):
    made = invented.fit(invented.comparison_of(MIOU['short/a']))
    invented.write_comparison(tmp_path, made)
    save_runs(made.runs, tmp_path / 'results.json')
    from_folder = load_results({'': tmp_path})
    from_file = load_results({'': tmp_path / 'results.json'})
    for run, folder, file in zip(
        made.runs, from_folder.runs, from_file.runs, strict=True
    ):
        assert str(run) == str(folder) == str(file)
        assert run.losses == folder.losses == file.losses
        assert run.figures == folder.figures == pytest.approx(file.figures)


def test_ranks_differences_and_what_is_missing(tmp_path):
    for label, miou in MIOU.items():
        invented.write_comparison(
            tmp_path / label, invented.comparison_of(miou)
        )
    results = load_results({label: tmp_path / label for label in MIOU})
    assert results.names == ['ce', 'lovasz', 'margin']
    # lovasz: second, first, first; ce and margin draw in short/b.
    ranks = [(3 + 2.5 + 2) / 3, (2 + 1 + 1) / 3, (1 + 2.5) / 2]
    assert results.ranks() == pytest.approx(ranks)
    # In the last only the seed that both have.
    means = mean_over_seeds(results.differences())[1]
    assert means.tolist() == [3, 2, 0]
    difference = mean_difference(means)
    assert difference.mean == pytest.approx(5 / 3)
    # Deviation 1.5275, t of two degrees 4.303.
    assert difference.high == pytest.approx(5 / 3 + 4.303 * 0.88192, abs=1e-3)
    assert results.missing() == {'long/a': 'ce (seed 1), margin'}
    assert results.schedules == {'short': [0, 1], 'long': [2]}


@pytest.mark.parametrize('text', ['{', '[]', '{"name": "ce"}', '\x00'])
def test_a_damaged_record_is_named(tmp_path, text):
    invented.write_comparison(
        tmp_path, invented.make_results([invented.make_run('ce')])
    )
    path = run_folder(tmp_path, 'ce', 0) / 'record.json'
    path.write_text(text)
    with pytest.raises(SettingError, match=r'record\.json is damaged.*remove'):
        load_results({'': tmp_path})


@pytest.mark.parametrize(
    'name', ['n' * 300, '\u00fc' * 150, '..', '.', 'a/b', 'a\\b', '\ud800']
)
def test_any_name_has_a_folder_of_its_own(tmp_path, name):
    folder = run_folder(tmp_path, name, 0)
    assert folder.parents[1] == tmp_path / 'runs'
    assert folder != run_folder(tmp_path, f'{name}2', 0)
    folder.mkdir(parents=True)
