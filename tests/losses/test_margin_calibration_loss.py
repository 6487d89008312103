"""MarginCalibrationLoss as a decode head, a sampler and a trainer use it."""

import math

import numpy as np
import pytest
import torch
from mmengine.logging import MMLogger

from mmseg_margin import ClassStats, MarginCalibrationLoss
from mmseg_margin.errors import SettingError
from mmseg_margin.functional import (
    MarginSettings,
    OffsetSettings,
    margin_offsets,
    reference_loss,
)
from tests.functional.builders import slow_margin_loss
from tests.losses.builders import COUNTS, STATS
from tests.losses.builders import margin as build
from tests.small_training import CLASSES, train, training_config
from tests.stats.builders import write_set


@pytest.mark.parametrize('tau', [1.0, 30.0])
def test_it_is_the_papers_objective(batch, tau):
    offsets = torch.tensor(np.stack(margin_offsets(COUNTS, tau))).float()
    expected = reference_loss(*batch, *offsets)
    torch.testing.assert_close(build(tau=tau)(*batch), expected)


def test_the_authors_code_by_parameters(batch):
    """The label's term times K, natural logarithm, mean over the classes."""
    exact = batch[0].double(), batch[1], *margin_offsets(COUNTS)
    total = slow_margin_loss(*exact, pos_weight=3, log_base=math.e)
    loss = build(preset='authors')(*batch)
    assert float(loss) == pytest.approx(float(total) / 3, rel=1e-6)


def test_presets_and_what_replaces_them():
    paper, authors = build(), build(preset='authors')
    assert paper.settings == MarginSettings(1.0, 2, False)
    assert authors.settings == MarginSettings('num_classes', 'e', True)
    assert paper.offset_settings == authors.offset_settings == OffsetSettings()
    mixed = build(preset='authors', pos_weight=3.0, tau=3.0)
    assert mixed.settings == MarginSettings(3.0, 'e', True)
    assert mixed.offset_settings == OffsetSettings(3.0)


def test_offsets_that_no_score_overcomes_are_reported(caplog):
    """Here for counts given by hand; for a data set by the hook."""
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    build(class_counts=[90_000, 5], largest_offset=0.4)
    assert 'margin-offset' not in caplog.text
    build(class_counts=[90_000, 5])
    assert 'class 1 is 600' in caplog.text
    loss = build(class_counts=[90_000, 0, 9_000])
    logger.removeHandler(caplog.handler)
    assert 'a class without pixels' in caplog.text
    assert loss.rho_0k[1] == 0


@pytest.mark.parametrize(
    ('kwargs', 'word'),
    [
        ({'class_counts': [5, 0], 'absent_class': 'error'}, 'no labelled'),
        ({'tau': 5.0, 'largest_offset': 0.4}, 'leave one out'),
        ({'preset': 'best'}, 'preset='),
    ],
)
def test_bad_settings(kwargs, word):
    with pytest.raises(ValueError, match=word):
        MarginCalibrationLoss(**kwargs)


def test_where_counts_come_from(batch, tmp_path):
    """Those of the config are kept when the hook brings others."""
    with pytest.raises(ValueError, match='ClassStatsHook'):
        build(class_counts=None)(*batch)
    with pytest.raises(ValueError, match='rho_0k has 2 numbers'):
        build(class_counts=[5, 5])(*batch)
    path = tmp_path / 'stats.json'
    STATS.to_json(path)
    other = ClassStats(['a', 'b', 'c'], [1, 1, 1], [1, 1, 1], [3, 3, 3])
    expected = build()(*batch)
    for counts in (COUNTS, str(path), None):
        loss = build(class_counts=counts)
        loss.set_class_stats(other)
        assert torch.allclose(loss(*batch), expected) == (counts is not None)


@pytest.mark.parametrize('hook', [[], [{'type': 'ClassStatsHook'}]])
def test_a_statistics_file_of_other_classes_is_refused(tmp_path, hook):
    """Else the most frequent class gets the offset of the rarest."""
    root, path = write_set(tmp_path / 'data'), tmp_path / 'stats.json'
    for classes in (CLASSES, CLASSES[::-1]):
        ClassStats(list(classes), *[[9, 8, 7, 6]] * 3).to_json(path)
        loss = {'class_counts': str(path)}
        cfg = training_config(root, tmp_path / 'w', 1, loss=loss)
        cfg.custom_hooks = hook
        if classes == CLASSES:
            train(cfg)
            continue
        with pytest.raises(SettingError, match='file of class_counts'):
            train(cfg)
