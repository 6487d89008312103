"""How far the training is that a loss is part of."""

from mmengine.logging import MessageHub


def training_progress() -> float:
    """From 0 to 1, as mmengine's Runner tells it; 0 where there is none."""
    told = MessageHub.get_current_instance().runtime_info
    iterations = told.get('max_iters', 0)
    return min(told.get('iter', 0) / iterations, 1.0) if iterations else 0.0
