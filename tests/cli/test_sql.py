"""`evenflow sql FILE`: the plan of a script, what is wrong with it, and its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.commands import object_of, run

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "hot_items.sql")


def test_the_plan_of_the_example_names_its_views(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("sql", EXAMPLE, "--plan", "--json") == 0
    found = object_of(capfd.readouterr().out)
    names = [box["name"] for box in found["boxes"]]
    assert {"bid", "counts", "most", "printed"} <= set(names)
    assert found["dataflow"] == "hot_items"
    assert run("sql", EXAMPLE, "--plan") == 0
    assert "segment 1" in capfd.readouterr().out


def test_a_mistake_is_one_message_with_its_place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.sql"
    file.write_text("CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '100');\nSELECT auktion FROM bid")
    assert run("sql", str(file), "--json") == 2, "a wrong query must show before Spark is started"
    error = object_of(capfd.readouterr().out)["error"]
    assert error["type"] == "UnknownColumn"
    assert re.search(r"wrong\.sql, line 2, column 8: there is no column 'auktion' \(did you mean 'auction'\?\)", error["message"])


def test_rows_on_which_an_expression_raises_can_be_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bids.sql"
    file.write_text("CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '100');\nSELECT price / (auction - 1000) AS x FROM bid")
    assert run("sql", str(file), "--on-error", "skip", "--plan") == 0
    assert "rows on which it raises left out" in capfd.readouterr().out
    assert run("sql", str(file), "--on-error", "ignore", "--plan") == 2
    assert "it must be 'fail' or 'skip'" in " ".join(capfd.readouterr().err.split())


def test_functions_come_from_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, functions = tmp_path / "bids.sql", tmp_path / "mine_of_bids.py"
    file.write_text("CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '100');\nSELECT cents(price) AS x FROM bid")
    functions.write_text("import evenflow as ef\n\n@ef.udf('bigint')\ndef cents(price):\n    return price * 100\n")
    assert run("sql", str(file), "--functions", str(functions), "--plan") == 0
    assert "x = cents(`price`)" in capfd.readouterr().out.lower()
    assert run("sql", str(file), "--plan") == 2
    assert "there is no function 'cents'" in " ".join(capfd.readouterr().err.split())
    functions.write_text("x = 1\n")
    assert run("sql", str(file), "--functions", str(functions), "--plan") == 2
    assert "has no functions to call; decorate them" in " ".join(capfd.readouterr().err.split())
    assert run("sql", str(file), "--functions", str(tmp_path / "none.py"), "--plan") == 2
    assert "give a Python file with the functions" in " ".join(capfd.readouterr().err.split())


def test_results_that_change_come_as_the_mode_says(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bids.sql"
    file.write_text(
        "CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '100');\n"
        "SELECT auction, count(*) AS n FROM bid GROUP BY auction ORDER BY n DESC LIMIT 3"
    )
    assert run("sql", str(file), "--output-mode", "complete", "--every", "10 seconds", "--plan") == 0
    assert "every 10 s, by n descending, first 3" in capfd.readouterr().out
    assert run("sql", str(file), "--output-mode", "changelog", "--plan") == 0
    assert "rank" in capfd.readouterr().out
    assert run("sql", str(file), "--plan") == 2
    assert "LIMIT is not available: a stream has no end; leave it out, keep the best rows" in " ".join(capfd.readouterr().err.split())
    assert run("sql", str(file), "--output-mode", "all", "--plan") == 2
    assert "it must be one of append, update, changelog, complete" in " ".join(capfd.readouterr().err.split())


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("sql", str(tmp_path / "nowhere.sql")) == 2
    assert "give a text file with SQL statements" in " ".join(capfd.readouterr().err.split())


@pytest.mark.conformance
@pytest.mark.spark
@pytest.mark.slow
def test_a_script_runs_and_its_last_query_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bids.sql"
    file.write_text(
        f"""CREATE TEMPORARY VIEW bid USING nexmark OPTIONS (events '5000', event_time 'dateTime', delay '1 second');
            CREATE TABLE files USING parquet OPTIONS (path '{tmp_path / "out"}');
            INSERT INTO files SELECT bidder, price FROM bid WHERE price > 1000;
            SELECT auction, price FROM bid WHERE auction = 1010"""
    )
    assert run("sql", str(file), "--master", "local-cluster[2,2,1024]", "--sites", "2", "--json") == 0
    caught = capfd.readouterr()
    found = object_of(caught.out)
    assert found["rows_in"] == 4600
    assert "1010" in caught.err
    assert list((tmp_path / "out").glob("**/*.parquet"))
