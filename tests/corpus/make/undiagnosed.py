"""Takes the launcher's own diagnosis out of a run directory: the logs must not hold the answer."""

import json
import pathlib


def without(value):
    if isinstance(value, dict):
        return {k: without(v) for k, v in value.items() if k != "diagnosis"}
    return [without(v) for v in value] if isinstance(value, list) else value


def is_one(line):
    """Whether a line of events.jsonl is the event that carries the diagnosis."""
    return "diagnosis" in json.loads(line).values()


def clean(folder):
    for path in pathlib.Path(folder).rglob("*.json*"):
        if path.name not in ("report.json", "events.jsonl") or '"diagnosis"' not in path.read_text():
            continue
        if path.suffix == ".json":
            report = without(json.loads(path.read_text()))
            if report.get("outcome") == "failed":  # its advice was the diagnosis' too
                report["do"] = "its last lines say why; the whole log is in the file named above"
            path.write_text(json.dumps(report, indent=2) + "\n")
        else:
            path.write_text("".join(json.dumps(without(json.loads(line)), separators=(",", ":")) + "\n" for line in path.read_text().splitlines() if line.strip() and not is_one(line)))
