"""Several comparisons at once: which objective does best over all of them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mmseg_margin.errors import SettingError
from mmseg_margin.report.numbers import MeanDifference, mean_difference

from .results import Comparison, load_comparison, ratio_to_baseline

ByLabel = dict[str, float]


@dataclass(frozen=True)
class Summary:
    """Comparisons by their labels, ``DATA`` or ``SCHEDULE/DATA``."""

    comparisons: dict[str, Comparison]

    @cached_property
    def names(self) -> list[str]:
        """All objectives with a result, the best average rank first."""
        names = {n for c in self.comparisons.values() for n in c.means()}
        return sorted(names, key=lambda name: (self.rank(name), name))

    @property
    def schedules(self) -> dict[str, list[str]]:
        """The labels of each schedule, if the labels name any."""
        groups: dict[str, list[str]] = {}
        for label in self.comparisons:
            groups.setdefault(label.rpartition('/')[0], []).append(label)
        return groups

    def rank(self, name: str) -> float:
        """Average place by mean mIoU, where the objective was run."""
        ranks = self._by_label(lambda each: each.ranks().get(name))
        return statistics.fmean(ranks.values())

    def means(self, name: str, metric: str = 'mIoU') -> ByLabel:
        """Mean over the seeds, in every comparison that has any."""
        return self._by_label(lambda each: each.means(metric).get(name))

    def differences(self, name: str, metric: str = 'mIoU') -> ByLabel:
        """Mean difference to the baseline over the seeds that both have."""
        return self._by_label(
            lambda each: getattr(each.difference(name, metric), 'mean', None)
        )

    def difference(
        self, name: str, metric: str = 'mIoU'
    ) -> MeanDifference | None:
        """Their mean, with an interval over the comparisons."""
        return mean_difference([*self.differences(name, metric).values()])

    def cost(self, name: str) -> ByLabel:
        """Time of an iteration as a multiple of the baseline's."""
        return self._by_label(
            lambda each: ratio_to_baseline(each.seconds, name)
        )

    def _by_label(
        self, value_of: Callable[[Comparison], float | None]
    ) -> ByLabel:
        """What every comparison has that has it."""
        values = {k: value_of(each) for k, each in self.comparisons.items()}
        return {k: value for k, value in values.items() if value is not None}


def load_summary(places: list[str]) -> Summary:
    """Read comparisons, each given as ``PLACE`` or ``LABEL=PLACE``."""
    comparisons: dict[str, Comparison] = {}
    for text in places:
        label, _, place = text.rpartition('=')
        path = Path(place)
        folder = path.parent if path.is_file() else path
        if folder.name == 'report':
            folder = folder.parent
        label = label or folder.resolve().name
        if label in comparisons:
            raise SettingError(
                f'Two comparisons are called {label!r}: write LABEL={place} '
                'for one of them.'
            )
        comparisons[label] = load_comparison(path)
    return Summary(comparisons)
