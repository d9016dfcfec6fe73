"""Label Studio itself, with an empty database: adds an ML backend to a project and lets it annotate tasks.

Run by a Python that has the package `label-studio`. Arguments: the backend's URL, a folder. Standard input: the
project's `label_config` and the tasks' `texts`. Prints one line of JSON with what Label Studio has stored.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

OFF = dict.fromkeys(
    ["COLLECT_ANALYTICS", "LATEST_VERSION_CHECK", "ML_BLOCK_LOCAL_IP", "SSRF_PROTECTION_ENABLED"], "false"
)


def start(folder: str) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "core.settings.label_studio", "DJANGO_DB": "sqlite", **OFF}
    os.environ |= {"BASE_DATA_DIR": folder, "LOG_LEVEL": "ERROR"}
    import label_studio

    sys.path.insert(0, str(Path(label_studio.__file__).parent))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def main() -> None:
    url, folder = sys.argv[1:]
    given = json.load(sys.stdin)
    start(folder)
    from ml.models import MLBackend
    from organizations.models import Organization
    from projects.models import Project
    from tasks.models import Prediction, Task
    from users.models import User
    from webhooks.models import Webhook

    user = User.objects.create_user("a@example.com", "secret")
    organization = Organization.create_organization(created_by=user, title="one")
    user.active_organization = organization
    user.save()
    project = Project.objects.create(
        title="one", label_config=given["label_config"], created_by=user, organization=organization
    )
    tasks = [Task.objects.create(project=project, data={"text": text}) for text in given["texts"]]
    backend = MLBackend.objects.create(project=project, url=url, title="gliner", is_interactive=True)
    backend.update_state()
    backend.predict_tasks(Task.objects.filter(project=project))
    predictions = {one.task_id: one for one in Prediction.objects.filter(project=project)}
    stored = {
        "state": backend.get_state_display(),
        "error": backend.error_message,
        "model_version": backend.model_version,
        "versions": backend.get_versions().response,
        "webhooks": [hook.url for hook in Webhook.objects.filter(project=project)],
        "results": [predictions[task.id].result for task in tasks],
        "scores": [predictions[task.id].score for task in tasks],
        "interactive": backend.interactive_annotating(tasks[0], user=user),
    }
    backend.train()
    sys.stdout.write("\n" + json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
