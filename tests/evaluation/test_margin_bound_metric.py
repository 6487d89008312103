"""MarginBoundMetric on samples as a segmentor gives them."""

import numpy as np
import pytest
import torch
from mmengine import dist
from mmengine.logging import MMLogger
from mmseg.evaluation import IoUMetric

from mmseg_margin.evaluation import MarginBoundMetric
from mmseg_margin.evaluation.margin_sums import bound_scores, margin_sums
from mmseg_margin.functional import margin_offsets
from mmseg_margin.stats import ClassStats
from tests.processes import run_ranks

CLASSES = ('road', 'car', 'rider')
COUNTS = [9000, 800, 200]


def make_sample(seed: int, size: int = 12) -> dict:
    """Scores of one image, its labels and some ignored pixels."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, size, size, generator=generator)
    labels = torch.randint(0, 3, (1, size, size), generator=generator)
    scores = scores.scatter_add(0, labels, torch.ones(1, size, size))
    labels[0, :2] = 255
    return {
        'seg_logits': {'data': scores},
        'pred_sem_seg': {'data': scores.argmax(0, keepdim=True)},
        'gt_sem_seg': {'data': labels},
    }


def make_metric(**kwargs) -> MarginBoundMetric:
    metric = MarginBoundMetric(**{'class_counts': COUNTS, **kwargs})
    metric.dataset_meta = {'classes': CLASSES}
    return metric


def expected_scores(seeds, tau: float) -> dict[str, float]:
    """All pixels of all images at once."""
    samples = [make_sample(seed) for seed in seeds]
    scores = [sample['seg_logits']['data'].flatten(1) for sample in samples]
    labels = [sample['gt_sem_seg']['data'].flatten() for sample in samples]
    kept = torch.cat(labels) != 255
    table = bound_scores(
        margin_sums(
            torch.cat(scores, 1)[:, kept].double(),
            torch.cat(labels)[kept],
            *map(torch.tensor, margin_offsets(COUNTS, tau)),
        )
    )
    names = {'mIoU': 'iou', 'mIoU_bound': 'bound', 'inside': 'inside'}
    means = {f'margin/{k}': 100 * table[v].mean() for k, v in names.items()}
    per_class = zip(CLASSES, (100 * table['iou']).round(2), strict=True)
    return means | {f'margin/IoU/{name}': iou for name, iou in per_class}


def test_images_one_by_one_give_the_scores_of_all_pixels():
    """Also a second time, and the IoU is upstream's."""
    metric, upstream = make_metric(tau=50.0), IoUMetric()
    upstream.dataset_meta = {'classes': CLASSES}
    for _ in range(2):
        for seed in range(4):
            metric.process({}, [make_sample(seed)])
        found = metric.evaluate(4)
        expected = expected_scores(range(4), 50.0)
        assert found == pytest.approx(expected, rel=1e-6)
    assert found['margin/mIoU_bound'] < found['margin/mIoU']
    assert 0 < found['margin/inside'] < 100
    upstream.process({}, [make_sample(seed) for seed in range(4)])
    mean = pytest.approx(upstream.evaluate(4)['mIoU'], abs=0.006)
    assert found['margin/mIoU'] == mean


def test_memory_does_not_grow_with_the_number_of_images():
    metric = make_metric()
    for seed in range(200):
        metric.process({}, [make_sample(seed)])
        assert not metric.results
        kept = [v for v in vars(metric).values() if torch.is_tensor(v)]
        assert sum(tensor.numel() for tensor in kept) <= 2 * 6 * len(CLASSES)


@pytest.mark.parametrize(
    ('settings', 'tau'), [({}, '10'), ({'largest_offset': 0.5}, '1.01015')]
)
def test_the_table_names_the_offsets_in_use(caplog, settings, tau):
    logger = MMLogger.get_current_instance()
    metric = make_metric(**settings)
    metric.process({}, [make_sample(0)])
    with caplog.at_level('INFO', logger.name):
        logger.addHandler(caplog.handler)
        metric.evaluate(1)
        logger.removeHandler(caplog.handler)
    assert f'offsets with tau={tau} and upsilon=1:\n+--' in caplog.text


def test_eps_is_given_only_where_it_is_defined():
    for complexity, defined in ((None, False), (0.5, True), (0.9, False)):
        metric = make_metric(complexity=complexity)
        metric.process({}, [make_sample(0)])
        assert ('margin/eps' in metric.evaluate(1)) == defined


def test_counts_from_a_class_stats_file(tmp_path):
    path = tmp_path / 'stats.json'
    ClassStats(list(CLASSES), COUNTS, [3, 2, 1], COUNTS).to_json(path)
    metric = make_metric(class_counts=str(path))
    np.testing.assert_array_equal(metric.class_counts, COUNTS)


@pytest.mark.parametrize(
    ('kwargs', 'change', 'message'),
    [
        ({'class_counts': None}, {}, 'has no class counts'),
        ({'class_counts': [1, 2]}, {}, '2 entries, but the data set has 3'),
        ({'class_counts': [1, 2, 0]}, {}, 'rider'),
        ({}, {'seg_logits': {'data': torch.rand(1, 12, 12)}}, 'got 1'),
        ({'ignore_index': 254}, {}, 'Label 255 is neither'),
    ],
)
def test_unusable_input_is_explained(kwargs, change, message):
    metric = make_metric(**kwargs)
    with pytest.raises(ValueError, match=message):
        metric.process({}, [{**make_sample(0), **change}])


def evaluate_on_rank(size: int) -> dict[str, float]:
    rank, world_size = dist.get_dist_info()
    metric = make_metric(tau=50.0)
    # As DefaultSampler: repeated from the start to fill the last round.
    for i in range(-(-size // world_size)):
        metric.process({}, [make_sample((i * world_size + rank) % size)])
    return metric.evaluate(size)


@pytest.mark.parametrize('size', [4, 5])
def test_ranks_together_count_every_image_once(tmp_path, size):
    expected = pytest.approx(expected_scores(range(size), 50.0), rel=1e-6)
    found = run_ranks(3, evaluate_on_rank, tmp_path / 'ranks', size)
    assert found == [expected] * 3
