"""An issuer of tokens: prints its keys, and tokens signed with them, as JSON. Everything is made by PyJWT."""

import json
import sys
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

now = int(time.time())
keys = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "PS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
algorithms = jwt.algorithms.get_default_algorithms()


def public(name, key):
    jwk = algorithms[name].to_jwk(key.public_key(), as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, "kid": name, "use": "sig", "alg": name}


def token(name, key_id=None, **claims):
    claims = {"iss": "https://idp.example", "aud": ["shop"], "sub": "ann", "exp": now + 600, "iat": now, **claims}
    return jwt.encode(claims, keys[name], name, headers={"kid": key_id or name})


print(json.dumps({
    "keys": json.dumps({"keys": [public(name, key) for name, key in keys.items()]}),
    "rotated": json.dumps({"keys": [{**public("ES256", keys["ES256"]), "kid": "next"}]}),
    "tokens": {name: token(name, scope="read orders:write") for name in keys},
    "expired": token("RS256", exp=now - 600),
    "other_audience": token("ES256", aud="bank"),
    "read_only": token("ES256", scope="read", sub="bob"),
    "next": token("ES256", "next", scope="orders:write"),
    "made_up": [token("ES256", f"made-up-{number}") for number in range(int(sys.argv[1]))],
    "secret": jwt.encode({"iss": "i", "aud": "a", "exp": now + 600, "sub": "cron"}, "0123456789abcdef" * 2, "HS256"),
}))
