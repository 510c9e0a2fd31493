"""Templates over a row: minijinja, sandboxed, strict about undefined names, with fuel.

Owns: compiling the config's templates and rendering them. Refuses to know: what the text is for.
A template's values are data: braces inside a row's text are never evaluated.
"""

from collections.abc import Mapping
from typing import Final

from minijinja import Environment, TemplateError

from batchinfer.config.schema import RequestTemplate
from batchinfer.errors import ConfigError

FUEL: Final = 1_000_000
"""Instructions one rendering may take; a loop without end stops there."""

MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters one rendering may give."""


MISTAKES: Final = frozenset({"SyntaxError", "UnknownFilter", "UnknownTest", "TemplateNotFound"})
"""Kinds of errors that are the template's and no row's."""

_rehearsal: Final = Environment(undefined_behavior="chainable", fuel=FUEL, debug=False)
"""Renders without a row: a filter's name is looked up no sooner than that."""


class RenderError(ValueError):
    """A row does not fit the template; the text says how."""


class Template:
    """The dialogue that the config asks for each data row; `names` are the fields it uses."""

    def __init__(self, request: RequestTemplate) -> None:
        self._env = Environment(
            undefined_behavior="strict", fuel=FUEL, keep_trailing_newline=True, debug=False
        )
        self._system = "request.system" if request.system else ""
        turns = [
            (turn.role, f"request.messages.{index}.content", turn.content)
            for index, turn in enumerate(request.messages)
        ]
        if request.prompt:
            turns.append(("user", "request.prompt", request.prompt))
        self._turns = [(role, name) for role, name, _ in turns]
        texts = {name: text for _, name, text in turns}
        if request.system:
            texts["request.system"] = request.system
        for name, text in texts.items():
            self._compile(name, text)
        self.names: frozenset[str] = frozenset().union(
            *(self._env.undeclared_variables_in_str(text) for _, _, text in turns)
        )

    def _compile(self, name: str, text: str) -> None:
        try:
            self._env.add_template(name, text)
            _rehearsal.render_str(text, name, row={})
        except TemplateError as error:
            if error.kind in MISTAKES:
                text = f"{name}: the template is not valid: {error.args[0]}"
                raise ConfigError(text) from error

    def uses(self, member: str) -> bool:
        """Whether a row's member is data for the template (all are, where it names `row`)."""
        return member in self.names or "row" in self.names

    def fits(self, row: Mapping[str, object]) -> bool:
        """Whether a row has all that the template asks for."""
        return bool(self.names) and self.names - {"row"} <= row.keys()

    def __bool__(self) -> bool:
        """Whether data rows can be sent at all."""
        return bool(self._turns)

    def system(self, row: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
        """Return the system turn for a row, or nothing."""
        return (("system", self._render(self._system, row)),) if self._system else ()

    def turns(self, row: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
        """Return the whole dialogue for a data row; RenderError when the row does not fit."""
        rendered = tuple((role, self._render(name, row)) for role, name in self._turns)
        return self.system(row) + rendered

    def _render(self, name: str, row: Mapping[str, object]) -> str:
        try:
            text = self._env.render_template(name, **{"row": row, **row})
        except TemplateError as error:
            raise RenderError(self._reason(error, row)) from error
        if len(text) > MAX_TEXT:
            raise RenderError(f"the template gives a text of {len(text):,} characters")
        return text

    def _reason(self, error: TemplateError, row: Mapping[str, object]) -> str:
        missing = sorted(self.names - row.keys() - {"row"})
        if error.kind == "UndefinedError" and missing:
            return f"the template uses {', '.join(missing)}, which this row does not have"
        what = str(error.args[0])[:200] if error.args else error.kind
        return f"the template cannot be rendered for this row: {what}"
