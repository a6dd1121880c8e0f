from dsa.edge.processes import environment_secrets
from dsa.runtime.secrets import SecretOptions


def test_existing_paths_are_not_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    monkeypatch.setenv("A_SECRET", f"{tmp_path}/gone")
    monkeypatch.setenv("B_SECRET", "~nobody-of-that-name/x" + "y" * 5000)
    monkeypatch.setenv("HOME_KEY", "~")
    names = environment_secrets().names
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in names
    assert {"A_SECRET", "B_SECRET"} <= set(names)


def test_secret_options_add_and_exclude_secrets(monkeypatch):
    monkeypatch.setenv("MY_WORD", "opensesame")
    monkeypatch.setenv("MY_KEY", "no-secret-at-all")
    secrets = environment_secrets(SecretOptions(("MY_WORD",), ("JIRA-[0-9]+",), ("MY_KEY",)))
    assert secrets.text("opensesame no-secret-at-all JIRA-1") == "[secret MY_WORD] no-secret-at-all [secret pattern-1]"
