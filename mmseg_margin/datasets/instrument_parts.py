"""The embedded data set of instrument parts."""

from mmengine import fileio
from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS

from mmseg_margin.errors import MissingFileError


@DATASETS.register_module()
class InstrumentPartsDataset(BaseSegDataset):
    """Parts of surgical instruments, drawn by the project's own generator.

    Images lie in ``images/{train,val,test}``, labels of the same name in
    ``labels/{train,val,test}`` below ``data_root``;
    ``tools/make_instrument_parts.py`` writes them.

    Args:
        img_suffix: ``.png``, or ``.jpg`` if it was made with
            ``--format jpg``.

    Example:
        >>> dataset = dict(
        ...     type='InstrumentPartsDataset',
        ...     data_root='data/instrument_parts',
        ...     data_prefix=dict(
        ...         img_path='images/train', seg_map_path='labels/train'))
    """

    METAINFO = dict(
        classes=('background', 'shaft', 'wrist', 'claspers', 'probe'),
        palette=(
            (40, 40, 40),
            (0, 150, 255),
            (255, 200, 0),
            (0, 220, 90),
            (230, 40, 200),
        ),
    )

    def __init__(self, img_suffix: str = '.png', **kwargs) -> None:
        super().__init__(img_suffix=img_suffix, **kwargs)

    def load_data_list(self) -> list[dict]:
        """List the images of the split; none at all is an error."""
        folder = self.data_prefix['img_path']
        found = fileio.exists(folder, backend_args=self.backend_args)
        data_list = super().load_data_list() if found else []
        if not data_list:
            raise MissingFileError(
                f"There is no {self.img_suffix} image in '{folder}': make "
                'the data set with tools/make_instrument_parts.py, or set '
                'data_root and img_suffix to where and what it is.'
            )
        return data_list
