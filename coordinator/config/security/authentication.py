"""Who is it: what is asked of whom before they are heard."""

from pydantic import BaseModel, Field


class AuthenticationSettings(BaseModel):
    http_probes_anonymous: bool = Field(
        default=True,
        alias="http.probes.anonymous",
        description="Whether the probes of the HTTP listener, and gRPC's health service, answer those who have not "
        "shown who they are (with authorizer=acl); they are told yes or no, without reasons.",
    )
    grpc_reflection_anonymous: bool = Field(
        default=False,
        alias="grpc.reflection.anonymous",
        description="Whether gRPC's reflection, which lists services and messages, answers them.",
    )
