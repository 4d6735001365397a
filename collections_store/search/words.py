"""Words: the characters of a word, and equal words.

Every database and Python find the same words, by the same tables. The tables are the tables of SQLite's tokenizer
`unicode61` (`remove_diacritics 2`, marks belong to words), equal in SQLite 3.40 and 3.51, with more separators: the emoji,
and the punctuation and symbols of Unicode 14. So SQLite needs no function of the library, and any program can write.

1. A separator ends a word: spaces, punctuation, symbols, controls. Any other character belongs to a word.
2. A capital becomes the small letter, and a Latin letter loses the diacritics. Characters become single characters: "ß"
   does not become "ss".
3. Then the marks over Latin letters are removed: "e" and U+0301 are "e". A word of such marks alone is empty. No query
   finds an empty word, but the word separates the words of a phrase.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

WORDS_VERSION: Final = 1
"""The version of these rules. An index has the version of its rules."""
MAX_WORD: Final = 100
"""Characters of a word in a query. Longer words of documents match by a prefix."""
BOUNDARY: Final = "\ufdd0"
"""A word between the strings of an array, so that no phrase spans two strings: a noncharacter of Unicode."""


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order.

    >>> words_of("Crème brûlée, 3.5 € - don't!")
    ['creme', 'brulee', '3', '5', 'don', 't']
    """
    words = text.translate(_table()).split()
    if not text.isascii() and any(map(text.__contains__, marks())):
        return [word.translate(_without_marks()) for word in words]
    return words


def spans_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text, each with its first position in the text and the position behind it."""
    end = 0
    single = text.translate(_table())
    for word, folded_word in zip(single.split(), words_of(text), strict=True):
        begin = single.index(word, end)
        end = begin + len(word)
        yield folded_word, begin, end


def separators() -> Iterator[tuple[int, int]]:
    """Yield the ranges of separators, from the first to the last character of each."""
    return _ranges(_SEPARATORS)


def more_separators() -> str:
    """Return the separators that `unicode61` takes for parts of words, the last first, because SQLite inserts them faster."""
    ranges = _ranges(_MORE_SEPARATORS)
    return "".join(chr(code) for low, high in ranges for code in range(low, high + 1))[::-1]


@cache
def marks() -> str:
    """Return the marks that are removed."""
    return "".join(chr(code) for low, high in _ranges(_MARKS) for code in range(low, high + 1))


@cache
def folded() -> Mapping[str, str]:
    """Return the characters that are replaced."""
    return dict(_pairs())


@cache
def _table() -> Mapping[int, str]:
    table = {ord(each): other for each, other in folded().items()}
    table.update((code, " ") for low, high in separators() for code in range(low, high + 1))
    table.update((code, " ") for code in (0, *range(0xD800, 0xE000)))  # no database stores these
    return table


@cache
def _without_marks() -> Mapping[int, None]:
    return {ord(each): None for each in marks()}


def _ranges(listed: str) -> Iterator[tuple[int, int]]:
    for each in listed.split():
        low, _, high = each.partition("-")
        yield int(low, 16), int(high or low, 16)


def _pairs() -> Iterator[tuple[str, str]]:
    """Yield pairs of `_FOLDED`: first+count*step>first*step, or first>first."""
    for each in _FOLDED.split():
        left, right = (part.split("*") for part in each.split(">"))
        first, _, count = left[0].partition("+")
        steps = [int(step, 10) for step in (*left[1:], *right[1:])] or [0, 0]
        for number in range(int(count or 1)):
            yield (
                chr(int(first, 16) + number * steps[0]),
                chr(int(right[0], 16) + number * steps[1]),
            )


_SEPARATORS: Final = """
1-2f 3a-40 5b-60 7b-a9 ab-b1 b4 b6-b8 bb bf d7 f7 2c2-2c5 2d2-2df 2e5-2eb 2ed 2ef-2ff 375 37e
384-385 387 3f6 482 55a-55f 589-58a 58d-58f 5be 5c0 5c3 5c6 5f3-5f4 600-60f 61b-61f 66a-66d 6d4
6dd-6de 6e9 6fd-6fe 700-70d 70f 7f6-7f9 7fe-7ff 830-83e 85e 888 890-891 8e2 964-965 970 9f2-9f3
9fa-9fb 9fd a76 af0-af1 b70 bf3-bfa c77 c7f c84 d4f d79 df4 e3f e4f e5a-e5b f01-f17 f1a-f1f f34 f36
f38 f3a-f3d f85 fbe-fc5 fc7-fcc fce-fda 104a-104f 109e-109f 10fb 1360-1368 1390-1399 1400 166d-166e
1680 169b-169c 16eb-16ed 1735-1736 17d4-17d6 17d8-17db 1800-180a 180e 1940 1944-1945 19de-19ff
1a1e-1a1f 1aa0-1aa6 1aa8-1aad 1b5a-1b6a 1b74-1b7e 1bfc-1bff 1c3b-1c3f 1c7e-1c7f 1cc0-1cc7 1cd3 1fbd
1fbf-1fc1 1fcd-1fcf 1fdd-1fdf 1fed-1fef 1ffd-1ffe 2000-206f 2072-2073 207a-207e 208a-208f 209d-20cf
20f1-2101 2103-2106 2108-2109 2114 2116-2118 211e-2123 2125 2127 2129 212e 213a-213b 2140-2144
214a-214d 214f 218a-245f 249c-24e9 2500-2775 2794-2bff 2ce5-2cea 2cf9-2cfc 2cfe-2cff 2d70 2e00-2e2e
2e30-2e5d 2e80-2e99 2e9b-2ef3 2f00-2fd5 2ff0-2ffb 3000-3004 3008-3020 3030 3036-3037 303d-303f
309b-309c 30a0 30fb 3190-3191 3196-319f 31c0-31e3 3200-321e 322a-3247 3250 3260-327f 328a-32b0
32c0-33ff 4dc0-4dff a490-a4c6 a4fe-a4ff a60d-a60f a673 a67e a6f2-a6f7 a700-a716 a720-a721 a789-a78a
a828-a82b a836-a839 a874-a877 a8ce-a8cf a8f8-a8fa a8fc a92e-a92f a95f a9c1-a9cd a9de-a9df aa5c-aa5f
aa77-aa79 aade-aadf aaf0-aaf1 ab5b ab6a-ab6b abeb e000 f8ff fb29 fbb2-fbc2 fd3e-fd4f fdcf fdfc-fe19
fe30-fe52 fe54-fe66 fe68-fe6b feff ff01-ff0f ff1a-ff20 ff3b-ff40 ff5b-ff65 ffe0-ffe6 ffe8-ffee
fff9-ffff 10100-10102 10137-1013f 10179-10189 1018c-1018e 10190-1019c 101a0 101d0-101fc 1039f 103d0
1056f 10857 10877-10878 1091f 1093f 10a50-10a58 10a7f 10ac8 10af0-10af6 10b39-10b3f 10b99-10b9c
10ead 10f55-10f59 10f86-10f89 11047-1104d 110bb-110c1 110cd 11140-11143 11174-11175 111c5-111c8
111cd 111db 111dd-111df 11238-1123d 112a9 1144b-1144f 1145a-1145b 1145d 114c6 115c1-115d7
11641-11643 11660-1166c 116b9 1173c-1173f 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c
11a9e-11aa2 11c41-11c45 11c70-11c71 11ef7-11ef8 11fd5-11ff1 11fff 12470-12474 12ff1-12ff2
13430-13438 16a6e-16a6f 16af5 16b37-16b3f 16b44-16b45 16e97-16e9a 16fe2 1bc9c 1bc9f-1bca3
1cf50-1cfc3 1d000-1d0f5 1d100-1d126 1d129-1d164 1d16a-1d16c 1d173-1d17a 1d183-1d184 1d18c-1d1a9
1d1ae-1d1ea 1d200-1d241 1d245 1d300-1d356 1d6c1 1d6db 1d6fb 1d715 1d735 1d74f 1d76f 1d789 1d7a9
1d7c3 1d800-1d9ff 1da37-1da3a 1da6d-1da74 1da76-1da83 1da85-1da8b 1e14f 1e2ff 1e95e-1e95f 1ecac
1ecb0 1ed2e 1eef0-1eef1 1f000-1fbff e0000-e01ff f0000 ffffd
"""
_MORE_SEPARATORS: Final = """
58d-58e 605 61c-61d 7fe-7ff 888 890-891 8e2 9fd a76 c77 c84 d4f 1b7d-1b7e 2065-2069 2072-2073 208f
209d-209f 20ba-20cf 20f1-20ff 218a-218f 23f4-23ff 2427-243f 244b-245f 2700 2b4d-2b4f 2b5a-2bff
2e3c-2e5d 32ff a8fc ab5b ab6a-ab6b fbc2 fd40-fd4f fdcf fdfe-fe0f 1018c-1018e 1019c 101a0 1056f
10877-10878 10ac8 10af0-10af6 10b99-10b9c 10ead 10f55-10f59 10f86-10f89 110cd 11174-11175 111cd
111db 111dd-111df 11238-1123d 112a9 1144b-1144f 1145a-1145b 1145d 114c6 115c1-115d7 11641-11643
11660-1166c 116b9 1173c-1173f 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2
11c41-11c45 11c70-11c71 11ef7-11ef8 11fd5-11ff1 11fff 12474 12ff1-12ff2 13430-13438 16a6e-16a6f
16af5 16b37-16b3f 16b44-16b45 16e97-16e9a 16fe2 1bc9c 1bc9f-1bca3 1cf50-1cfc3 1d1de-1d1ea
1d800-1d9ff 1da37-1da3a 1da6d-1da74 1da76-1da83 1da85-1da8b 1e14f 1e2ff 1e95e-1e95f 1ecac 1ecb0
1ed2e 1f02c-1f02f 1f094-1f09f 1f0af-1f0b0 1f0bf-1f0c0 1f0d0 1f0e0-1f10f 1f12f 1f16c-1f16f
1f19b-1f1e5 1f203-1f20f 1f23b-1f23f 1f249-1f24f 1f252-1f2ff 1f321-1f32f 1f336 1f37d-1f37f
1f394-1f39f 1f3c5 1f3cb-1f3df 1f3f1-1f3ff 1f43f 1f441 1f4f8 1f4fd-1f4ff 1f53e-1f53f 1f544-1f54f
1f568-1f5fa 1f641-1f644 1f650-1f67f 1f6c6-1f6ff 1f774-1fbff e0000 e0002-e001f e0080-e01ff
"""
_MARKS: Final = "300-304 306-30c 30f 311 31b 323-328 32d-32e 330-331"
_FOLDED: Final = """
41+26*1>61*1 b5>3bc c0+6*1>61*0 c6>e6 c7+2*1>63*2 c9+3*1>65*0 cc+4*1>69*0 d0>f0 d1+2*1>6e*1
d3+4*1>6f*0 d8>f8 d9+4*1>75*0 dd>79 de>fe e0+6*1>61*0 e7+2*1>63*2 e9+3*1>65*0 ec+4*1>69*0
f1+2*1>6e*1 f3+4*1>6f*0 f9+4*1>75*0 fd+2*2>79*0 100+6*1>61*0 106+8*1>63*0 10e+2*1>64*0 110>111
112+10*1>65*0 11c+8*1>67*0 124+2*1>68*0 126>127 128+9*1>69*0 132>133 134+2*1>6a*0 136+2*1>6b*0
139+6*1>6c*0 13f+2*2>140*2 143+6*1>6e*0 14a>14b 14c+6*1>6f*0 152>153 154+6*1>72*0 15a+8*1>73*0
162+4*1>74*0 166>167 168+12*1>75*0 174+2*1>77*0 176+3*1>79*0 179+6*1>7a*0 17f>73 181>253
182+2*2>183*2 186>254 187>188 189+2*1>256*1 18b>18c 18e>1dd 18f+2*1>259*2 191>192 193>260 194>263
196>269 197>268 198>199 19c>26f 19d>272 19f>275 1a0+2*1>6f*0 1a2+2*2>1a3*2 1a6>280 1a7>1a8 1a9>283
1ac>1ad 1ae>288 1af+2*1>75*0 1b1+2*1>28a*1 1b3+2*2>1b4*2 1b7>292 1b8>1b9 1bc>1bd 1c4+2*1>1c6*0
1c7+2*1>1c9*0 1ca+2*1>1cc*0 1cd+2*1>61*0 1cf+2*1>69*0 1d1+2*1>6f*0 1d3+10*1>75*0 1de+2*1>61*0
1e0+3*2>1e1*2 1e6+2*1>67*0 1e8+2*1>6b*0 1ea+4*1>6f*0 1ee>1ef 1f0>6a 1f1+2*1>1f3*0 1f4+2*1>67*0
1f6>195 1f7>1bf 1f8+2*1>6e*0 1fa+2*1>61*0 1fc+2*2>1fd*2 200+4*1>61*0 204+4*1>65*0 208+4*1>69*0
20c+4*1>6f*0 210+4*1>72*0 214+4*1>75*0 218+2*1>73*0 21a+2*1>74*0 21c>21d 21e+2*1>68*0 220>19e
222+2*2>223*2 226+2*1>61*0 228+2*1>65*0 22a+8*1>6f*0 232+2*1>79*0 23a>2c65 23b>23c 23d>19a 23e>2c66
241>242 243>180 244>289 245>28c 246+5*2>247*2 345>3b9 370+2*2>371*2 376>377 386+2*2>3ac*1
389+2*1>3ae*1 38c+2*2>3cc*1 38f>3ce 391+17*1>3b1*1 3a3+9*1>3c3*1 3c2>3c3 3cf>3d7 3d0>3b2 3d1>3b8
3d5>3c6 3d6>3c0 3d8+12*2>3d9*2 3f0>3ba 3f1>3c1 3f4>3b8 3f5>3b5 3f7>3f8 3f9>3f2 3fa>3fb
3fd+3*1>37b*1 400+16*1>450*1 410+32*1>430*1 460+17*2>461*2 48a+27*2>48b*2 4c0>4cf 4c1+7*2>4c2*2
4d0+44*2>4d1*2 531+38*1>561*1 10a0+38*1>2d00*1 10c7>2d27 10cd>2d2d 1e00+2*1>61*0 1e02+6*1>62*0
1e08+2*1>63*0 1e0a+10*1>64*0 1e14+10*1>65*0 1e1e+2*1>66*0 1e20+2*1>67*0 1e22+10*1>68*0
1e2c+4*1>69*0 1e30+6*1>6b*0 1e36+8*1>6c*0 1e3e+6*1>6d*0 1e44+8*1>6e*0 1e4c+8*1>6f*0 1e54+4*1>70*0
1e58+8*1>72*0 1e60+10*1>73*0 1e6a+8*1>74*0 1e72+10*1>75*0 1e7c+4*1>76*0 1e80+10*1>77*0
1e8a+4*1>78*0 1e8e+2*1>79*0 1e90+6*1>7a*0 1e96>68 1e97>74 1e98+2*1>77*2 1e9b>73 1e9e>df
1ea0+24*1>61*0 1eb8+16*1>65*0 1ec8+4*1>69*0 1ecc+24*1>6f*0 1ee4+14*1>75*0 1ef2+8*1>79*0
1efa+3*2>1efb*2 1f08+8*1>1f00*1 1f18+6*1>1f10*1 1f28+8*1>1f20*1 1f38+8*1>1f30*1 1f48+6*1>1f40*1
1f59+4*2>1f51*2 1f68+8*1>1f60*1 1f88+8*1>1f80*1 1f98+8*1>1f90*1 1fa8+8*1>1fa0*1 1fb8+2*1>1fb0*1
1fba+2*1>1f70*1 1fbc>1fb3 1fbe>3b9 1fc8+4*1>1f72*1 1fcc>1fc3 1fd8+2*1>1fd0*1 1fda+2*1>1f76*1
1fe8+2*1>1fe0*1 1fea+2*1>1f7a*1 1fec>1fe5 1ff8+2*1>1f78*1 1ffa+2*1>1f7c*1 1ffc>1ff3 2126>3c9
212a>6b 212b>61 2132>214e 2160+16*1>2170*1 2183>2184 2c00+47*1>2c30*1 2c60>2c61 2c62>26b 2c63>1d7d
2c64>27d 2c67+3*2>2c68*2 2c6d>251 2c6e>271 2c6f+2*1>250*2 2c72>2c73 2c75>2c76 2c7e+2*1>23f*1
2c80+50*2>2c81*2 2ceb+2*2>2cec*2 2cf2>2cf3 a640+23*2>a641*2 a680+12*2>a681*2 a722+7*2>a723*2
a732+31*2>a733*2 a779+2*2>a77a*2 a77d>1d79 a77e+5*2>a77f*2 a78b>a78c a78d>265 a790+2*2>a791*2
a7a0+5*2>a7a1*2 a7aa>266 ff21+26*1>ff41*1 10400+40*1>10428*1
"""
