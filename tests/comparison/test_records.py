"""Records on disk, and the table that is made of them."""

import json

import numpy as np
import pytest

from mmseg_margin.comparison.records import (
    read_comparison,
    run_folder,
    save_results,
)
from tests.comparison import invented


def test_what_is_written_is_read_again(tmp_path):
    made = invented.fit(
        invented.comparison_of({'ce': [50, 52], 'margin:tau=2e-5': [53, 55]}),
        gain=1.5,
    )
    invented.write_comparison(tmp_path / 'out', made)
    found = read_comparison(tmp_path / 'out')
    assert [str(run) for run in found.runs] == [str(run) for run in made.runs]
    assert found.frame().equals(made.frame())
    # Small settings are kept as they are.
    save_results(found, tmp_path / 'results.json')
    runs = json.loads((tmp_path / 'results.json').read_text())['runs']
    assert runs[-1]['losses'][0]['tau'] == 2e-5


def test_the_table_has_a_row_for_each_run():
    made = invented.comparison_of({'ce': [50, None], 'margin': [53, 55]})
    made.runs[0].class_iou[4] = None
    frame = made.frame()
    assert frame.loc['ce', 'mIoU'].tolist()[:1] == [50]
    assert np.isnan(frame.loc[('ce', 1), 'mIoU'])
    assert np.isnan(frame.loc[('ce', 0), 'IoU/4'])
    assert frame.loc[('margin', 1), 'IoU/1'] == 60
    assert 'gain' not in frame
    other = invented.comparison_of({'ce': [50, 52]})
    gains = invented.fit(other, gain=2.5).frame()['gain']
    assert gains.tolist() == [2.5, 2.5]


@pytest.mark.parametrize(
    'name', ['n' * 300, '\u00fc' * 150, '..', '.', 'a/b', 'a\\b', '\ud800']
)
def test_any_name_has_a_folder_of_its_own(tmp_path, name):
    folder = run_folder(tmp_path, name, 0)
    assert folder.parents[1] == tmp_path / 'runs'
    assert folder != run_folder(tmp_path, f'{name}2', 0)
    folder.mkdir(parents=True)
