"""MarginCalibrationLoss as a decode head, a sampler and a trainer use it."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import MMLogger

from mmseg_margin import ClassStats, MarginCalibrationLoss
from mmseg_margin.functional import (
    LossSettings,
    OffsetSettings,
    margin_offsets,
    reference_loss,
)
from mmseg_margin.losses.presets import PRESETS
from tests.losses.builders import COUNTS, STATS
from tests.losses.builders import margin as build


def offsets(tau=10.0):
    return (
        torch.from_numpy(rho).float() for rho in margin_offsets(COUNTS, tau)
    )


@pytest.mark.parametrize('form', ['paper', 'target'])
@pytest.mark.parametrize('tau', [1.0, 30.0])
def test_it_is_the_papers_objective(batch, form, tau):
    loss = build(form=form, tau=tau)(*batch)
    expected = reference_loss(*batch, *offsets(tau), form=form)
    torch.testing.assert_close(loss, expected)


def test_the_authors_code_by_parameters(batch):
    """The positive term K times, natural logarithm, a mean over K as well."""
    scores, labels = batch
    rho_0k, rho_k0 = margin_offsets(COUNTS)
    total, pixels, K = 0.0, 0, 3
    for n, y, x in np.ndindex(*labels.shape):
        label = int(labels[n, y, x])
        if label == 255:
            continue
        pixels += 1
        s = scores[n, :, y, x].double().tolist()
        for k in range(K):
            margin = s[k] - max(s[:k] + s[k + 1 :])
            if k == label:
                total += K * math.log1p(math.exp(rho_k0[k] - margin))
            else:
                total += math.log1p(math.exp(rho_0k[k] + margin))
    expected = total / (pixels * K)
    loss = build(preset='authors')(*batch)
    assert float(loss) == pytest.approx(expected, rel=1e-6)


WRITTEN_OUT = {
    'paper': dict(
        form='paper',
        log_base=2,
        pos_weight=1.0,
        focus=0.0,
        class_mean=False,
        tau=10.0,
        upsilon=1.0,
        absent_class='error',
        class_weight=None,
    ),
    'authors': dict(pos_weight='num_classes', log_base='e', class_mean=True),
    'recommended': dict(
        form='jaccard',
        log_base='e',
        memory=0.0,
        batch_share=1.0,
        log_share=1.0,
        log_delay=2.0,
        largest_offset=0.0,
        absent_class='zero',
    ),
}


@pytest.mark.parametrize('preset', WRITTEN_OUT)
def test_a_preset_is_its_written_out_settings(batch, preset):
    assert WRITTEN_OUT.keys() == PRESETS.keys()
    named = build(preset=preset)
    written = build(**WRITTEN_OUT[preset])
    assert named.settings == written.settings
    for a, b in zip(named.buffers(), written.buffers(), strict=True):
        assert torch.equal(a, b)
    assert named(*batch) == written(*batch)


def test_whatever_is_given_replaces_the_presets():
    given = dict(memory=0.5, log_share=0, log_delay=0, batch_share=0.0)
    loss = build(preset='recommended', tau=3.0, **given)
    assert loss.settings == LossSettings('jaccard', log_base='e', **given)
    assert loss.offset_settings == OffsetSettings(3.0, absent_class='zero')
    assert build(preset='paper', largest_offset=1.0).rho_0k.max() == 1


def test_the_softmax_form_without_offsets_is_cross_entropy(batch):
    scores, labels = batch
    settings = dict(form='softmax', log_base='e', tau=1e-9)
    each = F.cross_entropy(scores, labels, reduction='none', ignore_index=255)
    labelled = labels != 255
    torch.testing.assert_close(
        build(**settings)(*batch), each[labelled].mean()
    )
    focal = (1 - torch.exp(-each)) ** 2 * each
    torch.testing.assert_close(
        build(**settings, focus=2)(*batch), 4 * focal[labelled].mean()
    )


def test_a_largest_offset_in_place_of_tau():
    loss = build(largest_offset=0.5)
    assert float(loss.rho_0k.max()) == pytest.approx(0.5)
    unit = margin_offsets(COUNTS, tau=1.0).rho_0k.max()
    assert loss.tau == pytest.approx(0.5 / unit)
    # It follows from the counts each time and is not kept as a setting.
    loss.set_class_counts([900, 50, 50])
    assert float(loss.rho_0k.max()) == pytest.approx(0.5)
    assert loss.offset_settings.tau is None


def test_offsets_that_no_score_overcomes_are_reported(caplog):
    small = ClassStats(['sky', 'road'], [90_000, 5], [2, 1], [90_005, 9000])
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    build(class_counts=None, largest_offset=0.4).set_class_stats(small)
    assert 'margin-offset' not in caplog.text
    build(class_counts=None).set_class_stats(small)
    logger.removeHandler(caplog.handler)
    assert 'class 1 (road) is 600' in caplog.text


def test_counts_from_json(batch, tmp_path):
    path = tmp_path / 'stats.json'
    STATS.to_json(path)
    loss = build(class_counts=str(path))
    torch.testing.assert_close(loss(*batch), build()(*batch))


def test_without_statistics_it_names_the_hook(batch):
    with pytest.raises(RuntimeError, match='ClassStatsHook'):
        build(class_counts=None)(*batch)


def test_a_head_of_other_size_is_an_error(batch):
    with pytest.raises(ValueError, match='3 classes but the statistics 2'):
        build(class_counts=[5, 5])(*batch)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        ({'class_counts': [5, 0]}, 'no labelled pixel'),
        ({'tau': 5.0, 'largest_offset': 0.4}, 'leave one out'),
        ({'preset': 'best'}, 'paper, authors, recommended'),
        ({'taus': 5.0}, "no setting 'taus': it has preset, form"),
    ],
)
def test_bad_settings(kwargs, message):
    with pytest.raises(ValueError, match=message):
        MarginCalibrationLoss(**kwargs)


def test_counts_of_the_config_win_over_the_hooks(batch):
    other = ClassStats(['a', 'b', 'c'], [1, 1, 1], [1, 1, 1], [3, 3, 3])
    fixed, open_to_all = build(), build(class_counts=None)
    fixed.set_class_stats(other)
    open_to_all.set_class_stats(other)
    expected = build()(*batch)
    torch.testing.assert_close(fixed(*batch), expected)
    assert not torch.allclose(open_to_all(*batch), expected)
