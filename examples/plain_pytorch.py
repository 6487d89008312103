"""Train a small network with the Jaccard loss in a plain PyTorch loop.

It needs torch and numpy only: ``pip install mmseg_margin``.
"""

import torch
from torch import Tensor, nn

from mmseg_margin.functional import jaccard_loss

STEPS = 150


def draw_batch(size: int = 8) -> tuple[Tensor, Tensor]:
    """Noisy images of a large (1) and a small (2) disc; 255 at the border."""
    axis = torch.linspace(-1, 1, 48)
    centres = torch.rand(2, size, 2, 1, 1) * 1.2 - 0.6
    y, x = torch.meshgrid(axis, axis, indexing='ij')
    distance = (centres[:, :, 0] - y) ** 2 + (centres[:, :, 1] - x) ** 2
    labels = torch.zeros(size, 48, 48, dtype=torch.long)
    labels[distance[0] < 0.12] = 1
    labels[distance[1] < 0.02] = 2
    images = labels.unsqueeze(1) / 2 + 0.3 * torch.randn(size, 3, 48, 48)
    labels[:, 0] = 255
    return images, labels


def mean_iou(predicted: Tensor, labels: Tensor, num_classes: int) -> float:
    pairs = (labels * num_classes + predicted)[labels != 255]
    areas = pairs.bincount(minlength=num_classes**2).view(num_classes, -1)
    union = areas.sum(0) + areas.sum(1) - areas.diag()
    return float((areas.diag() / union).nanmean())


def main() -> float:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 3, 5, padding=2),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    for step in range(STEPS):
        images, labels = draw_batch()
        # The cross-entropy ramps up with the progress of the training.
        ce_weight = (step / STEPS) ** 2
        loss = jaccard_loss(network(images), labels, ce_weight=ce_weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, labels = draw_batch(32)
    result = mean_iou(network.eval()(images).argmax(1), labels, 3)
    print(f'mIoU on new images: {100 * result:.1f}')
    return result


if __name__ == '__main__':
    main()
