"""Calls LiteLLM's own guardrail class, from PyPI and unmodified: reads calls as lines of JSON, writes what each returns
or raises. Runs in an interpreter that has litellm."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from litellm.proxy.guardrails.guardrail_hooks.generic_guardrail_api.generic_guardrail_api import GenericGuardrailAPI


async def _called(options: dict[str, Any], ids: dict[str, str], call: dict[str, Any]) -> Any:
    guard = GenericGuardrailAPI(guardrail_name="personal-data", event_hook="pre_call", default_on=True, **options)
    try:
        return await guard.apply_guardrail(**call, logging_obj=SimpleNamespace(model_call_details={}, **ids))
    except Exception as error:  # whatever the class raises
        return {"raised": type(error).__name__, "message": str(error)}


async def _main() -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(await _called(**json.loads(line))) + "\n")
        sys.stdout.flush()


asyncio.run(_main())
