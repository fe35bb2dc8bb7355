#!/usr/bin/env python3
"""Lists integration tests without importing them: one line `file|Class|method|timeout|locks` per test method. A class with
TOGETHER = True has one line with an empty method: its methods run in one process, because each would import torch anew.

Reads the syntax tree only, so configuring needs no component a test needs. A class counts when one of its bases is named
*TestCase or *Case; methods and the attributes TIMEOUT, SERIAL and TOGETHER are inherited within the file. The limit printed is
PATIENCE times TIMEOUT.
"""

import ast
import pathlib
import sys

sys.dont_write_bytecode = True
from harness import PATIENCE  # noqa: E402


def base_names(node):
    return [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]


def literal(node, name):
    for item in node.body:
        if isinstance(item, ast.Assign) and any(getattr(t, "id", None) == name for t in item.targets):
            return ast.literal_eval(item.value)
    return None


def lineage(node, classes):
    """The class and its bases within the file, nearest first."""
    found = [node]
    for name in base_names(node):
        if name in classes:
            found += lineage(classes[name], classes)
    return found


def tests_of(path):
    classes = {n.name: n for n in ast.parse(path.read_text(), str(path)).body if isinstance(n, ast.ClassDef)}
    for node in classes.values():
        line = lineage(node, classes)
        bases = {name for c in line for name in base_names(c)} - set(classes)
        if node.name.startswith("_") or not any(b.endswith("Case") for b in bases):
            continue
        timeout = next((v for v in (literal(c, "TIMEOUT") for c in line) if v is not None), 120)
        serial = next((v for v in (literal(c, "SERIAL") for c in line) if v is not None), ())
        locks = [serial] if isinstance(serial, str) else list(serial)
        methods = sorted({m.name for c in line for m in c.body
                          if isinstance(m, ast.FunctionDef) and m.name.startswith("test_")})
        if methods and next((v for v in (literal(c, "TOGETHER") for c in line) if v is not None), False):
            methods = [""]
        for method in methods:
            yield f"{path.stem}|{node.name}|{method}|{timeout * PATIENCE}|{','.join(locks)}"


def main():
    for name in sys.argv[1:]:
        for line in tests_of(pathlib.Path(name)):
            print(line)


if __name__ == "__main__":
    main()
