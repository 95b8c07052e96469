"""A stand-in for the model provider: real HTTP, OpenAI's format, answers from the messages it gets and nothing else.

Prints its base URL and serves until its standard input is closed.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(messages):
    said = [str(message["content"]) for message in messages if message["role"] == "user"]
    facts = " ".join(said[:-1]).lower()
    if not said[-1].rstrip().endswith("?"):
        return f"Noted: {said[-1]}"
    channels = [name for name in ("email", "SMS") if name.lower() in facts]
    return f"The customer prefers {' and '.join(channels)}." if channels else "I do not know."


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(float(os.environ.get("STUB_DELAY", "0")))
        message = {"role": "assistant", "content": answer(request["messages"])}
        body = json.dumps(
            {
                "id": "stub",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": len(request["messages"]), "completion_tokens": 1, "total_tokens": 1},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    sys.stdin.read()
    server.shutdown()
