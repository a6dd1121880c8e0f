"""Real data of a package in realistic conversations: load, ask, SQL, plot, CSV, continue, refine, run again."""

import pytest
from chat_server import Said
from chats import VEGA, conversation, python, say, steps_since_user

from machines.chat.command import counters_of
from machines.tool_use.records import as_data

CARS, WEATHER, STOCKS = (VEGA / name for name in ("cars.json", "seattle-weather.csv", "stocks.csv"))
#: For each file: the query, the plot, the CSV, a refined query with its plot; each also phrased differently.
WORK = {
    "cars": (
        ("SELECT Origin, avg(Miles_per_Gallon) AS mpg FROM cars GROUP BY Origin ORDER BY Origin", "select origin, avg(miles_per_gallon) as mpg -- each\nfrom cars group by origin order by origin;"),
        ("df.plot.bar(x='Origin', y='mpg')\nplt.savefig('mpg.png')", "axes = df.plot.bar(y='mpg', x='Origin')\naxes.figure.savefig('economy.png')"),
        ("df.to_csv('mpg.csv', index=False)", "open('economy.csv', 'w').write(df.to_csv(index=False))"),
        ("SELECT Origin, Cylinders, avg(Miles_per_Gallon) AS mpg FROM cars GROUP BY ALL ORDER BY ALL", "select Origin, Cylinders, avg(Miles_per_Gallon) mpg\nfrom cars group by all order by all"),
        ("df.pivot(index='Cylinders', columns='Origin', values='mpg').plot()\nplt.savefig('refined.png')", "table = df.pivot(index='Cylinders', columns='Origin', values='mpg')\ntable.plot().figure.savefig('by_cylinders.png')"),
    ),
    "seattle_weather": (
        ("SELECT month(date) AS month, sum(precipitation) AS rain FROM seattle_weather GROUP BY 1 ORDER BY 1", "select  month(date) as month, sum(precipitation) as rain from seattle_weather group by 1 order by 1"),
        ("df.plot(x='month', y='rain')\nplt.savefig('rain.png')", "figure = df.plot(y='rain', x='month').figure\nfigure.savefig('wet.png')"),
        ("df.to_csv('rain.csv', index=False)", "text = df.to_csv(index=False)\nopen('wet.csv', 'w').write(text)"),
        ("SELECT weather, count(*) AS days FROM seattle_weather GROUP BY weather ORDER BY weather", "SELECT weather, count(*) AS days /* each kind */ FROM seattle_weather GROUP BY weather ORDER BY weather"),
        ("df.plot.bar(x='weather', y='days')\nplt.savefig('refined.png')", "df.plot.bar(y='days', x='weather').figure.savefig('kinds.png')"),
    ),
    "stocks": (
        ("SELECT symbol, max(price) AS most, count(*) AS months FROM stocks GROUP BY symbol ORDER BY symbol", "SELECT symbol,\n max(price) AS most,\n count(*) AS months\nFROM stocks GROUP BY symbol ORDER BY symbol"),
        ("df.plot.bar(x='symbol', y='most')\nplt.savefig('most.png')", "df.plot.bar(y='most', x='symbol').figure.savefig('highest.png')"),
        ("df.to_csv('most.csv', index=False)", "with open('highest.csv', 'w') as file:\n    df.to_csv(file, index=False)"),
        ("SELECT symbol, price FROM stocks WHERE date LIKE 'Jan 1%' ORDER BY ALL", "select symbol, price from stocks where date like 'Jan 1%' order by all"),
        ("df.boxplot(column='price', by='symbol')\nplt.savefig('refined.png')", "axes = df.boxplot(by='symbol', column='price')\naxes.figure.savefig('boxes.png')"),
    ),
}  # fmt: skip


def sql(text):
    """Ask for a query."""
    return Said(calls=(("run_sql", {"sql": text}),))


def forgetful(table, in_other_words):
    """Play a model that starts from scratch whenever it is asked to continue, and also does the refined work on request."""
    first, plot, csv, finer, finer_plot = WORK[table]

    def player(body, _number):
        said = [m["content"] for m in body["messages"] if m["role"] == "user" and not m["content"].startswith("[")]
        words = int(in_other_words and len(said) > 1)
        steps = [sql(first[words]), python(plot[words]), python(csv[words])]
        if any("Refine" in text for text in said):
            steps += [
                sql(finer[words and said[-1] != "Refine it"]),
                python(finer_plot[words and said[-1] != "Refine it"]),
            ]
        at = steps_since_user(body)
        return steps[at] if at < len(steps) else Said(f"Done with {table}.")

    return player


@pytest.mark.parametrize(
    ("table", "in_other_words"),
    [
        pytest.param(table, in_other_words, id=f"{table}, {words}", marks=[] if is_tried else [pytest.mark.full])
        for table, tried in {"cars": (False,), "seattle_weather": (True,), "stocks": (True,)}.items()
        for words, in_other_words in {"same words": False, "other words": True}.items()
        for is_tried in [in_other_words in tried]
    ],
)
def test_nothing_is_made_twice_except_on_an_explicit_rerun(tmp_path, table, in_other_words, figures):
    with conversation(tmp_path, forgetful(table, in_other_words), data=(CARS, WEATHER, STOCKS)) as (chat, played):
        assert {each.name for each in chat.resources.database.tables} == {"cars", "seattle_weather", "stocks"}
        made, calls = [], []
        for text in (
            f"Look at {table}, plot it, and give me a CSV",
            "continue",
            "Refine it",
            "continue",
            "run it again",
        ):
            turn = say(chat, text)
            assert chat.state == "resting.completed", turn.calls
            made.append([artifact_id for call in turn.calls for artifact_id in call.artifacts])
            calls.append([call.status for call in turn.calls])
        contents = [each.digest for each in chat.conversation.inventory]
        reasons = counters_of(chat.conversation).reasons
        sources = {turn.number: [call.call_id for call in turn.calls] for turn in chat.conversation.turns}
        new = {n: sum(each.source_call_id in ids for each in chat.conversation.inventory) for n, ids in sources.items()}
    # Two tables, two plots; the CSV of Python has the bytes of the table.
    assert len(contents) == len(set(contents)) == 4
    assert new == {1: 2, 2: 0, 3: 2, 4: 0, 5: 0}
    assert calls[0] == ["done"] * 3
    assert calls[4] == ["done"] * 5  # the user asked for it: everything was done again, with the same results
    assert len(set(made[4])) == 4
    skipped = [status for each in calls[1:4] for status in each].count("duplicate_tool_call_skipped")
    if not in_other_words:
        assert calls[1:4] == [
            ["duplicate_tool_call_skipped"] * 3,
            ["duplicate_tool_call_skipped"] * 3 + ["done"] * 2,
            ["duplicate_tool_call_skipped"] * 5,
        ]
    figures("real data", f"{table}, {'other' if in_other_words else 'same'} words", requests=len(played.requests), calls=sum(map(len, calls)), skipped=skipped, artifacts=len(contents), **{"kept once": reasons["duplicate_artifact_prevented"]})  # fmt: skip


def test_query_over_several_files_is_correct(tmp_path):
    """A query over two files gives the values that are computed here directly from the files."""
    text = "SELECT (SELECT count(*) FROM stocks WHERE symbol = 'MSFT') AS months, (SELECT max(temp_max) FROM seattle_weather) AS hottest"
    with conversation(
        tmp_path,
        lambda body, _number: Said("See above.") if steps_since_user(body) else sql(text),
        data=(CARS, WEATHER, STOCKS),
    ) as (chat, _):
        (call,) = say(chat, "How many, and how hot?").calls
    hottest = max(float(line.split(",")[2]) for line in WEATHER.read_text().splitlines()[1:])
    months = sum(line.startswith("MSFT,") for line in STOCKS.read_text().splitlines())
    assert call.result["rows"] == [[months, hottest]]


# -- effect of the guards ---------------------------------------------------------------------------------------------------

PLOT, CSV = WORK["cars"][1], WORK["cars"][2]
#: The same work twice, as a sloppy model sends it: once correctly, once under other names, in fences, or with JSON in place of code.
SLOPPY = (
    ("run_sql", {"sql": WORK["cars"][0][0]}),
    ("run_python", {"code": PLOT[0]}),
    ("run_python", {"code": f'{{"code": "{CSV[0]}"}}', "timeout": "30 seconds"}),
    ("sql", {"arguments": {"query": f"```sql\n{WORK['cars'][0][1]}\n```"}}),
    ("python", {"script": PLOT[1].splitlines()}),
    ("run_python", {"code": CSV[1]}),
)


def sloppy(body, _number):
    """Play a model that is sloppy and forgetful: it does the same in every turn, and everything twice in each."""
    at = steps_since_user(body)
    return Said(calls=(SLOPPY[at],)) if at < len(SLOPPY) else Said("Done.")


def test_normalisation_rescues_calls_and_dedup_prevents_duplicates(tmp_path, figures):
    made, done = {}, {}
    for normalise in (False, True):
        for dedup in (False, True):
            how = (normalise, dedup)
            with conversation(
                tmp_path / f"{normalise}{dedup}",
                sloppy,
                normalise=normalise,
                dedup=dedup,
                parameters={"max_refusals": 12},
            ) as (chat, _):
                for text in ("Compare the economy by origin", "continue", "continue"):
                    say(chat, text)
                contents = [each.digest for each in chat.conversation.inventory]
                counters = as_data(counters_of(chat.conversation))
            reasons, made[how] = counters["reasons"], (len(contents), len(contents) - len(set(contents)))
            done[how] = sum(number for what, number in counters["calls"].items() if what.endswith("done"))
            line = f"normalisation {'on' if normalise else 'off'}, dedup {'on' if dedup else 'off'}"
            figures("quantified", line, calls=3 * len(SLOPPY), made=done[how], rescues=sum(counters["rescues"].values()), artifacts=made[how][0], duplicates=made[how][1], skipped=reasons.get("duplicate_tool_call_skipped", 0), **{"kept once": reasons.get("duplicate_artifact_prevented", 0)})  # fmt: skip
            assert (sum(counters["rescues"].values()) > 0) is normalise
    assert made[True, True] == made[False, True] == (2, 0)
    assert made[True, False] == (18, 16)  # each call of three turns has made its file
    assert made[False, False] == (9, 7)  # half of the calls were not understood
    assert done[False, False] < done[True, False] == 18
