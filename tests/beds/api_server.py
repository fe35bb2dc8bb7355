"""A Kubernetes API for kubectl: it takes, lists and removes objects, checks them against the official schemas, and gives its
pods a log. No scheduler, no kubelet: what the jobs do is written into their status by the test.

    with ApiServer(folder) as api:
        subprocess.run(["kubectl", "create", "-f", "job.yaml"], env={**env, "KUBECONFIG": api.config})
        api.objects["jobs", "default", "night"]["status"] = {"active": 2}
"""

import http.server
import json
import os
import shutil
import threading
import urllib.parse

# group, version, kind, plural
KINDS = [("", "v1", "Secret", "secrets"), ("", "v1", "Service", "services"), ("", "v1", "Pod", "pods"), ("", "v1", "Namespace", "namespaces"),
         ("batch", "v1", "Job", "jobs"), ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
         ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"), ("batch.volcano.sh", "v1alpha1", "Job", "jobs")]


def missing():
    return "" if shutil.which("kubectl") else "Kubernetes needs the program 'kubectl' (Debian: kubernetes-client)"


def field(number, value):
    """One field of a protobuf message: text, or a message that is encoded already."""
    data = value.encode() if isinstance(value, str) else value
    size, length = b"", len(data)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def openapi_v2():
    """The same as openapi() below for kubectl before 1.27, which reads protobuf (gnostic's openapi.v2.Document)."""
    paths = b""
    for group, version, kind, plural in KINDS:
        query = b"".join(field(8, field(1, field(2, field(3, field(2, "query") + field(4, name))))) for name in ("dryRun", "fieldValidation"))
        names = field(13, field(1, "x-kubernetes-group-version-kind") + field(2, field(2, f"group: \"{group}\"\nversion: {version}\nkind: {kind}\n")))
        prefix = f"/apis/{group}/{version}" if group else "/api/v1"
        item = field(1, f"{prefix}/namespaces/{{namespace}}/{plural}/{{name}}") + field(2, field(8, query + names))
        paths += field(2, item)
    return field(1, "2.0") + field(2, field(1, "bed") + field(2, "1")) + field(8, paths)


class ApiServer:
    def __init__(self, folder):
        self.objects = {}  # (group, plural, namespace, name) -> object
        self.calls = []  # method and path
        self.logs = {}  # pod -> text, or None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, body, code=200, kind="application/json"):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def status(self, code, reason, message):
                self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}, code)

            def handle_all(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length and self.command == "POST" else None
                url = urllib.parse.urlsplit(self.path)
                outer.calls.append(f"{self.command} {self.path}")
                outer.handle(self, url.path, dict(urllib.parse.parse_qsl(url.query)), body)

            do_GET = do_POST = do_DELETE = handle_all

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.config = os.path.join(folder, "kubeconfig")
        with open(self.config, "w") as out:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "bed",
                       "clusters": [{"name": "bed", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
                       "users": [{"name": "me", "user": {}}],
                       "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "me", "namespace": "default"}}]}, out)

    @staticmethod
    def resources(group, version):
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}" if group else version,
                "resources": [{"name": plural, "singularName": kind.lower(), "namespaced": kind != "Namespace", "kind": kind,
                               "verbs": ["create", "delete", "get", "list", "patch", "watch"]}
                              for g, v, kind, plural in KINDS if (g, v) == (group, version)]}

    @staticmethod
    def openapi(group, version):
        """What kubectl looks for: that objects may be tried (dryRun) and checked by the server (fieldValidation)."""
        prefix = f"/apis/{group}/{version}" if group else "/api/v1"
        return {"openapi": "3.0.0", "info": {"title": "bed", "version": "1"}, "paths": {
            f"{prefix}/namespaces/{{namespace}}/{plural}/{{name}}": {"patch": {
                "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}},
                               {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind}}}
            for g, v, kind, plural in KINDS if (g, v) == (group, version)}}

    def handle(self, to, path, query, body):
        groups = sorted({(g, v) for g, v, _, _ in KINDS})
        parts = path.strip("/").split("/")
        if path == "/api":
            return to.answer({"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            return to.answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": g, "versions": [{"groupVersion": f"{g}/{v}", "version": v}],
                 "preferredVersion": {"groupVersion": f"{g}/{v}", "version": v}} for g, v in groups if g]})
        if path == "/version":
            return to.answer({"major": "1", "minor": "32", "gitVersion": "v1.32.0"})
        if path == "/openapi/v2":
            return to.answer(openapi_v2(), kind="application/octet-stream")
        if path == "/openapi/v3":
            return to.answer({"paths": {(f"apis/{g}/{v}" if g else f"api/{v}"): {"serverRelativeURL": f"/openapi/v3/{'apis/' + g if g else 'api'}/{v}"}
                                        for g, v in groups}})
        if path.startswith("/openapi/v3/"):
            return to.answer(self.openapi(parts[3] if parts[2] == "apis" else "", parts[-1]))
        group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
        if parts[0] not in ("api", "apis"):
            return to.status(404, "NotFound", path)
        if not rest:
            return to.answer(self.resources(group, parts[2] if parts[0] == "apis" else parts[1]))
        if rest[0] != "namespaces" or len(rest) < 3:
            return to.status(404, "NotFound", path)
        space, plural = rest[1], rest[2]
        if to.command == "POST":
            name = body["metadata"]["name"]
            why = self.wrong(body)
            if why:
                return to.status(422, "Invalid", f"{body['kind']} \"{name}\" is invalid: {why}")
            if (group, plural, space, name) in self.objects:
                return to.status(409, "AlreadyExists", f"{plural} \"{name}\" already exists")
            if "dryRun" not in query:
                self.objects[group, plural, space, name] = {**body, "metadata": {**body["metadata"], "namespace": space}, "status": {}}
            return to.answer(body, 201)
        if len(rest) == 3:
            wanted = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
            found = [one for (g, p, s, _), one in self.objects.items() if (g, p, s) == (group, plural, space)
                     and wanted.items() <= one["metadata"].get("labels", {}).items()]
            kind = next(k for g, _, k, p in KINDS if (g, p) == (group, plural))
            version = f"{group}/{parts[2]}" if group else "v1"
            return to.answer({"kind": f"{kind}List", "apiVersion": version, "metadata": {},
                              "items": [{"kind": kind, "apiVersion": version, **one} for one in found]})
        one = self.objects.get((group, plural, space, rest[3]))
        if one is None:
            return to.status(404, "NotFound", f"{plural} \"{rest[3]}\" not found")
        if rest[4:] == ["log"]:
            text = self.logs.get(rest[3], "")
            if text is None:  # the pod goes at this moment
                return to.status(404, "NotFound", f"pods \"{rest[3]}\" not found")
            return to.answer(text.encode(), kind="text/plain")
        if to.command == "DELETE":
            del self.objects[group, plural, space, rest[3]]
            return to.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        return to.answer(one)

    @staticmethod
    def wrong(body):
        """What the official schema says against it; kinds of operators are checked elsewhere."""
        import kubernetes_validate
        try:
            kubernetes_validate.validate(body, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.utils.SchemaNotFoundError:
            return ""
        except kubernetes_validate.ValidationError as error:
            return error.message
        return ""

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
