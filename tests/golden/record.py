"""Logs of measured launches in, golden dispatch tables out: tests/golden/dispatch_<mode>_<backend>.json.

    python tests/golden/record.py results/smoke/logs

The engine prints its real dispatcher's answers into each launch's log, in a line that begins with DISPATCH.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(folder: Path) -> None:
    for log in sorted(folder.glob("*.log")):
        line = next((line for line in log.read_text().splitlines() if line.startswith("DISPATCH ")), None)
        if line is None:
            print(f"{log.name}: no DISPATCH line: the engine did not start", file=sys.stderr)
            continue
        table = json.loads(line.removeprefix("DISPATCH "))
        version = table["backend"]["flash_attn_version"]
        backend = table["backend"]["name"].lower() + (f"_{version}" if version else "")
        # An eager start asks for NONE, as its configuration does, and is kept under its own name.
        target = HERE / f"dispatch_{table['requested_mode'].lower()}_{backend}.json"
        head = {name: value for name, value in table.items() if name != "dispatch"}
        rows = {kind: json.dumps(rows) for kind, rows in table["dispatch"].items()}
        text = json.dumps(head, indent=1)[:-2]
        text += ',\n "dispatch": {\n' + ",\n".join(f'  "{kind}": {row}' for kind, row in rows.items()) + "\n }\n}\n"
        target.write_text(text)
        print(target.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
