"""The text of a query: one statement that reads, with an order or without."""

import pytest

from fedfair.errors import DataError
from fedfair.tables.sql_table import asks_for_order, check_reads


@pytest.mark.parametrize(
    ("query", "ordered"),
    [
        ("SELECT a FROM t", False), ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n  by a desc;", True), ("SELECT a FROM (SELECT a FROM t ORDER BY a) AS s", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("WITH s AS (SELECT a FROM t ORDER BY a) SELECT a FROM s", False),
        ("WITH s AS (SELECT a FROM t) SELECT a FROM s ORDER BY a", True), ("SELECT a FROM t -- ORDER BY a", False),
        ("SELECT a /* ORDER BY a */ FROM t", False), ("SELECT 'ORDER BY' FROM t", False),
        ('SELECT "order by" FROM t', False), ("SELECT $$ ORDER BY $$ FROM t", False),
        ("SELECT $x$ ORDER BY $$ $x$ FROM t ORDER BY 1", True), ("SELECT 'it''s' FROM t ORDER BY 1", True),
        ("SELECT ')' FROM (SELECT 1) AS t ORDER BY 1", True),
    ],
)  # fmt: skip
def test_only_the_outermost_order_counts(query: str, ordered: bool) -> None:
    assert asks_for_order(query) is ordered
    check_reads(query, "query")


@pytest.mark.parametrize(
    "query", ["(SELECT 1)", "VALUES (1)", "TABLE t", "FROM t", "-- why\nSELECT 1;;", "/*;*/ SELECT ';'"]
)
def test_a_statement_that_reads_is_taken(query: str) -> None:
    check_reads(query, "query")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("INSERT INTO t VALUES (1)", "query begins with INSERT; only a query that reads is run"),
        ("CALL p()", "query begins with CALL"), ("COPY t TO 'x'", "query begins with COPY"),
        ("EXPLAIN ANALYZE DELETE FROM t", "query begins with EXPLAIN"),
        ("SELECT 1; SELECT 2", "query holds more than one statement"),
        ("SELECT 1; -- ;\n SELECT 2", "query holds more than one statement"), ("", "query holds no statement"),
        ("-- SELECT 1", "query holds no statement"), ("???", "query holds no statement"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(query: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        check_reads(query, "query")
