"""Class weights against their definitions."""

import statistics

import numpy as np
import pytest

from mmseg_margin.stats import WEIGHT_METHODS, ClassStats, class_weights

COUNTS = [700, 200, 90, 10]


@pytest.mark.parametrize(
    ('method', 'power'),
    [('inverse', 1.0), ('sqrt', 0.5), (0.15, 0.15), (1, 1.0)],
)
def test_a_power_of_the_inverse_with_an_average_of_one(method, power):
    weights = np.array(class_weights(COUNTS, method))
    ratios = weights * np.array(COUNTS) ** power
    assert ratios == pytest.approx([ratios[0]] * len(COUNTS))
    assert sum(weights * COUNTS) == pytest.approx(sum(COUNTS))


def test_median_frequency_within_the_images_that_show_a_class():
    images = [{'a': 60, 'b': 40}, {'a': 10}, {'b': 5, 'c': 95}]
    counts = [70, 45, 95]
    image_pixels = [110, 200, 100]
    share = {
        name: sum(image.get(name, 0) for image in images)
        / sum(sum(image.values()) for image in images if name in image)
        for name in 'abc'
    }
    median = statistics.median(share.values())
    stats = ClassStats(list('abc'), counts, [2, 2, 1], image_pixels)
    weights = stats.class_weights('median')
    assert weights == pytest.approx([median / share[n] for n in 'abc'])
    in_all = class_weights(COUNTS, 'median')
    assert in_all == pytest.approx([145 / n for n in COUNTS])


def test_effective_number_of_samples():
    beta = 1 - len(COUNTS) / sum(COUNTS)
    inverse = [(1 - beta) / (1 - beta**n) for n in COUNTS]
    expected = [len(COUNTS) * x / sum(inverse) for x in inverse]
    assert class_weights(COUNTS, 'effective') == pytest.approx(expected)
    many = class_weights([n * 10**9 for n in COUNTS], 'effective')
    assert many == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize('method', WEIGHT_METHODS)
def test_absent_class_gets_one_and_changes_no_other_weight(method):
    with_absent = class_weights([0, *COUNTS], method, [0] + [1000] * 4)
    assert with_absent[0] == 1
    assert with_absent[1:] == class_weights(COUNTS, method, [1000] * 4)
    assert class_weights([1], method) == [1.0]


@pytest.mark.parametrize('method', ['log', -0.5, 2])
def test_unknown_method_of_weights(method):
    with pytest.raises(ValueError, match='method'):
        class_weights(COUNTS, method)
