"""`longtalk doctor`, `migrate` and `backup`."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from longtalk import Archive, Conversation
from longtalk.cli import doctor
from longtalk.cli.backup import back_up, migrate
from longtalk.cli.doctor import _check_clock, examine
from longtalk.errors import InputError, StoreError
from longtalk.service.access import AccessKeys
from longtalk.service.storage.factory import open_storage
from longtalk.stores import open_store
from longtalk.stores.redis.store import Redis
from longtalk.testing import Scripted, says
from longtalk.transcript.transcript import now
from tests.cli.helpers import longtalk
from tests.support import postgres_server, redis_server


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def look(tmp_path: Path, text: str = "") -> dict[str, list[str]]:
    """Return what the doctor finds with these settings: texts by level."""
    path = tmp_path / "s.toml"
    path.write_text(f"store = '{tmp_path / 't.db'}'\ndefault_model = 'ollama:x'\n{text}")
    found: dict[str, list[str]] = {"ok": [], "warning": [], "error": []}
    for level, what, said in examine(str(path), None):
        found[level].append(f"{what}: {said}")
    return found


def test_a_store_that_does_not_exist_is_named_and_not_created(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found["warning"] == [f"store: {tmp_path / 't.db'} does not exist yet: `longtalk serve` creates it"]
    assert found["error"] == []
    assert not (tmp_path / "t.db").exists()


def test_the_default_store_is_not_created_by_a_check(tmp_path: Path) -> None:
    assert any("does not exist yet" in each.text for each in examine(None, None))
    assert not (tmp_path / "data").exists()


def test_a_good_installation_has_no_errors(tmp_path: Path) -> None:
    open_store(str(tmp_path / "t.db")).close()
    found = look(tmp_path)
    assert (found["warning"], found["error"]) == ([], [])
    subjects = [each.partition(":")[0] for each in found["ok"]]
    assert subjects == ["versions", "settings", "store", "keys", "API keys", "model"]


def test_keys_of_providers_are_named_with_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    file = tmp_path / "config" / "longtalk" / "credentials.toml"
    file.parent.mkdir(parents=True)
    file.write_text("groq = 'gsk-secret'")
    file.chmod(0o600)
    (found,) = [each for each in look(tmp_path)["ok"] if each.startswith("API keys")]
    assert "groq (stored)" in found
    assert "ANTHROPIC_API_KEY" in found
    assert "secret" not in found


@pytest.mark.parametrize(
    ("text", "level", "said"),
    [
        ("port = 'x'", "error", "settings: The settings can't be used"),
        ("host = '0.0.0.0'", "error", "Run: longtalk keys add NAME"),
        ("policy = 'Nonsense()'", "error", "is not a policy"),
        ("[models.tutor]\nmodel = 'nothing:x'", "error", "model: tutor: "),
        ("[jwt]\nissuer = 'i'\naudience = 'a'\nkey_file = '/nowhere.pem'", "error", "jwt: The key file"),
        ("[models.tutor]\nmodel = 'compatible:x'\nbase_url = 'http://h/v1'\n[limits]\ncost_per_day = 1",
         "warning", "model: tutor: Cost is limited"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(tmp_path: Path, text: str, level: str, said: str) -> None:
    assert any(said in each for each in look(tmp_path, text)[level])


def test_a_store_of_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"This is not a database, by any means. " * 100)
    assert any(each.startswith("store:") for each in look(tmp_path)["error"])


def test_expired_keys_and_readable_credentials_are_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "t.db"))
    storage = open_storage(store)
    AccessKeys(storage).add("old laptop", "ada", expires=1)
    AccessKeys(storage).add("phone", "ada")
    storage.close()
    store.close()
    file = tmp_path / "config" / "longtalk" / "credentials.toml"
    file.parent.mkdir(parents=True)
    file.write_text("")
    file.chmod(0o644)
    found = look(tmp_path, "host = '0.0.0.0'")
    assert any("old laptop" in each for each in found["warning"])
    assert any("chmod 600" in each for each in found["error"])
    assert "keys: 1 in use" in found["ok"]


def test_the_exit_status_says_whether_the_service_can_run(environment: dict[str, str], tmp_path: Path) -> None:
    home = {**environment, "XDG_CONFIG_HOME": str(tmp_path / "config"), "LONGTALK_DEFAULT_MODEL": "ollama:x"}
    good = longtalk("doctor", environment=home)
    assert (good.returncode, good.stderr) == (0, "The service can run.\n")
    bad = longtalk("doctor", environment={**home, "LONGTALK_HOST": "0.0.0.0"})
    assert (bad.returncode, "error\tkeys\t" in bad.stdout) == (1, True)


def talk(path: str) -> None:
    store = open_store(path)
    Conversation("c", model=Scripted(says("Hi.")), store=store).send("Hello.")
    storage = open_storage(store)
    AccessKeys(storage).add("laptop", "ada")
    storage.close()
    store.close()


@pytest.mark.parametrize("name", ["talks.db", "talks/"])
def test_a_backup_has_conversations_and_keys_and_only_the_user_can_read_it(tmp_path: Path, name: str) -> None:
    source, copy = f"{tmp_path}/{name}", f"{tmp_path}/copy-{name}"
    talk(source)
    back_up(to=copy, as_json=False, settings=None, store=source)
    store = open_store(copy, make=False)
    assert [each.text for each in Archive(store).history("c")] == ["Hello.", "Hi."]
    assert store.verify("", "c") == []
    storage = open_storage(store)
    assert [key.name for key in AccessKeys(storage).list()] == ["laptop"]
    storage.close()
    store.close()
    assert stat.S_IMODE(Path(copy).stat().st_mode) & 0o077 == 0


def test_a_backup_during_turns_is_a_moment_of_the_store(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    store = open_store(path)
    conversation = Conversation("c", model=Scripted(*(says(f"{i}") for i in range(40))), store=store)
    conversation.send("0")
    begun = threading.Event()

    def go_on() -> None:
        for i in range(1, 40):
            conversation.send(f"{i}")
            begun.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    assert begun.wait(30)
    back_up(to=str(tmp_path / "copy.db"), as_json=False, settings=None, store=path)
    thread.join()
    store.close()
    copy = open_store(str(tmp_path / "copy.db"), make=False)
    history = [each.text for each in Archive(copy).history("c")]
    assert len(history) >= 4
    assert history == [f"{i // 2}" for i in range(len(history))]
    assert copy.verify("", "c") == []
    copy.close()


def test_a_backup_never_overwrites(tmp_path: Path) -> None:
    talk(str(tmp_path / "t.db"))
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        back_up(to=str(tmp_path / "copy.db"), as_json=False, settings=None, store=str(tmp_path / "t.db"))
    assert (tmp_path / "copy.db").read_text() == "precious"


@pytest.mark.parametrize(
    ("address", "tool"), [("postgresql://u:secret@h/d", "pg_dump"), ("redis://u:secret@h:1", "BGSAVE")]
)
def test_servers_are_backed_up_by_their_own_tools(address: str, tool: str) -> None:
    with pytest.raises(InputError, match=tool) as caught:
        back_up(to="x", as_json=False, settings=None, store=address)
    assert "secret" not in str(caught.value)


def test_migrating_creates_what_is_missing_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        migrate(as_json=False, settings=None, store=str(tmp_path / "t.db"))
    assert capsys.readouterr().err.count("is up to date") == 2


@pytest.mark.parametrize("address", ["redis://127.0.0.1:1", "postgresql://127.0.0.1:1/x"])
def test_a_server_that_can_not_be_reached_is_not_up_to_date(address: str) -> None:
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1"):
        migrate(as_json=False, settings=None, store=address)


@pytest.mark.slow
def test_the_clocks_of_servers_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = postgres_server.server().store(), Redis(redis_server.single().url)
    for store in stores:
        assert [each.level for each in _check_clock(store)] == ["ok"]
    late = now() + 60_000
    monkeypatch.setattr(doctor, "now", lambda: late)
    for store in stores:
        (found,) = _check_clock(store)
        assert (found.level, "NTP" in found.text) == ("error", True)
        store.close()


def test_a_folder_in_which_no_store_can_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("A file in the place of a folder.")
    assert any("can't be created" in each.text for each in examine(None, None) if each.level == "error")


def test_a_file_that_can_not_be_used_is_named_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("A file in the place of a folder.")
    done = longtalk("config", "set", "default_model", "ollama:x", environment=dict(os.environ))
    assert (done.returncode, "Errno" in done.stderr) == (1, False)
    assert done.stderr.startswith(f"longtalk: Can't use '{tmp_path}/config")
