"""A certificate authority of the tests."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """A certificate authority that signs a certificate for a name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self.certificate = self._sign(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None), _SIGNS)

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *critical: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            # Python 3.13 verifies strictly, so each certificate identifies its key and the key of its authority.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        for each in critical:
            builder = builder.add_extension(each, critical=True)
        return builder.sign(self.key, hashes.SHA256())

    def serving(self, name: str) -> ssl.SSLContext:
        """Return the TLS context of a server with this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
        certificate = self._sign(x509.Name([]), key, x509.SubjectAlternativeName(names))
        path = self.folder / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def trusted(self) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts only this authority."""
        return ssl.create_default_context(cadata=self._pem().decode())

    def bundle(self) -> Path:
        """Write a file of trusted certificates with this authority alone, and return its path."""
        path = self.folder / "authorities.pem"
        path.write_bytes(self._pem())
        return path

    def _pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)
