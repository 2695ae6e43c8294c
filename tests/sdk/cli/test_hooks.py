from __future__ import annotations

import json
from typing import Any

import httpx


def test_a_hook_is_made_used_renewed_and_removed(trainlet: Any) -> None:
    made = trainlet("hook", "create", "--adapter", "alertmanager", "--json")
    shown = json.loads(made.stdout)
    body = {"receiver": "r", "alerts": []}

    def post(secret: str) -> int:
        return httpx.post(shown["url"], json=body, headers={"Authorization": f"Bearer {secret}"}).status_code

    assert post(shown["secret"]) == 202 and post("other") == 401
    renewed = trainlet("hook", "rotate", "alertmanager", "--grace", "0")
    assert "Bearer" in renewed.stderr
    secret = renewed.stdout.split("secret")[1].strip()
    assert post(secret) == 202 and post(shown["secret"]) == 401
    listed = trainlet("hook", "ls")
    assert f"alertmanager\tbearer\t{shown['url']}\tany\t20" in listed.stdout and secret not in listed.stdout
    assert trainlet("hook", "rm", "alertmanager").stdout == "The hook alertmanager bearer is removed.\n"
    gone = trainlet("hook", "rotate", "alertmanager")
    assert gone.returncode == 2 and gone.stderr == "trainlet: There is no hook alertmanager. There are: none.\n"
