"""The texts that people read before they decide are whole, and have nothing invisible."""

import unicodedata

import pytest

from midturn.record.readable import LONGEST, MOST, readable, readable_call, visible


def test_short_arguments_are_shown_as_they_are():
    assert readable_call("pay", {"iban": "NL12", "amount": 40.0}) == 'pay({"iban":"NL12","amount":40.0})'


def test_a_long_text_is_shortened_with_a_mark_and_no_key_is_lost():
    shown = readable_call("pay", {"memo": "x" * 5_000, "iban": "NL12", "to": {"note": "y" * 300, "name": "Eve"}})
    assert '[5,000 characters]","iban":"NL12"' in shown
    assert '[300 characters]","name":"Eve"' in shown
    assert len(shown) < 3 * LONGEST


def test_a_long_list_is_shortened_with_a_mark():
    for brief in (False, True):
        assert readable([*range(60)], brief=brief).endswith(f'{MOST - 1},"… [10 more of 60 items]"]')


def test_no_key_is_lost_in_a_long_list():
    payments = [{"iban": f"NL{number}"} for number in range(80)]
    assert [f'{{"iban":"NL{number}"}}' in readable(payments) for number in range(80)] == [True] * 80
    mixed = readable([*range(60), {"iban": "EVE"}, [[{"iban": "MALLORY"}]]])
    assert mixed.endswith('{"iban":"EVE"},[[{"iban":"MALLORY"}]],"… [10 more of 62 items]"]')
    assert "NL79" not in readable(payments, brief=True)


@pytest.mark.parametrize(
    "hidden",
    [
        "\u200b",
        "\u2060",
        "\ufeff",
        "\u00ad",
        "\u202e",
        "\u2066",
        "\u200f",
        "\u061c",
        "\U000e0041",
        "\u180e",
        "\u3164",
        "\u2800",
        "\u070f",
        "\U00016fe4",
        "\U0001d159",
    ],
)
def test_what_nobody_sees_is_shown_as_an_escape(hidden):
    code = f"\\U{ord(hidden):08x}" if ord(hidden) > 0xFFFF else f"\\x{ord(hidden):02x}" if ord(hidden) < 256 else None
    escape = code or f"\\u{ord(hidden):04x}"
    assert visible(f"DE{hidden}89") == f"DE{escape}89"
    assert escape in readable({"iban": f"DE{hidden}89"})
    assert escape in readable({f"ib{hidden}an": "DE89"}), "in a key, too"


def test_every_format_character_of_unicode_is_seen_or_escaped():
    seen = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    seen |= set(range(0x13430, 0x13440))  # they join hieroglyphs, and are drawn by themselves
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in ("Cf", "Zl", "Zp") and code not in seen:
            assert visible(f"a{chr(code)}b").isascii(), hex(code)


@pytest.mark.parametrize(
    "text",
    [
        *("👩\u200d🚒", "👩🏽\u200d🚒", "❤\ufe0f", "❤\ufe0f\u200d🔥", "‼\ufe0f", "\u845b\ufe00"),
        *("\u0645\u06cc\u200c\u062e", "\u0915\u094d\u200d\u0937", "a\tb\nc", "naïve ß 日本"),
    ],
)
def test_scripts_and_emoji_are_shown_as_they_are(text):
    assert visible(text) == text


def test_a_joiner_between_ascii_characters_is_shown_as_an_escape():
    assert visible("DE\u200d89") == "DE\\u200d89"


@pytest.mark.parametrize("shown", ["Mu\u0308", "ü", "ß", "λ", "ж", "\u2800", "\u3000", "₿", "٤"])
@pytest.mark.parametrize("joiner", ["\u200c", "\u200d", "\ufe00", "\ufe0f"])
def test_a_joiner_after_a_letter_that_needs_none_is_shown_as_an_escape(shown, joiner):
    assert joiner not in visible(f"{shown}{joiner}x")


@pytest.mark.parametrize("first", ["😀", "葛", "क"])
def test_a_message_of_variation_selectors_is_not_hidden_behind_one_character(first):
    hidden = "\ufe01\ufe0f\ufe02\u200d\ufe00\ufe0e\u200c\u200d\ufe05"
    assert len([each for each in visible(f"{first}{hidden}") if not each.isascii()]) <= 2
