"""Tell a webhook how every sweep ended: a block and an automation on the Prefect server."""

import os

from prefect.automations import Automation
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.events.actions import SendNotification
from prefect.events.schemas.automations import EventTrigger, Posture

NAME = "modelmill-sweep-ended"

block = CustomWebhookNotificationBlock(
    name="modelmill",
    url=os.environ["NOTIFY_URL"],  # kept on the server, encrypted
    method="POST",
    json_data={"title": "{{subject}}", "text": "{{body}}"},
)
block_id = block.save(NAME, overwrite=True)

automation = Automation(
    name=NAME,
    trigger=EventTrigger(
        expect={
            "prefect.flow-run.Completed",
            "prefect.flow-run.Failed",
            "prefect.flow-run.Cancelled",
            "prefect.flow-run.Crashed",
        },
        match_related={
            "prefect.resource.role": "flow",
            "prefect.resource.name": "modelmill-sweep",
        },
        posture=Posture.Reactive,
        threshold=1,
    ),
    actions=[
        SendNotification(
            block_document_id=block_id,
            subject="modelmill {{ flow_run.name }}: {{ flow_run.state.name }}",
            body="{{ flow_run.state.message }}",
        )
    ],
)
automation.create()
print(f"{NAME} is set up")
