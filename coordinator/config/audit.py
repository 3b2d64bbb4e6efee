"""Where it is written who did what, and who was refused."""

from pydantic import BaseModel, Field

from muster.coordinator.config.values import FileText


class AuditSettings(BaseModel):
    audit_log: FileText = Field(
        default=FileText(""),
        alias="audit.log",
        description="With authorizer=acl: the file to which each act of administration, each refusal and each failed "
        "login is appended, a JSON object a line; empty means the node's own log.",
    )
