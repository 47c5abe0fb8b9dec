"""``manage.py zizq_budgets``: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone

from django_zizq import Binding, BudgetPolicy, TimeBased, WhileInFlight
from django_zizq.core.tokens import FOREVER_MS
from django_zizq.dialect import from_ms
from django_zizq.models import Budget, Job
from tests.commands import calling
from tests.commands.calling import Terminal, manage, rows
from tests.core.limits import HOUR, cc, per
from tests.spec.harness import Site, Statements

pytestmark = pytest.mark.django_db

call = partial(calling.call, "zizq_budgets")
call_json = partial(calling.call_json, "zizq_budgets")
refusal = partial(calling.refusal, "zizq_budgets")
misuse = partial(calling.misuse, "zizq_budgets")


def policy(key: str) -> BudgetPolicy:
    return Budget.objects.get(key=key).policy


def paused_until(key: str) -> object:
    return Budget.objects.get(key=key).paused_until


def test_the_list_shows_how_every_budget_stands(site: Site) -> None:
    site.create("stripe", cc(3))
    site.create("images", per(10_000, HOUR, burst=500))
    site.create("pdf", cc(1))
    site.spend("stripe", 2)
    site.enqueue(Binding("stripe", 2))
    site.enqueue("stripe", delay=timedelta(days=1))
    Budget.objects.get(key="pdf").pause()
    titles, *budgets = rows(call("list"))
    assert titles[:6] == ["key", "policy", "available", "in flight", "ready", "parked"]
    assert titles[6:] == ["scheduled", "next token", "paused until"]
    assert budgets == [
        ["images", "10000 per hour, burst 500", "500/500", "0", "0", "0", "0", "-", "-"],
        ["pdf", "1 while in flight", "1/1", "0", "0", "0", "0", "-", "resumed"],
        ["stripe", "3 while in flight", "1/3", "1", "1", "1", "1", "-", "-"],
    ]


def test_the_list_says_when_the_next_token_falls_due_and_a_pause_ends() -> None:
    Budget.objects.create_budget("images", BudgetPolicy(1, TimeBased(timedelta(days=9))))
    Budget.objects.update(level=0)
    Budget.objects.create_budget("pdf", BudgetPolicy(1, WhileInFlight()))
    until = timezone.now() + timedelta(days=3)
    Budget.objects.get(key="pdf").pause(until)
    images, pdf = rows(call("list"))[1:]
    due = Budget.objects.get(key="images").next_token_at()
    assert due is not None
    assert images[7:] == [timezone.localtime(due).strftime("%Y-%m-%d %H:%M"), "-"]
    assert pdf[7:] == ["-", timezone.localtime(until).strftime("%Y-%m-%d %H:%M")]


def test_the_list_asks_as_much_of_the_database_however_many_budgets_there_are(site: Site) -> None:
    def cost() -> int:
        with Statements() as statements:
            call("list")
        return len(statements.sent)

    site.create("first", cc(1))
    site.enqueue("first")
    before = cost()
    for number in range(20):
        site.create(f"budget-{number}", cc(1))
        site.enqueue(f"budget-{number}", "first")
    assert cost() == before


def test_a_site_without_budgets_is_told_so() -> None:
    assert call("list") == "There is no budget.\n"
    assert call_json("list") == {"budgets": []}


def test_the_list_is_there_for_programs(site: Site) -> None:
    site.create("images", per(10_000, HOUR, burst=500))
    site.create("stripe", cc(1))
    site.enqueue("stripe")
    Budget.objects.get(key="images").pause()
    images, stripe = call_json("list")["budgets"]
    assert images["policy"] == "10000 per hour, burst 500"
    assert (images["strategy"], images["duration_ms"], images["burst"]) == (
        "time_based",
        HOUR,
        500,
    )
    assert (images["paused"], images["paused_until"]) == (True, None)
    assert (stripe["available"], stripe["capacity"], stripe["ready"], stripe["parked"]) == (
        1,
        1,
        1,
        0,
    )


def test_show_explains_a_budget(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    waiting = site.enqueue("stripe")
    text = call("show", "stripe")
    assert text.startswith("Budget 'stripe' (1 while in flight): 0 of 1 tokens free.\n")
    assert f"First in line is job #{waiting.pk}" in text
    assert call_json("show", "stripe")["parked"] == 1


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        (["--while-in-flight", "3"], cc(3)),
        (["--rate", "10000/1h"], per(10_000, HOUR)),
        (["--rate", "5/s", "--burst", "2"], per(5, 1_000, burst=2)),
        (["--allocation", "5", "--per", "250ms"], per(5, 250)),
        (["--allocation", "5", "--per", "60", "--burst", "9"], per(5, 60_000, burst=9)),
    ],
)
@pytest.mark.parametrize("verb", ["create", "put"])
def test_create_and_put_state_a_whole_policy(
    verb: str, options: list[str], stated: BudgetPolicy
) -> None:
    said = "created:" if verb == "create" else "is now"
    assert call(verb, "emails", *options) == f"Budget 'emails' {said} {stated}.\n"
    assert policy("emails") == stated


def test_create_refuses_a_key_that_exists_and_put_replaces_it(site: Site) -> None:
    site.create("stripe", cc(3))
    assert "already exists" in refusal("create", "stripe", "--while-in-flight", 5)
    assert policy("stripe") == cc(3)
    call("put", "stripe", "--while-in-flight", 5)
    assert policy("stripe") == cc(5)


@pytest.mark.parametrize(
    ("before", "options", "after"),
    [
        (per(10, HOUR, burst=5), ["--allocation", "20"], per(20, HOUR, burst=5)),
        (per(10, HOUR, burst=5), ["--per", "1m"], per(10, 60_000, burst=5)),
        (per(10, HOUR, burst=5), ["--rate", "9/s"], per(9, 1_000, burst=5)),
        (per(10, HOUR, burst=5), ["--burst", "7"], per(10, HOUR, burst=7)),
        (per(10, HOUR, burst=5), ["--no-burst"], per(10, HOUR)),
        (per(10, HOUR, burst=5), ["--while-in-flight"], cc(10)),
        (per(10, HOUR, burst=5), ["--while-in-flight", "3"], cc(3)),
        (cc(10), ["--time-based", "--per", "1h"], per(10, HOUR)),
        (cc(10), ["--rate", "9/s", "--burst", "2"], per(9, 1_000, burst=2)),
        (cc(10), ["--allocation", "4"], cc(4)),
    ],
)
def test_update_changes_what_is_stated_and_nothing_else(
    site: Site, before: BudgetPolicy, options: list[str], after: BudgetPolicy
) -> None:
    site.create("emails", before)
    assert call("update", "emails", *options) == (
        f"Budget 'emails' is now {after}; it was {before}.\n"
    )
    assert policy("emails") == after


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["create", "a"], "state a policy: --while-in-flight N, or --rate N/DURATION"),
        (["create", "a", "--allocation", "5"], "state a policy"),
        (["create", "a", "--burst", "5"], "state a policy"),
        (["create", "a", "--while-in-flight", "5", "--burst", "2"], "no rate and no burst"),
        (["create", "a", "--rate", "5/s", "--per", "2s"], "either --rate, or --allocation and"),
        (["create", "a", "--rate", "5"], "argument --rate: '5' is not a rate such as 10000/1h"),
        (["create", "a", "--allocation", "1.5"], "'1.5' is not a whole number"),
        (["create", "a,b", "--while-in-flight", "5"], "argument KEY: 'a,b' must not contain ','"),
        (["update", "a"], "state what to change"),
        (["update", "a", "--burst", "5", "--no-burst"], "either --burst or --no-burst"),
        (["update", "a", "--time-based", "--while-in-flight"], "--while-in-flight or a rate"),
        (["update", "a", "--while-in-flight", "2", "--allocation", "3"], "the number once"),
        (["pause", "a", "--for", "5m", "--until", "+5m"], "not allowed with argument"),
        (["pause", "a", "--for", "-5m"], "'-5m' is not a duration"),
        (["delete"], "required: KEY"),
        (["show"], "required: KEY"),
        (["list", "--nope"], "unrecognized arguments: --nope"),
        ([], "required: SUBCOMMAND"),
        (["destroy"], "invalid choice: 'destroy'"),
    ],
)
def test_wrong_usage_is_said_in_a_line(arguments: list[str], fault: str) -> None:
    assert fault in misuse(*arguments)


def test_what_the_library_refuses_is_said_in_its_words(site: Site) -> None:
    site.create("stripe", cc(3))
    site.enqueue(Binding("stripe", 3))
    assert "duration must be from 1 millisecond" in refusal("create", "a", "--rate", "5/0")
    assert "from 1 to 1,000,000, not 0" in refusal("create", "a", "--while-in-flight", 0)
    assert "1 unfinished job costs more" in refusal("update", "stripe", "--while-in-flight", 1)
    assert "1 unfinished job is bound to it" in refusal("delete", "stripe")
    assert "must be in the future" in refusal("pause", "stripe", "--until", "-1h")
    assert policy("stripe") == cc(3)


@pytest.mark.parametrize("verb", ["show", "update", "delete", "pause", "resume"])
def test_a_key_that_does_not_exist_is_refused(verb: str) -> None:
    options = ["--burst", "5"] if verb == "update" else []
    assert refusal(verb, "strpe", *options).startswith("Budget 'strpe' does not exist.")


def test_delete_takes_several_all_or_none(site: Site) -> None:
    for key in ("a", "b", "c"):
        site.create(key, cc(1))
    site.enqueue("c")
    assert "'nope' does not exist" in refusal("delete", "a", "nope")
    assert "'c' cannot be deleted" in refusal("delete", "a", "c")
    assert Budget.objects.count() == 3
    assert call("delete", "a") == "1 budget deleted.\n"
    site.create("a", cc(1))
    assert call("delete", "a", "b", "a") == "2 budgets deleted.\n"
    site.create("a", cc(1))
    assert call_json("delete", "a") == {"deleted": ["a"]}


def test_a_budget_is_paused_until_it_is_resumed(site: Site) -> None:
    site.create("stripe", cc(1))
    assert call("pause", "stripe") == "Budget 'stripe' is paused until it is resumed.\n"
    assert paused_until("stripe") == from_ms(FOREVER_MS)
    for _ in range(2):
        assert call("resume", "stripe") == "Budget 'stripe' is resumed.\n"
        assert paused_until("stripe") is None


@pytest.mark.parametrize("options", [["--for", "2d"], ["--until", "+2d"]])
def test_a_pause_may_have_an_end(site: Site, options: list[str]) -> None:
    site.create("stripe", cc(1))
    before = timezone.now()
    text = call("pause", "stripe", *options)
    until = Budget.objects.get(key="stripe").paused_until
    assert until is not None
    assert timedelta(0) <= until - before - timedelta(days=2) < timedelta(minutes=1)
    assert timezone.localtime(until).isoformat(" ", "milliseconds") in text


def test_an_end_without_an_offset_is_in_the_time_zone_of_the_site(site: Site) -> None:
    site.create("stripe", cc(1))
    call("pause", "stripe", "--until", "2999-01-05T09:30")
    until = Budget.objects.get(key="stripe").paused_until
    assert until is not None
    assert timezone.localtime(until).isoformat()[:19] == "2999-01-05T09:30:00"


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "new", "--while-in-flight", "1"],
        ["put", "stripe", "--while-in-flight", "1"],
        ["update", "stripe", "--allocation", "1"],
        ["pause", "stripe"],
        ["resume", "stripe"],
    ],
)
def test_every_change_answers_a_program_with_the_budget(site: Site, arguments: list[str]) -> None:
    site.create("stripe", cc(1))
    answer = call_json(*arguments)
    assert (answer["key"], answer["policy"]) == (arguments[1], "1 while in flight")
    assert answer["paused"] is (arguments[0] == "pause")


def test_the_table_folds_at_a_terminal_and_is_whole_in_a_pipe(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    keys = ["tenant:acme-corporation-of-america", "stripe", "k" * 120]
    for key in keys:
        site.create(key, per(1_000_000, HOUR, burst=999_999))
    Budget.objects.get(key="stripe").pause(timezone.now() + timedelta(days=3))
    screen = Terminal()
    call("list", stdout=screen)
    assert "\x1b[1m" in screen.getvalue()
    assert max(map(len, screen.lines)) <= 100
    piped = call("list")
    assert "\x1b" not in piped
    assert len(piped.splitlines()) == 1 + len(keys)
    assert all(f"{key} " in piped for key in keys)


@pytest.mark.parametrize("force", ["FORCE_COLOR", "CLICOLOR_FORCE"])
def test_no_colour_goes_into_a_pipe_or_against_no_color(
    site: Site, monkeypatch: pytest.MonkeyPatch, force: str
) -> None:
    monkeypatch.setenv(force, "1")
    site.create("stripe", cc(1))
    assert "\x1b" not in call("list")
    screen = Terminal()
    call("list", "--no-color", stdout=screen)
    assert "\x1b" not in screen.getvalue()


def test_what_others_wrote_gives_no_order_to_the_terminal(site: Site) -> None:
    site.create("evil\x1bc\nkey", cc(1))
    assert "evil\\x1bc\\nkey" in call("list")


def test_missing_tables_are_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job._meta, "db_table", "not_there")
    assert "run 'manage.py migrate' first" in refusal("list")


def test_the_transaction_of_a_caller_survives(site: Site) -> None:
    site.create("stripe", cc(1))
    call("list")
    assert Budget.objects.get().key == "stripe"


@pytest.mark.django_db(transaction=True)
def test_the_exit_codes_are_0_done_1_refused_2_wrong_usage(
    process_environment: dict[str, str],
) -> None:
    made = manage(process_environment, "zizq_budgets", "create", "stripe", "--while-in-flight", "3")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == "Budget 'stripe' created: 3 while in flight.\n"
    again = manage(
        process_environment, "zizq_budgets", "create", "stripe", "--while-in-flight", "3"
    )
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("CommandError: Budget 'stripe' already exists")
    wrong = manage(process_environment, "zizq_budgets", "create", "pdf")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "state a policy" in wrong.stderr
    for process in (again, wrong):
        assert "Traceback" not in process.stderr
