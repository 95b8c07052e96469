"""Texts that look like secrets are hidden, and ordinary prose is left alone."""

import pytest

from midturn.autogen.fingerprint.secrets import hiding

SK = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"Use {SK}.", "Use ***."),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer ***"),
        ("AKIAABCDEFGHIJKLMNOP is the key", "*** is the key"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = ***"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "***"),
        ("postgresql://me:hush@db:5432/x", "postgresql://***@db:5432/x"),
        ("redis://:hush@cache", "redis://***@cache"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "***"),
        ("sk_live_abcdefghijklmnop", "***"),
        ("gsk_abcdefghijklmnopqrstuvwxyz0123", "***"),
        ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "***"),
        ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "***"),
        ("Ask xai-abcdefghijklmnopqrstuvwxyz.", "Ask ***."),
        ("SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz-0123456789", "***"),
        ("sk-abcdefghijklmnopqrstuvwxyz", "***"),
        ("sk-proj-AbCd-efgh-ijkl-mnop", "***"),
        ("https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXX", "https://hooks.slack.com/services/***"),
        ("xoxb-1234567890-abcdefghij and xapp-1-A012345-678-abcdef", "*** and ***"),
        ("xoxe.xoxp-1-abcdefghijkl", "***"),
        ("api_key=opensesame, more", "api_key=***, more"),
        ("x-api-key: abcd1234efgh.", "x-api-key: ***."),
        ('{"apiKey": "opensesame"}', '{"apiKey": "***"}'),
        ("Authorization: Basic YW5uOmh1c2g=", "Authorization: Basic ***"),
        ("Authorization: Bearer abcdefghijklmnopqrstuv", "Authorization: Bearer ***"),
        ("password: hush-hush-4711", "password: ***"),
        ("password: p@ssphrase", "password: ***"),
        ("Password: OpenSesame", "Password: ***"),
        ("DB_PASSWORD='open,sesame' now", "DB_PASSWORD='***' now"),
        (
            "AccountName=ann;AccountKey=abcd+efgh/ijkl==;EndpointSuffix=x",
            "AccountName=ann;AccountKey=***;EndpointSuffix=x",
        ),
        ("client_secret=opensesame", "client_secret=***"),
        ("https://x.com/a?token=opensesame&page=2&key=hush-hush#top", "https://x.com/a?token=***&page=2&key=***#top"),
        ("https://x.com/a?X-Amz-Signature=0123456789abcdef", "https://x.com/a?X-Amz-Signature=***"),
        ("postgresql://me:hu/sh@db:5432/x", "postgresql://***@db:5432/x"),
        ("postgresql://me:hu@sh@db:5432/x", "postgresql://***@db:5432/x"),
        ("postgresql://me:h@u/s@h@db:5432/x", "postgresql://***@db:5432/x"),
        ("amqp://a:hush@one,amqp://b:hush@two", "amqp://***@one,amqp://***@two"),
        ("redis://:123456@cache/0", "redis://***@cache/0"),
    ],
)
def test_secrets_of_well_known_shapes_are_hidden(text, hidden):
    hide = hiding()
    assert hide.names(text) == hidden
    assert hide.prose(text) == hidden
    assert hide.prose(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "Join on pk_customer_identifier with sk-learn-based-classifiers.",
        "The risk-assessment-of-the-customer bears bearer shares.",
        "See http://localhost:8080/a@b and mail ann@example.com.",
        "See http://{host}:{port}/a@b, or https://example.com/a:b@c.",
        "Be kind; ask task-force-seventeen-of-them.",
        "Password: required. Token: optional, never repeated.",
        "The secret: politeness. The password: whatever was agreed.",
        "Use api_key={api_key}, token=${TOKEN_OF_BANK}, password=$BANK_PASSWORD or secret=<your secret>.",
        "Ask for the password, e.g. password: abc.",
        "Get a token: https://example.com/v1/tokens",
        "At most max_tokens=4096000000; sort with key=customer_name.",
        "Authorization: Basic authentication, or Bearer authentication.",
        "hf_dataset_summarizer_assistant, npm_package_search, gsk_tools, xai-explainability",
        "Is it so?key=abc",
        "SG.Singapore.example",
        "hooks.slack.com/services/",
    ],
)
def test_ordinary_prose_is_left_alone(text):
    assert hiding().prose(text) == text


@pytest.mark.parametrize("piece", ["a-", "a.", "sk-a", "x://u:", "a@", "http://u:a@/", "?a-", "password:", "bearer a"])
def test_long_texts_are_read_in_no_time(piece):
    hiding().prose(piece * 100_000)  # this takes a part of a second, or hours


def test_secrets_of_the_environment_are_hidden(monkeypatch):
    monkeypatch.setenv("BANK_API_KEY", "open-sesame")
    monkeypatch.setenv("BANK_PASSWORD", "open-sesame-and-more")
    monkeypatch.setenv("SHORT_TOKEN", "kind")
    monkeypatch.setenv("GREETING", "good morning")
    text = "open-sesame-and-more, open-sesame, kind, good morning"
    assert hiding().prose(text) == "***, ***, kind, good morning"
    assert hiding().names(text) == text


@pytest.mark.parametrize("name", ["DB_PASS", "PASS", "DB_PASS_2", "DB_PASSWD", "db_passphrase", "DB_PWD"])
def test_environment_variables_with_other_names_count_as_well(monkeypatch, name):
    monkeypatch.setenv(name, "hush hush")
    assert hiding().prose("Say hush hush.") == "Say ***."


def test_environment_variables_that_only_sound_so_do_not(monkeypatch):
    for name in ("SSH_ASKPASS", "PWD", "OLDPWD", "COMPASS", "PASSENGER"):
        monkeypatch.setenv(name, "hush hush")
    monkeypatch.setenv("POSTGRES_PASSWORD", "postgres")
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres:postgres@db/bank")
    assert hiding().prose("Say hush hush to postgres.") == "Say hush hush to postgres."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql://ann:hush%2Fhush@db:5432/bank"),
        ("DATABASE_URL", "postgresql://ann:hush/hush@db:5432/bank"),
        ("BANK_DSN", "host=db user=ann password=hush/hush dbname=bank"),
        ("BANK_CONNECTION", "Server=db;Uid=ann;Pwd=hush/hush;"),
    ],
)
def test_of_an_address_only_the_password_is_secret(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert hiding().prose("Ask db of bank, it is hush/hush.") == "Ask db of bank, it is ***."
