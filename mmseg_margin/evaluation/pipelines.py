"""Reading and changing the pipelines of a config."""

from collections.abc import Sequence

from mmseg_margin.walks import registered_name


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
