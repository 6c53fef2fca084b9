"""Claims: what holds, what does not, and what was not measured."""

from pathlib import Path

import pytest

from artifact.analysis.claims import check, read_claims
from artifact.cli import main
from artifact.errors import InputError

DATA = Path(__file__).parents[1] / "paper_figures" / "data"


def claims_file(folder: Path, **changes: object) -> Path:
    import yaml

    claim = {
        "id": "one",
        "statement": "s",
        "study": "smoke",
        "left": {"table": "launches", "where": {"arm": "FULL"}, "column": "graphs_full", "reduce": "min"},
        "is": "equal",
        "right": 51,
        "figure": None,
    }
    file = folder / "claims.yaml"
    file.write_text(yaml.safe_dump({"claims": [claim | changes]}))
    return file


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "PASS"),
        ({"right": 50}, "FAIL"),
        ({"right": 50, "tolerance": 0.03}, "PASS"),
        ({"is": "greater"}, "FAIL"),
        ({"is": "at_least"}, "PASS"),
        ({"is": "less", "right": 26, "factor": 2}, "PASS"),
        ({"study": "unknown"}, "NOT MEASURED"),
        (
            {"left": {"table": "launches", "where": {"arm": "X"}, "column": "graphs_full", "reduce": "min"}},
            "NOT MEASURED",
        ),
    ],
)
def test_verdicts(changes, verdict, tmp_path) -> None:
    [checked] = check(read_claims(claims_file(tmp_path, **changes)), DATA)
    assert checked.verdict == verdict
    assert (checked.left is None) == (verdict == "NOT MEASURED")
    assert bool(checked.reason) == (verdict == "NOT MEASURED")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"is": "nearly"}, "claim one: is_"),
        ({"surprise": 1}, "surprise"),
        ({"left": {"table": "launches", "where": {}, "column": "graphs", "reduce": "min"}}, "no column graphs"),
    ],
)
def test_a_claim_that_cannot_be_checked_is_one_line(changes, says, tmp_path) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check(read_claims(claims_file(tmp_path, **changes)), DATA)
    assert "\n" not in str(caught.value)


def test_shipped_claims_end_as_expected(capsys) -> None:
    assert main(["claims"]) == 0
    out = capsys.readouterr().out
    for claim in read_claims():
        assert claim.id in out


def test_an_unexpected_verdict_is_exit_1(monkeypatch, capsys) -> None:
    claims = read_claims()
    turned = [claim.model_copy(update={"expected": "FAIL"}) for claim in claims[:1]]
    monkeypatch.setattr("artifact.analysis.claims.read_claims", lambda: turned)
    assert main(["claims", "--json"]) == 1
    assert '"verdict": "PASS"' in capsys.readouterr().out


def test_every_figure_of_a_claim_exists() -> None:
    from artifact.plots import FIGURES

    assert {claim.figure for claim in read_claims()} - {None} <= set(FIGURES)
