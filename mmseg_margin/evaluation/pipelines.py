"""Reading and changing the data sets and pipelines of a config."""

from collections.abc import Sequence

from mmengine.config import ConfigDict


def plain_datasets(dataset: ConfigDict) -> list[ConfigDict]:
    """Configs of the data sets inside wrappers, each once."""
    if 'datasets' in dataset:
        return [
            inner
            for part in dataset.datasets
            for inner in plain_datasets(part)
        ]
    return (
        plain_datasets(dataset.dataset) if 'dataset' in dataset else [dataset]
    )


def registered_name(step: dict) -> str:
    """Name of a config's ``type``, which is a string or a class."""
    kind = step['type']
    name = kind if isinstance(kind, str) else kind.__name__
    return name.rpartition('.')[2]


def loads_annotations(step: dict) -> bool:
    """Whether a transform reads the label file."""
    name = registered_name(step)
    return name.startswith('Load') and 'Annotation' in name


def without_annotations(pipeline: Sequence[dict]) -> list[dict]:
    """The pipeline, plain or with nested views, for images without labels."""
    steps = []
    for step in pipeline:
        if loads_annotations(step):
            continue
        if registered_name(step) == 'TestTimeAug':
            views = map(without_annotations, step['transforms'])
            # An empty list would leave TestTimeAug without any view.
            step = dict(step, transforms=[view for view in views if view])
        steps.append(step)
    return steps
