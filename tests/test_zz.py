from tests.fakes import upstream
from tests.server.gateway.harness import boxed, gateway
def test():
    with upstream(boxed(1)) as r, gateway(r) as running:
        a = running.post("/v1/responses", {"model":"m","messages":[{"role":"user","content":"x"}],"input":"x","stream":True})
        print(a.text)
        raise SystemExit
