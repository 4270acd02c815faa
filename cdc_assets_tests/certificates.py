"""Certificates of tests."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(folder: Path, password: bytes | None = None) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, which is its own authority, and its key; both as PEM.

    Args:
        folder: for them.
        password: of the key; None for none.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = made.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    (folder / "key.pem").write_bytes(text)
    (folder / "cert.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return folder / "cert.pem", folder / "key.pem"
