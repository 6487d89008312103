"""What most tests of a loss need."""

import pytest
import torch


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (2, 3, 6, 8), and labels of which some are ignored."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 6, 8, generator=generator)
    labels = torch.randint(0, 3, (2, 6, 8), generator=generator)
    labels[:, 0] = 255
    return scores, labels
