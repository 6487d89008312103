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
TAU = 50.0


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


@pytest.mark.parametrize('scale', [1e-6, 0.1, 1.0, 100.0])
@pytest.mark.parametrize('num_classes', [2, 5, 9])
def test_scores_equal_the_paper(num_classes, scale):
    """And in any precision, the bound never exceeds the IoU."""
    rng = np.random.default_rng(num_classes)
    labels = rng.integers(0, num_classes, 300)
    scores = rng.normal(size=(num_classes, 300))
    scores[labels, np.arange(300)] += 1.5
    image = scores, labels, *scale * rng.uniform(0.2, 3.0, (2, num_classes))
    found = bound_scores(margin_sums(*map(torch.tensor, image)))
    for name, expected in reference(*image).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-12)
    single = (torch.tensor(x) for x in image)
    single = (x if x.dtype == torch.long else x.float() for x in single)
    for table in (found, bound_scores(margin_sums(*single))):
        assert (table['bound'] <= table['iou']).all()


@pytest.mark.parametrize(
    ('scores', 'rho', 'loss_k0', 'loss_0k'),
    [
        # A tie counts against every class involved.
        ([[2.0], [2.0], [0.0]], 0.5, [1, 0, 0], [0, 1, 0]),
        # An offset far below half precision is not lost.
        ([[1.0, 1.0], [1.0 - 1e-6, 0.0]], 5.69e-11, [0, 0], [0, 0]),
        # An offset of zero makes it the zero-one loss.
        ([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]], 0.0, [2, 0], [0, 2]),
    ],
)
def test_losses_of_class_0(scores, rho, loss_k0, loss_0k):
    """No score is inside of the margins."""
    scores = torch.tensor(scores)
    labels = torch.zeros(scores.shape[1], dtype=torch.long)
    sums = margin_sums(scores, labels, *torch.full((2, len(scores)), rho))
    assert sums[Row.LOSS_K0].tolist() == loss_k0
    assert sums[Row.LOSS_0K].tolist() == loss_0k
    assert not sums[Row.INSIDE].any()


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


def make_metric(**settings) -> MarginBoundMetric:
    metric = MarginBoundMetric(**{'class_counts': COUNTS, **settings})
    metric.dataset_meta = {'classes': CLASSES}
    return metric


def evaluate(metric: MarginBoundMetric, seeds=(0,), size: int = 1) -> dict:
    """The scores of these images, of which the first ``size`` count."""
    for seed in seeds:
        metric.process({}, [make_sample(seed)])
        # Memory does not grow with the number of images.
        assert not metric.results
        kept = [v for v in vars(metric).values() if torch.is_tensor(v)]
        assert sum(tensor.numel() for tensor in kept) <= 2 * 6 * len(CLASSES)
    return metric.evaluate(size)


def expected_scores(size: int) -> dict[str, float]:
    """All pixels of all images at once."""
    samples = [make_sample(seed) for seed in range(size)]
    scores = [sample['seg_logits']['data'].flatten(1) for sample in samples]
    labels = torch.cat([x['gt_sem_seg']['data'].flatten() for x in samples])
    kept = labels != 255
    pixels = torch.cat(scores, 1)[:, kept].double().numpy()
    offsets = margin_offsets(COUNTS, TAU)
    table = reference(pixels, labels[kept].numpy(), *offsets)
    names = {'mIoU': 'iou', 'mIoU_bound': 'bound', 'inside': 'inside'}
    means = {f'margin/{k}': 100 * np.mean(table[v]) for k, v in names.items()}
    per_class = zip(CLASSES, table['iou'], strict=True)
    rounded = {f'margin/IoU/{k}': round(100 * v, 2) for k, v in per_class}
    return pytest.approx(means | rounded, rel=1e-6)


def test_images_one_by_one_give_the_scores_of_all_pixels():
    """Also a second time, and the IoU is upstream's."""
    metric = make_metric(tau=TAU)
    for _ in range(2):
        found = evaluate(metric, range(4), 4)
        assert found == expected_scores(4)
    assert found['margin/mIoU_bound'] < found['margin/mIoU']
    assert 0 < found['margin/inside'] < 100
    upstream = IoUMetric()
    upstream.dataset_meta = {'classes': CLASSES}
    upstream.process({}, [make_sample(seed) for seed in range(4)])
    mean = pytest.approx(upstream.evaluate(4)['mIoU'], abs=0.006)
    assert found['margin/mIoU'] == mean


@pytest.mark.parametrize('size', [4, 5])
def test_ranks_together_count_every_image_once(tmp_path, size):
    def evaluate_on_rank():
        rank, world_size = dist.get_dist_info()
        # As DefaultSampler: repeated from the start to fill the last round.
        rounds = range(-(-size // world_size))
        seeds = [(i * world_size + rank) % size for i in rounds]
        return evaluate(make_metric(tau=TAU), seeds, size)

    found = run_ranks(3, evaluate_on_rank, tmp_path / 'ranks')
    assert found == [expected_scores(size)] * 3


def test_the_table_names_the_offsets_and_eps_is_given_where_defined(logged):
    for settings, tau in (({}, '10'), ({'largest_offset': 0.5}, '1.01015')):
        assert 'margin/eps' not in evaluate(make_metric(**settings))
        assert f'with tau={tau} and upsilon=1:\n+--' in logged.text
    for complexity, is_defined in ((0.5, True), (0.9, False)):
        scores = evaluate(make_metric(complexity=complexity))
        assert ('margin/eps' in scores) == is_defined


def test_counts_from_a_class_stats_file(tmp_path):
    path = tmp_path / 'stats.json'
    ClassStats(list(CLASSES), COUNTS, [3, 2, 1], COUNTS).to_json(path)
    metric = make_metric(class_counts=str(path))
    assert evaluate(metric) == evaluate(make_metric())


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
