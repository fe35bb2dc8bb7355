"""A W&B server for tests, as small as wandb's own uploader accepts it: it keeps what `wandb sync` sends, and forgets the
steps that a rewind takes back. `with WandbServer() as server:`; server.env makes wandb use it."""

import gzip
import http.server
import json
import threading


class Run:
    """One run as the server knows it."""

    def __init__(self, name):
        self.name, self.display, self.project, self.config = name, None, None, {}
        self.history, self.summary, self.console, self.files, self.system = [], {}, {}, {}, []
        self.calls, self.exit_codes = [], []

    def scalars(self, metric):
        """{step: value} of a metric; a step that comes twice fails."""
        found = {}
        for row in self.history:
            if metric in row:
                assert row["_step"] not in found, (self.name, metric, row["_step"])
                found[row["_step"]] = row[metric]
        return found


class WandbServer:
    KEY = "0123456789abcdef0123456789abcdef01234567"

    def __init__(self, refuses=False):
        """refuses: every key is a wrong one."""
        self.runs, self.lock = {}, threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def body(self):
                if self.headers.get("transfer-encoding") == "chunked":
                    data = b""
                    while size := int(self.rfile.readline(), 16):
                        data += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    data = self.rfile.read(int(self.headers.get("content-length") or 0))
                return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

            def answer(self, value, code=200):
                data = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                body = self.body()
                if refuses:
                    return self.answer({"errors": [{"message": "user is not logged in"}]}, 401)
                with outer.lock:
                    if self.path == "/graphql":
                        asked = json.loads(body)
                        return self.answer({"data": outer.graphql(asked["operationName"], asked.get("variables") or {})})
                    if self.path.endswith("/file_stream"):
                        outer.stream(self.path.split("/")[-2], json.loads(body))
                self.answer({})  # also telemetry, which is not kept

            def do_PUT(self):
                body = self.body()
                run, path = self.path.removeprefix("/upload/").split("/", 1)
                with outer.lock:
                    outer.run(run).files[path] = body
                self.answer({})

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *error: None  # the uploader closes connections as it likes
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.env = {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.KEY}

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.http.shutdown()
        self.http.server_close()

    def run(self, name):
        return self.runs.setdefault(name, Run(name))

    def only(self):
        assert len(self.runs) == 1, list(self.runs)
        return next(iter(self.runs.values()))

    def bucket(self, run):
        return {"id": "id-" + run.name, "name": run.name, "displayName": run.display, "sweepName": None, "config": None,
                "historyLineCount": len(run.history),
                "project": {"id": "p", "name": run.project or "uncategorized", "entity": {"id": "e", "name": "me"}}}

    def graphql(self, operation, variables):
        if operation == "UpsertBucket":
            run = self.run(variables["name"])
            run.calls.append("upsert")
            run.display = variables["displayName"] or run.display
            run.project = variables["project"] or run.project
            if variables["config"]:
                run.config = {key: entry["value"] for key, entry in json.loads(variables["config"]).items()}
            return {"upsertBucket": {"bucket": self.bucket(run), "inserted": True}}
        if operation == "RewindRun":
            run = self.run(variables["runName"])
            run.calls.append(("rewind", variables["metricName"], variables["metricValue"]))
            run.history = [row for row in run.history if row["_step"] <= variables["metricValue"]]
            return {"rewindRun": {"rewoundRun": self.bucket(run)}}
        if operation == "RunResumeStatus":
            run = self.runs.get(variables["name"])
            if run is None:
                return {"model": None}
            run.calls.append("resume")
            bucket = {**self.bucket(run), "summaryMetrics": json.dumps(run.summary), "eventsTail": "[]", "tags": [],
                      "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]), "notes": None,
                      "eventsLineCount": len(run.system), "logLineCount": len(run.console), "jobType": None,
                      "config": json.dumps({key: {"value": value} for key, value in run.config.items()}),
                      "wandbConfig": '{"t": 1}'}
            return {"model": {"id": "m", "name": run.project, "entity": {"id": "e", "name": "me"}, "bucket": bucket}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/upload/{variables['run']}/{name}"} for name in variables["files"]]
            return {"createRunFiles": {"runID": "id", "uploadHeaders": [], "files": files}}
        return {}

    def stream(self, name, body):
        run = self.run(name)
        for file, chunk in (body.get("files") or {}).items():
            if file == "wandb-history.jsonl":
                run.history.extend(json.loads(line) for line in chunk["content"])
            elif file == "wandb-summary.json":
                run.summary = json.loads(chunk["content"][-1])
            elif file == "wandb-events.jsonl":
                run.system.extend(json.loads(line) for line in chunk["content"])
            elif file == "output.log":
                run.console.update({chunk["offset"] + i: line for i, line in enumerate(chunk["content"])})
        if body.get("exitcode") is not None:
            run.exit_codes.append(body["exitcode"])
