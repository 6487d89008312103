"""Several comparisons at once: which objective does best over all of them."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scipy.stats import rankdata

from mmseg_margin.errors import SettingError
from mmseg_margin.report import PairedDifference, mean_difference

from .results import BASELINE, Comparison, load_comparison

ByLabel = dict[str, float]


@dataclass(frozen=True)
class Summary:
    """Comparisons by their labels, ``DATA`` or ``SCHEDULE/DATA``."""

    comparisons: dict[str, Comparison]

    @cached_property
    def names(self) -> list[str]:
        """All objectives with a result, the best average rank first."""
        ranks = self._ranks
        names = {n for each in ranks.values() for n in each}
        return sorted(names, key=lambda name: (self.rank(name), name))

    @property
    def schedules(self) -> dict[str, list[str]]:
        """The labels of each schedule, if the labels name any."""
        groups: dict[str, list[str]] = {}
        for label in self.comparisons:
            groups.setdefault(label.rpartition('/')[0], []).append(label)
        return groups

    def means(self, name: str, metric: str = 'mIoU') -> ByLabel:
        """Mean over the seeds, in every comparison that has any."""
        return {
            label: means[name]
            for label, comparison in self.comparisons.items()
            if name in (means := comparison.means(metric))
        }

    def rank(self, name: str) -> float:
        """Average place by mean mIoU, where the objective was run."""
        return statistics.fmean(
            ranks[name] for ranks in self._ranks.values() if name in ranks
        )

    def differences(self, name: str, metric: str = 'mIoU') -> ByLabel:
        """Mean difference to the baseline over the seeds that both have."""
        return {
            label: paired.mean
            for label, comparison in self.comparisons.items()
            if (paired := comparison.difference(name, metric))
        }

    def difference(
        self, name: str, metric: str = 'mIoU'
    ) -> PairedDifference | None:
        """Their mean, with an interval over the comparisons."""
        return mean_difference([*self.differences(name, metric).values()])

    def cost(self, name: str) -> ByLabel:
        """Time of an iteration as a multiple of the baseline's."""
        found = {}
        for label, comparison in self.comparisons.items():
            mine, baseline = (
                comparison.seconds(each) for each in (name, BASELINE)
            )
            if mine and baseline:
                found[label] = mine / baseline
        return found

    @cached_property
    def _ranks(self) -> dict[str, dict[str, float]]:
        ranks = {}
        for label, comparison in self.comparisons.items():
            means = comparison.means()
            places = rankdata([-mean for mean in means.values()])
            ranks[label] = dict(zip(means, places.tolist(), strict=True))
        return ranks


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
