"""A report as a LaTeX document, for pdflatex with the packages booktabs, longtable and geometry."""

from collections.abc import Sequence

from db.reports.cells import UNKNOWN, moment
from db.reports.tables import Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    # \textdollar would need companion fonts, which small TeX installations lack.
    "$": r"\char36{}",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_\allowbreak{}",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    '"': "''",
    # Braces keep two in a row from becoming a double quotation mark.
    "'": "{'}",
    "`": "{`}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    UNKNOWN: "--",
    # Braces keep two of them from becoming a dash.
    "-": r"-{}",
    # At the start of a row, [ would be read as an argument of the line break before it.
    "[": "{[}",
    "]": "{]}",
}
# Latin-1 characters that Computer Modern lacks.
_MISSING = frozenset(map(chr, (0xD0, 0xD7, 0xDE, 0xF0, 0xF7, 0xFE)))
_TEXT_WIDTH_CM = 38.0
_PREAMBLE = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[paperwidth=42cm,paperheight=29.7cm,margin=2cm]{geometry}
\usepackage{array}
\usepackage{booktabs}
\usepackage{longtable}
\setlength{\tabcolsep}{5pt}
\setlength{\parindent}{0pt}
\begin{document}
\footnotesize
"""


def to_latex(title: str, made_at: float, tables: Sequence[Table]) -> str:
    """Return the source of a document of tables, without empty ones; ``made_at`` is a Unix time in seconds."""
    body = "\n".join(_table(table) for table in tables if table.rows)
    head = f"\\section*{{{escaped(title)}}}\nMade {moment(made_at)} UTC.\n\n"
    return f"{_PREAMBLE}{head}{body}\\end{{document}}\n"


def escaped(text: str) -> str:
    r"""Return text escaped for LaTeX; characters that its default fonts lack become their code point.

    >>> print(escaped("50% of a_b & é 中"))
    50\% of a\_\allowbreak{}b \& é {[}U+4E2D{]}
    """
    return "".join(_character(character) for character in text)


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "~" or ("À" <= character <= "ÿ" and character not in _MISSING):
        return character
    return f"{{[}}U+{ord(character):04X}{{]}}"


def _table(table: Table) -> str:
    heads = " & ".join(escaped(column.title) for column in table.columns)
    lines = [
        rf"\subsection*{{{escaped(table.title)}}}",
        rf"\begin{{longtable}}{{{''.join(_columns(table))}}}",
        r"\toprule",
        rf"{heads} \\",
        r"\midrule",
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
    ]
    lines += [" & ".join(escaped(cell) for cell in row) + r" \\" for row in table.rows]
    lines += [r"\end{longtable}", *(f"{escaped(note)}\n" for note in table.notes), ""]
    return "\n".join(lines)


def _columns(table: Table) -> list[str]:
    """Return the type of each column, with a width by its longest cell, so that long names wrap."""
    longest = [
        max(
            # Heads wrap only between words.
            max(len(word) for word in column.title.split()) + 1.5,
            min(30, max(len(row[index]) for row in table.rows)),
        )
        for index, column in enumerate(table.columns)
    ]
    # The padding of 15 columns, 5 pt on either side, takes about 5 cm of the line.
    centimetres = (_TEXT_WIDTH_CM - 5.5) / sum(longest)
    return [
        rf">{{\{'raggedleft' if column.is_number else 'raggedright'}\arraybackslash}}p{{{width * centimetres:.2f}cm}}"
        for column, width in zip(table.columns, longest, strict=True)
    ]
