"""Print what completes commands, options and names of bundled instances in a shell."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence

from jigsaw_opt.cli.common.arguments import Arguments
from jigsaw_opt.cli.common.parser import commands_of

_NOTES = {
    "bash": 'eval "$(jigsaw completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(jigsaw completion zsh)" in ~/.zshrc',
    "fish": "jigsaw completion fish > ~/.config/fish/completions/jigsaw.fish",
}
_BASH = """\
# {note}
_jigsaw() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="${{COMP_WORDS[1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W {commands} -- "$word"))
        return
    fi
    case "$command:$before" in
{choices}
    esac
    if [ -z "$words" ]; then
        case "$command" in
{words}
        esac
        COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}}
complete -o filenames -F _jigsaw jigsaw
"""
ARGUMENTS: Arguments = {"shell bash|zsh|fish": "which shell"}


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from jigsaw_opt.cli import COMMANDS

    write = _fish if arguments.shell == "fish" else _bash
    print(write(commands_of(COMMANDS), arguments.shell), end="")
    return 0


def _bash(commands: Mapping[str, argparse.ArgumentParser], shell: str) -> str:
    words, choices = [], []
    for name, parser in commands.items():
        own = [option for action in _options(parser) for option in action.option_strings]
        words.append(f"            {name}) words={shlex.quote(' '.join([*own, *_instances(parser)]))} ;;")
        for action in _options(parser):
            patterns = "|".join(f"{name}:{option}" for option in action.option_strings)
            if action.choices is not None:
                choices.append(f"        {patterns}) words={shlex.quote(' '.join(map(str, action.choices)))} ;;")
    first = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return first + _BASH.format(
        note=_NOTES[shell], commands=shlex.quote(" ".join(commands)), words="\n".join(words), choices="\n".join(choices)
    )


def _fish(commands: Mapping[str, argparse.ArgumentParser], shell: str) -> str:
    lines = [f"# {_NOTES[shell]}", "complete -c jigsaw -n __fish_use_subcommand -f"]
    for name, parser in commands.items():
        about = shlex.quote(str(parser.description or "").splitlines()[0])
        lines.append(f"complete -c jigsaw -n __fish_use_subcommand -a {name} -d {about}")
        seen = f"complete -c jigsaw -n '__fish_seen_subcommand_from {name}'"
        if _instances(parser):
            lines.append(f"{seen} -a {shlex.quote(' '.join(_instances(parser)))}")
        lines += [f"{seen} {part}" for action in _options(parser) for part in _fish_option(action)]
    return "\n".join([*lines, ""])


def _fish_option(action: argparse.Action) -> Iterator[str]:
    names = [f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}" for option in action.option_strings]
    takes = "" if action.nargs == 0 else " -r"
    values = "" if action.choices is None else f" -f -a {shlex.quote(' '.join(map(str, action.choices)))}"
    yield f"{' '.join(names)}{takes}{values} -d {shlex.quote((action.help or '').replace('%%', '%'))}"


def _options(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and action.help is not argparse.SUPPRESS]


def _instances(parser: argparse.ArgumentParser) -> Sequence[str]:
    """Return names of the bundled instances, where a command takes one."""
    from jigsaw_opt.instances.catalogue import names

    asked = ("instance", "instances", "documents")
    return names() if any(action.dest in asked and not action.option_strings for action in parser._actions) else ()
