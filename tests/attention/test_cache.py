from itertools import combinations, product

import pytest
import torch

from glasshead.attention.cache import Cache, FixedCache, GrowingCache, MemoryCache
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.position import RotaryPositions, alibi_slopes
from glasshead.errors import ConfigError, ShapeError

from .covering import covering


def caches() -> list[Cache]:
    return [GrowingCache(), FixedCache(23)]


SETTINGS = {
    "kind": [0, 1],
    "pieces": [(1,) * 13, (5, 1, 7), (13,), (2, 11)],
    "kv_heads": [1, 2, 4],
    "position": ["none", "rotary", "alibi"],
    "window": [None, 3],
}


def test_the_settings_tried_have_every_pair_of_values_together() -> None:
    tried = covering(*SETTINGS.values())
    for (i, some), (j, others) in combinations(enumerate(SETTINGS.values()), 2):
        assert {(row[i], row[j]) for row in tried} == set(product(some, others))


@pytest.mark.parametrize(tuple(SETTINGS), covering(*SETTINGS.values()))
def test_a_text_in_pieces_equals_the_text_at_once(kind, pieces, kv_heads, position, window) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(40, 4, n_kv_heads=kv_heads, qk_norm=True).double().eval()
    rotary = RotaryPositions(10)
    slopes = alibi_slopes(4).double() if position == "alibi" else None
    mask = Mask(causal=True, window=window)
    x = torch.randn(3, 13, 40, dtype=torch.float64)

    def run(x, start, cache):
        places = torch.arange(start, start + x.shape[1])
        rotation = rotary.rotation(places) if position == "rotary" else None
        return attention(x, mask=mask, rotation=rotation, slopes=slopes, cache=cache).out

    whole = run(x, 0, None)
    cache, start, outs = caches()[kind], 0, []
    for n in pieces:
        outs.append(run(x[:, start : start + n], start, cache))
        start += n
        assert cache.length == start
    # Rotation is computed in float32, whatever the input.
    torch.testing.assert_close(torch.cat(outs, 1), whole, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", [0, 1])
def test_reordering_makes_each_sequence_the_one_it_came_from(kind) -> None:
    cache = caches()[kind]
    k = torch.arange(3.0).view(3, 1, 1, 1).expand(3, 2, 5, 7)
    cache.append(k, -k)
    cache.reorder(torch.tensor([2, 2, 0]))
    k_all, v_all = cache.append(k[:, :, :1] + 10, k[:, :, :1])
    assert k_all[:, 0, 0, 0].tolist() == [2, 2, 0]
    assert v_all[:, 0, 0, 0].tolist() == [-2, -2, 0]
    assert k_all[:, 0, 5, 0].tolist() == [10, 11, 12]


def test_a_growing_cache_copies_seldom() -> None:
    cache, addresses = GrowingCache(), set()
    for _ in range(257):
        k, _ = cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        addresses.add(k.data_ptr())
    assert k.shape[2] == 257
    assert len(addresses) <= 10


def test_a_full_cache_says_how_full() -> None:
    cache = FixedCache(7)
    cache.append(torch.zeros(1, 1, 5, 2), torch.zeros(1, 1, 5, 2))
    with pytest.raises(ShapeError, match=r"max_len=7.*5 \+ 3"):
        cache.append(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    assert cache.length == 5
    with pytest.raises(ConfigError, match=r"max_len \(0\)"):
        FixedCache(0)


def test_a_cache_belongs_to_its_batch() -> None:
    cache = GrowingCache()
    cache.append(torch.zeros(2, 1, 5, 3), torch.zeros(2, 1, 5, 3))
    with pytest.raises(ShapeError, match="2 sequences, but 3"):
        cache.append(torch.zeros(3, 1, 1, 3), torch.zeros(3, 1, 1, 3))


def test_memory_is_projected_once_and_reused() -> None:
    attention = MultiHeadAttention(12, 3, qk_norm=True)
    x, memory, cache = torch.randn(2, 5, 12), torch.randn(2, 7, 12), MemoryCache()
    first = attention(x, memory, cache=cache).out
    k = cache.k
    second = attention(x, torch.full_like(memory, 99.0), cache=cache).out
    assert cache.k is k
    assert torch.equal(first, second)
    assert torch.equal(first, attention(x, memory).out)
    cache.reorder(torch.tensor([1, 0]))
    swapped = attention(x.flip(0), memory, cache=cache).out
    assert torch.equal(swapped, first.flip(0))
