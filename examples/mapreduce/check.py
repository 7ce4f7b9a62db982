#!/usr/bin/env python3
"""Counts the words of the book once more, by other means, and compares.

    examples/mapreduce/check.py [FOLDER]

FOLDER holds what reduce wrote, or some of it; without one it is `expected`. Every figure of summary.json, table.txt and
words.tsv that is there must agree exactly. Exit status: 0 they agree, 1 they do not, 2 there is nothing to compare.
"""

import collections
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
BOOK = HERE / "data" / "moby-dick.txt"
# Letters (what Python takes as part of a word, but no digits and no underscore), single apostrophes between them.
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
COMMONEST, LONGEST = 25, 10


def count(text):
    """The words of the text with their counts, the commonest first, equal ones by the alphabet."""
    counts = collections.Counter(word.replace("’", "'") for word in WORD.findall(text.lower()))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def expected_files(data):
    """What the files must hold, as far as it is about numbers."""
    ranked = count(data.decode("utf-8"))
    total = sum(n for _, n in ranked)
    once = sum(1 for _, n in ranked if n == 1)

    def letters(word):
        return len(word.replace("'", ""))

    longest = sorted(ranked, key=lambda pair: -letters(pair[0]))[:LONGEST]  # stable: the commoner before the rarer
    summary = {
        "book_bytes": len(data),
        "total_words": total,
        "distinct_words": len(ranked),
        "once": once,
        "commonest": [{"word": word, "count": n} for word, n in ranked[:COMMONEST]],
        "longest": [{"word": word, "letters": letters(word), "count": n} for word, n in longest],
    }
    words = [f"{rank}\t{word}\t{n}" for rank, (word, n) in enumerate(ranked, 1)]
    table = [f"Moby-Dick: {total:,} words, {len(ranked):,} different, {once:,} of them once", ""]
    table += ["rank     count  per 1000  word"]
    for rank, (word, n) in enumerate(ranked[:COMMONEST], 1):
        table.append(f"{rank:4}  {n:8,}  {1000 * n / total:8.2f}  {word}")
    return {
        "summary.json": (json.loads, summary),
        "words.tsv": (str.splitlines, ["rank\tword\tcount"] + words),
        "table.txt": (str.splitlines, table),
    }


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "expected"
    compared = different = 0
    for name, (parse, wanted) in expected_files(BOOK.read_bytes()).items():
        path = folder / name
        if not path.is_file():
            continue
        compared += 1
        try:
            same = parse(path.read_text(encoding="utf-8")) == wanted
        except ValueError:  # neither JSON nor UTF-8
            same = False
        different += not same
        print(f"{'same     ' if same else 'DIFFERENT'} {path}", file=sys.stdout if same else sys.stderr)
    if compared == 0:
        print(f"check.py: no summary.json, words.tsv or table.txt in {folder}", file=sys.stderr)
        return 2
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
