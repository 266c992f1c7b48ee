"""How each shell asks what can follow on its line, and how the answers are quoted for it."""

from __future__ import annotations

import os
import re
import shlex

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
    split_arg_string,
)

_BASH = """\
%(complete_func)s() {
    local IFS=, type value
    COMPREPLY=()
    while read -r type value; do
        if [[ $type == plain ]]; then
            COMPREPLY+=("$value")
        else
            compopt -o default
        fi
    done < <(
        COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete "$1"
    )
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_FISH = """\
function %(complete_func)s
    set -lx %(complete_var)s fish_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    for completion in (%(prog_name)s)
        set -l found (string split -m 1 "," -- $completion)
        if test $found[1] = plain
            echo $found[2]
        else
            __fish_complete_path $found[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""
_SPECIAL = re.compile(r"[^\w@%+=:,./~-]")


@add_completion_class
class Bash(BashComplete):
    """Completion for bash, which inserts what it gets as it is, in place of a part of a word."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        # After a space, the next word begins, unless the space is quoted.
        incomplete = words.pop() if len(split_arg_string(f"{line}x")) == len(words) else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        if item.type != "plain":
            return super().format_completion(item)
        line = os.environ["COMP_WORDS"]
        quote = _find_open_quote(line)
        value = item.value if quote else _SPECIAL.sub(r"\\\g<0>", item.value)
        # Outside of quotes, bash has a word end at a colon, for example, and replaces only what follows.
        breaks = "".join(each for each in ":=" if each in os.environ.get("COMP_WORDBREAKS", ""))
        typed = "" if quote or not breaks else re.split(r"\s", line)[-1]
        start = max((typed.rfind(each) for each in breaks), default=-1) + 1
        return f"plain,{value.removeprefix(typed[:start])}"


@add_completion_class
class Fish(FishComplete):
    """Completion for fish, also of values with commas."""

    source_template = _FISH


def _find_open_quote(line: str) -> str:
    """Return the quote in which a line ends; empty if it ends in none."""
    found = next((each for each in ("", "'", '"') if _is_whole(line + each)), "")
    return "" if line.endswith("\\") else found


def _is_whole(line: str) -> bool:
    """Return True if all quotes of a line are closed."""
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True
