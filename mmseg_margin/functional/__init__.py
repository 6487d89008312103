"""The mathematics: torch and numpy only, no MMSegmentation needed."""

from .backend import StageResult, choose_backend
from .jaccard import (
    JaccardObjective,
    count_errors,
    jaccard_loss,
    jaccard_weights,
    upsampled_jaccard_loss,
)
from .margin import MarginObjective, margin_loss, upsampled_margin_loss
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
from .settings import MarginSettings, OffsetSettings
from .softmax import CrossEntropy
from .stage import check_label_values, run_stage

__all__ = [
    'ABSENT_CLASS_POLICIES',
    'CrossEntropy',
    'JaccardObjective',
    'MarginObjective',
    'MarginOffsets',
    'MarginSettings',
    'OffsetSettings',
    'StageResult',
    'calibrated_log_loss',
    'check_label_values',
    'choose_backend',
    'count_errors',
    'generalisation_gap',
    'iou_lower_bound',
    'jaccard_loss',
    'jaccard_weights',
    'large_offset_warning',
    'margin_loss',
    'margin_offsets',
    'margin_ratios',
    'optimal_rho_0k',
    'pixel_margins',
    'reference_loss',
    'rho_margin_loss',
    'run_stage',
    'tau_of_largest_offset',
    'upsampled_jaccard_loss',
    'upsampled_margin_loss',
]
