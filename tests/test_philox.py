import inspect

import numpy as np
import pytest

from specref.philox import Domain, philox4x32, uniform

# Known-answer vectors of Random123 for philox4x32-10.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text):
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN, ids=["zero", "ones", "pi"])
def test_the_generator_gives_the_published_words(counter, key, expected):
    assert philox4x32(words(counter), words(key)) == words(expected)


def test_a_draw_is_the_top_53_bits_of_the_first_two_words():
    seed, start, node = 0x299F31D0A4093822, 0x85A308D3243F6A88, 0x13198A2E
    high, low, _, _ = philox4x32((*words("243f6a88 85a308d3 13198a2e"), 1), words(KNOWN[2][1]))
    u = uniform(seed, start, node, Domain.COIN)
    assert u * 2**53 == (high << 32 | low) >> 11


def test_every_draw_is_an_exact_multiple_of_two_to_the_minus_53_below_one():
    draws = [uniform(1, 2, node, Domain.DRAFT) for node in range(500)]
    assert all(0 <= u < 1 for u in draws)
    assert {u.denominator for u in draws} <= {2**bits for bits in range(54)}
    assert max(u.denominator for u in draws) == 2**53


def test_a_draw_can_be_computed_alone_and_again():
    assert uniform(9, 4, 2, Domain.COIN) == uniform(9, 4, 2, Domain.COIN)


def test_distinct_addresses_give_distinct_draws():
    addresses = [
        (seed, start, node, domain)
        for seed in (0, 1, 1 << 32, (1 << 64) - 1)
        for start in (0, 1, 2, 1 << 32, (1 << 64) - 1)
        for node in (0, 1, 2, (1 << 32) - 1)
        for domain in Domain
    ]
    assert len({uniform(*address) for address in addresses}) == len(addresses) == 240


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.uint64])
def test_array_integers_name_the_same_draw_as_python_ones(kind):
    assert uniform(kind(7), kind(3), kind(2), Domain.COIN) == uniform(7, 3, 2, Domain.COIN)


@pytest.mark.parametrize(("name", "bits"), [("seed", 64), ("start", 64), ("node", 32)])
@pytest.mark.parametrize("end", ["below", "above"])
def test_an_address_outside_its_range_is_named(name, bits, end):
    value = -1 if end == "below" else 1 << bits
    address = {"seed": 0, "start": 0, "node": 0, "domain": Domain.COIN} | {name: value}
    with pytest.raises(ValueError, match=rf"{name} = {value} is outside 0 <= {name} < 2\^{bits}"):
        uniform(**address)
    uniform(**(address | {name: max(0, value - 1)}))


@pytest.mark.parametrize("name", ["seed", "start", "node"])
def test_an_address_is_an_integer(name):
    assert name in inspect.signature(uniform).parameters
    address = {"seed": 0, "start": 0, "node": 0, "domain": Domain.COIN} | {name: 1.0}
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        uniform(**address)
