"""Cross-entropy and focal loss with class weights that come from the data."""

from mmseg.registry import MODELS

from mmseg_margin.functional.settings import require
from mmseg_margin.functional.softmax import CrossEntropy

from .base import ClassWeight, PixelLoss


@MODELS.register_module()
class WeightedCrossEntropyLoss(PixelLoss):
    """Cross-entropy with class weights, given or from the statistics.

    Args:
        class_weight: See :class:`PixelLoss`, as for the rest.

    Example:
        >>> custom_imports = dict(imports=['mmseg_margin'])
        >>> custom_hooks = [dict(type='ClassStatsHook')]
        >>> model = dict(decode_head=dict(loss_decode=dict(
        ...     type='WeightedCrossEntropyLoss', class_weight='inverse')))
    """

    def objective(self) -> CrossEntropy:
        return CrossEntropy()


@MODELS.register_module()
class SoftmaxFocalLoss(PixelLoss):
    """``-(1 - p_y)^gamma log p_y``, averaged over the labelled pixels.

    mmseg's ``FocalLoss`` is a sum of sigmoids, and on the CPU it fails on
    class labels; this is the multi-class form that papers compare with.

    Args:
        gamma: How strongly easy pixels are down-weighted.
        class_weight: See :class:`PixelLoss`, as for the rest.

    Example:
        >>> loss_decode = dict(type='SoftmaxFocalLoss', gamma=2.0)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_focal',
    ) -> None:
        super().__init__(class_weight, reduction, loss_weight, loss_name)
        self.gamma = gamma
        require(self, 'gamma', 'not be negative', lambda x: x >= 0)

    def objective(self) -> CrossEntropy:
        return CrossEntropy(self.gamma)
