import json

import pytest
from each_row import each_row

from dsa.edge.model_server import Retries, ServerName, reason_of, refusal, refusal_within, said_to_wait_s

ASKED = ServerName("m", "http://h/v1", "DSA_API_KEY", "k3y!")


@each_row(
    ("status", "detail", "reason"),
    [
        (400, "no", "failed"),
        (400, "This model's maximum context length is 10 tokens", "context_too_long"),
        (400, "request (99 tokens) exceeds the available context size", "context_too_long"),
        (413, "", "context_too_long"),
        (500, "the input is larger than the context window", "context_too_long"),
        (401, "", "authentication"),
        (403, "", "authentication"),
        (402, "no credits", "rate_limit"),
        (404, "", "not_found"),
        (418, "", "failed"),
        (429, "", "rate_limit"),
        (500, "", "server_error"),
        ("502", "", "server_error"),
        (529, "", "server_error"),
        ("context_length_exceeded", "", "context_too_long"),
        ("rate_limit_exceeded", "", "rate_limit"),
        ("insufficient_quota", "", "rate_limit"),
        ("server_error", "", "server_error"),
        (None, "", "server_error"),
    ],
)
def test_status_or_code_has_one_reason(status, detail, reason):
    assert reason_of(status, detail) == reason


@each_row(
    ("body", "said"),
    [
        (b'{"error": {"message": "why", "type": "x"}}', "why"),
        (b'{"error": "why"}', "why"),
        (b'{"detail": "why"}', "why"),
        (b'{"detail": [{"loc": 1, "msg": "why"}]}', "why"),
        (b'{"message": "why"}', "why"),
        (b'[{"error": {"message": "why"}}]', "why"),
        (b'{"success": false, "error": {"code": "why"}}', "why"),
        (b"why\n  so", "why so"),
        (b"<!DOCTYPE html><p>much</p>", "(status 418)"),
        (b"", "(status 418)"),
        (b"why \xff", "why"),
        (b"[" * 100_000, "[[["),
    ],
)
def test_message_quotes_what_the_server_says(body, said):
    message = str(refusal(ASKED, 418, body))
    assert said in message
    assert "much" not in message
    assert "\n" not in message
    assert len(message) < 400


def test_secrets_are_removed_from_a_message(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "very-secret-1")
    body = (
        b"k3y! very-secret-1 http://x/y?key=AIzaSecret&a=b http://me:secret3@h Authorization: Bearer abcSecret {braces}"
    )
    message = str(refusal(ASKED, 401, body))
    assert "secret" not in message.lower().replace("[secret some_api_key]", "")
    assert "k3y!" not in message
    assert "&a=b" in message
    assert "{braces}" in message


def test_redirection_is_reported():
    error = refusal(ASKED, 302, b"")
    assert (error.reason, "redirects" in str(error)) == ("bad_answer", True)


@each_row(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": ".5"}, 0.5),
        ({"retry-after": " 2 "}, 2),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:47 GMT"}, 10),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:30 GMT"}, 0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_wait_is_read_in_seconds_or_as_a_date(headers, wait_s):
    assert said_to_wait_s(headers, 784_111_777.0) == wait_s  # 08:49:37


@each_row(
    ("error", "reason"),
    [
        ({"message": "slow down", "code": 429}, "rate_limit"),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limit"),
        ({"message": "no", "type": "insufficient_quota"}, "rate_limit"),
        ({"message": "no", "code": "invalid_api_key"}, "authentication"),
        ({"message": "no", "type": "authentication_error", "code": None}, "authentication"),
        ({"message": "no", "code": "model_not_found"}, "not_found"),
        ({"message": "no", "type": "invalid_request_error"}, "failed"),
        ({"message": "no", "code": "context_length_exceeded"}, "context_too_long"),
        ({"message": "busy", "type": "overloaded_error"}, "server_error"),
        ("out of memory", "server_error"),
    ],
)
def test_error_in_a_successful_response_has_its_reason(error, reason):
    found = refusal_within(ServerName("m", "http://h/v1", "K"), {"error": error})
    assert (found.reason, (error if isinstance(error, str) else error["message"]) in str(found)) == (reason, True)


def test_answer_is_not_an_error():
    assert refusal_within(ServerName("m", "http://h/v1", "K"), {"choices": [], "error": None}) is None
    assert refusal_within(ServerName("m", "http://h/v1", "K"), {"choices": [{}], "error": "later"}) is None


USED_UP = [
    {"error": {"message": "You exceeded your current quota, please check your plan and billing details.", "code": "insufficient_quota"}},
    {"error": {"message": "no", "type": "insufficient_quota"}},
    {"type": "usage_limit_reached", "message": "The usage limit has been reached"},
    {"error": {"message": "You've reached kimi monthly usage limit for this billing cycle."}},
    {"error": "Your credit balance is too low to access the API."},
]  # fmt: skip
BACK_SOON = [
    {"error": {"message": "Rate limit reached for m on tokens per minute (TPM): Limit 10000, Used 9000"}},
    {"error": {"message": "You exceeded your current quota, please check your plan. Please retry in 7.2s."}},
    {"error": {"message": "You exceeded your current quota", "details": [{"retryDelay": "37s"}]}},
    {"error": {"message": f"You exceeded your current quota {'x' * 500}. Please try again in 2s"}},
    {"error": {"message": "Weekly usage limit reached. Resets in 1min"}},
    {},
]


@pytest.mark.parametrize(("bodies", "used_up"), [(USED_UP, True), (BACK_SOON, False)])
def test_used_up_quota_is_not_retried(bodies, used_up):
    for body in bodies:
        error = refusal(ASKED, 429, json.dumps(body).encode())
        assert (error.reason, error.server.again, Retries(3).pause_s(error, 0)) == (
            "rate_limit",
            *((False, None) if used_up else (True, 0.5)),
        )
        assert ("is used up; check your account there" in str(error)) == used_up


def test_quota_is_retried_if_the_server_says_when_it_is_back():
    assert refusal(ASKED, 429, json.dumps(USED_UP[0]).encode(), 2.0).server.again


def test_used_up_quota_reported_within_an_answer_is_not_retried():
    error = {"message": "no", "code": "insufficient_quota"}
    found = refusal_within(ASKED, {"error": error})
    assert (found.reason, found.server.again) == ("rate_limit", False)
