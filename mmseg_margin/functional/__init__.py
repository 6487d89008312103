"""The mathematics: torch and numpy only, no MMSegmentation needed."""

from .jaccard import (
    jaccard_loss,
    upsampled_jaccard_loss,
)
from .margin import margin_loss, upsampled_margin_loss
from .margins import (
    MarginOffsets,
    generalisation_gap,
    margin_offsets,
    margin_ratios,
    optimal_rho_0k,
    tau_of_largest_offset,
)
from .reference import (
    calibrated_log_loss,
    iou_lower_bound,
    pixel_margins,
    reference_loss,
    rho_margin_loss,
)
from .settings import MarginSettings, OffsetSettings

__all__ = [
    'MarginOffsets',
    'MarginSettings',
    'OffsetSettings',
    'calibrated_log_loss',
    'generalisation_gap',
    'iou_lower_bound',
    'jaccard_loss',
    'margin_loss',
    'margin_offsets',
    'margin_ratios',
    'optimal_rho_0k',
    'pixel_margins',
    'reference_loss',
    'rho_margin_loss',
    'tau_of_largest_offset',
    'upsampled_jaccard_loss',
    'upsampled_margin_loss',
]
