# Clothing Co-Parsing at half the stored resolution: 59 classes, a long tail.
_base_ = './small_pictures.py'
scale = (138, 206)
crop_size = (144, 112)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].scale = test_pipeline[1].scale = scale
train_pipeline[3].crop_size = crop_size
classes = """
null accessories bag belt blazer blouse bodysuit boots bra bracelet cape
cardigan clogs coat dress earrings flats glasses gloves hair hat heels
hoodie intimate jacket jeans jumper leggings loafers necklace panties pants
pumps purse ring romper sandals scarf shirt shoes shorts skin skirt
sneakers socks stockings suit sunglasses sweater sweatshirt swimwear
t-shirt tie tights top vest wallet watch wedges
""".split()  # noqa: SIM905
dataset = dict(
    data_root='{{$MMSEG_MARGIN_DATA:data}}/clothing',
    metainfo=dict(classes=classes),
)
train_dataloader = dict(dataset=dict(dataset, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(dataset, pipeline=test_pipeline))
test_dataloader = val_dataloader
