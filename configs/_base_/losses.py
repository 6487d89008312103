# The losses of the recipes. Two bases may not share the key `model`, so the
# recipe itself puts them into its heads.
custom_imports = dict(imports=['mmseg_margin'], allow_failed_imports=False)
# The second gives the counts to the metrics of the head, middle and tail.
custom_hooks = [dict(type='ClassStatsHook'), dict(type='TrainingCountsHook')]
margin = dict(_delete_=True, type='MarginCalibrationLoss', loss_weight=1.0)
margin_auxiliary = dict(margin, loss_weight=0.4)
jaccard = dict(_delete_=True, type='JaccardLoss', loss_weight=1.0)
jaccard_auxiliary = dict(jaccard, loss_weight=0.4)
