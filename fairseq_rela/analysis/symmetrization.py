"""One set of links from those of both directions (Koehn et al. 2005; Och and Ney 2003)."""

from typing import Callable, Dict, Set, Tuple

from fairseq_rela.analysis.links import Links

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def intersect(forward: Links, backward: Links) -> Links:
    """The links that both directions propose."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """The links that either direction proposes."""
    return forward | backward


def grow_diag(forward: Links, backward: Links) -> Links:
    """The intersection, extended by links of the union that touch it (also diagonally) and whose source or target word
    has no link yet, until no more can be added. Points are visited in the order of source, then target."""
    return frozenset(_grown(forward, backward))


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """`grow_diag`, then those links of the forward, then of the backward direction that join two unlinked words."""
    links = _grown(forward, backward)
    for direction in (forward, backward):
        sources, targets = {s for s, _ in links}, {t for _, t in links}
        for source, target in sorted(direction):
            if source not in sources and target not in targets:
                links.add((source, target))
                sources.add(source)
                targets.add(target)
    return frozenset(links)


def _grown(forward: Links, backward: Links) -> Set[Tuple[int, int]]:
    either = forward | backward
    links = set(forward & backward)
    sources, targets = {s for s, _ in links}, {t for _, t in links}
    added = True
    while added:
        added = False
        # Koehn's pseudo-code scans the whole grid, but only points of the union can be linked.
        for source, target in sorted(either):
            if (source, target) not in links:
                continue
            for down, right in _NEIGHBOURS:
                point = (source + down, target + right)
                if point in either and point not in links and (point[0] not in sources or point[1] not in targets):
                    links.add(point)
                    sources.add(point[0])
                    targets.add(point[1])
                    added = True
    return links


METHODS: Dict[str, Callable[[Links, Links], Links]] = {
    "intersect": intersect,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}
