# The 20,000 coarsely labelled images; validation stays on the fine ones.
_base_ = './cityscapes_800x800.py'
train_dataloader = dict(
    dataset=dict(
        data_prefix=dict(
            img_path='leftImg8bit/train_extra',
            seg_map_path='gtCoarse/train_extra',
        ),
        seg_map_suffix='_gtCoarse_labelTrainIds.png',
    )
)
