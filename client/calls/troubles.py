"""What went wrong between two sides that do not trust each other, in words: gRPC tells it in its detail alone."""

HANDSHAKE = (
    (
        "certificate has expired",
        "shows a certificate that has expired; its operator has to renew it (muster doctor says when the others end)",
    ),
    (
        "certificate is not yet valid",
        "shows a certificate that is not valid yet; are the clocks of both machines right?",
    ),
    (
        "Hostname Verification Check failed",
        "shows a certificate for another name; use the name that is on it in bootstrap.servers, or say it with "
        "ssl.target.name",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "shows a certificate of a CA that this client does not trust; put that CA into ssl.truststore.location",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "does not speak TLS; is it a plaintext port (security.protocol=PLAINTEXT), or the wrong one?",
    ),
    (
        "Failed to create security handshaker",
        "was not asked: what this client has to show cannot be used; expected in ssl.keystore.* a certificate and the "
        "key that belongs to it, in ssl.truststore.* certificates",
    ),
    (
        "CERTIFICATE_REQUIRED",
        "asks for a certificate of this client; set ssl.keystore.location",
    ),
    (
        "UNKNOWN_CA",
        "does not trust the certificate of this client; is it of a CA in the node's ssl.truststore.location?",
    ),
)
"""Signs in gRPC's and BoringSSL's words, and what is said of the address."""

CLOSED = "Socket closed"
CLOSED_ON_US = (
    "the connection was ended right after the handshake: the node may want a certificate of this client "
    "(ssl.keystore.location), or not trust the one it was shown, or it has just gone"
)


def describe_handshake_failure(detail: str) -> str | None:
    """What is wrong with certificates, as a predicate of the address; None where it is something else.

    >>> describe_handshake_failure("SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER")
    'does not speak TLS; is it a plaintext port (security.protocol=PLAINTEXT), or the wrong one?'
    """
    return next((words for sign, words in HANDSHAKE if sign in detail), None)
