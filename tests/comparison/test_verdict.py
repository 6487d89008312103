"""The sentence on top is plain about wins, losses and what is unknown."""

import pytest

from mmseg_margin.comparison.report import verdict
from tests.comparison.invented import comparison_of

NAN = float('nan')
# The mIoU of seeds 0, 1, ... of each objective, and what is said about them.
SAID = {
    'margin wins for certain': (
        {'ce': [60, 61, 62], 'margin': [64, 65.2, 66.1], 'lovasz': [62, 64]},
        'margin has the highest mean mIoU (65.10), 2.10 above lovasz (63.00);',
        '[+3.85, +4.35] over 3 seeds',
        'so margin is better than ce here.',
    ),
    'margin wins perhaps': (
        {'ce': [60, 61, 62], 'margin': [60, 63, 61.5]},
        'margin has the highest',
        'which covers 0, so neither is shown to be better',
    ),
    'margin loses to ce': (
        {'margin': [58, 59.1], 'ce': [60, 61]},
        'ce has the highest mean mIoU (60.50), 1.95 above margin (58.55);',
        'of margin to ce is [\u22122.59, \u22121.31]',
        'so margin is worse than ce here.',
    ),
    'margin is named even when far behind': (
        {'ce': [60], 'focal': [62], 'lovasz': [63], 'margin': [50]},
        'lovasz has the highest mean mIoU (63.00)',
        '; margin is number 4 of 4 (50.00);',
        'margin to ce is \u221210.00 with a single seed',
        'no interval and may be chance',
    ),
    'the best of several margin objectives is compared': (
        {'margin': [60], 'margin:tau=20': [64], 'ce': [61]},
        'difference of margin:tau=20 to ce is +3.00',
    ),
    'without margin the best is compared': (
        {'ce': [60, 60], 'focal': [59, 59.5]},
        'paired difference of focal to ce',
    ),
    'nothing to pair with': (
        {'margin': [61], 'lovasz': [60], 'ce': [None, 60]},
        'no seed has been run with both margin and ce',
    ),
    'no baseline': (
        {'margin': [61], 'lovasz': [60]},
        'no seed has been run with both margin and ce',
    ),
    'a single objective wins nothing': (
        {'margin': [61]},
        'margin has a mean mIoU of 61.00; no other objective has a result',
    ),
    'no result at all': (
        {'margin': [None], 'ce': [None]},
        'No run has finished yet',
    ),
    'nan is no result': (
        {'margin': [NAN], 'ce': [60]},
        'ce has a mean mIoU of 60.00; no other',
    ),
}


@pytest.mark.parametrize('case', SAID)
def test_what_is_said(case):
    miou, *fragments = SAID[case]
    text = verdict(comparison_of(miou))
    for fragment in fragments:
        assert fragment in text
    assert text.startswith(fragments[0]) or len(fragments) == 1
