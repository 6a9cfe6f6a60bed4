"""Keys and certificates for hosts on one machine, by a CA whose key is not kept.

For many hosts, the operator makes certificates; see the page on deployments.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)
from cryptography.x509.oid import NameOID

from secure_fedrec.core.files import replace_file

_DAYS = 365
_LOOPBACK = "127.0.0.1"


def make_certificates(folder: Path) -> None:
    """A CA's certificate ``ca.pem``, and ``superlink.pem`` with its key for the loopback address.

    Raises:
        OSError: a file cannot be written.
    """
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root, name = _named("secure-fedrec deployment"), _named("superlink")
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    signing = x509.BasicConstraints(ca=True, path_length=0)
    ca = _begun(root, root, authority.public_key()).add_extension(signing, critical=True)
    ca = ca.add_extension(usage, critical=True)
    where = x509.SubjectAlternativeName([x509.IPAddress(ip_address(_LOOPBACK))])
    own = _begun(name, root, server.public_key()).add_extension(where, critical=False)
    for file, made in (("ca.pem", ca), ("superlink.pem", own)):
        signed = made.sign(authority, SHA256())
        replace_file(folder / file, signed.public_bytes(Encoding.PEM))
    key = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    replace_file(folder / "superlink.key", key, private=True)


def node_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Public half of the key by which a SuperLink knows a SuperNode; made if it is missing.

    Raises:
        OSError: a file cannot be written or read.
    """
    if not path.exists():
        made = ec.generate_private_key(ec.SECP384R1())
        data = made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        replace_file(path, data, private=True)
    key = load_ssh_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise OSError(0, "holds no key of an elliptic curve", str(path))
    return key.public_key()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_DAYS))
    )
