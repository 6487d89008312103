# What a recipe needs to be trained with margin calibration. Two bases may not
# share the key `model`, so the recipe itself puts the losses into its heads.
custom_imports = dict(imports=['mmseg_margin'], allow_failed_imports=False)
# The second gives the counts to the metrics of the head, middle and tail.
custom_hooks = [dict(type='ClassStatsHook'), dict(type='TrainingCountsHook')]
margin = dict(
    _delete_=True,
    type='MarginCalibrationLoss',
    preset='recommended',
    loss_weight=1.0,
)
margin_auxiliary = dict(margin, loss_weight=0.4)
margin_paper = dict(margin, preset='paper')
