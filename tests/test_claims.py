"""Claims: what holds, what does not, and what was not measured."""

from pathlib import Path

import pytest

from artifact.analysis.claims import check, read_claims
from artifact.cli import main
from artifact.errors import InputError
from tests.step_support import StepStudy

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
        ({"paired_by": "block"}, "paired_by needs rows"),
        ({"left": {"table": "launches", "where": {}, "column": "graphs", "reduce": "min"}}, "no column graphs"),
    ],
)
def test_a_claim_that_cannot_be_checked_is_one_line(changes, says, tmp_path) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check(read_claims(claims_file(tmp_path, **changes)), DATA)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def paired(tmp_path_factory) -> Path:
    """Two blocks on each of two machines; FULL takes half of NONE's step at batch 1, a little more or less at 8.

    To start, each takes what its step takes at 8.
    """
    root = tmp_path_factory.mktemp("paired")
    study = StepStudy(root / "step_latency", "measured")
    for block, pace in enumerate((1.0, 1.3, 2.0, 3.0)):
        at = {"block": str(block % 2), "host": f"h{block // 2}"}
        none = {1: 10 * pace, 8: 10 * pace}
        study.launch("NONE", light=none, heavy={1: 90.0}, captures=0, graph_bytes=0, start_s=none[8], **at)
        full = {1: 5 * pace, 8: 10 * pace * (1.01 if block % 2 else 0.99)}
        study.launch("FULL", light=full, heavy={1: 90.0}, mode="FULL", start_s=full[8], **at)
    study.launch("FULL", "9", light={1: 5.0}, mode="FULL")
    study.frames()
    return root


def of(arm: str, column: str = "start_s") -> dict[str, object]:
    return {"table": "launches", "where": {"arm": arm}, "column": column, "reduce": "max"}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"is": "equal", "tolerance": 0.2}, "PASS"),
        ({"is": "equal", "tolerance": 0.001}, "FAIL"),
        ({"is": "greater", "factor": 0.5}, "PASS"),
        ({"is": "greater", "factor": 1.0}, "FAIL"),  # the interval holds 1
        ({"is": "at_most", "factor": 1.0}, "FAIL"),
        ({"is": "less", "factor": 2.0}, "PASS"),
        ({"left": of("EAGER")}, "NOT MEASURED"),
    ],
)
def test_paired_claims_compare_the_whole_interval(changes, verdict, tmp_path, paired) -> None:
    claim = {"study": "step_latency", "left": of("FULL"), "right": of("NONE"), "paired_by": "block"}
    [checked] = check(read_claims(claims_file(tmp_path, **claim | {"is": "greater"} | changes)), paired)
    assert checked.verdict == verdict
    if verdict == "NOT MEASURED":
        assert checked.interval is None
    else:
        assert checked.interval[0] < checked.left < checked.interval[1]
        assert checked.left == pytest.approx(1.0, abs=0.02)
        assert checked.right == changes.get("factor", 1.0)


def test_blocks_without_a_partner_count_for_nothing(tmp_path, paired) -> None:
    claim = {
        "study": "step_latency",
        "left": of("FULL", "weights_bytes"),
        "right": of("NONE", "weights_bytes"),
        "paired_by": "block",
    }
    [checked] = check(read_claims(claims_file(tmp_path, **claim)), paired)
    assert (checked.verdict, checked.left, checked.interval) == ("PASS", pytest.approx(1), pytest.approx((1, 1)))
    alone = claim | {"left": of("FULL", "weights_bytes") | {"where": {"arm": "FULL", "block": "9"}}}
    [checked] = check(read_claims(claims_file(tmp_path, **alone)), paired)
    assert (checked.verdict, checked.reason) == ("NOT MEASURED", "0 of 2 blocks have both sides")


@pytest.mark.parametrize(
    ("left", "says", "right"),
    [
        ({"table": "step_table", "where": {"arm": "FULL", "batch": 1}, "column": "n_launches"}, "equal", 5),
        ({"table": "probe_cost", "where": {"arm": "NONE"}, "column": "low"}, "greater", 2),
        ({"table": "compile_vs_graph", "where": {"arm": "FULL", "batch": 1}, "column": "low"}, "greater", 1.99),
        ({"table": "compile_vs_graph", "where": {"arm": "FULL", "batch": 8}, "column": "low"}, "less", 1),
        ({"table": "graph_benefit", "where": {"arm": "FULL", "verdict": "helps"}, "column": "size"}, "equal", 1),
    ],
)
def test_tables_made_of_a_study_can_be_claimed(left, says, right, tmp_path, paired) -> None:
    claim = {"study": "step_latency", "left": {**left, "reduce": "max"}, "is": says, "right": right}
    [checked] = check(read_claims(claims_file(tmp_path, **claim)), paired)
    assert checked.verdict == "PASS", checked


def test_an_interval_of_one_launch_is_not_measured(tmp_path, paired) -> None:
    left = {"table": "mixed_table", "where": {"arm": "FULL"}, "column": "period_low_ms", "reduce": "min"}
    [checked] = check(read_claims(claims_file(tmp_path, study="step_latency", left=left)), paired)
    assert checked.verdict == "NOT MEASURED"


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
