"""Every option's name is written where it is declared: typer does not derive all names alike.

Typer 0.27, for one, derives an option's name from its metavar.
"""

import inspect
from typing import Annotated, get_args

import pytest
import typer
from typer.models import ArgumentInfo, OptionInfo

from glasshead.cli import COMMANDS, app

GROUP = typer.main.get_command(app)
FUNCTIONS = {**COMMANDS, "glasshead": app.registered_callback.callback}


def declared(function):
    """What stands beside the type of each parameter, except of the context, which typer passes."""
    return {
        name: list(get_args(parameter.annotation)[1:])
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.annotation is not typer.Context
    }


def written_names(option):
    """In an annotation the first name is passed as `default`, which is `...` without a name."""
    written = [option.default, *(option.param_decls or ())]
    return [name for names in written if names is not ... for name in names.split("/")]


@pytest.mark.parametrize("word", FUNCTIONS)
def test_every_parameter_is_an_argument_or_an_option_with_a_written_name(word):
    for name, infos in declared(FUNCTIONS[word]).items():
        [info] = infos
        assert isinstance(info, OptionInfo | ArgumentInfo), name
        if isinstance(info, OptionInfo):
            assert written_names(info), f"parameter {name} of {word} has no written option name"
            assert all(written.startswith("-") for written in written_names(info)), name


@pytest.mark.parametrize("word", COMMANDS)
def test_options_have_the_names_written_and_arguments_those_of_the_function(word):
    params = {param.name: param for param in GROUP.commands[word].params}
    infos = declared(COMMANDS[word])
    assert {*params} - {"help"} == {*infos}
    for name, [info] in infos.items():
        if isinstance(info, OptionInfo):
            found = {*params[name].opts, *params[name].secondary_opts}
            assert found == {*written_names(info)}
        else:
            assert params[name].param_type_name == "argument"
            assert params[name].metavar == info.metavar


def test_an_option_without_a_written_name_is_found():
    def command(device: Annotated[str, typer.Option(metavar="DEVICE")]) -> None: ...

    [[info]] = declared(command).values()
    assert not written_names(info)
