"""PruningHook: ends a training that does worse than others did."""

import optuna
from mmengine.hooks import Hook
from mmengine.runner import Runner
from optuna.trial import Trial

from mmseg_margin.comparison import CurvesHook


class PruningHook(Hook):
    """Reports the validation mIoU of CurvesHook to a trial.

    It belongs to one trial, so it is no part of a config.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
        if not self.every_n_train_iters(runner, curves.interval):
            return
        iteration, miou = curves.curves['val_mIoU'][-1]
        self.trial.report(miou, iteration)
        if iteration < runner.max_iters and self.trial.should_prune():
            raise optuna.TrialPruned
