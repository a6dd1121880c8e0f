"""`--certificate` of check and prove, and `dsa verify`."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program
from dsa.errors import DocumentError
from dsa.kernel import DEFINITION_4, TABLE

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
NEEDS = "not established, because the check needs FILE (`dsa verify CERTIFICATE FILE`): "


def dsa(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["prove", "check"])
def test_certificate_is_accepted_for_its_document_only(command):
    made = dsa(command, "workflow", "--certificate", "out.json")
    claims = json.loads(Path("out.json").read_text(encoding="utf-8"))["claims"]
    assert f"out.json: {len(claims)} claims; `dsa verify out.json` checks them" in made.stderr
    accepted = dsa("verify", "out.json", "workflow")
    assert accepted.exit_code == 0, accepted.stdout
    heading, *said = accepted.stdout.splitlines()
    assert len(said) == len(claims)
    assert all(line.startswith("certified        ") for line in said)
    alone = dsa("verify", "out.json")
    assert alone.exit_code == 0
    assert len(alone.stdout.splitlines()) == 1 + len(claims)
    for line in alone.stdout.splitlines()[1:]:
        assert line.startswith(f"not established  {NEEDS}" if TABLE in line else "certified        ")
    other = dsa("verify", "out.json", "dual_state")
    assert (other.exit_code, other.stdout) == (1, "")
    assert other.stderr.startswith(
        "out.json: refused: the certificate is about a different machine; the behaviour of dual_state has the digest "
    )
    told = json.loads(dsa("verify", "out.json", "workflow", "--json").stdout)
    assert (told["file"], told["accepted"]) == ("workflow", [heading, *(line[17:] for line in said)])
    assert {each["verdict"] for each in told["claims"]} == {"certified"}
    refused = json.loads(dsa("verify", "out.json", "dual_state", "--json").stdout)
    assert (refused["exit_code"], refused["failure"]["message"]) == (1, other.stderr.rstrip("\n"))


def test_uncertified_properties_are_reported():
    Path("m.md").write_text("# m\n\n## Transitions\n| source | event | target |\n|---|---|---|\n| a | go | a |\n\n"
                            "## Properties\n- always a\n- never a\n- a with probability >= 0.5\n", encoding="utf-8")  # fmt: skip
    made = dsa("check", "m.md", "--certificate", "out.json")
    assert "out.json: not certified: never a: it is VIOLATED" in made.stderr
    assert "out.json: not certified: a with probability >= 0.5: " in made.stderr
    said = [line[17:].split(":")[0] for line in dsa("verify", "out.json").stdout.splitlines()[1:]]
    assert said == ["no fault", "no deadlock", DEFINITION_4, "always a", NEEDS.removesuffix(": ")]
    missing = dsa("verify", "out.json", "m.md")
    assert missing.exit_code == 1
    assert [line for line in missing.stdout.splitlines() if line.startswith("not claimed")] == [
        "not claimed      never a",
        "not claimed      a with probability >= 0.5 (odds are not certified)",
    ]
    assert (
        missing.stderr
        == "out.json: 2 of the requirements and properties of FILE are not claimed (--allow-missing accepts this)\n"
    )
    assert dsa("verify", "out.json", "m.md", "--allow-missing").exit_code == 0
    assert dsa("verify", "out.json", "m.md", "--json").exit_code == 1


def test_certificate_is_for_one_machine():
    refused = dsa("check", "dual_state", "workflow", "--certificate", "out.json")
    assert refused.exit_code == 2
    assert "with --certificate, give only one FILE" in refused.stderr
    assert not Path("out.json").exists()


@cache
def certificate_text() -> str:
    """Return the certificate that `dsa prove` writes for dual_state, which is proved only once."""
    dsa("prove", "dual_state", "--certificate", "proved.json")
    return Path("proved.json").read_text(encoding="utf-8")


def certificate_of_dual_state() -> dict[str, Any]:
    return json.loads(certificate_text())


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ({"rmax": "-1"}, "rmax = -1 is outside its domain"),
        ({"rmax": " 3"}, "' 3' is not a value of rmax"),
        ({"rmax": "3", "more": "1"}, "the claim must give one value for each parameter, and no other values"),
        ({"rmax": "60000"}, "combinations of state, event, verdicts and values, which is more than 100000"),
    ],
)
def test_unusable_parameter_values_of_a_certificate_are_refused(at, why):
    content = certificate_of_dual_state()
    content["claims"] = [claim | {"at": at} for claim in content["claims"] if claim["form"] == TABLE]
    Path("out.json").write_text(json.dumps(content), encoding="utf-8")
    refused = dsa("verify", "out.json", "dual_state", "--allow-missing")
    assert refused.exit_code == 1
    assert why in refused.stdout
    assert "certified" not in refused.stdout


CLAIM = '{"form": "no fault", "parts": [], "proofs": []}'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not valid JSON"),
        (b"nothing at all", "it is not valid JSON"),
        (b"[" * 100_000, "it is not valid JSON"),
        (b"\x89PNG\r\n\x1a\n\x00", "is not UTF-8 text"),
        (b"[]", "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (b'"x"', "it is not a JSON object"),
        (b"{}", "its 'machine' must be a text"),
        (b'{"machine": "", "digest": 3, "claims": []}', "its 'digest' must be a text"),
        (b'{"machine": "", "digest": "", "claims": {}}', "its 'claims' must be a list"),
        (b'{"machine": "", "digest": "", "claims": [1]}', "claim 1 must be an object with a text 'form'"),
        (b'{"machine": "", "digest": "", "claims": [%s, {}]}' % CLAIM.encode(), "claim 2 must be an object with a text 'form'"),
    ],
)  # fmt: skip
def test_invalid_certificate_is_unreadable(content, why):
    Path("out.json").write_bytes(content)
    with pytest.raises(DocumentError) as said:  # `main` turns it into a message and exit code 2
        program(["verify", "out.json"], standalone_mode=False)
    assert str(said.value).startswith("out.json: is n")
    assert why in str(said.value)
    assert len(str(said.value).splitlines()) == 1


def test_folder_is_unreadable():
    Path("folder").mkdir()
    with pytest.raises(DocumentError, match="folder: Is a directory"):
        program(["verify", "folder"], standalone_mode=False)


def refusal(change) -> str:
    """Return the message that refuses the certificate of dual_state after a change."""
    content = certificate_of_dual_state()
    change(content)
    Path("out.json").write_text(json.dumps(content), encoding="utf-8")
    refused = dsa("verify", "out.json")
    assert refused.exit_code == 1
    assert len(refused.stderr.splitlines()) == 1
    lines = [line for line in refused.stdout.splitlines() if line.startswith("refused ")]
    return "\n".join(lines) or refused.stderr.removeprefix("out.json: refused: ").rstrip()


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (["digest"], "0", "the digest does not match the machine"),
        (["machine"], "# other", "the digest does not match the machine"),
        (["claims", 0, "proofs"], [], "a fault is possible"),
        (["claims", 0, "proofs", 0], 7, "claim 1: it is not in the form that the kernel reads"),
        (["claims", 1, "form"], "always {}", "claim 2: the number of parts does not match 'always {}'"),
        (["claims", 2, "ranks"], {}, "claim 3: "),
        (["claims", 3, "parts"], ["retries < rmax"], "not always retries < rmax"),
        (["claims", -1, "at"], {"rmax": "many"}, "claim 11: 'many' is not a value of rmax"),
    ],
)
def test_wrong_certificate_is_refused_with_a_reason(place, value, why):
    def change(content):
        *path, last = place
        for key in path:
            content = content[key]
        content[last] = value

    assert why in refusal(change)


def test_unreadable_files_are_errors_and_not_refusals():
    assert dsa("check", "dual_state", "--certificate", "out.json").exit_code == 0
    for arguments in ["nothing.json"], ["out.json", "nothing.md"]:
        assert isinstance(
            dsa("verify", *arguments).exception, DocumentError
        )  # `main` turns it into a message and exit code 2


@pytest.mark.parametrize(
    "name", ["philosophers", "credit_check", pytest.param("two_phase_commit", marks=pytest.mark.full)]
)
def test_kernel_certifies_the_rows_of_a_family(name):
    certificate, document = "certificate.json", str(FAMILIES / f"{name}.md")
    assert dsa("prove", document, "--certificate", certificate).exit_code == 0
    verified = dsa("verify", certificate, document)
    assert verified.exit_code == 0, verified.output
    assert "refused" not in verified.output
