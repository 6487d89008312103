"""Sentences with names that come from users and data sets."""

from mmseg_margin.errors import did_you_mean, drawable, printable


def test_names_are_printed_without_control_characters():
    for usual in ('Straßenbahn (电车) <1>', ''):
        assert printable(usual) == usual
    for hostile in ('a\x1b[2J', 'b\n| fake', '\ud800', '\u202ered'):
        assert printable(hostile).isprintable()
        printable(hostile).encode('utf-8')
    assert drawable('$1') == r'\$1'


def test_typos():
    assert did_you_mean('miou', ['mIoU', 'mDice']) == ' Did you mean mIoU?'
    assert did_you_mean('nothing', ['mIoU']) == ''
