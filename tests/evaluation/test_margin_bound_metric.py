"""MarginBoundMetric against a transcription of the paper, pixel by pixel."""

import numpy as np
import pytest
import torch
from mmengine import dist
from mmseg.evaluation import IoUMetric

from mmseg_margin.evaluation import MarginBoundMetric
from mmseg_margin.evaluation.margin_bound_metric import (
    Row,
    bound_scores,
    margin_sums,
)
from mmseg_margin.functional import margin_offsets
from mmseg_margin.stats import ClassStats
from tests.processes import run_ranks

CLASSES = ('road', 'car', 'rider')
COUNTS = [9000, 800, 200]


def phi(margin: float, rho: float) -> float:
    """The rho-margin loss of Eq. 9."""
    return min(1.0, max(0.0, 1.0 - margin / rho))


def reference(scores, labels, rho_0k, rho_k0) -> dict[str, list[float]]:
    """IoU and its bound from the definitions, with Python loops only."""
    num_classes, num_pixels = scores.shape
    table = {'iou': [], 'bound': [], 'inside': []}
    for k in range(num_classes):
        missed = claimed = loss_k0 = loss_0k = of_class = inside = 0.0
        for i in range(num_pixels):
            others = [scores[j, i] for j in range(num_classes) if j != k]
            margin = scores[k, i] - max(others)
            if labels[i] == k:
                of_class += 1
                missed += margin < 0
                loss_k0 += phi(margin, rho_k0[k])
                inside += 0 < margin < rho_k0[k]
            else:
                claimed += margin > 0
                loss_0k += phi(-margin, rho_0k[k])
                inside += 0 < -margin < rho_0k[k]
        table['iou'].append((of_class - missed) / (of_class + claimed))
        table['bound'].append((of_class - loss_k0) / (of_class + loss_0k))
        table['inside'].append(inside / num_pixels)
    return table


@pytest.mark.parametrize('seed', range(5))
def test_scores_equal_the_paper(seed):
    """Of scores that favour the label, cut through by the offsets."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, 300)
    scores = rng.normal(size=(5, 300))
    scores[labels, np.arange(300)] += 1.5
    image = scores, labels, *rng.uniform(0.2, 3.0, (2, 5))
    found = bound_scores(margin_sums(*map(torch.tensor, image)))
    for name, expected in reference(*image).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-12)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('tau', [1e-3, 10.0, 1e4])
def test_the_bound_never_exceeds_the_iou(dtype, tau):
    rng = np.random.default_rng(0)
    for num_classes in (2, 7, 19):
        counts = rng.integers(1, 10**6, num_classes)
        offsets = margin_offsets(counts, tau, upsilon=10)
        scores = torch.randn(num_classes, 4000).to(dtype)
        labels = torch.randint(0, num_classes, (4000,))
        rho_0k, rho_k0 = (torch.tensor(rho).to(dtype) for rho in offsets)
        table = bound_scores(margin_sums(scores, labels, rho_0k, rho_k0))
        assert (table['bound'] <= table['iou']).all()


def test_a_tie_counts_against_every_class_involved():
    scores = torch.tensor([[2.0], [2.0], [0.0]])
    sums = margin_sums(scores, torch.tensor([0]), *torch.full((2, 3), 0.5))
    assert sums[Row.LOSS_K0].tolist() == [1, 0, 0]
    assert sums[Row.LOSS_0K].tolist() == [0, 1, 0]


def test_offsets_far_below_half_precision_are_not_lost():
    scores = torch.tensor([[1.0, 1.0], [1.0 - 1e-6, 0.0]])
    rho = torch.full((2,), 5.69e-11)
    sums = margin_sums(scores, torch.tensor([0, 0]), rho, rho)
    assert sums[Row.LOSS_K0].sum() == 0


def test_a_zero_offset_is_the_zero_one_loss():
    scores = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    sums = margin_sums(scores, torch.tensor([0, 0, 0]), *torch.zeros(2, 2))
    assert sums[Row.LOSS_K0].tolist() == [2, 0]
    assert sums[Row.LOSS_0K].tolist() == [0, 2]
    assert sums[Row.INSIDE].tolist() == [0, 0]


def test_a_class_without_any_pixel_has_neither_iou_nor_bound():
    scores = torch.tensor([[1.0], [0.0], [0.9]])
    offsets = torch.full((2, 3), 0.5)
    table = bound_scores(margin_sums(scores, torch.tensor([0]), *offsets))
    assert np.isnan(table['iou'][1:]).all()
    assert np.isnan(table['bound'][1:]).all()


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
    labels = torch.cat([x['gt_sem_seg']['data'].flatten() for x in samples])
    kept = labels != 255
    pixels = torch.cat(scores, 1)[:, kept].double().numpy()
    offsets = margin_offsets(COUNTS, tau)
    table = reference(pixels, labels[kept].numpy(), *offsets)
    names = {'mIoU': 'iou', 'mIoU_bound': 'bound', 'inside': 'inside'}
    means = {f'margin/{k}': 100 * np.mean(table[v]) for k, v in names.items()}
    per_class = zip(CLASSES, table['iou'], strict=True)
    rounded = {f'margin/IoU/{k}': round(100 * v, 2) for k, v in per_class}
    return means | rounded


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
def test_the_table_names_the_offsets_in_use(logged, settings, tau):
    metric = make_metric(**settings)
    metric.process({}, [make_sample(0)])
    metric.evaluate(1)
    assert f'offsets with tau={tau} and upsilon=1:\n+--' in logged.text


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
