"""The mathematics: torch and numpy only, no MMSegmentation needed."""

from .backend import choose_backend
from .jaccard import error_histograms, jaccard_weights
from .labels import check_label_values
from .loss import margin_calibration_loss, pixel_calibration_loss
from .margins import (
    ABSENT_CLASS_POLICIES,
    MarginOffsets,
    generalisation_gap,
    large_offset_warning,
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
from .settings import FORMS, LossSettings, OffsetSettings
from .upsampled import (
    StageResult,
    upsampled_margin_loss,
    upsampled_stage,
)

__all__ = [
    'ABSENT_CLASS_POLICIES',
    'FORMS',
    'LossSettings',
    'MarginOffsets',
    'OffsetSettings',
    'StageResult',
    'calibrated_log_loss',
    'check_label_values',
    'choose_backend',
    'error_histograms',
    'generalisation_gap',
    'iou_lower_bound',
    'jaccard_weights',
    'large_offset_warning',
    'margin_calibration_loss',
    'margin_offsets',
    'margin_ratios',
    'optimal_rho_0k',
    'pixel_calibration_loss',
    'pixel_margins',
    'reference_loss',
    'rho_margin_loss',
    'tau_of_largest_offset',
    'upsampled_margin_loss',
    'upsampled_stage',
]
